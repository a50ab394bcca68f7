#include "fabric/host/extender.h"

#include <algorithm>
#include <sys/resource.h>
#include <utility>

namespace loch::fabric::host {

Extender::Extender() : thread_([this] { run(); }) {}

Extender::~Extender() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Extender::extend_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t length_bytes) {
  constexpr std::size_t wanted_max = 64;
  Wanted wanted{.store = std::move(store), .region = region, .length_bytes = length_bytes};
  {
    const std::scoped_lock lock(mutex_);
    if (wanted_.size() == wanted_max || std::ranges::find(wanted_, wanted) != wanted_.end()) return;
    wanted_.push_back(std::move(wanted));
  }
  changed_.notify_all();
}

std::map<RegionId, std::uint64_t> Extender::wanted_of(const Fabric& store) {
  std::map<RegionId, std::uint64_t> wanted;
  const std::scoped_lock lock(mutex_);
  for (const Wanted& each : wanted_) {
    if (each.store.get() == &store) wanted[each.region] = std::max(wanted[each.region], each.length_bytes);
  }
  return wanted;
}

void Extender::run() {
  // Of Linux, this sets that of the calling thread alone: it yields to the agent and to clients of this host.
  constexpr int background = 10;
  [[maybe_unused]] const int set = ::setpriority(PRIO_PROCESS, 0, background);
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !wanted_.empty(); });
    if (stop_) return;
    const Wanted& first = wanted_.front();  // which stays there, though others add theirs
    lock.unlock();
    // If there is no room, whoever needs it is told so when he asks.
    [[maybe_unused]] const auto extended = first.store->extend(first.region, first.length_bytes);
    lock.lock();
    const Wanted done = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();  // before a store is closed, if nobody else has it
  }
}

}  // namespace loch::fabric::host
