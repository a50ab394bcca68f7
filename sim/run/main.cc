// loch-sim: runs of the simulator, one after another on every processor, until one fails.
//
// Exit codes: 0 nothing wrong, 1 a run failed, 2 usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/fault.h"
#include "base/planted.h"
#include "base/random.h"
#include "sim/run/run.h"
#include "sim/run/teeth.h"

namespace loch::sim {
namespace {

struct Options {
  std::string workload = "any";
  std::uint64_t first = 0;
  std::uint64_t seeds = 0;
  double minutes = 0;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
  bool trace = false;
  bool json = false;
  std::string planted;
};

struct Failure {
  Setup setup;
  Outcomes outcomes;
};

class Campaign {
 public:
  explicit Campaign(const Options& options) : options_(options), next_(options.first) {}
  int run();

 private:
  void work();
  void report_until(const std::stop_token& stop);
  [[nodiscard]] double passed_s() const;
  // How far it has come. Called with the mutex held.
  void report(bool last) const;

  const Options& options_;
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> next_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable_any ended_;  // the reporter waits here, with the mutex
  std::uint64_t runs_ = 0;
  std::uint64_t operations_ = 0;
  std::set<std::string_view> points_;
  std::optional<Failure> failure_;
};

void Campaign::work() {
  while (!stop_) {
    const std::uint64_t seed = next_++;
    if (options_.minutes != 0 ? passed_s() > options_.minutes * 60 : seed - options_.first >= options_.seeds)
      return;
    const Setup setup = *draw_setup(options_.workload, seed);
    Outcomes outcomes = sim::run(setup);
    const std::scoped_lock lock(mutex_);
    ++runs_;
    operations_ += outcomes.operations;
    points_.insert(outcomes.points.begin(), outcomes.points.end());
    if (outcomes.violation.empty() || failure_) continue;
    failure_ = Failure{setup, std::move(outcomes)};
    stop_ = true;
  }
}

double Campaign::passed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

// "01:02:03"
std::string clock_text(double seconds) {
  return fmt::format("{:%T}", std::chrono::seconds(std::llround(std::max(0.0, seconds))));
}

// On a terminal one line that changes; in a log a line now and then.
void Campaign::report_until(const std::stop_token& stop) {
  const auto interval = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, stop, interval, [&stop] { return stop.stop_requested(); })) report(false);
  report(true);
}

void Campaign::report(bool last) const {
  const double passed = passed_s();
  const double runs_a_second = static_cast<double>(runs_) / passed;
  const double left = options_.minutes != 0 ? options_.minutes * 60 - passed
                                            : static_cast<double>(options_.seeds - runs_) / runs_a_second;
  fmt::print(stderr, "{}{} runs, {:.0f} a second; {:.0f} operations of the fabric a second; {} passed{}{}{}",
             terminal_ ? "\r" : "", runs_, runs_a_second, static_cast<double>(operations_) / passed,
             clock_text(passed), last || runs_ == 0 ? "" : fmt::format(", {} left", clock_text(left)),
             terminal_ ? "\x1b[K" : "", terminal_ && !last ? "" : "\n");
}

// What failed, made as small as it goes, with all that happened to the key.
void tell_story(const Failure& failure) {
  constexpr std::uint64_t runs_max = 400;
  const Setup least = minimize(failure.setup, runs_max);
  Outcomes outcomes = run(least);
  if (!outcomes.key.empty()) {
    fmt::print("What happened to '{}':\n", outcomes.key);
    outcomes = run(
        least, {.line = [](const std::string& line) { fmt::print("{}\n", line); }, .only_key = outcomes.key});
  }
  fmt::print("\n{}\n{}\n{}\n", describe(least), outcomes.violation, outcomes.history);
}

