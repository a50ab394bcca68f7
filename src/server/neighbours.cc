#include "server/neighbours.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "hash/forget.h"
#include "memory/session.h"
#include "memory/store_memory.h"

namespace loch::server {
namespace {

constexpr std::chrono::seconds look_every{1};

coro::Task<Result<std::uint64_t>> read_word(fabric::Endpoint* endpoint, fabric::Address at) {
  co_return co_await endpoint->read_word(at);
}

coro::Task<Result<void>> write_word(fabric::Endpoint* endpoint, fabric::Address at, std::uint64_t word) {
  co_return co_await endpoint->write_word(at, word);
}

// The shards whose slots are here; also those that come and are not at home here yet.
std::vector<memory::RegionMap::Shard> shards_here(const Member::State& now) {
  std::vector<memory::RegionMap::Shard> here;
  const auto& shards = now.map.map.shards;
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    for (const auto& place : {std::optional(shards[shard].home), shards[shard].next}) {
      if (place && place->node == *now.node) here.push_back(memory::RegionMap::shard_at(shard, *place));
    }
  }
  return here;
}

constexpr fabric::Address incarnation_at(std::uint32_t by, std::uint32_t of) {
  return {fabric::control_region_of(by), memory::incarnations_offset + of * sizeof(std::uint64_t)};
}

}  // namespace

Neighbours::Neighbours(Options options, const Member& member, fabric::Host& host)
    : options_(std::move(options)), member_(member), host_(host), thread_([this] { run(options_.stores); }) {}

Neighbours::~Neighbours() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Neighbours::run(std::vector<std::string> stores) {
  std::vector<Watch> watches;
  for (std::string& store : stores) watches.push_back({.store = std::move(store)});
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    for (Watch& watch : watches) {
      const auto looked = look(watch);
      const std::string trouble = looked ? "" : looked.error().message();
      if (!trouble.empty() && trouble != watch.told && options_.log)
        options_.log(fmt::format("{}: {}; tries again", watch.store, trouble));
      watch.told = trouble;
    }
    lock.lock();
    if (!stop_) changed_.wait_for(lock, look_every);
  }
}

Result<void> Neighbours::connect(Watch& watch, const Member::State& now) const {
  if (watch.fabric != nullptr && watch.fabric->cluster()->epoch != now.map.map.epoch) {
    watch.endpoint = nullptr;
    watch.fabric = nullptr;
  }
  if (watch.fabric == nullptr) {
    auto attached =
        fabric::attach(fmt::format("tcp://{}/{}", now.self().at.text(), watch.store), options_.others);
    if (!attached) return std::unexpected(std::move(attached.error()));
    if ((*attached)->cluster() == nullptr)
      return fail(Errc::incompatible, "cluster", "the store is of no cluster");
    watch.fabric = std::move(*attached);
  }
  // One that was broken off, or began before a host was found, is replaced.
  const std::uint64_t found = watch.fabric->hosts_found();
  if (watch.endpoint != nullptr && !watch.endpoint->has_failed() && watch.hosts_found == found) return {};
  watch.endpoint = nullptr;
  watch.endpoint = std::make_unique<fabric::Endpoint>(watch.fabric, watch.fabric->connect());
  watch.hosts_found = found;
  return {};
}

Result<std::uint64_t> Neighbours::incarnation_of(Watch& watch, std::uint32_t node) {
  return watch.endpoint->run(read_word(watch.endpoint.get(), incarnation_at(node, node)));
}

Result<void> Neighbours::look(Watch& watch) {
  const Member::State now = member_.now();
  if (!now.node) return {};
  if (auto connected = connect(watch, now); !connected) return connected;
  std::vector<Sight> seen(now.map.map.nodes.size());
  for (std::uint32_t node = 0; node < seen.size(); ++node) {
    if (node == *now.node) continue;
    seen[node].is_gone = now.map.map.nodes[node].state == fabric::ClusterMap::NodeState::gone;
    seen[node].was_drained = (now.drained & fabric::node_bit(node)) != 0;
    if (!seen[node].is_gone) seen[node].incarnation = incarnation_of(watch, node).value_or(0);
  }
  auto renewed = renew(watch.store, now, seen);
  if (!renewed)
    renewed.error().detail = fmt::format("what was lost can not be forgotten: {}", renewed.error().detail);
  return renewed;
}

