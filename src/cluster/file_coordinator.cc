#include "cluster/file_coordinator.h"

#include <chrono>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "cluster/changes.h"
#include "cluster/toml_settings.h"

namespace loch::cluster {

using fabric::ClusterMap;

Result<Versioned> FileCoordinator::read_map() {
  std::vector<ClusterMap::Node> nodes;
  std::optional<std::uint32_t> shards;
  std::uint64_t hash_seed = 0;
  const auto read_node = [&nodes](TomlSettings& settings) {
    ClusterMap::Node& node = nodes.emplace_back();
    settings.text("name", node.name);
    settings.address("address", fabric::default_port, [&node](auto at) { node.at = std::move(at); });
    if (node.name.empty() || node.at.host.empty())
      return settings.complain("a node has a 'name' and an 'address', both in quotes");
    if (const auto flaw = flaw_of_address(node.name, node.at)) settings.complain(*flaw);
  };
  const auto read = TomlSettings::read(path_, "cluster", [&](TomlSettings& settings) {
    settings.tables("node", read_node);
    settings.number("shards", 1, fabric::shard_count_max,
                    [&shards](auto n) { shards = static_cast<std::uint32_t>(n); });
    settings.number("hash_seed", 1, std::numeric_limits<std::int64_t>::max(),
                    [&hash_seed](auto n) { hash_seed = static_cast<std::uint64_t>(n); });
  });
  if (!read) return std::unexpected(read.error());
  const std::uint32_t usual = ClusterMap::usual_shards(nodes.size());
  auto map = ClusterMap::spread(std::move(nodes), shards.value_or(usual));
  if (!map) return fail(Errc::invalid_argument, "cluster", fmt::format("{}: {}", path_, map.error().detail));
  map->hash_seed = hash_seed;
  return Versioned{.map = std::move(*map), .version = 1};
}

Result<void> FileCoordinator::write_map(const fabric::ClusterMap& /*map*/, std::uint64_t /*version*/) {
  return fail(
      Errc::invalid_argument, "cluster",
      fmt::format("the list of hosts in {} is fixed; a cluster that changes is kept by ZooKeeper", path_));
}

void FileCoordinator::wait_for_change(std::uint64_t /*version*/, base::Nanos at_most_ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(at_most_ns));
}

}  // namespace loch::cluster
