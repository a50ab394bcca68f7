// loch-bench: measures Loch, the machine's floor and the peers in one run, and prints each as a ratio to the
// others.
//
// Exit codes: 0 done, 1 failed (what was measured before is reported; or a target was not met, with
// --require-targets), 2 usage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "bench/report.h"
#include "bench/suite.h"
#include "lab/interrupt.h"

namespace loch::bench {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

struct Choices {
  std::string workload;
  std::string distribution;
  std::string results;  // a folder
};

std::vector<std::string> mix_names() {
  std::vector<std::string> names;
  for (const Mix& mix : mixes()) names.emplace_back(mix.name);
  return names;
}

void describe_options(CLI::App& app, Settings& settings, Choices& choices) {
  app.add_option("--suite", settings.suite, "standard: all tables; workload: one workload on each subject")
      ->check(CLI::IsMember({"standard", "workload"}))
      ->capture_default_str();
  app.add_option("--sections", settings.sections, "Parts of the standard suite, by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"loch", "large", "idle", "simulator", "peers", "processes", "ycsb", "network"}));
  app.add_option("--subjects", settings.subjects, "What to measure: loch, lmdb, redis, memcached, by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"loch", "lmdb", "redis", "memcached"}));
  app.add_option("--workload", choices.workload,
                 "Workload of the suite \"workload\" (which this option chooses)")
      ->check(CLI::IsMember(mix_names()));
  app.add_option("--distribution", choices.distribution, "Which items the workload takes")
      ->check(CLI::IsMember({"uniform", "zipf", "latest"}));

  const CLI::Range is_count(std::uint64_t{1}, std::uint64_t{1'000'000'000'000});
  app.add_option("--items", settings.items, "Items of Loch")->check(is_count)->capture_default_str();
  app.add_option("--peer-items", settings.peer_items, "Items of each peer; 0: as many")
      ->capture_default_str();
  app.add_option("--key-bytes", settings.key_bytes, "Size of a key, 8 and more")->capture_default_str();
  app.add_option("--value-bytes", settings.value_bytes, "Size of a value")->capture_default_str();
  app.add_option("--large-items", settings.large_items, "Items with large values")
      ->check(is_count)
      ->capture_default_str();
  app.add_option("--large-value-bytes", settings.large_value_bytes, "Size of a large value")
      ->capture_default_str();

  app.add_option("--network-items", settings.network_items, "Items of each subject over TCP")
      ->check(is_count)
      ->capture_default_str();

  app.add_option("--processes", settings.processes, "Most client processes at once")
      ->check(CLI::Range(1, static_cast<int>(workers_max)))
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds, "Time of one round of one measurement")
      ->check(CLI::Range(0.001, 600.0))
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds, "Rounds of each measurement; a figure is their median")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "Of all random draws")->capture_default_str();

  app.add_option("--simulator", settings.simulator, "The program loch-sim, to be measured too")
      ->check(CLI::ExistingFile);
  app.add_option("--lochd", settings.lochd,
                 "The program lochd, to be measured over TCP; unless told, the one that is installed")
      ->check(CLI::ExistingFile);
  app.add_option("--directory", settings.directory, "Where stores and sockets are, in memory")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  app.add_option("--json", settings.json,
                 "Write the results to this file; -: to standard output, without tables");
  app.add_option("--plot", settings.plot, "Draw the results into this SVG file, with gnuplot");
  app.add_option("--results", choices.results,
                 "A folder for bench.json and the plot bench.svg, unless --json and --plot name other files. "
                 "There is no plot where there is nothing to plot or no gnuplot.")
      ->check(CLI::ExistingDirectory)
      ->take_last();
  app.add_flag("--quiet", settings.quiet, "Do not say on standard error what goes on");
  app.add_flag("--require-targets", settings.require_targets, "Exit with 1 if a target was not met");
}

