#include "cluster/file_coordinator.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <toml++/toml.h>
#include <vector>

namespace loch::cluster {
namespace {

std::unexpected<Error> wrong(const std::string& path, const toml::node& node, const std::string& what) {
  return fail(Errc::invalid_argument, "cluster",
              fmt::format("{}:{}: {}", path, node.source().begin.line, what));
}

// What is in a table that nobody asks for.
std::optional<std::string> unknown_in(const toml::table& table,
                                      std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : table) {
    if (std::ranges::find(known, key.str()) == known.end()) return std::string(key.str());
  }
  return std::nullopt;
}

Result<fabric::ClusterMap::Node> node_of(const std::string& path, const toml::node& entry) {
  const toml::table* table = entry.as_table();
  if (table == nullptr) return wrong(path, entry, "'node' is a list of tables: [[node]]");
  if (const auto unknown = unknown_in(*table, {"name", "address"}))
    return wrong(path, entry, fmt::format("a node has a 'name' and an 'address', and no '{}'", *unknown));
  const auto name = (*table)["name"].value_exact<std::string>();
  const auto address = (*table)["address"].value_exact<std::string>();
  if (!name || !address) return wrong(path, entry, "a node has a 'name' and an 'address', both in quotes");
  auto at = net::parse_host_port(*address, fabric::default_port);
  if (!at) return wrong(path, entry, at.error().detail);
  return fabric::ClusterMap::Node{.name = *name, .at = std::move(*at)};
}

Result<fabric::ClusterMap> map_of(const std::string& path, const toml::table& file) {
  if (const auto unknown = unknown_in(file, {"node", "shards", "hash_seed"}))
    return wrong(path, file,
                 fmt::format("there is no setting '{}'; there are: node, shards, hash_seed", *unknown));
  std::vector<fabric::ClusterMap::Node> nodes;
  if (const toml::node* list = file.get("node"); list != nullptr) {
    if (list->as_array() == nullptr) return wrong(path, *list, "'node' is a list of tables: [[node]]");
    for (const toml::node& entry : *list->as_array()) {
      auto node = node_of(path, entry);
      if (!node) return std::unexpected(std::move(node.error()));
      nodes.push_back(std::move(*node));
    }
  }
  std::uint32_t shards = fabric::ClusterMap::usual_shards(nodes.size());
  if (const toml::node* given = file.get("shards"); given != nullptr) {
    const auto number = given->value_exact<std::int64_t>();
    if (!number || *number < 1 || *number > std::int64_t{fabric::shard_count_max})
      return wrong(path, *given,
                   fmt::format("'shards' is 1, 2, 4 ... {}", std::uint32_t{fabric::shard_count_max}));
    shards = static_cast<std::uint32_t>(*number);
  }
  auto map = fabric::ClusterMap::spread(std::move(nodes), shards);
  if (!map) return wrong(path, file, map.error().detail);
  if (const toml::node* given = file.get("hash_seed"); given != nullptr) {
    const auto number = given->value_exact<std::int64_t>();
    if (!number || *number < 1) return wrong(path, *given, "'hash_seed' is a whole number from 1 on");
    map->hash_seed = static_cast<std::uint64_t>(*number);
  }
  return map;
}

}  // namespace

Result<Versioned> FileCoordinator::read_map() {
  const std::ifstream file(path_);
  if (!file) {
    const Errc code = errno == ENOENT ? Errc::not_found : errno == EACCES ? Errc::permission : Errc::io;
    return fail(code, "cluster", fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  std::stringstream text;
  text << file.rdbuf();
  // What toml++ throws stays here.
  try {
    auto map = map_of(path_, toml::parse(text.str(), path_));
    if (!map) return std::unexpected(std::move(map.error()));
    return Versioned{.map = std::move(*map), .version = 1};
  } catch (const toml::parse_error& error) {
    return fail(Errc::invalid_argument, "cluster",
                fmt::format("{}:{}: {}", path_, error.source().begin.line, error.description()));
  }
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
