// Scope: structured concurrency. Children run beside each other; the scope is left only when all have
// finished.
//
//   std::vector<Task<int>> children = ...;
//   Scope scope(queue);
//   for (auto& child : children) scope.start(child);
//   co_await scope.join();
//
// Cancellation drains: `cancel` asks, children look at `cancelled` where they can stop, and `join` still
// waits for every one. A scope that is destroyed with children running is a bug.
#pragma once

#include <coroutine>
#include <cstddef>
#include <span>
#include <utility>

#include <loch/coro/task.h>

#include "base/check.h"
#include "coro/run_queue.h"

namespace loch::coro {

class Scope final : public Joiner {
 public:
  explicit Scope(RunQueue& queue) : queue_(queue) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { LOCH_CHECK(running_ == 0); }

  // Runs `child` until it first suspends. The child outlives `join`, after which its result is taken from it.
  template <class T>
  void start(Task<T>& child) {
    child.start(this);
    if (!child.done()) ++running_;
  }

  // co_await scope.join(): until every child has finished.
  struct Join {
    Scope& scope;
    [[nodiscard]] bool await_ready() const { return scope.running_ == 0; }
    void await_suspend(std::coroutine_handle<> handle) const { scope.joining_ = handle; }
    void await_resume() const {}
  };
  Join join() { return {*this}; }

  void cancel() { cancelled_ = true; }
  [[nodiscard]] bool cancelled() const { return cancelled_; }
  [[nodiscard]] std::size_t running() const { return running_; }

  void child_done() noexcept override {
    if (--running_ == 0 && joining_) queue_.push(std::exchange(joining_, {}));
  }

 private:
  RunQueue& queue_;
  std::size_t running_ = 0;
  std::coroutine_handle<> joining_;
  bool cancelled_ = false;
};

// Runs all of them beside each other, until the last has finished; then their results are there to be taken.
template <class T>
Task<void> run_together(RunQueue* queue, std::span<Task<T>> tasks) {
  Scope scope(*queue);
  for (Task<T>& task : tasks) scope.start(task);
  co_await scope.join();
}

}  // namespace loch::coro
