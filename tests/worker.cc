// loch-test-worker: one client of a store for the process tests. It runs a random mix of operations and
// writes its history; with --lives it starts itself again and again and kills each life at a random moment.
//
// Exit codes: 0 done, 2 usage, 3 a value that nobody wrote (or bytes found corrupt), 4 an error that the
// store must not give here, 5 the history could not be written, 6 the store could not be opened. At its end
// it prints a line of JSON.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <signal.h>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "base/fault.h"
#include "base/random.h"
#include "lab/process.h"
#include "sim/history.h"
#include "sim/value.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

constexpr int exit_torn_value = 3;
constexpr int exit_store_error = 4;
constexpr int exit_history_lost = 5;
constexpr int exit_no_store = 6;

struct Arguments {
  std::string url = "shm://test";
  std::string directory;
  std::string source_address;
  Placement placement = Placement::local;
  std::string history;
  std::string key_prefix = "hot";
  std::uint64_t keys = 4;
  std::string key_list;
  WorkloadOptions workload;
  std::uint64_t millis = 0;
  std::uint64_t think_us = 0;
  std::uint64_t timeout_ms = 1000;
  std::uint64_t expiry_ms = 1000;
  std::uint64_t lives = 0;
  std::uint64_t life_us_max = 20'000;
};

// Set by SIGTERM: finish the operation at hand, report, and end.
std::atomic<bool> stop{false};

// With --pause-at: at the fault points whose names end so every time, or at each point now and then. Others
// get to act in between.
struct Pause {
  std::string point;
  base::Random random{0};
  std::uint64_t us_max = 0;
};
Pause pause_at;
constexpr std::string_view any_point = "any";
constexpr std::uint64_t any_point_one_in = 4;

void pause_or_act(const char* point) {
  const bool here = pause_at.point == any_point ? pause_at.random.below(any_point_one_in) == 0
                                                : std::string_view(point).ends_with(pause_at.point);
  if (here) {
    const timespec time{.tv_sec = 0,
                        .tv_nsec = static_cast<long>(pause_at.random.below(pause_at.us_max + 1) * 1000)};
    nanosleep(&time, nullptr);
  }
  base::set_fault_hook(nullptr);
  base::fault_hit(point);
  base::set_fault_hook(pause_or_act);
}

int complain(int code, std::uint64_t client, std::string_view what) {
  fmt::print(stderr, "worker {}: {}\n", client, what);
  std::fflush(stderr);
  return code;
}

std::vector<std::string> keys_of(const Arguments& arguments) {
  if (arguments.key_list.empty()) return numbered_keys(arguments.key_prefix, arguments.keys);
  std::vector<std::string> keys;
  std::ifstream list(arguments.key_list);
  for (std::string key; std::getline(list, key);) keys.push_back(key);
  return keys;
}

// Runs the mix once, as one client.
int live(const Arguments& arguments, const WorkloadOptions& workload) {
  auto history = sim::HistoryWriter::open(arguments.history, workload.client);
  if (!history) return complain(exit_history_lost, workload.client, history.error().detail);
  Options options;
  options.directory = arguments.directory;
  options.source_address = arguments.source_address;
  options.placement = arguments.placement;
  options.expiry = std::chrono::milliseconds(arguments.expiry_ms);
  options.timeout = std::chrono::milliseconds(arguments.timeout_ms);
  auto store = Store::open(arguments.url, options);
  if (!store) return complain(exit_no_store, workload.client, store.error().message());
  try {
    const Summary summary = Workload(*store, *history, workload).run(stop);
    fmt::print(
        "{{\"operations\":{},\"timed_out\":{},\"no_space\":{},\"unavailable\":{},\"values_ended\":{},"
        "\"longest_us\":{},\"longest_held_up_us\":{}}}\n",
        summary.operations, summary.timed_out, summary.no_space, summary.unavailable, summary.values_ended,
        summary.longest_us, summary.longest_held_up_us);
    return EXIT_SUCCESS;
  } catch (const Trouble& trouble) {
    const int code = trouble.failure == Failure::torn_value    ? exit_torn_value
                     : trouble.failure == Failure::store_error ? exit_store_error
                                                               : exit_history_lost;
    return complain(code, workload.client, trouble.message);
  }
}

