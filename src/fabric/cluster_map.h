// ClusterMap: the hosts that a store of a cluster is on, and which regions each of them has.
//
//   regions   2 ... 127   data, each on one node; a slot's word has room for no greater number
//             128 ... 191 the control region of node 0, 1, ...
//             192 ... 255 the slots of the shards of the index, on each shard's home; every shard has two of
//                         these, so that where it is and where it moves to have different names
//
// A map never changes: what becomes of it is another one, of a later epoch (cluster/changes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"

namespace loch::fabric {

inline constexpr RegionId first_data_region = 2;
inline constexpr unsigned data_regions_end = 128;
inline constexpr std::uint32_t node_count_max = 64;
inline constexpr std::uint32_t shard_count_max = 32;
inline constexpr std::size_t node_name_bytes_max = 64;

constexpr RegionId control_region_of(std::uint32_t node) {
  return static_cast<RegionId>(data_regions_end + node);
}
// `turn` is 0 or 1.
constexpr RegionId index_region_of(std::uint32_t shard, unsigned turn = 0) {
  return static_cast<RegionId>(data_regions_end + node_count_max + turn * shard_count_max + shard);
}
static_assert(data_regions_end + node_count_max + 2 * shard_count_max == region_count_max);

// Nodes by their numbers, a bit each.
using NodeSet = std::uint64_t;
inline constexpr NodeSet all_nodes = ~NodeSet{0};
constexpr NodeSet node_bit(std::uint32_t node) { return NodeSet{1} << node; }
static_assert(node_count_max <= 64);

// 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first: coordinators keep files and nodes of
// these names, and people's terminals show them.
bool is_node_name(std::string_view name);

struct ClusterMap {
  enum class NodeState : std::uint8_t {
    serves,
    leaves,   // takes no new items, and gives away what it has
    drained,  // has nothing any more
    gone,     // nobody is there; the number and the regions wait for another host
  };
  struct Node {
    std::string name;  // empty: gone
    net::HostPort at;
    std::vector<RegionId> data{};  // rising
    NodeState state = NodeState::serves;
    // The epoch in which the number was given to this host, or fell free; a part that has gone by none since
    // then is of another host that had it, or of this one before it was removed. 0: of the first map.
    std::uint64_t since = 0;
    bool operator==(const Node&) const = default;
  };
  struct Place {
    std::uint32_t node = 0;
    RegionId index = 0;
    bool operator==(const Place&) const = default;
  };
  struct Shard {
    Place home;
    std::optional<Place> next{};  // while it moves there
    bool operator==(const Shard&) const = default;
  };
  std::vector<Node> nodes;    // by their numbers
  std::vector<Shard> shards;  // a power of two
  std::uint64_t epoch = 1;    // rises with every change that clients have to know of
  // The stores' hash seeds are derived from it; secret from whoever does not use them. 0: derived from the
  // hosts' key.
  std::uint64_t hash_seed = 0;

  // Regions and shards go to all nodes in turn. Errors: invalid_argument.
  static Result<ClusterMap> spread(std::vector<Node> nodes, std::uint32_t shards);
  // How many shards there are unless told: some for each node, since a node gives away whole ones.
  static std::uint32_t usual_shards(std::size_t nodes);

  // The node that a region is on.
  [[nodiscard]] std::optional<std::uint32_t> node_of(RegionId region) const;
  // The node that is called so.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;

  // Why it can not be; nothing, if it can.
  [[nodiscard]] std::optional<std::string> flaw() const;

  bool operator==(const ClusterMap&) const = default;
};

}  // namespace loch::fabric
