#include "fabric/cluster_map.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

namespace loch::fabric {
namespace {

std::optional<std::string> flaw_of(const ClusterMap::Node& node) {
  const bool is_gone = node.state == ClusterMap::NodeState::gone;
  if (is_gone && !node.name.empty()) return "a node that is gone has a name";
  if (!is_gone && !is_node_name(node.name))
    return fmt::format(
        "{:?} is no name of a node; it has 1 to {} letters, digits, '.', '_' and '-', a letter or digit "
        "first",
        node.name, node_name_bytes_max);
  if (node.data.empty()) return fmt::format("node '{}' has no data regions", node.name);
  if (!std::ranges::is_sorted(node.data)) return fmt::format("the regions of '{}' do not rise", node.name);
  for (const RegionId region : node.data) {
    if (region < first_data_region || region >= data_regions_end)
      return fmt::format("{} is no data region", region);
  }
  if (!is_gone && node.at.host.empty()) return fmt::format("node '{}' has no address", node.name);
  return std::nullopt;
}

}  // namespace

bool is_node_name(std::string_view name) {
  return is_store_name(name) && name.size() <= node_name_bytes_max && name.front() != '_' &&
         name.front() != '-';
}

std::optional<std::string> ClusterMap::flaw() const {
  if (nodes.empty() || nodes.size() > node_count_max)
    return fmt::format("a cluster has 1 to {} nodes, not {}", node_count_max, nodes.size());
  if (!std::has_single_bit(shards.size()) || shards.size() > shard_count_max)
    return fmt::format("an index has 1, 2, 4 ... {} shards, not {}", shard_count_max, shards.size());
  std::set<std::string> names;
  std::map<std::string, std::string> names_at;  // by address
  std::set<RegionId> regions;
  for (const Node& node : nodes) {
    if (auto flaw = flaw_of(node)) return flaw;
    if (node.since > epoch)
      return fmt::format("node '{}' is there since epoch {}, and the map is of epoch {}", node.name,
                         node.since, epoch);
    if (!node.name.empty() && !names.insert(node.name).second)
      return fmt::format("two nodes are called '{}'", node.name);
    if (node.state != NodeState::gone) {
      const auto [first, is_first] = names_at.try_emplace(node.at.text(), node.name);
      if (!is_first)
        return fmt::format("nodes '{}' and '{}' are both at {}", first->second, node.name, first->first);
    }
    for (const RegionId region : node.data) {
      if (!regions.insert(region).second) return fmt::format("region {} is on two nodes", region);
    }
  }
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    for (const std::optional<Place>& place : {std::optional(shards[shard].home), shards[shard].next}) {
      if (!place) continue;
      if (place->node >= nodes.size() || nodes[place->node].state == NodeState::gone)
        return fmt::format("a shard is on node {}, which there is not", place->node);
      if (place->index != index_region_of(shard, 0) && place->index != index_region_of(shard, 1))
        return fmt::format("region {} is not for shard {}", place->index, shard);
    }
    if (shards[shard].next && shards[shard].next->index == shards[shard].home.index)
      return fmt::format("shard {} moves to the region that it is in", shard);
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
    map.shards.push_back({.home = {.node = static_cast<std::uint32_t>(shard % map.nodes.size()),
                                   .index = index_region_of(shard)}});
  if (const auto flaw = map.flaw()) return fail(Errc::invalid_argument, "cluster", *flaw);
  return map;
}

std::optional<std::uint32_t> ClusterMap::node_of(RegionId region) const {
  constexpr unsigned indices_from = data_regions_end + node_count_max;
  if (region >= indices_from) {
    const std::size_t shard = (region - indices_from) % shard_count_max;
    if (shard >= shards.size()) return std::nullopt;
    if (shards[shard].home.index == region) return shards[shard].home.node;
    if (shards[shard].next && shards[shard].next->index == region) return shards[shard].next->node;
    return std::nullopt;
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

std::optional<std::uint32_t> ClusterMap::find(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &Node::name);
  if (found == nodes.end() || name.empty()) return std::nullopt;
  return static_cast<std::uint32_t>(found - nodes.begin());
}

}  // namespace loch::fabric