// What the options say together. The returned text is what is wrong; empty when nothing is.
std::string settle(Settings& settings, const Choices& choices, bool subjects_given) {
  settings.subjects_given = subjects_given;
  if (!choices.results.empty()) {
    if (settings.json.empty()) settings.json = choices.results + "/bench.json";
    settings.plot_if_it_can_be = settings.plot.empty();
    if (settings.plot.empty()) settings.plot = choices.results + "/bench.svg";
  }
  for (const std::string& file : {settings.json, settings.plot}) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
      return fmt::format("{} can not be written: there is no folder {}", file, folder.string());
  }
  if (choices.workload.empty()) {
    if (settings.suite == "workload") return "--suite workload needs --workload";
    if (!choices.distribution.empty()) return "--distribution needs --workload";
    return "";
  }
  settings.suite = "workload";
  settings.mix = *find_mix(choices.workload);
  if (choices.distribution.empty()) return "";
  const auto distribution = *find_distribution(choices.distribution);
  if (settings.mix.insert == 0 && distribution == Distribution::latest) {
    return fmt::format("--distribution latest needs a workload that inserts, which {} does not",
                       choices.workload);
  }
  settings.mix.distribution = distribution;
  return "";
}

// Errors: of what could not be written or drawn.
Result<void> report(Bench& bench) {
  const Settings& settings = bench.settings();
  const bool json_only = settings.json == "-";
  if (!json_only) fmt::print("{}", tables_text(bench.report()));
  if (json_only) fmt::print("{}", json_text(bench.report()));
  if (!settings.json.empty() && !json_only) {
    if (auto written = write_file(settings.json, json_text(bench.report())); !written) return written;
    bench.say("the figures are in {}", settings.json);
  }
  if (settings.plot.empty()) return {};
  auto drawn = draw_plot(bench.report(), settings.plot);
  if (drawn) {
    bench.say("the plot is in {}", settings.plot);
    return {};
  }
  const Errc code = drawn.error().code;
  if (!settings.plot_if_it_can_be || (code != Errc::invalid_argument && code != Errc::not_found))
    return drawn;
  bench.say("without a plot: {}", drawn.error().detail);
  return {};
}

// What was measured before something failed is reported all the same, unless the user wants out.
Result<void> measure(Bench& bench) {
  if (bench.settings().json != "-") {
    fmt::print("{}", header_text(bench.report()));
    std::fflush(stdout);
  }
  auto measured = run_suite(bench);
  if (!measured) {
    if (lab::interrupted()) return measured;
    bench.report().notes.push_back(
        fmt::format("this run failed, and what was to come is missing: {}", measured.error().detail));
  }
  bench.conclude();
  auto reported = report(bench);
  return measured ? std::move(reported) : std::move(measured);
}

int run(int count, char** arguments) {
  Settings settings;
  Choices choices;
  CLI::App app("Measures Loch against the machine's floor, LMDB, Redis and memcached.", "loch-bench");
  app.footer(
      "Examples:\n"
      "  loch-bench --results /tmp\n"
      "  loch-bench --json results.json --plot results.svg\n"
      "  loch-bench --workload a --processes 2 --subjects loch,redis\n"
      "  loch-bench --sections loch --subjects loch --items 1000000");
  describe_options(app, settings, choices);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_usage;
  }
  const std::string wrong = settle(settings, choices, app.count("--subjects") != 0);
  if (!wrong.empty()) {
    fmt::print(stderr, "loch-bench: {}\n", wrong);
    return exit_usage;
  }
  lab::catch_interrupts();
  auto bench = Bench::make(settings);
  if (!bench) {
    fmt::print(stderr, "loch-bench: {}\n", bench.error().detail);
    return bench.error().code == Errc::invalid_argument ? exit_usage : exit_failed;
  }
  if (const auto done = measure(*bench); !done) {
    fmt::print(stderr, "loch-bench: {}\n", done.error().detail);
    return exit_failed;
  }
  const Report& report = bench->report();
  return settings.require_targets && report.targets_met() != report.targets() ? exit_failed : 0;
}

}  // namespace
}  // namespace loch::bench

int main(int count, char** arguments) { return loch::bench::run(count, arguments); }
