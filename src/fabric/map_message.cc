#include "fabric/map_message.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string>
#include <utility>

namespace loch::fabric::cluster {

namespace {

constexpr std::array<std::string_view, 4> states = {"serves", "leaves", "drained", "gone"};

net::Message to_message(const ClusterMap::Place& place) {
  return {{"node", place.node}, {"index", place.index}};
}

std::unexpected<Error> lies(std::string what) { return fail(Errc::corrupt, "cluster", std::move(what)); }

// No cluster has this node, and no shard is in region 0; so what is no number of a node or a region is found
// to be wrong.
ClusterMap::Place place_of(const net::Message& message) {
  const std::uint64_t node = net::number_of(message, "node").value_or(node_count_max);
  const std::uint64_t index = net::number_of(message, "index").value_or(0);
  return {.node = static_cast<std::uint32_t>(std::min<std::uint64_t>(node, ~std::uint32_t{0})),
          .index = index < region_count_max ? static_cast<RegionId>(index) : RegionId{0}};
}

// Throws what the parser throws.
Result<const net::Message*> list_of(const net::Message& message, const char* field) {
  const net::Message& list = message.at(field);
  if (!list.is_array()) return lies(fmt::format("'{}' is no list", field));
  return &list;
}

// Errors: what is wrong with it. Throws what the parser throws.
Result<ClusterMap::Node> node_of(const net::Message& message) {
  ClusterMap::Node node{.name = message.at("name").get<std::string>(), .at = {}};
  const auto state = std::ranges::find(states, message.at("state").get<std::string>());
  if (state == states.end()) return lies("a node is in no state that there is");
  node.state = static_cast<ClusterMap::NodeState>(state - states.begin());
  if (node.state != ClusterMap::NodeState::gone) {
    auto at = net::parse_host_port(message.at("at").get<std::string>(), default_port);
    if (!at) return lies(at.error().detail);
    node.at = std::move(*at);
  }
  const auto since = message.contains("since") ? net::number_of(message, "since") : std::uint64_t{0};
  if (!since) return lies("a node's 'since' is no number");
  node.since = *since;
  const auto data = list_of(message, "data");
  if (!data) return std::unexpected(data.error());
  for (const net::Message& region : **data) {
    if (!region.is_number_unsigned()) return lies("a data region is no number");
    const auto number = region.get<std::uint64_t>();
    if (number >= data_regions_end) return lies(fmt::format("{} is no data region", number));
    node.data.push_back(static_cast<RegionId>(number));
  }
  return node;
}

// Throws what the parser throws.
Result<ClusterMap> unchecked_map_of(const net::Message& message) {
  ClusterMap map;
  const auto epoch = net::number_of(message, "epoch");
  const auto hash_seed =
      message.contains("hash_seed") ? net::number_of(message, "hash_seed") : std::uint64_t{0};
  if (!epoch || !hash_seed) return lies("its 'epoch' or its 'hash_seed' is no number");
  map.epoch = *epoch;
  map.hash_seed = *hash_seed;
  const auto nodes = list_of(message, "nodes");
  if (!nodes) return std::unexpected(nodes.error());
  for (const net::Message& each : **nodes) {
    auto node = node_of(each);
    if (!node) return std::unexpected(std::move(node.error()));
    map.nodes.push_back(std::move(*node));
  }
  const auto shards = list_of(message, "shards");
  if (!shards) return std::unexpected(shards.error());
  for (const net::Message& each : **shards) {
    ClusterMap::Shard shard{.home = place_of(each.at("home"))};
    if (each.contains("next")) shard.next = place_of(each.at("next"));
    map.shards.push_back(shard);
  }
  return map;
}

}  // namespace

std::string_view name_of(ClusterMap::NodeState state) { return states[static_cast<std::size_t>(state)]; }

net::Message to_message(const ClusterMap& map) {
  net::Message nodes = net::Message::array();
  for (const ClusterMap::Node& node : map.nodes) {
    nodes.push_back(
        {{"name", node.name}, {"state", name_of(node.state)}, {"since", node.since}, {"data", node.data}});
    if (node.state != ClusterMap::NodeState::gone) nodes.back()["at"] = node.at.text();
  }
  net::Message shards = net::Message::array();
  for (const ClusterMap::Shard& shard : map.shards) {
    shards.push_back({{"home", to_message(shard.home)}});
    if (shard.next) shards.back()["next"] = to_message(*shard.next);
  }
  return {{"epoch", map.epoch}, {"hash_seed", map.hash_seed}, {"nodes", nodes}, {"shards", shards}};
}

Result<ClusterMap> map_of(const net::Message& message) {
  const auto can_not_be = [](const std::string& why) {
    return lies(fmt::format("this map of the cluster can not be: {}", why));
  };
  // What the parser throws stays here.
  try {
    auto map = unchecked_map_of(message);
    if (!map) return can_not_be(map.error().detail);
    if (const auto flaw = map->flaw()) return can_not_be(*flaw);
    return map;
  } catch (const net::Message::exception& error) {
    return can_not_be(error.what());
  }
}

}  // namespace loch::fabric::cluster
