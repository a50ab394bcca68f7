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

ClusterMap::Place place_of(const net::Message& message) {
  // No shard is in region 0, so a number that is none of a region is found to be wrong.
  const auto index = message.at("index").get<std::uint64_t>();
  return {.node = message.at("node").get<std::uint32_t>(),
          .index = index < region_count_max ? static_cast<RegionId>(index) : RegionId{0}};
}

// Errors: what is wrong with it. Throws what the parser throws.
Result<ClusterMap::Node> node_of(const net::Message& message) {
  const auto lies = [](std::string what) { return fail(Errc::corrupt, "cluster", std::move(what)); };
  ClusterMap::Node node{.name = message.at("name").get<std::string>(), .at = {}};
  const auto state = std::ranges::find(states, message.at("state").get<std::string>());
  if (state == states.end()) return lies("a node is in no state that there is");
  node.state = static_cast<ClusterMap::NodeState>(state - states.begin());
  if (node.state != ClusterMap::NodeState::gone) {
    auto at = net::parse_host_port(message.at("at").get<std::string>(), default_port);
    if (!at) return lies(at.error().detail);
    node.at = std::move(*at);
  }
  for (const net::Message& region : message.at("data")) {
    const auto number = region.get<std::uint64_t>();
    if (number >= data_regions_end) return lies(fmt::format("{} is no data region", number));
    node.data.push_back(static_cast<RegionId>(number));
  }
  return node;
}

}  // namespace

std::string_view name_of(ClusterMap::NodeState state) { return states[static_cast<std::size_t>(state)]; }

net::Message to_message(const ClusterMap& map) {
  net::Message nodes = net::Message::array();
  for (const ClusterMap::Node& node : map.nodes) {
    nodes.push_back({{"name", node.name}, {"state", name_of(node.state)}, {"data", node.data}});
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
  const auto lies = [](const std::string& what) {
    return fail(Errc::corrupt, "cluster", fmt::format("this map of the cluster can not be: {}", what));
  };
  ClusterMap map;
  // What the parser throws stays here.
  try {
    map.epoch = message.at("epoch").get<std::uint64_t>();
    map.hash_seed = message.value("hash_seed", std::uint64_t{0});
    for (const net::Message& each : message.at("nodes")) {
      auto node = node_of(each);
      if (!node) return lies(node.error().detail);
      map.nodes.push_back(std::move(*node));
    }
    for (const net::Message& each : message.at("shards")) {
      ClusterMap::Shard shard{.home = place_of(each.at("home"))};
      if (each.contains("next")) shard.next = place_of(each.at("next"));
      map.shards.push_back(shard);
    }
  } catch (const net::Message::exception& error) {
    return lies(error.what());
  }
  if (const auto flaw = map.flaw()) return lies(*flaw);
  return map;
}

}  // namespace loch::fabric::cluster
