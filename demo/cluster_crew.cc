#include "demo/cluster_crew.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "demo/stage.h"

namespace loch::demo {
namespace {

constexpr std::chrono::milliseconds look_pause{100};
constexpr std::chrono::milliseconds short_pause{20};
constexpr std::size_t look_records = 256;
constexpr std::size_t asked_at_once = 64;

bool is_outage(const Error& error) {
  return error.code == Errc::unavailable || error.code == Errc::timed_out;
}

bool fail(Slot& slot, const Package& package, const Error& error) {
  slot.fail(fmt::format("{}: {}", package.key, error.message()));
  return false;
}

// Of a record that was lost although no host was.
void fail_as_gone(Slot& slot, const Package& package) {
  slot.fail(fmt::format("{}: not there, although its put had succeeded", package.key));
}

// Runs one call for some records, and notes each one's share of its time.
template <class Call>
void timed_for(Slot& slot, std::size_t records, Call call) {
  const std::uint64_t before_ns = bench::now_ns();
  call();
  const std::uint64_t after_ns = bench::now_ns();
  for (std::size_t i = 0; i < records; ++i) slot.latency.record((after_ns - before_ns) / records);
  slot.ended_ns.store(after_ns, std::memory_order_relaxed);
}

// Puts these records at once, but for those that are unavailable. False if something else is
// wrong.
bool put_some(const ClusterScene& cluster, Store& store, Slot& slot, std::span<const std::size_t> records) {
  std::vector<Assignment> assignments(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    assignments[i].key = cluster.scene.packages[records[i]].key;
    assignments[i].value = cluster.scene.packages[records[i]].stanza;
  }
  timed_for(slot, records.size(), [&] { store.multi_put(assignments); });
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Result<void>& result = assignments[i].result;
    if (result) {
      slot.operations.fetch_add(1, std::memory_order_relaxed);
      // release: pairs with the readers' acquire; the value is in the store before it is said to be (I1).
      cluster.stored[records[i]].store(true, std::memory_order_release);
    } else if (is_outage(result.error())) {
      slot.unavailable.fetch_add(1, std::memory_order_relaxed);
    } else {
      return fail(slot, cluster.scene.packages[records[i]], result.error());
    }
  }
  return true;
}

// Puts all records of the part, and those that were unavailable again, until all are stored.
bool put_all(const ClusterScene& cluster, Store& store, Slot& slot, Part part) {
  std::atomic<std::uint64_t>& acknowledged = cluster.scene.board.acknowledged[part.index];
  std::vector<std::size_t> missing;
  for (std::size_t record = part.begin; record < part.end; ++record) missing.push_back(record);
  while (!missing.empty() && !cluster.scene.board.stop.load(std::memory_order_relaxed)) {
    std::vector<std::size_t> later;
    for (std::span<const std::size_t> rest(missing); !rest.empty();) {
      const auto some = rest.first(std::min(puts_at_once, rest.size()));
      rest = rest.subspan(some.size());
      if (!put_some(cluster, store, slot, some)) return false;
      for (const std::size_t record : some) {
        if (!cluster.stored[record].load(std::memory_order_relaxed)) later.push_back(record);
      }
      acknowledged.store(part.size() - later.size() - rest.size(), std::memory_order_release);
    }
    if (later.size() == missing.size()) std::this_thread::sleep_for(short_pause);
    missing = std::move(later);
  }
  return true;
}

struct Answers {
  std::uint32_t unavailable = 0;
  std::vector<std::size_t> gone{};
};

// Asks for these records, which are stored. False if an answer is wrong.
bool ask(const ClusterScene& cluster, Store& store, Slot& slot, std::span<const std::size_t> records,
         Answers& answers) {
  std::vector<Lookup> lookups(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) lookups[i].key = cluster.scene.packages[records[i]].key;
  timed_for(slot, records.size(), [&] { store.multi_get(lookups); });
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Package& package = cluster.scene.packages[records[i]];
    const Lookup& lookup = lookups[i];
    if (lookup.result && lookup.value == package.stanza) continue;
    if (lookup.result) {
      slot.fail(fmt::format("{}: what was read is not its stanza", package.key));
      return false;
    }
    if (is_outage(lookup.result.error())) {
      ++answers.unavailable;
    } else if (lookup.result.error().code == Errc::not_found) {
      answers.gone.push_back(records[i]);
    } else {
      return fail(slot, package, lookup.result.error());
    }
  }
  return true;
}

}  // namespace

Result<lab::Process> ClusterScene::start(std::size_t host, const std::function<int()>& work) const {
  return begin([&] { return hosts.at(host).enter() ? work() : exit_failed; });
}