// Whether a slot here names what is on another node; of one that nobody is about to name any more.
bool Neighbours::names_items(fabric::Endpoint& endpoint, const Member::State& now, std::uint32_t node) {
  for (const auto& shard : shards_here(now)) {
    const std::uint64_t bytes = endpoint.length_bytes(shard.index).value_or(0);
    const std::byte* slots = endpoint.mapped({shard.index, 0}, bytes);
    for (std::uint64_t at = 0; slots != nullptr && at < bytes; at += sizeof(std::uint64_t)) {
      const hash::SlotWord word{fabric::load_word(slots + at)};
      if (word.names_item() && std::ranges::binary_search(now.map.map.nodes[node].data, word.item().region))
        return true;
    }
  }
  return false;
}

Result<void> Neighbours::renew(const std::string& store, const Member::State& now,
                               const std::vector<Sight>& seen) {
  const auto here = fabric::attach("shm://" + store, options_.here);
  if (!here) return std::unexpected(here.error());
  fabric::Endpoint endpoint(*here, (*here)->connect());
  for (std::uint32_t node = 0; node < seen.size(); ++node) {
    const auto known = endpoint.run(read_word(&endpoint, incarnation_at(*now.node, node)));
    if (!known) return std::unexpected(known.error());
    const bool is_seen = seen[node].is_gone || seen[node].incarnation != 0;
    if (!is_seen || *known == 0 || *known == seen[node].incarnation) continue;
    if (seen[node].is_gone) {
      // Whoever begins after that does not reach what has gone, and has nothing to name there.
      if (!seen[node].was_drained) {
        if (auto paused = host_.pause(store); !paused) return std::unexpected(std::move(paused.error()));
      }
      if (!names_items(endpoint, now, node)) {
        if (auto told = endpoint.run(write_word(&endpoint, incarnation_at(*now.node, node), 0)); !told)
          return told;
        continue;
      }
    }
    const auto paused = host_.pause(store);
    if (!paused) return std::unexpected(paused.error());
    if (auto forgotten = forget(store, now, node, seen[node].incarnation); !forgotten) return forgotten;
  }
  return {};
}

Result<void> Neighbours::forget(const std::string& store, const Member::State& now, std::uint32_t node,
                                std::uint64_t incarnation) {
  auto here = fabric::attach("shm://" + store, options_.here);
  if (!here) return std::unexpected(std::move(here.error()));
  // Of all nodes this one alone is here.
  const memory::RegionMap all = memory::RegionMap::of_cluster(now.map.map);
  auto memory =
      memory::StoreMemory::attach(std::move(*here), {.nodes = {all.nodes[*now.node]}, .shards = {}});
  if (!memory) return std::unexpected(std::move(memory.error()));
  auto session = memory::Session::open(*memory);
  if (!session) return std::unexpected(std::move(session.error()));
  fabric::Endpoint& endpoint = (*session)->endpoint();
  std::uint64_t slots = 0;
  for (const auto& shard : shards_here(now)) {
    const auto length = endpoint.length_bytes(shard.index);
    if (!length) return std::unexpected(length.error());
    if (*length == 0) continue;  // one that is to come
    const auto place = hash::IndexPlace::of(shard, all.nodes[*now.node]);
    const auto forgotten = endpoint.run(hash::forget_items(session->get(), place, &all.nodes[node].data));
    if (!forgotten) return std::unexpected(forgotten.error());
    slots += *forgotten;
  }
  std::byte* word = endpoint.mapped(incarnation_at(*now.node, node), sizeof incarnation);
  if (word == nullptr) return fail(Errc::corrupt, "cluster", "the control region is too short");
  fabric::store_word(word, incarnation);
  const std::string& name = now.map.map.nodes[node].name;
  if (options_.log && (slots != 0 || !name.empty())) {
    options_.log(fmt::format("{}: {}; {} items that were there are forgotten here", store,
                             name.empty() ? fmt::format("node {} has left the cluster", node)
                                          : fmt::format("'{}' came back without its memory", name),
                             slots));
  }
  return {};
}

}  // namespace loch::server