int Campaign::run() {
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < options_.jobs; ++i) workers.emplace_back([this] { work(); });
  std::jthread reporter;
  if (!options_.json) reporter = std::jthread([this](const std::stop_token& stop) { report_until(stop); });
  for (std::thread& worker : workers) worker.join();
  const double passed = passed_s();
  reporter = {};  // its last line
  if (!failure_ && options_.json) {
    fmt::print(
        "{{\"runs\": {}, \"operations\": {}, \"seconds\": {:.3f}, \"operations_per_second\": {:.0f}}}\n",
        runs_, operations_, passed, static_cast<double>(operations_) / passed);
    return 0;
  }
  if (!failure_) {
    if (!options_.planted.empty()) fmt::print("No run found {}.\n", options_.planted);
    for (const auto points : {simulated_fault_points(), base::handover_points()}) {
      for (const char* point : points) {
        if (!points_.contains(point)) fmt::print("No run came to {}.\n", point);
      }
    }
    return 0;
  }
  tell_story(*failure_);
  const std::string planted = options_.planted.empty() ? "" : " --planted " + options_.planted;
  fmt::print("After {} runs. Repeat it: loch-sim{} --workload {} --seed {}\n", runs_, planted,
             options_.workload, failure_->setup.seed);
  return 1;
}

int run_one(const Options& options) {
  const auto setup = draw_setup(options.workload, options.first);
  fmt::print("{}", describe(*setup));
  Listener listener;
  if (options.trace) listener.line = [](const std::string& line) { fmt::print("{}\n", line); };
  Outcomes outcomes = run(*setup, listener);
  fmt::print("{} operations of the fabric, trace {:016x}\n", outcomes.operations, outcomes.trace_hash);
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (outcomes.counted.values[i] != 0)
      fmt::print("  {} {}\n", name(static_cast<Counter>(i)), outcomes.counted.values[i]);
  }
  if (outcomes.violation.empty()) return 0;
  tell_story({*setup, std::move(outcomes)});
  return 1;
}

int main_of(int argc, char** argv) {
  CLI::App app("Simulated runs of the store, with faults; each is given by a workload and a seed");
  Options options;
  std::optional<std::uint64_t> seed;
  std::vector<std::string_view> planted;
  for (const auto& [fault, name] : base::planted_names) planted.push_back(name);
  app.add_option("--workload", options.workload,
                 fmt::format("one of {}, {}", fmt::join(workloads(), ", "), literal_paper));
  auto* alone = app.add_option("--seed", seed, "run this one alone, and tell what came of it");
  app.add_option("--seeds", options.seeds, "how many runs")->excludes(alone);
  app.add_option("--from", options.first, "the first of them; drawn unless told")->excludes(alone);
  app.add_option("--minutes", options.minutes, "run for so long")->excludes(alone);
  app.add_option("--jobs", options.jobs, "how many runs beside each other");
  app.add_option("--planted", options.planted,
                 fmt::format("break a rule on purpose, by the workload and in the runs that find it unless "
                             "others are told: one of {}",
                             fmt::join(planted, ", ")));
  app.add_flag("--json", options.json, "tell the rate alone, as JSON, unless a run fails");
  app.add_flag("--trace", options.trace, "with --seed: print every operation of the fabric")->needs(alone);
  CLI11_PARSE(app, argc, argv);
  if (auto setup = draw_setup(options.workload, 0); !setup) {
    fmt::print(stderr, "loch-sim: {}\n", setup.error().message());
    return 2;
  }
  if (!options.planted.empty()) {
    const auto found = std::ranges::find(base::planted_names, options.planted, &base::PlantedName::name);
    if (found == base::planted_names.end()) {
      fmt::print(stderr, "loch-sim: there is nothing to plant that is called '{}'; there are: {}\n",
                 options.planted, fmt::join(planted, ", "));
      return 2;
    }
    base::plant(found->fault);
    const auto tooth = std::ranges::find(all_teeth, found->fault, &Tooth::fault);
    if (app.count("--workload") == 0) options.workload = tooth->workload;
    // A fixed set, so that it is found.
    if (!seed && app.count("--from") + app.count("--seeds") + app.count("--minutes") == 0) {
      options.seeds = tooth->seeds;
      options.first = tooth->from;
      return Campaign(options).run();
    }
  }
  if (seed) {
    options.first = *seed;
    return run_one(options);
  }
  if (app.count("--from") == 0) options.first = base::system_seed() >> 20;
  if (options.seeds == 0 && options.minutes == 0) options.seeds = 1'000;
  return Campaign(options).run();
}

}  // namespace
}  // namespace loch::sim

int main(int argc, char** argv) { return loch::sim::main_of(argc, argv); }
