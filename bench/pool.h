// bench/pool: the worker processes of a benchmark. They are forked before anything is opened, since a store
// does not cross a fork, and do one task at a time; tasks of several workers start at one moment.
//
// The process that makes the pool uses it from one thread, and waits without using the processor.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <loch/error.h>

#include "bench/task.h"
#include "lab/process.h"

namespace loch::bench {

// What the workers of one task share while it runs.
class Gathering {
 public:
  virtual ~Gathering() = default;

  // Waits until all `workers` of the task are here; spins, since the wait is short and all are to leave it
  // together. False when they did not come in time, or one of them has failed before it came.
  [[nodiscard]] virtual bool arrive(std::uint32_t workers) = 0;

  // How many items each worker has inserted; the others read it.
  virtual void set_inserted(std::uint32_t worker, std::uint64_t count) = 0;
  [[nodiscard]] virtual std::uint64_t inserted(std::uint32_t worker) const = 0;
};

// Runs in a worker, for one task after another.
using Work = std::function<void(const Task&, Gathering&, Outcome&)>;

class Pool {
 public:
  // Forks `workers` processes; each calls `make_work` once and then its result for each task.
  static Result<Pool> make(std::size_t workers, const std::function<Work()>& make_work);

  Pool(Pool&& other) noexcept;
  Pool& operator=(Pool&&) = delete;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();  // ends the workers: first asks, then kills

  [[nodiscard]] std::size_t size() const { return processes_.size(); }

  // Has the first `workers` workers do `task`, and waits for all of them. The outcomes are valid until the
  // next run. Errors: io when a worker reports a failure (the first one's) or died, timed_out, cancelled.
  Result<std::span<const Outcome>> run(const Task& task, std::size_t workers = 1);

 private:
  struct Shared;

  Pool() = default;
  Result<void> wait_for(std::size_t worker, std::uint64_t deadline_ns);
  static void serve(Shared& shared, std::size_t worker, const Work& work);

  Shared* shared_ = nullptr;  // owned; a mapping that the workers have too
  std::vector<lab::Process> processes_;
  std::vector<Outcome> outcomes_;
};

}  // namespace loch::bench
