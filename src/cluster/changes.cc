#include "cluster/changes.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <ranges>
#include <string>
#include <utility>

#include "base/planted.h"
#include "base/random.h"

namespace loch::cluster {
namespace {

using fabric::RegionId;
using NodeState = ClusterMap::NodeState;

std::unexpected<Error> wrong(std::string what) {
  return fail(Errc::invalid_argument, "cluster", std::move(what));
}
std::unexpected<Error> no_node(std::string_view name) {
  return fail(Errc::not_found, "cluster", fmt::format("the cluster has no node '{}'", name));
}

std::vector<RegionId> free_regions(const ClusterMap& map) {
  std::vector<RegionId> free;
  for (unsigned region = fabric::first_data_region; region < fabric::data_regions_end; ++region) {
    if (!map.node_of(static_cast<RegionId>(region))) free.push_back(static_cast<RegionId>(region));
  }
  return free;
}

// How many shards each node has once those that move have moved.
std::vector<std::size_t> shard_counts(const ClusterMap& map) {
  std::vector<std::size_t> counts(map.nodes.size(), 0);
  for (const ClusterMap::Shard& shard : map.shards) ++counts[shard.next.value_or(shard.home).node];
  return counts;
}

// The node that serves and has the fewest shards, but for these.
std::optional<std::uint32_t> least_laden(const ClusterMap& map, fabric::NodeSet but_for = 0) {
  const auto counts = shard_counts(map);
  std::optional<std::uint32_t> least;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    if (map.nodes[node].state != NodeState::serves || (but_for & fabric::node_bit(node)) != 0) continue;
    if (!least || counts[node] < counts[*least]) least = node;
  }
  return least;
}

RegionId other_region(std::uint32_t shard, RegionId region) {
  const RegionId first = fabric::index_region_of(shard, 0);
  return region == first ? fabric::index_region_of(shard, 1) : first;
}

std::size_t serving_besides(const ClusterMap& map, std::uint32_t node) {
  std::size_t serving = 0;
  for (std::uint32_t each = 0; each < map.nodes.size(); ++each)
    serving += each != node && map.nodes[each].state == NodeState::serves ? 1 : 0;
  return serving;
}

bool is_home_of_any(const ClusterMap& map, std::uint32_t node) {
  return std::ranges::any_of(map.shards, [node](const auto& shard) { return shard.home.node == node; });
}

// What is on the node is given up.
void abandon(ClusterMap& map, std::uint32_t node) {
  map.nodes[node].state = NodeState::gone;
  for (ClusterMap::Shard& shard : map.shards) {
    if (shard.next && (shard.next->node == node || shard.home.node == node)) shard.next.reset();
  }
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) {
    ClusterMap::Place& home = map.shards[shard].home;
    // Not in the other region: that may have slots of a move that was under way (hash::Directory).
    if (home.node == node) home.node = *least_laden(map);
  }
}

// Those of these shards that move from `from` are where `end` puts them; of a later epoch, if there are any.
template <class End>
ClusterMap with_moves_ended(const ClusterMap& map, std::uint32_t from,
                            const std::vector<std::uint32_t>& shards, End end) {
  ClusterMap with = map;
  for (const std::uint32_t shard : shards) {
    if (shard >= with.shards.size()) continue;
    ClusterMap::Shard& moving = with.shards[shard];
    if (moving.home.node != from || !moving.next) continue;
    end(moving);
    with.epoch = map.epoch + 1;
  }
  return with;
}

// How many shards are on the node, or on their way there.
std::size_t shards_on(const ClusterMap& map, std::uint32_t node) {
  return static_cast<std::size_t>(std::ranges::count_if(map.shards, [&](const auto& shard) {
    return shard.home.node == node || (shard.next && shard.next->node == node);
  }));
}

}  // namespace

bool is_wildcard(const net::HostPort& at) {
  if (at.host.empty() || at.host == "*") return true;  // as the resolver takes them
  in_addr four{};
  in6_addr six{};
  if (::inet_aton(at.host.c_str(), &four) != 0) return four.s_addr == INADDR_ANY;
  return ::inet_pton(AF_INET6, at.host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
}

bool may_be_at(const net::HostPort& listens, const net::HostPort& at) {
  const auto is_number = [](const std::string& host) {
    in6_addr number{};
    return ::inet_pton(AF_INET, host.c_str(), &number) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), &number) == 1;
  };
  const bool is_known = !is_wildcard(listens) && is_number(listens.host) && is_number(at.host);
  return listens.port == at.port && (!is_known || listens.host == at.host);
}

