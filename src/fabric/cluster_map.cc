#include "fabric/cluster_map.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <set>
#include <utility>

namespace loch::fabric {
std::optional<std::string> ClusterMap::flaw() const {
  if (nodes.empty() || nodes.size() > node_count_max)
    return fmt::format("a cluster has 1 to {} nodes, not {}", node_count_max, nodes.size());
  if (!std::has_single_bit(homes.size()) || homes.size() > shard_count_max)
    return fmt::format("an index has 1, 2, 4 ... {} shards, not {}", shard_count_max, homes.size());
  std::set<std::string> names;
  std::set<RegionId> regions;
  for (const Node& node : nodes) {
    if (node.name.empty()) return "a node has no name";
    if (!names.insert(node.name).second) return fmt::format("two nodes are called '{}'", node.name);
    if (node.at.host.empty()) return fmt::format("node '{}' has no address", node.name);
    if (node.data.empty()) return fmt::format("node '{}' has no data regions", node.name);
    if (!std::ranges::is_sorted(node.data)) return fmt::format("the regions of '{}' do not rise", node.name);
    for (const RegionId region : node.data) {
      if (region < first_data_region || region >= data_regions_end)
        return fmt::format("{} is no data region", region);
      if (!regions.insert(region).second) return fmt::format("region {} is on two nodes", region);
    }
  }
  for (const std::uint32_t home : homes) {
    if (home >= nodes.size()) return fmt::format("a shard is on node {}, which there is not", home);
  }
  return std::nullopt;
}

std::uint32_t ClusterMap::usual_shards(std::size_t nodes) {
  constexpr std::size_t of_each = 4;
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(std::bit_ceil(of_each * std::max<std::size_t>(nodes, 1)), shard_count_max));
}

Result<ClusterMap> ClusterMap::spread(std::vector<Node> nodes, std::uint32_t shards) {
  ClusterMap map;
  map.nodes = std::move(nodes);
  for (Node& node : map.nodes) node.data.clear();
  for (unsigned region = first_data_region; region < data_regions_end && !map.nodes.empty(); ++region) {
    map.nodes[(region - first_data_region) % map.nodes.size()].data.push_back(static_cast<RegionId>(region));
  }
  for (std::uint32_t shard = 0; shard < shards && !map.nodes.empty(); ++shard)
    map.homes.push_back(static_cast<std::uint32_t>(shard % map.nodes.size()));
  if (const auto flaw = map.flaw()) return fail(Errc::invalid_argument, "cluster", *flaw);
  return map;
}

std::optional<std::uint32_t> ClusterMap::node_of(RegionId region) const {
  constexpr unsigned indices_from = data_regions_end + node_count_max;
  if (region >= indices_from) {
    const std::size_t shard = region - indices_from;
    return shard < homes.size() ? std::optional(homes[shard]) : std::nullopt;
  }
  if (region >= data_regions_end) {
    const std::uint32_t node = region - data_regions_end;
    return node < nodes.size() ? std::optional(node) : std::nullopt;
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (std::ranges::binary_search(nodes[node].data, region)) return node;
  }
  return std::nullopt;
}

}  // namespace loch::fabric
