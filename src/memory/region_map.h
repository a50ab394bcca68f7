// RegionMap: which regions a store has, and on which nodes they are. A store of one host is one node with one
// index. That of a cluster has a node on each host, each with a control region and data regions of its own,
// and an index that is cut into shards: all candidates of a key are slots of one shard.
//
// One host: control region 0, index 1, data from 2 on. A cluster: fabric::ClusterMap.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/cluster_map.h"

namespace loch::memory {

inline constexpr fabric::RegionId control_region = 0;
inline constexpr fabric::RegionId index_region = 1;
using fabric::data_regions_end;
using fabric::first_data_region;

struct RegionMap {
  struct Node {
    fabric::RegionId control = control_region;
    std::vector<fabric::RegionId> data;  // rising; each begins to exist when those before it are full
    bool is_gone = false;                // nobody is there
  };
  struct Shard {
    std::uint32_t home = 0;  // the node that its slots and its root are on
    fabric::RegionId index = index_region;
    std::uint64_t root_offset = 0;  // in the control region of its home
  };
  std::vector<Node> nodes;
  std::vector<Shard> shards;  // a power of two
  std::uint64_t epoch = 1;    // of the cluster's map

  static RegionMap of_one_host();
  static RegionMap of_cluster(const fabric::ClusterMap& cluster);
  // A shard of a cluster's index in one of the places that the cluster's map has for it.
  static Shard shard_at(std::uint32_t shard, const fabric::ClusterMap::Place& place);
  // Those that are at home on a node, or on their way there.
  static std::vector<Shard> shards_on(const fabric::ClusterMap& cluster, std::uint32_t node);

  // How many nodes there are, but for those that are gone.
  [[nodiscard]] std::size_t living() const;
  // The node that a data region is on.
  [[nodiscard]] std::optional<std::uint32_t> node_of(fabric::RegionId region) const;
};

}  // namespace loch::memory
