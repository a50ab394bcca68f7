#include "server/neighbours.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "hash/forget.h"
#include "memory/session.h"
#include "memory/store_memory.h"

namespace loch::server {
namespace {

constexpr std::chrono::seconds look_every{1};

coro::Task<Result<std::uint64_t>> read_word(fabric::Endpoint* endpoint, fabric::Address at) {
  std::uint64_t word = 0;
  if (auto read = co_await endpoint->read_words({&at, 1}, &word); !read)
    co_return std::unexpected(std::move(read.error()));
  co_return word;
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
    for (Watch& watch : watches) look(watch);
    lock.lock();
    if (!stop_) changed_.wait_for(lock, look_every);
  }
}

Result<void> Neighbours::connect(Watch& watch) const {
  if (watch.fabric == nullptr) {
    const net::HostPort& here = member_.map().nodes[member_.node()].at;
    auto attached = fabric::attach(fmt::format("tcp://{}/{}", here.text(), watch.store), options_.others);
    if (!attached) return std::unexpected(std::move(attached.error()));
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

void Neighbours::look(Watch& watch) {
  if (auto connected = connect(watch); !connected) return;  // this host itself is about to end, or to begin
  std::vector<std::uint64_t> seen(member_.map().nodes.size());
  for (std::uint32_t node = 0; node < seen.size(); ++node) {
    if (node != member_.node()) seen[node] = incarnation_of(watch, node).value_or(0);
  }
  if (auto renewed = renew(watch.store, seen); !renewed && options_.log)
    options_.log(
        fmt::format("{}: what was lost can not be forgotten: {}", watch.store, renewed.error().message()));
}

Result<void> Neighbours::renew(const std::string& store, const std::vector<std::uint64_t>& seen) {
  const auto here = fabric::attach("shm://" + store, options_.here);
  if (!here) return std::unexpected(here.error());
  fabric::Endpoint endpoint(*here, (*here)->connect());
  for (std::uint32_t node = 0; node < seen.size(); ++node) {
    const auto known = endpoint.run(read_word(&endpoint, incarnation_at(member_.node(), node)));
    if (!known) return std::unexpected(known.error());
    if (seen[node] == 0 || *known == 0 || *known == seen[node]) continue;
    if (auto paused = host_.pause(store); !paused) return paused;
    auto forgotten = forget(store, node, seen[node]);
    host_.resume(store);
    if (!forgotten) return forgotten;
  }
  return {};
}

Result<void> Neighbours::forget(const std::string& store, std::uint32_t node, std::uint64_t incarnation) {
  auto here = fabric::attach("shm://" + store, options_.here);
  if (!here) return std::unexpected(std::move(here.error()));
  // Of all nodes this one alone is here.
  const memory::RegionMap all = memory::RegionMap::of_cluster(member_.map());
  auto memory =
      memory::StoreMemory::attach(std::move(*here), {.nodes = {all.nodes[member_.node()]}, .shards = {}});
  if (!memory) return std::unexpected(std::move(memory.error()));
  auto session = memory::Session::open(*memory);
  if (!session) return std::unexpected(std::move(session.error()));
  fabric::Endpoint& endpoint = (*session)->endpoint();
  std::uint64_t slots = 0;
  for (const auto& shard : all.shards) {
    if (shard.home != member_.node()) continue;
    const auto place = hash::IndexPlace::of(shard, all.nodes[member_.node()]);
    const auto forgotten = endpoint.run(hash::forget_items(session->get(), place, &all.nodes[node].data));
    if (!forgotten) return std::unexpected(forgotten.error());
    slots += *forgotten;
  }
  std::byte* word = endpoint.mapped(incarnation_at(member_.node(), node), sizeof incarnation);
  if (word == nullptr) return fail(Errc::corrupt, "cluster", "the control region is too short");
  fabric::store_word(word, incarnation);
  if (options_.log) {
    options_.log(
        fmt::format("{}: '{}' came back without its memory; {} items that were there are forgotten here",
                    store, member_.map().nodes[node].name, slots));
  }
  return {};
}

}  // namespace loch::server
