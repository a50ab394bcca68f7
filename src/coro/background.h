// Background: tasks that nobody waits for now. They go on whenever the queue's thread runs it; whoever
// started them drains them before what they use ends.
//
//   background.start(tell_somebody(...));
//   ...
//   co_await background.drain();
//
// One that is destroyed with tasks running is a bug.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>
#include <vector>

#include <loch/coro/task.h>

#include "base/check.h"
#include "coro/run_queue.h"

namespace loch::coro {

class Background final : public Joiner {
 public:
  explicit Background(RunQueue& queue) : queue_(queue) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { LOCH_CHECK(running_ == 0); }

  // Runs `task` until it first suspends, and keeps it until it is done.
  void start(Task<void> task) {
    std::erase_if(tasks_, [](const Task<void>& each) { return each.done(); });
    task.start(this);
    if (task.done()) return;
    ++running_;
    tasks_.push_back(std::move(task));
  }

  // co_await background.drain(): until every task has finished.
  struct Drain {
    Background& background;
    [[nodiscard]] bool await_ready() const { return background.running_ == 0; }
    void await_suspend(std::coroutine_handle<> handle) const { background.draining_ = handle; }
    void await_resume() const { background.draining_ = {}; }
  };
  Drain drain() { return {*this}; }

  [[nodiscard]] std::size_t running() const { return running_; }

  void child_done() noexcept override {
    if (--running_ == 0 && draining_) queue_.push(draining_);
  }

 private:
  RunQueue& queue_;
  std::vector<Task<void>> tasks_;
  std::size_t running_ = 0;
  std::coroutine_handle<> draining_;
};

}  // namespace loch::coro
