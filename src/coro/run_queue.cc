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
    const auto first = timers_.begin();
    Timer* timer = first->second;
    if (timer->at > clock_.now()) return timer->at;
    timers_.erase(first);
    timer->due(*timer);
  }
  return 0;
}

}  // namespace loch::coro
