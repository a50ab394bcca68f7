// A random mix of all operations on a few keys, each recorded in a history, every value checked whole. Some
// values have a time to live, and the history says between which times it ends: by the clock of this host,
// which is the store's for processes that map it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <loch/loch.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/random.h"
#include "sim/history.h"

namespace loch::tests {

// Real time for histories: CLOCK_MONOTONIC, the same for all processes of the host, in ns.
std::uint64_t now_ns();

enum class Mix : std::uint8_t { read_heavy, write_heavy, insert_remove, displacing, replacing };

struct WorkloadOptions {
  std::uint64_t client = 1;  // of no other client of the history; below 2^31
  std::uint64_t seed = 1;
  std::vector<std::string> keys{};            // at least one
  std::uint64_t operations_max = 0;           // 0: no limit
  std::chrono::milliseconds duration_max{0};  // 0: no limit
  Mix mix = Mix::write_heavy;
  std::size_t value_bytes_min = 64;  // lengths are spread evenly from min to max
  std::size_t value_bytes_max = 64;
  std::chrono::microseconds think{0};  // after each operation, so that others have the processor
  bool may_be_cut_off = false;         // from a store on another host: then nobody knows what a call did
  bool iterate = false;                // for_each too: it visits everything in the store
  bool collect = false;                // collect too: it looks at all of the store's memory
};

// PREFIX-0, PREFIX-1 and so on.
std::vector<std::string> numbered_keys(std::string_view prefix, std::uint64_t count);

struct Summary {
  std::uint64_t operations = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t no_space = 0;
  std::uint64_t unavailable = 0;
  std::uint64_t values_ended = 0;        // whose time to live is over, as the history says
  std::uint64_t longest_us = 0;          // of one call
  std::uint64_t longest_held_up_us = 0;  // the same without the time for which it waited for a processor
};

// What ends a run early.
enum class Failure : std::uint8_t {
  torn_value,    // a value that nobody wrote
  store_error,   // an error that the store must not give here
  history_lost,  // the history could not be written
};

struct Trouble {
  Failure failure{};
  std::string message;
};

class Workload {
 public:
  // `store` and `history` outlive the workload. One thread.
  Workload(Store& store, sim::HistoryWriter& history, const WorkloadOptions& options);

  // Runs until a limit is reached, or `stop` is set. A failure is thrown as a Trouble.
  Summary run(const std::atomic<bool>& stop);

 private:
  struct Call;
  struct Write;
  using Step = void (Workload::*)();

  // For how long this process was ready to run, and did not, because others did.
  [[nodiscard]] std::uint64_t waited_for_processor_ns() const;
  [[nodiscard]] const std::string& random_key();
  sim::ValueId make_next_value(std::string& into);
  sim::ValueId check_value(std::string_view key, std::string_view value);
  PutOptions random_options();

  std::uint64_t note_beginning(const sim::HistoryWriter::Invocation& invocation);
  void note_end(const sim::HistoryWriter::Response& response);
  // Of the values whose time to live is over by now.
  void note_ends();
  Call begin(sim::Kind kind, std::string_view key, sim::ValueId written = sim::no_value,
             sim::ValueId expected = sim::no_value);
  void end(const Call& call, sim::Outcome outcome, sim::ValueId found = sim::no_value);
  // A write of the next value, which is made in `into`.
  Write begin_write(sim::Kind kind, std::string_view key, std::string& into, PutOptions options,
                    sim::ValueId expected = sim::no_value);
  void end_write(const Write& write, sim::Outcome outcome);
  sim::Outcome outcome_of(const Error& error);
  template <class T>
  sim::Outcome outcome_of(const Result<T>& result) {
    return result ? sim::Outcome::ok : outcome_of(result.error());
  }

  void get();
  void view();
  void exists();
  void put();
  void put_at(const std::string& key);
  void insert();
  void read_and_replace();
  void remove();
  void remove_at(const std::string& key);
  void multi_get();
  void multi_put();
  void multi_remove();
  void iterate();
  void collect();

  Store& store_;
  sim::HistoryWriter& history_;
  const WorkloadOptions options_;
  base::Random random_;
  std::vector<Step> steps_;        // each as often as its weight
  base::FileDescriptor schedule_;  // where the kernel tells of that
  const base::Clock clock_;        // the store's
  // By when the values that were written have to be gone: the sequence numbers of their ends.
  std::multimap<base::Nanos, std::uint64_t> ends_;
  std::uint64_t values_made_ = 0;
  Summary summary_;
  std::string value_;
};

}  // namespace loch::tests
