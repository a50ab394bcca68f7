// What the process tests share: a store in a folder of its own, workers on it, and the checks at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <loch/loch.h>

#include "base/random.h"
#include "lab/process.h"
#include "lab/temp_folder.h"
#include "sim/history.h"

namespace loch::tests {

using std::chrono::milliseconds;

inline constexpr milliseconds expiry{50};
inline constexpr milliseconds operation_timeout{5000};
// For a call of a worker that nobody stops, the time aside for which it was ready to run and others had the
// processors. What the dead and the stopped left half done is anybody's to finish at once, so a call waits
// for nobody, and for an expiry at most where memory has to rest. The rest is work of its own: under
// sanitizers, on two busy processors, memory that is added or a part of a growth took as long as one expiry;
// and a virtual machine may stand still.
inline constexpr milliseconds call_held_up_max = 10 * expiry;
// For a worker to notice that it is to end, or to be started: far more than it takes, on a busy machine too.
inline constexpr milliseconds patience{60'000};

// The lochd of this build.
std::string lochd_program();

struct WorkerSpec {
  std::string url{};             // empty: that of the test's own store
  std::string source_address{};  // of this host, to go to another from
  bool may_be_cut_off = false;   // from the store
  std::string placement{};       // of new items in a store of a cluster; empty: as the library does
  milliseconds timeout = operation_timeout;
  std::string key_prefix = "hot";
  std::uint64_t keys = 4;
  bool crowded = false;  // keys that are in each other's way in the index, instead
  std::string mix = "write-heavy";
  std::uint64_t value_bytes = 64;
  std::uint64_t value_bytes_max = 64;
  bool iterate = false;
  bool collect = false;
  std::uint64_t think_us = 0;      // pause after each operation, so that others have the processors
  std::uint64_t operations = 0;    // 0: until it is told to end
  milliseconds millis = patience;  // ends by itself after this time
  std::uint64_t lives = 0;         // 0: one, not killed by itself
  std::uint64_t life_us = 20'000;  // the longest of them
  const char* pause_at = "";       // what fault points end with, or any: waits a little there, so that others
                                   // can act
  std::uint64_t pause_us = 2'000;  // at most
  std::vector<std::string> environment{};
};

// One worker and what it wrote.
struct Worker {
  lab::Process process;
  std::filesystem::path history;
};

// What a worker printed when it ended well.
struct WorkerReport {
  std::uint64_t operations = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t unavailable = 0;
  std::uint64_t values_ended = 0;
  std::uint64_t longest_us = 0;
  std::uint64_t longest_held_up_us = 0;
  std::uint64_t killed = 0;
};

// Keys in each other's way: so many, in so many rows of the index. See sim::Crowd.
struct Crowd {
  std::uint64_t rows = 12;
  std::size_t keys = 96;
};

class StoreProcesses : public testing::Test {
 protected:
  explicit StoreProcesses(std::uint32_t candidates = 3, Crowd crowd = {})
      : candidates_(candidates), crowd_(crowd) {}

  void SetUp() override;
  void TearDown() override;

  // Makes the store in the folder that it is told of, and opens it. `options` are those that workers use too.
  virtual Result<Store> open_store(const Options& options);

  // One of a cluster that is new: it is there once all its hosts have met.
  static Result<Store> open_when_whole(const std::string& where, const Options& options);

  // Writes the keys fill-0, fill-1 and so on: the index gets fuller. Part of the history.
  void fill(std::uint64_t items);

  Worker start(const WorkerSpec& spec);

  // Tells a worker to end, and demands that it does, and well. `may_time_out`: it was stopped meanwhile.
  WorkerReport finish(Worker& worker, bool may_time_out = false);
  // The same of several: all are told before the first is awaited.
  void finish_all(std::vector<Worker>& workers, bool may_time_out = false);
  // Waits for a worker to end by itself.
  WorkerReport await(Worker& worker, bool may_time_out = false);

  // Stops a worker at this moment, for longer than the expiry or until memory is used again; then continues
  // it.
  void stop_for_a_while(Worker& worker, bool until_reuse);
  // Lets the others go on for longer than the expiry, then continues it.
  void continue_late(Worker& worker);
  // Lets the others go on for longer than the worker may act without looking again (docs/memory.md, "Reuse"),
  // and from then on until they have used memory again many times; then continues it.
  void continue_after_reuse(Worker& worker);

  // Waits until a worker has gone on a bit.
  static void await_work(const Worker& worker);
  // Waits until a worker has had an answer about each of these keys, of a call later than `since_ns`.
  static void await_answers(const Worker& worker, const std::vector<std::string>& keys,
                            std::uint64_t since_ns);
  // Waits until a worker that may be cut off has been told, later than `since_ns`, that nobody knows what a
  // call of it did.
  static void await_trouble(const Worker& worker, std::uint64_t since_ns);
  // It was told nothing of the kind.
  static void expect_untroubled(const WorkerReport& report);
  // Waits until so many clients have the store open, this test among them.
  void await_clients(std::uint64_t count);
  // Waits until memory has been used again many times, from now on.
  void await_reuse();
  // Waits until some of these keys are there, and of all others nobody can say so. Those that are, with their
  // values.
  std::map<std::string, std::string> expect_some_out_of_reach(const std::vector<std::string>& keys);

  // To be called once all hosts are there again: what was written before and is not there now may be gone
  // since `since_ns`, for its memory was lost. What is there has outlived that.
  void note_loss(std::uint64_t since_ns);

  // Once all workers have ended: reads every key, and checks the history of everybody.
  void expect_linearizable();

  // Clears up after the dead, and demands that everything in the store is accounted for.
  void expect_accounted_for();

  // Removes everything, and demands that the memory comes back. A new history begins.
  void expect_memory_back();

  Store& store() { return *store_; }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  base::Random& random() { return random_; }
  // A random time from zero to `max`.
  std::chrono::microseconds random_time(std::chrono::microseconds max);
  // How many items all clients ever have used again.
  std::uint64_t items_reused();

  // If set, no call of a worker that was never stopped may take longer, waiting for a processor aside.
  std::optional<milliseconds> call_time_max_;

 private:
  const std::uint32_t candidates_;
  const Crowd crowd_;
  std::uint64_t seed_ = 0;
  base::Random random_{0};
  lab::TempFolder folder_ = lab::TempFolder::make("/dev/shm").value();
  std::optional<Result<Store>> opened_;
  Store* store_ = nullptr;
  std::uint64_t clients_ = 0;
  std::filesystem::path crowd_list_;
  std::vector<std::filesystem::path> histories_;
  std::vector<sim::Operation> own_history_;
  bool is_lent_ = false;  // some workers have the store from another host
  struct Loss {
    std::uint64_t since_ns = 0;
    std::uint64_t until_ns = 0;
    std::set<sim::ValueId> outlived;
  } loss_;
};

}  // namespace loch::tests
