// loch-explore: checks the slot protocol of the hash store over its own code, by trying every interleaving.
//
//   loch-explore 'ops=P0;P0;D1 keys=0-1-/0-0- init=1@0'      one scenario
//   loch-explore --file sim/explore/scenarios/small.txt      all of a file, each for at most --seconds
//   loch-explore 'ops=...' --choices 0e00...                 one run, told step by step
//
// Exit codes: 0 nothing wrong, 1 a violation, 2 usage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "sim/explore/explorer.h"

namespace loch::explore {
namespace {

struct Arguments {
  std::vector<std::string> scenarios;
  std::string file;
  std::string choices;
  Limits limits;
  bool wander = false;
  std::uint64_t seed = 1;
};

int run_one(const std::string& text, const Arguments& arguments) {
  constexpr int exit_violation = 1;
  constexpr int exit_usage = 2;
  const auto scenario = parse_scenario(text);
  if (!scenario) {
    fmt::print(stderr, "{}\n", scenario.error().message());
    return exit_usage;
  }
  if (!arguments.choices.empty()) {
    const auto choices = decode(arguments.choices);
    if (!choices) {
      fmt::print(stderr, "{}\n", choices.error().message());
      return exit_usage;
    }
    fmt::print("{}", tell(*scenario, *choices));
    return 0;
  }
  fmt::print("{}\n", text);
  std::fflush(stdout);
  const Findings found = arguments.wander ? wander(*scenario, arguments.seed, arguments.limits)
                                          : explore(*scenario, arguments.limits);
  fmt::print("  {}\n", found.summary());
  if (!found.violation.empty()) fmt::print("{}\n", tell(*scenario, found.choices));
  std::fflush(stdout);
  return found.violation.empty() ? 0 : exit_violation;
}

int run(int argc, char** argv) {
  CLI::App app{"Checks the slot protocol of the hash store by trying every interleaving."};
  Arguments arguments;
  app.add_option("scenario", arguments.scenarios, "ops=... keys=...; see sim/explore/scenario.h");
  app.add_option("--file", arguments.file, "scenarios, one a line");
  app.add_option("--choices", arguments.choices, "tells this one run");
  app.add_option("--seconds", arguments.limits.seconds_max, "for each scenario")->capture_default_str();
  app.add_option("--states", arguments.limits.states_max, "for each scenario")->capture_default_str();
  app.add_flag("--wander", arguments.wander, "random runs instead of all");
  app.add_option("--seed", arguments.seed, "of the random runs")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!arguments.file.empty()) {
    auto lines = read_scenarios(arguments.file);
    if (!lines) {
      fmt::print(stderr, "{}\n", lines.error().message());
      return 2;
    }
    arguments.scenarios.insert(arguments.scenarios.end(), lines->begin(), lines->end());
  }
  int worst = 0;
  for (const std::string& scenario : arguments.scenarios)
    worst = std::max(worst, run_one(scenario, arguments));
  return worst;
}

}  // namespace
}  // namespace loch::explore

int main(int argc, char** argv) { return loch::explore::run(argc, argv); }
