#include "memory/region_map.h"

#include <algorithm>
#include <utility>

#include "memory/layout.h"

namespace loch::memory {

RegionMap RegionMap::of_one_host() {
  RegionMap map;
  Node& node = map.nodes.emplace_back();
  for (unsigned region = first_data_region; region < data_regions_end; ++region)
    node.data.push_back(static_cast<fabric::RegionId>(region));
  map.shards.push_back({.home = 0, .index = index_region, .root_offset = index_root_offset});
  return map;
}

RegionMap RegionMap::of_cluster(const fabric::ClusterMap& cluster) {
  RegionMap map;
  map.epoch = cluster.epoch;
  for (std::uint32_t node = 0; node < cluster.nodes.size(); ++node) {
    map.nodes.push_back({.control = fabric::control_region_of(node),
                         .data = cluster.nodes[node].data,
                         .is_gone = cluster.nodes[node].state == fabric::ClusterMap::NodeState::gone});
  }
  for (std::uint32_t shard = 0; shard < cluster.shards.size(); ++shard)
    map.shards.push_back(shard_at(shard, cluster.shards[shard].home));
  return map;
}

RegionMap::Shard RegionMap::shard_at(std::uint32_t shard, const fabric::ClusterMap::Place& place) {
  return {
      .home = place.node, .index = place.index, .root_offset = shard_roots_offset + shard * shard_root_bytes};
}

std::vector<RegionMap::Shard> RegionMap::shards_on(const fabric::ClusterMap& cluster, std::uint32_t node) {
  std::vector<Shard> shards;
  for (std::uint32_t shard = 0; shard < cluster.shards.size(); ++shard) {
    const auto& [home, next] = cluster.shards[shard];
    for (const auto& place : {std::optional(home), next}) {
      if (place && place->node == node) shards.push_back(shard_at(shard, *place));
    }
  }
  return shards;
}

std::size_t RegionMap::living() const {
  return static_cast<std::size_t>(std::ranges::count(nodes, false, &Node::is_gone));
}

std::optional<std::uint32_t> RegionMap::node_of(fabric::RegionId region) const {
  const auto node = std::ranges::find_if(
      nodes, [region](const Node& each) { return std::ranges::binary_search(each.data, region); });
  if (node == nodes.end()) return std::nullopt;
  return static_cast<std::uint32_t>(node - nodes.begin());
}

}  // namespace loch::memory