std::optional<std::string> flaw_of_address(std::string_view name, const net::HostPort& at) {
  if (!is_wildcard(at)) return std::nullopt;
  return fmt::format(
      "{} is where node '{}' may listen; write an address that others find it at, such as 10.0.0.1:{}",
      at.text(), name, at.port);
}

Result<ClusterMap> with_node(const ClusterMap& map, std::string_view name, const net::HostPort& at,
                             std::uint32_t regions) {
  if (const auto flaw = flaw_of_address(name, at)) return wrong(*flaw);
  if (regions == 0) return wrong(fmt::format("node '{}' needs one data region at least", name));
  ClusterMap with = map;
  ++with.epoch;
  if (const auto known = with.find(name)) {
    ClusterMap::Node& node = with.nodes[*known];
    if (node.state == NodeState::serves && node.at == at)
      return fail(Errc::exists, "cluster", fmt::format("node '{}' serves already, at {}", name, at.text()));
    if (node.state == NodeState::serves && is_home_of_any(map, *known))
      return fail(Errc::exists, "cluster",
                  fmt::format("node '{}' serves already, at {}, and has shards; to have it at {}, drain and "
                              "remove it first, or remove it as lost if it has never been there",
                              name, node.at.text(), at.text()));
    node.state = NodeState::serves;
    node.at = at;
    if (const auto flaw = with.flaw()) return wrong(*flaw);
    return with;
  }
  auto free = free_regions(map);
  if (with.nodes.size() < fabric::node_count_max && free.size() >= regions) {
    free.resize(regions);
    with.nodes.push_back({.name = std::string(name), .at = at, .data = std::move(free), .since = with.epoch});
  } else if (const auto gone = std::ranges::find(with.nodes, NodeState::gone, &ClusterMap::Node::state);
             gone != with.nodes.end()) {
    // Words may name these regions as this number's, so they stay together.
    gone->name = name;
    gone->at = at;
    gone->state = NodeState::serves;
    gone->since = with.epoch;
  } else if (with.nodes.size() >= fabric::node_count_max) {
    return fail(Errc::no_space, "cluster",
                fmt::format("a cluster has {} nodes at most; remove one first", fabric::node_count_max));
  } else {
    return fail(Errc::no_space, "cluster",
                fmt::format("{} data regions are free, and node '{}' is to have {}; let it bring fewer, or "
                            "remove a node first",
                            free.size(), name, regions));
  }
  if (const auto flaw = with.flaw()) return wrong(*flaw);
  return with;
}

Result<ClusterMap> first_map(const std::vector<NewNode>& nodes, std::uint32_t shards) {
  // Others are found to be wrong below, but that takes as long as they are many.
  if (shards > fabric::shard_count_max)
    return wrong(fmt::format("an index has 1, 2, 4 ... {} shards, not {}", fabric::shard_count_max, shards));
  ClusterMap map;
  map.hash_seed = base::system_seed() | 1;
  unsigned next_region = fabric::first_data_region;
  for (const NewNode& each : nodes) {
    if (const auto flaw = flaw_of_address(each.name, each.at)) return wrong(*flaw);
    if (each.regions > fabric::data_regions_end - next_region)
      return wrong(fmt::format("there are {} data regions for all nodes together; let each bring fewer",
                               fabric::data_regions_end - fabric::first_data_region));
    ClusterMap::Node node{.name = each.name, .at = each.at};
    for (std::uint32_t i = 0; i < each.regions; ++i)
      node.data.push_back(static_cast<RegionId>(next_region++));
    map.nodes.push_back(std::move(node));
  }
  for (std::uint32_t shard = 0; shard < shards && !map.nodes.empty(); ++shard)
    map.shards.push_back({.home = {.node = static_cast<std::uint32_t>(shard % map.nodes.size()),
                                   .index = fabric::index_region_of(shard)}});
  if (const auto flaw = map.flaw()) return wrong(*flaw);
  return map;
}