int await_store(const ClusterScene& cluster, Slot& slot) {
  const auto deadline = std::chrono::steady_clock::now() + step_timeout;
  for (;;) {
    auto store = Store::open(cluster.scene.url, cluster.scene.options);
    const auto counted = store ? store->count() : Result<std::uint64_t>(std::unexpected(store.error()));
    if (counted) return 0;
    if (std::chrono::steady_clock::now() > deadline) {
      slot.fail(counted.error().message());
      return exit_failed;
    }
    std::this_thread::sleep_for(short_pause);
  }
}

int write_part(const ClusterScene& cluster, Slot& slot, Part part) {
  auto store = open_store(cluster.scene, slot);
  if (!store || !put_all(cluster, *store, slot, part)) return exit_failed;
  std::mt19937_64 random(part.index);
  while (!cluster.scene.board.stop.load(std::memory_order_relaxed)) {
    std::vector<std::size_t> some;
    while (some.size() < puts_at_once) some.push_back(part.begin + (random() % part.size()));
    if (!put_some(cluster, *store, slot, some)) return exit_failed;
  }
  return 0;
}

int read_what_there_is(const ClusterScene& cluster, Slot& slot, std::uint64_t seed) {
  auto store = open_store(cluster.scene, slot);
  if (!store) return exit_failed;
  std::mt19937_64 random(seed);
  std::string value;
  while (!cluster.scene.board.stop.load(std::memory_order_relaxed)) {
    const std::size_t record = random() % cluster.scene.packages.size();
    const Package& package = cluster.scene.packages[record];
    const Records before = cluster.watch.records.load(std::memory_order_acquire);
    // acquire: pairs with the writer's release; what is stored now must be found below.
    const bool stored = cluster.stored[record].load(std::memory_order_acquire);
    const auto got = timed(slot, [&] { return store->get(package.key, value); });
    if (got && value == package.stanza) {
      slot.operations.fetch_add(1, std::memory_order_relaxed);
    } else if (got) {
      slot.fail(fmt::format("{}: {} bytes were read that are not its stanza", package.key, value.size()));
      return exit_failed;
    } else if (is_outage(got.error())) {
      slot.unavailable.fetch_add(1, std::memory_order_relaxed);
    } else if (got.error().code != Errc::not_found) {
      fail(slot, package, got.error());
      return exit_failed;
    } else if (stored && cluster.watch.had_to_be_there(before)) {
      fail_as_gone(slot, package);
      return exit_failed;
    } else {
      slot.misses.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return 0;
}

int look_what_is_there(const ClusterScene& cluster, Slot& slot) {
  auto store = open_store(cluster.scene, slot);
  if (!store) return exit_failed;
  std::mt19937_64 random(1);
  Watch& watch = cluster.watch;
  for (std::size_t i = 0; i < watch.looks.size() && !cluster.scene.board.stop.load(std::memory_order_relaxed);
       ++i) {
    const Records before = watch.records.load(std::memory_order_acquire);
    std::vector<std::size_t> records;
    for (std::size_t tries = 0; records.size() < look_records && tries < 16 * look_records; ++tries) {
      const std::size_t record = random() % cluster.scene.packages.size();
      if (cluster.stored[record].load(std::memory_order_acquire)) records.push_back(record);
    }
    Answers answers;
    Look& look = watch.looks[i];
    look.at_ns = bench::now_ns();
    if (!ask(cluster, *store, slot, records, answers)) return exit_failed;
    if (!answers.gone.empty() && watch.had_to_be_there(before)) {
      fail_as_gone(slot, cluster.scene.packages[answers.gone.front()]);
      return exit_failed;
    }
    look.asked = static_cast<std::uint32_t>(records.size());
    look.unavailable = answers.unavailable;
    look.gone = static_cast<std::uint32_t>(answers.gone.size());
    // release: pairs with the acquire in all(); the look is whole before it is counted.
    watch.count.store(i + 1, std::memory_order_release);
    slot.operations.fetch_add(records.size(), std::memory_order_relaxed);
    std::this_thread::sleep_for(look_pause);
  }
  return 0;
}

int load_again(const ClusterScene& cluster, Slot& slot) {
  auto store = open_store(cluster.scene, slot);
  if (!store) return exit_failed;
  std::vector<std::size_t> records;
  for (std::size_t record = 0; record < cluster.stored.size(); ++record) {
    if (cluster.stored[record].load(std::memory_order_acquire)) records.push_back(record);
  }
  for (std::span<const std::size_t> rest(records); !rest.empty();) {
    const auto some = rest.first(std::min(asked_at_once, rest.size()));
    Answers answers;
    if (!ask(cluster, *store, slot, some, answers)) return exit_failed;
    if (!answers.gone.empty() && !put_some(cluster, *store, slot, answers.gone)) return exit_failed;
    if (answers.unavailable == 0 && slot.unavailable.load(std::memory_order_relaxed) == 0) {
      rest = rest.subspan(some.size());
    } else {  // all of these once more
      slot.unavailable.store(0, std::memory_order_relaxed);
      std::this_thread::sleep_for(short_pause);
    }
  }
  return 0;
}

}  // namespace loch::demo
