#include "server/member.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "base/random.h"
#include "cluster/coordinator.h"
#include "hash/table.h"
#include "memory/store_memory.h"

namespace loch::server {
namespace {

constexpr std::uint32_t usual_candidates = 3;
constexpr std::chrono::milliseconds usual_expiry{1000};

// The same on all hosts of the cluster, and nobody else's to know.
std::uint64_t hash_seed_of(const std::string& store, const net::Secret& key) {
  const net::Secret digest = net::digest(key, {"hash seed", store});
  std::uint64_t seed = 0;
  std::memcpy(&seed, digest.data(), sizeof seed);
  return seed;
}

}  // namespace

Result<std::unique_ptr<Member>> Member::join(const Config& config) {
  auto coordinator = cluster::Coordinator::open(config.cluster->coordinator);
  if (!coordinator) return std::unexpected(std::move(coordinator.error()));
  auto map = (*coordinator)->read_map();
  if (!map) return std::unexpected(std::move(map.error()));
  const auto self = std::ranges::find(map->nodes, config.cluster->node, &fabric::ClusterMap::Node::name);
  if (self == map->nodes.end()) {
    return fail(Errc::invalid_argument, "cluster",
                fmt::format("{} has no node '{}'", config.cluster->coordinator, config.cluster->node));
  }
  const auto node = static_cast<std::uint32_t>(self - map->nodes.begin());
  return std::unique_ptr<Member>(new Member(std::move(*map), node));
}

Result<void> Member::make_part(const Config::Store& store, const fabric::Access& access,
                               const net::Secret& key) {
  using memory::StoreMemory;
  const memory::RegionMap regions = memory::RegionMap::of_cluster(map_);
  const memory::Geometry geometry{
      .candidates = store.candidates.value_or(usual_candidates),
      .expiry_ns =
          static_cast<base::Nanos>(store.expiry.value_or(usual_expiry).count()) * base::millisecond_ns,
      .max_bytes = store.max_bytes.value_or(0),
      .hash_seed = hash_seed_of(store.name, key)};
  const memory::RegionMap::Node& mine = regions.nodes[node_];
  fabric::Plan plan{
      .regions = {{mine.control, memory::control_bytes}, {mine.data.front(), 2 * memory::block_bytes}},
      .fill = {}};
  std::vector<memory::RegionMap::Shard> shards;
  std::ranges::copy_if(regions.shards, std::back_inserter(shards),
                       [this](const auto& shard) { return shard.home == node_; });
  for (const auto& shard : shards)
    plan.regions.push_back({shard.index, hash::Table::initial_index_bytes(geometry.candidates)});
  plan.fill = [&](std::span<const fabric::Mapping> made) {
    // No part that this host has had before was made at the same time.
    StoreMemory::initialize_node(made[0].base, geometry, node_, base::system_seed() | 1);
    for (std::size_t i = 0; i < shards.size(); ++i)
      hash::Table::initialize(made[0].base + shards[i].root_offset, made[2 + i].base, geometry.candidates);
  };
  const auto created = fabric::create("shm://" + store.name, access, plan);
  if (!created && created.error().code != Errc::exists) return std::unexpected(created.error());
  stores_.insert(store.name);
  return {};
}

std::optional<fabric::Host::Options::Cluster> Member::cluster_of(const std::string& store) const {
  if (!stores_.contains(store)) return std::nullopt;
  return fabric::Host::Options::Cluster{.map = map_, .node = node_};
}

std::optional<std::uint32_t> Member::node_of(const std::string& store) const {
  return stores_.contains(store) ? std::optional(node_) : std::nullopt;
}

}  // namespace loch::server
