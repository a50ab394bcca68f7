#include "fabric/cluster/map_message.h"

#include <fmt/format.h>
#include <utility>

namespace loch::fabric::cluster {

net::Message to_message(const ClusterMap& map) {
  net::Message list = net::Message::array();
  for (const ClusterMap::Node& node : map.nodes)
    list.push_back({{"name", node.name}, {"at", node.at.text()}, {"data", node.data}});
  return {{"nodes", list}, {"homes", map.homes}};
}

Result<ClusterMap> map_of(const net::Message& message) {
  const auto lies = [](const std::string& what) {
    return fail(Errc::corrupt, "cluster", fmt::format("the host's map of the cluster can not be: {}", what));
  };
  ClusterMap map;
  // What the parser throws stays here.
  try {
    for (const net::Message& each : message.at("nodes")) {
      auto at = net::parse_host_port(each.at("at").get<std::string>(), default_port);
      if (!at) return lies(at.error().detail);
      ClusterMap::Node node{.name = each.at("name").get<std::string>(), .at = std::move(*at)};
      for (const net::Message& region : each.at("data")) {
        const auto number = region.get<std::uint64_t>();
        if (number >= data_regions_end) return lies(fmt::format("{} is no data region", number));
        node.data.push_back(static_cast<RegionId>(number));
      }
      map.nodes.push_back(std::move(node));
    }
    for (const net::Message& home : message.at("homes")) map.homes.push_back(home.get<std::uint32_t>());
  } catch (const net::Message::exception& error) {
    return lies(error.what());
  }
  if (const auto flaw = map.flaw()) return lies(*flaw);
  return map;
}

}  // namespace loch::fabric::cluster
