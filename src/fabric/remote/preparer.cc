#include "fabric/remote/preparer.h"

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
  constexpr std::size_t wanted_max = 64;
  {
    const std::scoped_lock lock(mutex_);
    if (wanted_.size() == wanted_max) return;
    wanted_.push_back(
        {.store = std::move(store), .region = region, .from_bytes = from_bytes, .to_bytes = to_bytes});
  }
  changed_.notify_all();
}

void Preparer::run() {
  // Of Linux, this sets that of the calling thread alone: it yields to the agent and to clients of this host.
  constexpr int background = 10;
  [[maybe_unused]] const int set = ::setpriority(PRIO_PROCESS, 0, background);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !wanted_.empty(); });
    if (stop_) return;
    {
      const Wanted first = std::move(wanted_.front());
      wanted_.pop_front();
      lock.unlock();
      first.store->prepare(first.region, first.from_bytes, first.to_bytes);
    }
    lock.lock();
  }
}

}  // namespace loch::fabric::remote
