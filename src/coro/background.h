// Background: tasks that nobody waits for now. They go on whenever the queue's thread runs it; whoever
// started them drains them before what they use ends.
//
//   background.start(tell_somebody(...));
//   ...
//   co_await background.drain();
//
// One that is destroyed with tasks running is a bug.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <loch/coro/task.h>

#include "coro/run_queue.h"
#include "coro/scope.h"

namespace loch::coro {

class Background {
 public:
  explicit Background(RunQueue& queue) : scope_(queue) {}

  // Runs `task` until it first suspends, and keeps it until it is done.
  void start(Task<void> task) {
    std::erase_if(tasks_, [](const Task<void>& each) { return each.done(); });
    scope_.start(task);
    if (!task.done()) tasks_.push_back(std::move(task));
  }

  // co_await background.drain(): until every task has finished.
  Scope::Join drain() { return scope_.join(); }

  [[nodiscard]] std::size_t running() const { return scope_.running(); }

 private:
  std::vector<Task<void>> tasks_;
  Scope scope_;
};

}  // namespace loch::coro
