// Mutex: what the coroutines of one thread do one after the other, in the order in which they came.
//
//   const auto turn = co_await mutex.lock();    // until `turn` ends
//
// It outlives its turns. Whoever has one needs none of them to go on: a coroutine that comes again waits for
// itself.
#pragma once

#include <coroutine>
#include <deque>
#include <utility>

#include "coro/run_queue.h"

namespace loch::coro {

class Mutex {
 public:
  explicit Mutex(RunQueue& queue) : queue_(queue) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  class Turn {
   public:
    explicit Turn(Mutex& mutex) : mutex_(&mutex) {}
    Turn(Turn&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (mutex_ != nullptr) mutex_->pass_on();
    }

   private:
    Mutex* mutex_;
  };

  struct Lock {
    Mutex& mutex;
    [[nodiscard]] bool await_ready() const { return !std::exchange(mutex.taken_, true); }
    void await_suspend(std::coroutine_handle<> handle) const { mutex.waiters_.push_back(handle); }
    [[nodiscard]] Turn await_resume() const { return Turn(mutex); }
  };
  [[nodiscard]] Lock lock() { return {*this}; }

 private:
  void pass_on() {
    taken_ = !waiters_.empty();
    if (!taken_) return;
    queue_.push(waiters_.front());
    waiters_.pop_front();
  }

  RunQueue& queue_;
  std::deque<std::coroutine_handle<>> waiters_;
  bool taken_ = false;
};

}  // namespace loch::coro
