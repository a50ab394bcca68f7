#include "server/member.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "cluster/changes.h"
#include "fabric/map_message.h"
#include "hash/handover.h"
#include "hash/part.h"
#include "hash/table.h"
#include "memory/store_memory.h"
#include "net/credentials.h"
#include "server/differences.h"

namespace loch::server {
namespace {

using fabric::ClusterMap;
using memory::RegionMap;
using memory::StoreMemory;

// The same on all hosts of the cluster, also of a part that is made anew, and nobody else's to know.
std::uint64_t hash_seed_of(const std::string& store, const ClusterMap& map, const net::Secret& key) {
  if (map.hash_seed != 0) return base::hash_bytes(store.data(), store.size(), map.hash_seed);
  const net::Secret digest = net::digest(key, {"hash seed", store});
  std::uint64_t seed = 0;
  std::memcpy(&seed, digest.data(), sizeof seed);
  return seed;
}

// Of what this host has of a store.
RegionMap one_node(std::uint32_t node) {
  return {.nodes = {{.control = fabric::control_region_of(node), .data = {}}}, .shards = {}};
}

// Which node's part it is; `node`'s, if it is that.
std::optional<std::uint32_t> node_of_part(fabric::Endpoint& here, std::uint32_t node) {
  const auto is_its = [&](std::uint32_t each) {
    return here.length_bytes(fabric::control_region_of(each)).value_or(0) != 0;
  };
  if (is_its(node)) return node;
  for (std::uint32_t each = 0; each < fabric::node_count_max; ++each) {
    if (is_its(each)) return each;
  }
  return std::nullopt;
}

// The shards that are at home on a node.
std::vector<RegionMap::Shard> shards_of(const RegionMap& map, std::uint32_t node) {
  std::vector<RegionMap::Shard> shards;
  std::ranges::copy_if(map.shards, std::back_inserter(shards),
                       [node](const RegionMap::Shard& shard) { return shard.home == node; });
  return shards;
}

// The map; of a fixed list, it has to have this host.
Result<cluster::Versioned> map_of(cluster::Coordinator& asked, const Config::Cluster& own) {
  auto map = asked.read_map();
  if (map && !asked.may_change() && !map->map.find(own.node))
    return fail(Errc::invalid_argument, "cluster",
                fmt::format("{} has no node '{}'", own.coordinator, own.node));
  return map;
}

}  // namespace

Result<void> Member::check_list(const Config::Cluster& own) {
  auto coordinator = cluster::Coordinator::open(own.coordinator);
  if (!coordinator) return std::unexpected(std::move(coordinator.error()));
  if ((*coordinator)->may_change()) return {};
  if (auto map = map_of(**coordinator, own); !map) return std::unexpected(std::move(map.error()));
  return {};
}

Result<Member::Options> Member::options_of(const Config& config, const fabric::Access& here) {
  Options options{.cluster = *config.cluster, .at = config.listen.front(), .stores = {}, .here = here};
  std::ranges::copy_if(config.stores, std::back_inserter(options.stores), &Config::Store::of_cluster);
  if (!config.key_file.empty()) {
    auto key = net::read_key_file(config.key_file);
    if (!key) return std::unexpected(std::move(key.error()));
    options.key = *key;
  }
  return options;
}

Result<std::unique_ptr<Member>> Member::join(Options options) {
  auto coordinator = cluster::Coordinator::open(options.cluster.coordinator);
  if (!coordinator) return std::unexpected(std::move(coordinator.error()));
  return join(std::move(options), std::move(*coordinator));
}

Result<std::unique_ptr<Member>> Member::join(Options options,
                                             std::unique_ptr<cluster::Coordinator> coordinator) {
  std::unique_ptr<Member> member(new Member(std::move(options), std::move(coordinator)));
  const Config::Cluster& own = member->options_.cluster;
  cluster::Coordinator& asked = *member->coordinator_;
  asked.tell_of_lost_name([&logs = *member](const std::string& why) {
    logs.log(fabric::Host::Level::warning, why + "; tries again, and goes on as that node meanwhile");
  });
  if (auto said = asked.announce({.name = own.node, .at = member->options_.at}); !said)
    return std::unexpected(std::move(said.error()));
  auto map = map_of(asked, own);
  const bool is_none_yet = !map && map.error().code == Errc::not_found && asked.may_change();
  if (!map && !is_none_yet) return std::unexpected(std::move(map.error()));
  if (is_none_yet || !map->map.find(own.node)) {
    member->log(
        fabric::Host::Level::info,
        fmt::format("'{0}' is not in the cluster yet; add it: loch cluster add {0}=ADDRESS", own.node));
  }
  if (is_none_yet) return member;
  if (auto adopted = member->adopt(*map); !adopted) return std::unexpected(std::move(adopted.error()));
  return member;
}

Member::State Member::now() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

Result<void> Member::adopt(const cluster::Versioned& map) {
  const std::optional<std::uint32_t> node = map.map.find(options_.cluster.node);
  if (node) {
    for (const Config::Store& store : options_.stores) {
      if (auto made = make_part(store, map.map, *node); !made) return made;
      if (auto tended = tend_part(store, map.map, *node); !tended) return tended;
    }
  }
  const State before = now();
  {
    const std::scoped_lock lock(mutex_);
    state_ = {.map = map, .node = node, .drained = cluster::drained_nodes(map.map, state_.drained)};
  }
  log_change(before);
  return {};
}

void Member::log_change(const State& before) const {
  const State state = now();
  if (!state.node) return;
  const bool is_new_state = !before.node || before.self().state != state.self().state;
  if (before.map.map.epoch == state.map.map.epoch && !is_new_state) return;
  const auto& shards = state.map.map.shards;
  const auto here =
      std::ranges::count_if(shards, [&](const auto& each) { return each.home.node == *state.node; });
  log(fabric::Host::Level::info,
      fmt::format("goes by epoch {} of the cluster: '{}' {}, with {} of {} shards", state.map.map.epoch,
                  options_.cluster.node, fabric::cluster::name_of(state.self().state), here, shards.size()));
}

Result<void> Member::make_part(const Config::Store& store, const ClusterMap& map, std::uint32_t node) const {
  const RegionMap regions = RegionMap::of_cluster(map);
  memory::Geometry geometry{.max_bytes = store.max_bytes.value_or(0),
                            .hash_seed = hash_seed_of(store.name, map, options_.key)};
  if (store.candidates) geometry.candidates = *store.candidates;
  if (store.expiry)
    geometry.expiry_ns = static_cast<base::Nanos>(store.expiry->count()) * base::millisecond_ns;
  const RegionMap::Node& mine = regions.nodes[node];
  const std::vector<RegionMap::Shard> shards = shards_of(regions, node);
  fabric::Plan plan{
      .regions = {{mine.control, memory::control_bytes}, {mine.data.front(), 2 * memory::block_bytes}},
      .fill = {}};
  for (const auto& shard : shards) plan.regions.push_back({shard.index, hash::Table::initial_index_bytes});
  plan.fill = [&](std::span<const fabric::Mapping> made) {
    // No part that this host has had before was made at the same time.
    StoreMemory::initialize_node(made[0].base, geometry, node, base::system_seed() | 1);
    for (std::size_t i = 0; i < shards.size(); ++i)
      hash::Table::initialize(made[0].base + shards[i].root_offset, made[2 + i], {.region = shards[i].index});
  };
  const std::string url = "shm://" + store.name;
  auto created = fabric::create(url, options_.here, plan);
  if (!created && created.error().code == Errc::exists) {
    const auto cleared = clear_void_part(store, map, node);
    if (!cleared) return std::unexpected(cleared.error());
    if (*cleared) created = fabric::create(url, options_.here, plan);
  }
  if (created) return {};
  if (created.error().code != Errc::exists) return std::unexpected(created.error());
  if (now().map.version == 0)
    warn_of_differences(store, options_.here, one_node(node), options_.log, geometry.hash_seed);
  return {};
}

Result<bool> Member::clear_void_part(const Config::Store& store, const ClusterMap& map,
                                     std::uint32_t node) const {
  const std::string url = "shm://" + store.name;
  const auto here = fabric::attach(url, options_.here);
  if (!here) return false;  // tend_part says why
  fabric::Endpoint endpoint(*here, (*here)->connect());
  const auto of = node_of_part(endpoint, node);
  if (!of) return false;
  const fabric::RegionId control = fabric::control_region_of(*of);
  const bool is_of_earlier_boot = StoreMemory::is_of_earlier_boot(*here, control);
  if (!is_of_earlier_boot) {
    const auto removed = was_removed(store, map, *here, *of);
    if (!removed || !*removed) return removed;
  }
  log(fabric::Host::Level::warning,
      fmt::format("{}: what is here was left by {}, and means nothing now; makes this host's part anew",
                  store.name,
                  is_of_earlier_boot ? "an earlier boot of the machine"
                                     : "a node that was removed from the cluster"));
  std::byte* superblock = endpoint.mapped({control, 0}, sizeof(memory::Superblock));
  if (auto gone = fabric::destroy(url, options_.here); !gone) return std::unexpected(std::move(gone.error()));
  // A client that has opened the store by an older map begins no session with what has gone.
  if (superblock != nullptr) std::memset(superblock, 0, sizeof(memory::Superblock));
  return true;
}

// Whoever removes a node gives up what it has: a part that has gone by no map since its number fell free, or
// was given to the host that has it now, is from before. Only a map of the same cluster says so, which its
// hash seed shows.
Result<bool> Member::was_removed(const Config::Store& store, const ClusterMap& map,
                                 const std::shared_ptr<fabric::Fabric>& here, std::uint32_t node) const {
  const auto memory = StoreMemory::attach(here, one_node(node));
  if (!memory || (*memory)->geometry().hash_seed != hash_seed_of(store.name, map, options_.key)) return false;
  fabric::Endpoint endpoint(here, here->connect());
  const std::byte* epoch =
      endpoint.mapped({fabric::control_region_of(node), memory::map_epoch_offset}, sizeof(std::uint64_t));
  if (epoch == nullptr) return false;
  if (fabric::load_word(epoch) > map.epoch)
    return fail(Errc::unavailable, "cluster",
                "the coordinator tells of a map that is older than this host's");
  return node < map.nodes.size() && fabric::load_word(epoch) < map.nodes[node].since;
}

Result<void> Member::tend_part(const Config::Store& store, const ClusterMap& map, std::uint32_t node) const {
  const auto here = fabric::attach("shm://" + store.name, options_.here);
  if (!here) return std::unexpected(here.error());
  auto tended = hash::tend_part(*here, map, node);
  if (!tended && tended.error().code == Errc::incompatible)
    tended.error().detail += fmt::format(": loch --directory {} rm {}", options_.here.directory, store.name);
  return tended;
}

Result<void> Member::reopen_what_leaves() const {
  const State state = now();
  if (!state.node) return {};
  const RegionMap regions = RegionMap::of_cluster(state.map.map);
  for (const Config::Store& store : options_.stores) {
    const auto here = fabric::attach("shm://" + store.name, options_.here);
    if (!here) return std::unexpected(here.error());
    fabric::Endpoint endpoint(*here, (*here)->connect());
    for (const RegionMap::Shard& shard : shards_of(regions, *state.node)) {
      const auto place = hash::IndexPlace::of(shard, regions.nodes[*state.node]);
      if (auto reopened = endpoint.run(hash::Handover::reopen(&endpoint, place)); !reopened) return reopened;
    }
  }
  return {};
}

bool Member::is_of_cluster(const std::string& store) const {
  return std::ranges::find(options_.stores, store, &Config::Store::name) != options_.stores.end();
}

Result<std::optional<fabric::Host::Options::Cluster>> Member::cluster_of(const std::string& store) const {
  const std::scoped_lock lock(mutex_);
  if (!is_of_cluster(store)) return std::nullopt;
  if (!state_.node)
    return fail(Errc::unavailable, "cluster",
                fmt::format("'{}' is not in the cluster that {} is of", options_.cluster.node, store));
  return fabric::Host::Options::Cluster{.map = state_.map.map, .node = *state_.node};
}

std::optional<std::uint32_t> Member::node_of(const std::string& store) const {
  const std::scoped_lock lock(mutex_);
  return is_of_cluster(store) ? state_.node : std::nullopt;
}

std::vector<std::string> Member::stores() const {
  std::vector<std::string> names;
  for (const Config::Store& store : options_.stores) names.push_back(store.name);
  return names;
}

}  // namespace loch::server
