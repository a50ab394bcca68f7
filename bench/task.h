// bench/task: what a worker process is told to do, and what it answers. Both are plain data: they stand in
// memory that the processes share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "bench/cores.h"
#include "bench/floor.h"
#include "bench/histogram.h"
#include "bench/subject.h"
#include "bench/workload.h"

namespace loch::bench {

inline constexpr std::size_t workers_max = 64;

enum class Act : std::uint8_t {
  // On a subject.
  load,            // puts the items from `first` to `last`, its share of them
  read_back,       // gets them, each once, `batch` at a time
  gets,            // single gets, each key known in advance
  dependent_gets,  // single gets, each key taken from the value before
  multi_gets,
  puts,  // of keys that are there
  multi_puts,
  mix,        // as `mix` says, one operation at a time
  raw_reads,  // of 8 bytes of the subject's memory, `batch` at a time
  memory,     // answers `memory`
  close,      // ends the session
  // On the machine.
  exchanges,        // beyond the network: what `batch` operations send and get
  libfabric_reads,  // of 8 bytes of `region_bytes` beyond the network, `batch` at a time
  harness,          // what drawing a key, making key and value and checking one costs by itself
  idle,             // sleeps, with the sessions that it has
  floor_create,     // makes the floor's file of `floor_bytes`
  floor_independent,
  floor_dependent,
  floor_compare_swap,
  floor_copy,
  floor_close,
};

// Whether a worker has it done by processes that it forks.
constexpr bool forks(Act act) { return act == Act::exchanges || act == Act::libfabric_reads; }

struct Task {
  Act act = Act::gets;
  std::uint32_t subject = 0;  // its place in the list of subjects
  double seconds = 1;
  std::uint64_t seed = 1;

  Mix mix{};  // `mix.distribution` holds for every act that draws items
  std::uint32_t batch = 16;
  bool latencies = false;         // of a `mix`: time every operation by itself
  std::uint64_t items = 0;        // that are there
  std::uint64_t insert_base = 0;  // number of the first item that `mix` inserts
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t floor_bytes = 0;
  std::uint64_t copy_bytes = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t request_bytes = 0;  // of each operation of an exchange, as the reply
  std::uint64_t reply_bytes = 0;
  bool large_floor = false;         // the floor of large values, a file of its own
  Cores cores = Cores::all;         // where the workers run
  Cores server_cores = Cores::all;  // where the subject's server does, or what else is at the other end

  // Set by the pool.
  std::uint32_t worker = 0;
  std::uint32_t workers = 1;
};
static_assert(std::is_trivially_copyable_v<Task>);

struct Outcome {
  Lap lap;
  Histogram reads;   // of a task with `latencies`
  Histogram writes;  // updates, inserts and read-modify-writes
  std::uint64_t inserted = 0;
  MemoryUse memory;
  std::uint64_t processor_ns = 0;   // that the process used for the task
  std::array<char, 512> failure{};  // empty: none

  [[nodiscard]] bool failed() const { return failure[0] != '\0'; }
  void fail_with(std::string_view text) {
    const std::size_t kept = text.copy(failure.data(), failure.size() - 1);
    failure[kept] = '\0';
    if (kept == 0) failure = {'?'};
  }
};
static_assert(std::is_trivially_copyable_v<Outcome>);

}  // namespace loch::bench
