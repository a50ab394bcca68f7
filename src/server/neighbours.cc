#include "server/neighbours.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "hash/forget.h"
#include "memory/layout.h"

namespace loch::server {
namespace {

constexpr std::chrono::seconds look_every{1};

coro::Task<Result<std::uint64_t>> read_word(fabric::Endpoint* endpoint, fabric::Address at) {
  co_return co_await endpoint->read_word(at);
}

// What a node says of itself.
Result<std::uint64_t> incarnation_of(fabric::Endpoint& endpoint, std::uint32_t node) {
  return endpoint.run(read_word(&endpoint, memory::incarnation_at(node, node)));
}

}  // namespace

Neighbours::Neighbours(fabric::Access others, const Member& member, fabric::Host& host)
    : others_(std::move(others)),
      member_(member),
      host_(host),
      thread_([this](const auto& stop) { run(stop); }) {}

void Neighbours::run(const std::stop_token& stop) {
  std::vector<Watch> watches;
  for (std::string& store : member_.stores()) watches.push_back({.store = std::move(store)});
  while (!stop.stop_requested()) {
    for (Watch& watch : watches) {
      const auto looked = look(watch);
      const std::string trouble = looked ? "" : looked.error().message();
      if (!trouble.empty() && trouble != watch.told)
        member_.log(fabric::Host::Level::warning, fmt::format("{}: {}; tries again", watch.store, trouble));
      if (trouble.empty() && !watch.told.empty())
        member_.log(fabric::Host::Level::info,
                    fmt::format("{}: the other hosts are looked after again", watch.store));
      watch.told = trouble;
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, look_every, [] { return false; });
  }
}

Result<void> Neighbours::connect(Watch& watch, const Member::State& now) const {
  if (watch.fabric != nullptr && watch.fabric->cluster()->epoch != now.map.map.epoch) {
    watch.endpoint = nullptr;
    watch.fabric = nullptr;
  }
  if (watch.fabric == nullptr) {
    auto attached = fabric::attach(fmt::format("tcp://{}/{}", now.self().at.text(), watch.store), others_);
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

Result<void> Neighbours::look(Watch& watch) {
  const Member::State now = member_.now();
  if (!now.node) return {};
  if (auto connected = connect(watch, now); !connected) return connected;
  auto forgotten = forget_the_lost(watch, now);
  if (!forgotten)
    forgotten.error().detail =
        fmt::format("what was lost can not be forgotten: {}", forgotten.error().detail);
  return forgotten;
}

Result<void> Neighbours::forget_the_lost(Watch& watch, const Member::State& now) {
  const auto& nodes = now.map.map.nodes;
  const auto here = fabric::attach("shm://" + watch.store, member_.options().here);
  if (!here) return std::unexpected(here.error());
  fabric::Endpoint endpoint(*here, (*here)->connect());
  std::byte* own =
      endpoint.mapped(memory::incarnation_at(*now.node, 0), nodes.size() * sizeof(std::uint64_t));
  if (own == nullptr) return fail(Errc::corrupt, "cluster", "the control region is too short");
  const auto is_gone = [&](std::uint32_t node) {
    return nodes[node].state == fabric::ClusterMap::NodeState::gone;
  };
  // All of them first: a pause ends the session that asks. 0: it can not be asked, or is gone.
  std::vector<std::uint64_t> incarnations(nodes.size());
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (node != *now.node && !is_gone(node))
      incarnations[node] = incarnation_of(*watch.endpoint, node).value_or(0);
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (node == *now.node) continue;
    const std::uint64_t is = incarnations[node];
    std::byte* word = own + node * sizeof(std::uint64_t);
    const std::uint64_t known = fabric::load_word(word);
    if (known == 0 || known == is || (is == 0 && !is_gone(node))) continue;
    if (is_gone(node) && (now.drained & fabric::node_bit(node)) != 0) {
      // Nobody is about to name any of what it had, and no session has to end.
      const auto named = hash::names_node(endpoint, now.map.map, *now.node, node);
      if (!named) return std::unexpected(named.error());
      if (!*named) {
        fabric::store_word(word, 0);
        continue;
      }
    }
    // Before anybody is disturbed: sessions that a pause ends keep their client numbers for a while, and
    // there may be none for this one then.
    const auto session = hash::open_own_session(*here, now.map.map, *now.node);
    if (!session) return std::unexpected(session.error());
    // Whoever begins after that sees the node as it is, or does not reach what has gone.
    const auto paused = host_.pause(watch.store);
    if (!paused) return std::unexpected(paused.error());
    if (auto forgotten = forget(watch.store, **session, now, node); !forgotten) return forgotten;
    fabric::store_word(word, is);
  }
  return {};
}

Result<void> Neighbours::forget(const std::string& store, memory::Session& own, const Member::State& now,
                                std::uint32_t node) {
  const auto items = hash::forget_node(own, now.map.map, *now.node, node);
  if (!items) return std::unexpected(items.error());
  const std::string& name = now.map.map.nodes[node].name;
  if (*items == 0 && name.empty()) return {};
  member_.log(fabric::Host::Level::warning,
              fmt::format("{}: {}; {} items that were there are forgotten here", store,
                          name.empty() ? fmt::format("node {} has left the cluster", node)
                                       : fmt::format("'{}' came back without its memory", name),
                          *items));
  return {};
}

}  // namespace loch::server
