#include "server/member.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "hash/handover.h"
#include "hash/table.h"
#include "memory/store_memory.h"
#include "net/credentials.h"

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

// The shards that are at home on a node.
std::vector<RegionMap::Shard> shards_of(const RegionMap& map, std::uint32_t node) {
  std::vector<RegionMap::Shard> shards;
  std::ranges::copy_if(map.shards, std::back_inserter(shards),
                       [node](const RegionMap::Shard& shard) { return shard.home == node; });
  return shards;
}

// Brings a shard that is at home here into use. Reopens one that was to leave, opens one that has arrived.
// Begins it anew, empty, if nothing is here, or (with a map of a later epoch) only what it left here before.
Result<void> tend_shard(fabric::Fabric& fabric, fabric::Endpoint& endpoint, const hash::IndexPlace& place,
                        bool is_later) {
  std::byte* root = endpoint.mapped(place.root, sizeof(hash::IndexRoot));
  if (root == nullptr) return fail(Errc::corrupt, "cluster", "the control region is too short");
  const std::uint64_t word = fabric::load_word(root + offsetof(hash::IndexRoot, directory));
  const auto directory = hash::Directory::decode(word);
  if (directory.stage == hash::ShardStage::leaves)
    return endpoint.run(hash::Handover::reopen(&endpoint, place));
  const bool is_of_before = directory.stage == hash::ShardStage::arrives && !directory.arrives(place.slots);
  const bool is_elsewhere = directory.stage == hash::ShardStage::left || is_of_before;
  if (word != 0 && !(is_elsewhere && is_later)) return endpoint.run(hash::Handover::open(&endpoint, place));
  const std::uint64_t bytes = hash::Table::initial_index_bytes;
  if (auto extended = fabric.extend(place.slots, bytes); !extended) return extended;
  const auto length = endpoint.length_bytes(place.slots);
  if (!length) return std::unexpected(length.error());
  std::byte* slots = endpoint.mapped(place.slot(0), *length);
  if (slots == nullptr) return fail(Errc::io, "cluster", "the memory of a shard can not be mapped");
  hash::Table::initialize(root, {slots, *length});
  return {};
}

bool is_for(const ClusterMap::Shard& shard, std::uint32_t node) {
  return shard.home.node == node || (shard.next && shard.next->node == node);
}

// What is here of a shard that is elsewhere is not to be opened when the shard comes to be here another time:
// a move that was given up left it, or the cluster did without this host for a while. Only by a map of a
// later epoch, which nobody has heard of from here: by an older one, the shard may be on its way here by now.
void void_shard(std::byte* root) {
  std::byte* word = root + offsetof(hash::IndexRoot, directory);
  const std::uint64_t said = fabric::load_word(word);
  if (said != 0)
    fabric::store_word(word, hash::Directory::decode(said).with_stage(hash::ShardStage::left).encode());
}

// Those that are drained, and those of before that have gone since.
fabric::NodeSet drained_nodes(const ClusterMap& map, fabric::NodeSet before) {
  fabric::NodeSet drained = 0;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    const ClusterMap::NodeState state = map.nodes[node].state;
    if (state == ClusterMap::NodeState::drained) drained |= fabric::node_bit(node);
    if (state == ClusterMap::NodeState::gone) drained |= before & fabric::node_bit(node);
  }
  return drained;
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
  const std::scoped_lock lock(mutex_);
  state_ = {.map = map, .node = node, .drained = drained_nodes(map.map, state_.drained)};
  return {};
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
      hash::Table::initialize(made[0].base + shards[i].root_offset, made[2 + i]);
  };
  const auto created = fabric::create("shm://" + store.name, options_.here, plan);
  if (!created && created.error().code != Errc::exists) return std::unexpected(created.error());
  return {};
}

Result<void> Member::tend_part(const Config::Store& store, const ClusterMap& map, std::uint32_t node) const {
  const auto here = fabric::attach("shm://" + store.name, options_.here);
  if (!here) return std::unexpected(here.error());
  fabric::Endpoint endpoint(*here, (*here)->connect());
  const RegionMap regions = RegionMap::of_cluster(map);
  const fabric::RegionId control = regions.nodes[node].control;
  if (endpoint.length_bytes(control).value_or(0) < memory::control_bytes) {
    return fail(
        Errc::incompatible, "cluster",
        fmt::format("{} is a part of another place in the cluster, or of none; remove it, and start anew: "
                    "loch rm {}",
                    (*here)->location(), store.name));
  }
  std::byte* words = endpoint.mapped({control, 0}, memory::control_bytes);
  if (words == nullptr) return fail(Errc::io, "cluster", "the control region can not be mapped");
  std::byte* epoch = words + memory::map_epoch_offset;
  if (fabric::load_word(epoch) > map.epoch)
    return fail(Errc::unavailable, "cluster",
                "the coordinator tells of a map that is older than this host's");
  const bool is_later = fabric::load_word(epoch) < map.epoch;
  for (std::uint32_t shard = 0; shard < regions.shards.size(); ++shard) {
    if (is_later && !is_for(map.shards[shard], node)) void_shard(words + regions.shards[shard].root_offset);
    if (regions.shards[shard].home != node || map.shards[shard].next) continue;
    const auto place = hash::IndexPlace::of(regions.shards[shard], regions.nodes[node]);
    if (auto tended = tend_shard(**here, endpoint, place, is_later); !tended) return tended;
  }
  const bool serves = map.nodes[node].state == ClusterMap::NodeState::serves;
  fabric::store_word(words + memory::closed_offset, serves ? 0 : 1);
  fabric::store_word(epoch, map.epoch);
  return {};
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
