// bench/driver: runs one task on one session and checks every answer. A wrong, torn or missing value ends the
// task with a failure: a benchmark of wrong answers means nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <loch/error.h>

#include "base/random.h"
#include "bench/dataset.h"
#include "bench/pool.h"
#include "bench/subject.h"
#include "bench/task.h"
#include "bench/workload.h"

namespace loch::bench {

// One task; one thread. Throughput is measured with one reading of the clock every few operations; only a
// `mix` with `latencies` times every operation by itself, which adds about 50 ns to it.
class Driver {
 public:
  // All arguments outlive the driver.
  Driver(Session& session, const Dataset& dataset, const Task& task, Gathering& gathering, Outcome& outcome);

  // Errors: what the session reports; corrupt when a value is not one that was written for its key.
  Result<void> run();

 private:
  Result<void> load();
  Result<void> read_back();
  Result<void> gets();
  Result<void> dependent_gets();
  Result<void> multi_gets();
  Result<void> puts();
  Result<void> multi_puts();
  Result<void> mix();

  template <class Step>
  Result<void> repeat(std::uint64_t operations_a_step, Step step);

  // Each returns false after it has set `failure_`.
  bool read(std::uint64_t id);
  bool write(std::uint64_t id);
  bool insert();
  bool operate(Operation operation);
  bool note(std::uint64_t id, const Result<void>& result);
  bool note_values(std::span<const Lookup> lookups, std::span<const std::uint64_t> ids);
  bool note_value(std::uint64_t id, const Result<void>& result, std::string_view value);

  void draw_keys(std::span<Lookup> lookups, std::span<std::uint64_t> ids);
  std::uint64_t draw() { return chooser_.draw(random_, inserted_); }
  void learn_of_inserts();

  // This worker's of the items from `first` to `last`: from one, and before the other.
  struct Share {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  [[nodiscard]] Share share() const;

  Session& session_;
  const Dataset& dataset_;
  const Task& task_;
  Gathering& gathering_;
  Outcome& outcome_;
  base::Random random_;
  ItemChooser chooser_;
  Room room_;
  std::string value_;
  std::uint64_t version_;
  std::uint64_t own_inserted_ = 0;
  std::uint64_t inserted_ = 0;  // by all workers, without a gap, as far as this one knows
  Error failure_;
};

// The loop of `gets` without a subject: what drawing an item, making its key and value and checking one adds
// to every figure.
Lap measure_harness(const Dataset& dataset, const Task& task);

}  // namespace loch::bench
