// ClusterMap: the hosts that a store of a cluster is on, and which regions each of them has.
//
//   regions   2 ... 127   data, each on one node; a slot's word has room for no greater number
//             128 ... 191 the control region of node 0, 1, ...
//             192 ... 255 the slots of shard 0, 1, ... of the index, on the shard's home
//
// All hosts of a cluster tell their clients the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace loch::fabric {

inline constexpr RegionId first_data_region = 2;
inline constexpr unsigned data_regions_end = 128;
inline constexpr std::uint32_t node_count_max = 64;
inline constexpr std::uint32_t shard_count_max = 64;

constexpr RegionId control_region_of(std::uint32_t node) {
  return static_cast<RegionId>(data_regions_end + node);
}
constexpr RegionId index_region_of(std::uint32_t shard) {
  return static_cast<RegionId>(data_regions_end + node_count_max + shard);
}
static_assert(data_regions_end + node_count_max + shard_count_max == region_count_max);

struct ClusterMap {
  struct Node {
    std::string name;
    net::HostPort at;
    std::vector<RegionId> data{};  // rising
    bool operator==(const Node&) const = default;
  };
  std::vector<Node> nodes;
  std::vector<std::uint32_t> homes;  // of the shards; a power of two

  // Regions and shards go to all nodes in turn. Errors: invalid_argument.
  static Result<ClusterMap> spread(std::vector<Node> nodes, std::uint32_t shards);
  // How many shards there are unless told: some for each node, since a node gives away whole ones.
  static std::uint32_t usual_shards(std::size_t nodes);

  // The node that a region is on.
  [[nodiscard]] std::optional<std::uint32_t> node_of(RegionId region) const;

  // Why it can not be; nothing, if it can.
  [[nodiscard]] std::optional<std::string> flaw() const;

  bool operator==(const ClusterMap&) const = default;
};

}  // namespace loch::fabric
