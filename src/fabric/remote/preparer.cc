#include "fabric/remote/preparer.h"

#include <algorithm>
#include <sys/resource.h>
#include <utility>

namespace loch::fabric::remote {

Preparer::Preparer() : thread_([this] { run(); }) {}

Preparer::~Preparer() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Preparer::prepare_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t from_bytes,
                            std::uint64_t to_bytes) {
  add({.store = std::move(store), .region = region, .from_bytes = from_bytes, .to_bytes = to_bytes});
}

void Preparer::extend_soon(std::shared_ptr<Fabric> store, RegionId region, std::uint64_t from_bytes,
                           std::uint64_t to_bytes) {
  add({.store = std::move(store),
       .region = region,
       .from_bytes = from_bytes,
       .to_bytes = to_bytes,
       .is_new = true});
}

void Preparer::add(Wanted wanted) {
  constexpr std::size_t wanted_max = 64;
  {
    const std::scoped_lock lock(mutex_);
    if (wanted_.size() == wanted_max || std::ranges::find(wanted_, wanted) != wanted_.end()) return;
    wanted_.push_back(std::move(wanted));
  }
  changed_.notify_all();
}

void Preparer::run() {
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
    if (!first.is_new || first.store->extend(first.region, first.to_bytes))
      first.store->prepare(first.region, first.from_bytes, first.to_bytes);
    lock.lock();
    const Wanted done = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();  // before a store is closed, if nobody else has it
  }
}

}  // namespace loch::fabric::remote
