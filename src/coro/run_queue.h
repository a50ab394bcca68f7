// RunQueue: the coroutines of one thread that can go on, in the order in which they became ready, and those
// that wait for a time. One thread pushes and runs; nothing here is synchronised.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace loch::coro {

class RunQueue {
 public:
  explicit RunQueue(base::Clock clock) : clock_(clock), ring_(64) {}
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;

  // `ready` is resumed by a later run_one; it stays alive until then.
  void push(std::coroutine_handle<> ready) {
    if (count_ == ring_.size()) [[unlikely]]
      grow();
    ring_[(first_ + count_++) & (ring_.size() - 1)] = ready;
  }

  // Resumes the coroutine that has been ready longest; false if there is none.
  bool run_one() {
    if (count_ == 0) return false;
    const std::coroutine_handle<> ready = ring_[first_];
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
    ready.resume();
    return true;
  }

  [[nodiscard]] bool idle() const { return count_ == 0; }

  // Waiting for a time. A waiter is told once, by `due`, unless it is removed first.
  struct Timer {
    base::Nanos at = 0;
    void (*due)(Timer&) = nullptr;
    std::uint64_t number = 0;  // in the order in which they were added, which those of one time are told in
  };
  void add(Timer& timer) {
    timer.number = ++timers_added_;
    timers_.insert({{timer.at, timer.number}, &timer});
  }
  void remove(Timer& timer) { timers_.erase({timer.at, timer.number}); }
  // Tells the timers whose time has come; the time of the next one, or 0 if there is none.
  base::Nanos run_timers();

  [[nodiscard]] base::Nanos now() const { return clock_.now(); }

  // co_await queue.sleep_until(t)
  struct Sleep : Timer {
    RunQueue& queue;
    std::coroutine_handle<> sleeper;
    Sleep(RunQueue& q, base::Nanos until) : Timer{.at = until, .due = &wake}, queue(q) {}
    [[nodiscard]] bool await_ready() const { return queue.now() >= at; }
    void await_suspend(std::coroutine_handle<> handle) {
      sleeper = handle;
      queue.add(*this);
    }
    void await_resume() const {}
    static void wake(Timer& timer) {
      auto& self = static_cast<Sleep&>(timer);
      self.queue.push(self.sleeper);
    }
  };
  Sleep sleep_until(base::Nanos until) { return {*this, until}; }

  // co_await queue.yield(): lets the others run.
  struct Yield {
    RunQueue& queue;
    [[nodiscard]] bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle) const { queue.push(handle); }
    void await_resume() const {}
  };
  Yield yield() { return {*this}; }

 private:
  void grow();

  base::Clock clock_;
  std::vector<std::coroutine_handle<>> ring_;  // size is a power of two
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::map<std::pair<base::Nanos, std::uint64_t>, Timer*> timers_;
  std::uint64_t timers_added_ = 0;
};

}  // namespace loch::coro
