#include "coro/run_queue.h"

namespace loch::coro {

void RunQueue::grow() {
  std::vector<std::coroutine_handle<>> wider(ring_.size() * 2);
  for (std::size_t i = 0; i < count_; ++i) wider[i] = ring_[(first_ + i) & (ring_.size() - 1)];
  ring_ = std::move(wider);
  first_ = 0;
}

base::Nanos RunQueue::run_timers() {
  while (!timers_.empty()) {
    const auto [at, timer] = *timers_.begin();
    if (at > clock_.now()) return at;
    timers_.erase(timers_.begin());
    timer->due(*timer);
  }
  return 0;
}

}  // namespace loch::coro
