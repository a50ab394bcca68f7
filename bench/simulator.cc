// The part of the suite that measures the simulator: as loch-sim tells it, in a process of its own.
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/suite.h"
#include "lab/process.h"

namespace loch::bench {
namespace {

constexpr double rate_min = 300'000;  // operations of the fabric, in a second of one core
// It runs once, and as long as so many measurements: it looks for keys before the first runs.
constexpr double seconds_factor = 4;
constexpr std::chrono::seconds last_run_max{60};  // a run that was begun is ended

}  // namespace

Result<void> run_simulator(Bench& bench) {
  const Settings& settings = bench.settings();
  if (settings.simulator.empty()) {
    bench.report().notes.emplace_back("the simulator is left out: --simulator says where loch-sim is");
    return {};
  }
  bench.say("measuring the simulator");
  const std::chrono::duration<double> time(settings.seconds * settings.rounds * seconds_factor);
  const std::string log = bench.folder() + "/simulator.json";
  const auto done =
      lab::Process::run_to_end({.words = {settings.simulator, "--json", "--jobs", "1", "--from", "0",
                                          "--minutes", fmt::format("{:.6f}", time.count() / 60)},
                                .log = log},
                               std::chrono::duration_cast<std::chrono::milliseconds>(time) + last_run_max);
  if (!done) return done;
  std::ifstream file(log);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  const double rate = json.is_object() ? json.value("operations_per_second", 0.0) : 0;
  if (rate <= 0) return fail(Errc::io, "bench", fmt::format("{} does not tell its rate", settings.simulator));
  bench.report().figures.push_back(
      {.section = "simulator",
       .name = "operation of the fabric",
       .subject = "loch",
       .value = 1e9 / rate,
       .target = Target{fmt::format(">= {:.0f} k/s", rate_min / 1e3), rate >= rate_min}});
  return {};
}

}  // namespace loch::bench