// Forks clients numbered from --client on, one at a time, and kills each. A store is opened in the child
// only.
int live_and_die(const Arguments& arguments) {
  base::Random random(arguments.workload.seed);
  std::uint64_t killed = 0;
  for (std::uint64_t i = 0; i < arguments.lives && !stop; ++i) {
    WorkloadOptions workload = arguments.workload;
    workload.client += i;
    workload.seed = random.next();
    // Every other life is short, so that many die while they open the store.
    const std::uint64_t us =
        random.below((i % 2 == 0 ? arguments.life_us_max : arguments.life_us_max / 10) + 1);
    auto life = lab::Process::fork([&] { return live(arguments, workload); });
    if (!life) return complain(exit_no_store, workload.client, life.error().message());
    life->wait_for_end(std::chrono::microseconds(us));
    const lab::Ending ended = life->kill();
    if (ended.signal == SIGKILL) {
      ++killed;
    } else if (ended.code() != 0) {
      return complain(ended.code(), workload.client, "ended by itself, see above");
    }
  }
  fmt::print("{{\"lives\":{},\"killed\":{}}}\n", arguments.lives, killed);
  return EXIT_SUCCESS;
}

// From the beginning: a worker that is ended early reports, too. Whoever starts it has kept the signal from
// it until now.
void end_by_sigterm() {
  struct sigaction on_term{};
  on_term.sa_handler = [](int) { stop.store(true, std::memory_order_relaxed); };
  sigaction(SIGTERM, &on_term, nullptr);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
}

int run(int argc, char** argv) {
  Arguments arguments;
  WorkloadOptions& workload = arguments.workload;
  const std::map<std::string, Mix> mixes = {{"read-heavy", Mix::read_heavy},
                                            {"write-heavy", Mix::write_heavy},
                                            {"insert-remove", Mix::insert_remove},
                                            {"displacing", Mix::displacing},
                                            {"replacing", Mix::replacing}};
  const std::map<std::string, Placement> placements = {
      {"local", Placement::local}, {"spread", Placement::spread}, {"by-key", Placement::by_key}};
  CLI::App app{"One client of a store, for the process tests"};
  app.add_option("--url", arguments.url)->capture_default_str();
  app.add_option("--directory", arguments.directory, "where the store's files are")->required();
  app.add_option("--from", arguments.source_address, "the address of this host to go to another from");
  app.add_option("--placement", arguments.placement, "of new items, in a store of a cluster")
      ->transform(CLI::CheckedTransformer(placements));
  app.add_flag("--may-be-cut-off", workload.may_be_cut_off, "from a store on another host");
  app.add_option("--history", arguments.history, "file to append the history to")->required();
  app.add_option("--client", workload.client, "number of this client, of no other one")->required();
  app.add_option("--seed", workload.seed)->capture_default_str();
  app.add_option("--key-prefix", arguments.key_prefix, "of the keys' names");
  app.add_option("--key-list", arguments.key_list, "file of keys, one a line, instead of --keys");
  app.add_option("--keys", arguments.keys, "how many keys; few of them are hot")->check(CLI::PositiveNumber);
  app.add_option("--operations", workload.operations_max, "end after so many; 0: no limit");
  app.add_option("--millis", arguments.millis, "end after this time; 0: no limit");
  app.add_option("--think-us", arguments.think_us, "pause after each operation");
  app.add_option("--mix", workload.mix)->transform(CLI::CheckedTransformer(mixes));
  app.add_option("--value-bytes", workload.value_bytes_min, "length of the shortest value");
  app.add_option("--value-bytes-max", workload.value_bytes_max, "length of the longest value");
  app.add_flag("--iterate", workload.iterate, "iterate over the store now and then");
  app.add_flag("--collect", workload.collect, "clear up in the store now and then");
  app.add_option("--timeout-ms", arguments.timeout_ms, "of one operation");
  app.add_option("--expiry-ms", arguments.expiry_ms, "of the store");
  app.add_option("--lives", arguments.lives, "kill and start again so many times; 0: live once");
  app.add_option("--life-us", arguments.life_us_max, "the longest life");
  app.add_option("--pause-at", pause_at.point,
                 "end of the names of fault points at which to wait for a random time, or any");
  app.add_option("--pause-us", pause_at.us_max, "the longest of these times")->check(CLI::Range(0, 999'999));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  workload.keys = keys_of(arguments);
  if (workload.keys.empty()) return complain(2, workload.client, "no keys");
  workload.duration_max = std::chrono::milliseconds(arguments.millis);
  workload.think = std::chrono::microseconds(arguments.think_us);
  workload.value_bytes_max = std::max(workload.value_bytes_min, workload.value_bytes_max);
  if (workload.value_bytes_min < sim::value_bytes_min) {
    return complain(2, workload.client, fmt::format("--value-bytes: at least {}", sim::value_bytes_min));
  }
  if (!pause_at.point.empty()) {
    pause_at.random = base::Random(workload.seed);
    base::set_fault_hook(pause_or_act);
  }
  return arguments.lives == 0 ? live(arguments, workload) : live_and_die(arguments);
}

}  // namespace
}  // namespace loch::tests

int main(int argc, char** argv) {
  loch::tests::end_by_sigterm();
  return loch::tests::run(argc, argv);
}
