// Simulated runs: a seed gives one run; the store is right in all of them, and wrong when a rule is broken.
#include "sim/run/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/fault.h"
#include "base/planted.h"
#include "base/random.h"
#include "sim/run/teeth.h"

namespace loch::sim {
namespace {

constexpr std::uint64_t slower = LOCH_SANITIZED ? 20 : 1;

void expect_clean(std::string_view workload, std::uint64_t seed) {
  const Outcomes outcomes = run(draw_setup(workload, seed).value());
  EXPECT_EQ(outcomes.violation, "") << outcomes.history << "loch-sim --workload " << workload << " --seed "
                                    << seed;
}

// ---- one seed, one run

class Workload : public testing::TestWithParam<std::string_view> {};

TEST_P(Workload, ASeedGivesOneRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const sim::Setup setup = draw_setup(GetParam(), seed).value();
    const Outcomes first = run(setup);
    const Outcomes second = run(setup);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << seed;
    EXPECT_EQ(first.operations, second.operations) << seed;
    EXPECT_NE(first.trace_hash, run(draw_setup(GetParam(), seed + 100).value()).trace_hash);
  }
}

TEST_P(Workload, IsCleanForAFixedSetOfSeeds) {
  const std::uint64_t seeds = 100 / slower;
  for (std::uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) expect_clean(GetParam(), seed);
}

TEST_P(Workload, IsCleanForFreshSeeds) {
  const std::uint64_t first = base::system_seed() >> 20;
  const std::uint64_t seeds = 100 / slower;
  for (std::uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed)
    expect_clean(GetParam(), seed);
}

std::string name_of(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }
INSTANTIATE_TEST_SUITE_P(All, Workload, testing::ValuesIn(workloads().begin(), workloads().end()), name_of);

TEST(Setup, NamesTheWorkloadsThatThereAre) {
  const auto setup = draw_setup("nonsense", 1);
  ASSERT_FALSE(setup.has_value());
  EXPECT_NE(setup.error().detail.find("crowded"), std::string::npos) << setup.error().detail;
}

// ---- told by one build as well as by several

#if !LOCH_SANITIZED

TEST(Seeds, ThatAreKeptAreClean) {
  std::ifstream file(std::filesystem::path(LOCH_SOURCE_DIR) / "sim/run/seeds.txt");
  std::set<std::string, std::less<>> kept;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string workload;
    std::uint64_t seed = 0;
    ASSERT_TRUE(words >> workload >> seed) << line;
    expect_clean(workload, seed);
    kept.insert(workload);
  }
  for (const std::string_view workload : workloads()) EXPECT_TRUE(kept.contains(workload)) << workload;
}

// Of a run of each workload, in lines.
std::string traces() {
  std::string text;
  for (const std::string_view workload : workloads())
    text += fmt::format("{} {:016x}\n", workload, run(draw_setup(workload, 1).value()).trace_hash);
  return text;
}

// Receive: the same runs in another process, with another number and its memory elsewhere. Expect: the same
// traces.
TEST(Determinism, AnotherProcessMakesTheSameRuns) {
  constexpr const char* asks_for_traces = "LOCH_SIM_TRACES";
  const std::string here = traces();
  if (std::getenv(asks_for_traces) != nullptr) {
    std::fputs(here.c_str(), stdout);
    return;
  }
  const std::string command =
      fmt::format("{}=1 '{}' --gtest_filter=Determinism.AnotherProcessMakesTheSameRuns", asks_for_traces,
                  std::filesystem::read_symlink("/proc/self/exe").string());
  const std::unique_ptr<FILE, int (*)(FILE*)> other(::popen(command.c_str(), "r"), &::pclose);
  ASSERT_NE(other, nullptr);
  std::string there;
  for (int c = 0; (c = std::fgetc(other.get())) != EOF;) there += static_cast<char>(c);
  EXPECT_TRUE(there.contains(here)) << here << "\n" << there;
}

// What runs in the simulator may not ask the real time or the system for randomness, nor go through a table
// in an order that is not its own.
TEST(Determinism, NothingElseDecides) {
  const std::regex forbidden(
      R"(_clock::now|clock_gettime|gettimeofday|random_device|\brand\(|std::time\(|std::unordered_)");
  // The clock itself; the system's seed; the program that makes runs; what judges a run when it is over.
  const std::set<std::string> allowed = {"src/base/clock.h",  "src/base/random.cc", "sim/run/main.cc",
                                         "sim/key_search.cc", "sim/key_search.h",   "sim/linearizability.cc"};
  const std::filesystem::path root = LOCH_SOURCE_DIR;
  int files = 0;
  for (const char* folder :
       {"src/base", "src/coro", "src/memory", "src/memory/testing", "src/hash", "src/client", "src/fabric",
        "src/fabric/sim", "src/fabric/testing", "src/cluster", "sim", "sim/paper", "sim/run"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || name.ends_with("_test.cc") || allowed.contains(name)) continue;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        EXPECT_FALSE(std::regex_search(line, forbidden)) << name << ":" << number << ": " << line;
      }
      ++files;
    }
  }
  EXPECT_GT(files, 100);
}

#endif

// ---- teeth

class Teeth : public testing::TestWithParam<Tooth> {};

TEST_P(Teeth, FindWhatIsPlanted) {
  const auto [fault, workload, seeds, from] = GetParam();
  base::plant(fault);
  std::uint64_t seed = from;
  const auto fails = [&] { return !run(draw_setup(workload, seed).value()).violation.empty(); };
  while (seed < from + seeds && !fails()) ++seed;
  base::plant(base::Planted::nothing);
  ASSERT_LT(seed, from + seeds) << "no run found it";
  expect_clean(workload, seed);  // with nothing planted
}

std::string tooth_name(const testing::TestParamInfo<Tooth>& info) { return std::string(name(info.param)); }
// Those that take many runs are left to the build without sanitizers, which has them all.
std::vector<Tooth> teeth_for_this_build() {
  std::vector<Tooth> teeth(all_teeth.begin(), all_teeth.end());
  if (slower != 1) std::erase_if(teeth, [](const Tooth& tooth) { return tooth.seeds > 50; });
  return teeth;
}
INSTANTIATE_TEST_SUITE_P(Planted, Teeth, testing::ValuesIn(teeth_for_this_build()), tooth_name);

// Receive: a run that fails. Expect: a smaller one that fails too.
TEST(Minimize, LeavesOutWhatIsNotNeeded) {
  base::plant(Planted::lease_without_fence);
  std::uint64_t seed = 0;
  while (run(draw_setup("hot", seed).value()).violation.empty()) ASSERT_LT(++seed, 100U);
  const sim::Setup failing = draw_setup("hot", seed).value();
  const sim::Setup least = minimize(failing, 100);
  EXPECT_NE(run(least).violation, "");
  EXPECT_LE(least.faults.size(), failing.faults.size());
  EXPECT_LT(least.acts * least.players, failing.acts * failing.players);
  base::plant(Planted::nothing);
}

}  // namespace
}  // namespace loch::sim
