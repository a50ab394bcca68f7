// RegionMap: which regions a store has, and on which nodes they are. A store of one host is one node with one
// index. That of a cluster has a node on each host, each with a control region and data regions of its own,
// and an index that is cut into shards: all candidates of a key are slots of one shard.
//
//   regions    0   1   2 ... 127   128 ... 191   192 ... 255
//   one host   control  data
//              index
//   cluster        -    data       control       index
//                                  of nodes      of shards
//
// A slot's word has room for the numbers up to 127, so data regions are numbered through for all nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/fabric.h"

namespace loch::memory {

inline constexpr fabric::RegionId control_region = 0;
inline constexpr fabric::RegionId index_region = 1;
inline constexpr fabric::RegionId first_data_region = 2;
inline constexpr unsigned data_regions_end = 128;

inline constexpr std::uint32_t node_count_max = 64;
inline constexpr std::uint32_t shard_count_max = 64;

// Of a cluster.
constexpr fabric::RegionId control_region_of(std::uint32_t node) {
  return static_cast<fabric::RegionId>(data_regions_end + node);
}
constexpr fabric::RegionId index_region_of(std::uint32_t shard) {
  return static_cast<fabric::RegionId>(data_regions_end + node_count_max + shard);
}
static_assert(data_regions_end + node_count_max + shard_count_max == fabric::region_count_max);

struct RegionMap {
  struct Node {
    fabric::RegionId control = control_region;
    std::vector<fabric::RegionId> data;  // rising; each begins to exist when those before it are full
  };
  struct Shard {
    std::uint32_t home = 0;  // the node that its slots and its root are on
    fabric::RegionId index = index_region;
    std::uint64_t root_offset = 0;  // in the control region of its home
  };
  std::vector<Node> nodes;
  std::vector<Shard> shards;  // a power of two

  static RegionMap of_one_host();
  // Shard s is at home on node homes[s], and node n has the data regions data[n].
  static RegionMap of_cluster(std::vector<std::vector<fabric::RegionId>> data,
                              const std::vector<std::uint32_t>& homes);

  // The node that a data region is on.
  [[nodiscard]] std::optional<std::uint32_t> node_of(fabric::RegionId region) const;
};

}  // namespace loch::memory