Result<ClusterMap> draining(const ClusterMap& map, std::string_view name) {
  const auto node = map.find(name);
  if (!node) return no_node(name);
  if (map.nodes[*node].state != NodeState::serves) return map;
  if (serving_besides(map, *node) == 0)
    return wrong(
        fmt::format("node '{}' is the only one that serves; add another one to take what it has", name));
  ClusterMap with = map;
  with.nodes[*node].state = NodeState::leaves;
  ++with.epoch;
  return with;
}

Result<ClusterMap> drained(const ClusterMap& map, std::string_view name) {
  const auto node = map.find(name);
  if (!node) return no_node(name);
  const NodeState state = map.nodes[*node].state;
  if (state == NodeState::drained) return map;
  if (state != NodeState::leaves) return wrong(fmt::format("node '{}' serves, and is not to leave", name));
  if (const std::size_t shards = shards_on(map, *node); shards > 0)
    return wrong(fmt::format("node '{}' has {} shards still", name, shards));
  ClusterMap with = map;
  with.nodes[*node].state = NodeState::drained;
  return with;
}

Result<ClusterMap> without_node(const ClusterMap& map, std::string_view name, bool lost) {
  const auto node = map.find(name);
  if (!node) return no_node(name);
  const bool is_drained = map.nodes[*node].state == NodeState::drained && shards_on(map, *node) == 0;
  if (!is_drained && !lost && !base::planted(base::Planted::removed_undrained))
    return wrong(fmt::format(
        "node '{}' has not given away what it has; drain it first, or, if its lochd is not to run any more, "
        "or never has, say that it is lost (--lost)",
        name));
  if (!is_drained && serving_besides(map, *node) == 0)
    return wrong(fmt::format("node '{}' is the last one that serves; add another one first", name));
  ClusterMap with = map;
  abandon(with, *node);
  with.nodes[*node].name.clear();
  with.nodes[*node].at = {};
  with.nodes[*node].since = ++with.epoch;
  return with;
}

fabric::NodeSet drained_nodes(const ClusterMap& map, fabric::NodeSet before) {
  fabric::NodeSet drained = 0;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    const NodeState state = map.nodes[node].state;
    if (state == NodeState::drained) drained |= fabric::node_bit(node);
    if (state == NodeState::gone) drained |= before & fabric::node_bit(node);
  }
  return drained;
}

bool has_too_many(const ClusterMap& map, std::uint32_t from) {
  if (from >= map.nodes.size()) return false;
  const NodeState state = map.nodes[from].state;
  if (state == NodeState::leaves) return is_home_of_any(map, from);
  if (state != NodeState::serves) return false;
  const auto counts = shard_counts(map);
  const std::size_t serving = serving_besides(map, from) + 1;
  const std::size_t share = (map.shards.size() + serving - 1) / serving;
  const bool any_above = std::ranges::any_of(counts, [share](std::size_t count) { return count > share; });
  return any_above ? counts[from] > share : counts[from] > counts[*least_laden(map)] + 1;
}

ClusterMap with_moves_announced(const ClusterMap& map, std::uint32_t from, fabric::NodeSet full) {
  ClusterMap with = map;
  for (auto shard = static_cast<std::uint32_t>(map.shards.size()); shard-- > 0;) {
    const ClusterMap::Place home = map.shards[shard].home;
    if (home.node != from || map.shards[shard].next) continue;
    const auto to = least_laden(with, full);
    if (!to || *to == from || !has_too_many(with, from)) break;
    with.shards[shard].next = {.node = *to, .index = other_region(shard, home.index)};
  }
  return with;
}

ClusterMap with_moves_taken_back(const ClusterMap& map, std::uint32_t from,
                                 const std::vector<std::uint32_t>& shards) {
  return with_moves_ended(map, from, shards, [](ClusterMap::Shard& moving) { moving.next.reset(); });
}

ClusterMap with_moves_done(const ClusterMap& map, std::uint32_t from,
                           const std::vector<std::uint32_t>& shards) {
  return with_moves_ended(map, from, shards,
                          [](ClusterMap::Shard& moving) { moving = {.home = *moving.next}; });
}

}  // namespace loch::cluster
