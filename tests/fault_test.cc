// Every fault point of the store: a client is killed there, and in a second test stopped there for longer
// than the memory that it saw rests, while others go on. Afterwards the history has to be linearizable and
// the store in order.
#include "base/fault.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <signal.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/lochds.h"
#include "net/testing/reserved_port.h"
#include "tests/store_processes.h"

namespace loch::tests {
namespace {

// Within it a client gets to its point, or the scenario is no good.
constexpr milliseconds reach_time{20'000};

// How to get a client to a point.
struct Scenario {
  std::string_view points;     // it and those that begin so
  WorkerSpec victim{};         // runs until it gets there
  WorkerSpec other{};          // two of them go on beside it
  std::uint64_t filled = 0;    // items in the store before
  std::uint64_t nth_max = 20;  // acts the first to the nth_max-th time
  const char* helper =
      "";  // where another client dies before, again and again, so that there is something to mend
  bool is_alone = false;  // gets there by itself: the others begin when it has
  bool is_far = false;    // goes by lochd, as from another host
};

const WorkerSpec hot = {};
const WorkerSpec crowd = {.crowded = true, .mix = "displacing"};
const WorkerSpec hesitant = {.crowded = true, .mix = "displacing", .pause_at = "put.after_pending"};
const WorkerSpec newcomers = {.key_prefix = "new", .keys = 100'000, .mix = "displacing"};
const WorkerSpec rewriting = {.key_prefix = "fill", .keys = 1'500};
const WorkerSpec medium_values = {.value_bytes = 16, .value_bytes_max = 20'000};
const WorkerSpec collecting = {
    .mix = "insert-remove", .value_bytes = 16, .value_bytes_max = 20'000, .collect = true};
const WorkerSpec large_values = {.value_bytes = 300'000, .value_bytes_max = 3'000'000};
const WorkerSpec much_memory = {.key_prefix = "big",
                                .keys = 80,
                                .mix = "insert-remove",
                                .value_bytes = 500'000,
                                .value_bytes_max = 3'000'000};

// The first that fits holds; later ones are more general.
const std::array scenarios = {
    Scenario{.points = "session.", .nth_max = 1},
    Scenario{.points = "alloc.large", .victim = large_values, .nth_max = 8},
    Scenario{.points = "alloc.segment", .victim = much_memory, .nth_max = 1},
    Scenario{.points = "alloc.block", .victim = medium_values, .nth_max = 3},
    Scenario{.points = "free_large.", .victim = large_values, .nth_max = 8},
    // Blocks whose items have all rested are those of clients that are gone.
    Scenario{
        .points = "alloc.items", .victim = collecting, .nth_max = 3, .helper = "retire_here.before_mark"},
    Scenario{.points = "free.", .victim = collecting, .nth_max = 3, .helper = "retire_here.before_mark"},
    Scenario{.points = "sweep.before_free",
             .victim = collecting,
             .nth_max = 3,
             .helper = "retire_here.before_mark"},
    Scenario{.points = "settle.", .victim = collecting, .nth_max = 3, .helper = "retire_here.before_mark"},
    Scenario{.points = "reclaim.", .victim = collecting, .nth_max = 3, .helper = "put_here.item_written"},
    Scenario{.points = "sweep.", .victim = collecting, .other = medium_values},
    Scenario{.points = "collect.", .victim = collecting, .other = crowd, .nth_max = 5},
    // Only one client finishes a growth. The others finish this one if it did not, and more after it.
    Scenario{.points = "grow.before_finish",
             .victim = newcomers,
             .other = newcomers,
             .filled = 1'500,
             .nth_max = 3,
             .is_alone = true},
    Scenario{.points = "grow.after_finish",
             .victim = newcomers,
             .other = newcomers,
             .filled = 1'500,
             .nth_max = 3,
             .is_alone = true},
    Scenario{.points = "grow.", .victim = newcomers, .other = rewriting, .filled = 1'500, .nth_max = 1},
    Scenario{.points = "split_together.",
             .victim = newcomers,
             .other = rewriting,
             .filled = 1'500,
             .nth_max = 5,
             .is_far = true},
    Scenario{.points = "split", .victim = newcomers, .other = rewriting, .filled = 1'500},
    Scenario{.points = "move.", .victim = newcomers, .other = rewriting, .filled = 1'500},
    Scenario{
        .points = "resolve.", .victim = crowd, .other = crowd, .nth_max = 1, .helper = "move.after_place"},
    Scenario{.points = "put.before_withdraw", .victim = hesitant, .other = crowd, .nth_max = 1},
    Scenario{.points = "put.after_withdraw", .victim = hesitant, .other = crowd, .nth_max = 1},
    Scenario{.points = "put.", .victim = crowd, .other = crowd},
    Scenario{.points = "put_far.", .nth_max = 200, .is_far = true},
    Scenario{.points = "put_together.before_update",
             .victim = rewriting,
             .other = rewriting,
             .filled = 1'500,
             .is_far = true},
    Scenario{.points = "put_together.before_write", .is_far = true},
    Scenario{.points = "put_together.item", .is_far = true},
    Scenario{.points = "put_together.",
             .victim = newcomers,
             .other = rewriting,
             .filled = 1'500,
             .nth_max = 5,
             .is_far = true},
    // Those of all kinds of change.
    Scenario{.points = "swap.", .victim = crowd, .other = crowd, .nth_max = 1'000},
    Scenario{.points = "put_here.", .nth_max = 500},
    Scenario{.points = ""},
};

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '.', '_');
  return name;
}

// With everybody waiting at any step, most interleavings of few steps come about. The keys have few slots
// between them, so that they are in each other's way all the time.
class HesitationTest : public StoreProcesses, public testing::WithParamInterface<std::uint32_t> {
 protected:
  HesitationTest() : StoreProcesses(GetParam(), GetParam() == 2 ? few_slots : more_slots) {}

  static constexpr Crowd few_slots{.rows = 2, .keys = 8};
  static constexpr Crowd more_slots{.rows = 6, .keys = 52};
  static constexpr std::uint64_t pause_us = 300;
};

TEST_P(HesitationTest, ClientsThatWaitAtAnyPointAreLinearizable) {
  std::vector<Worker> workers;
  for (const char* mix : {"displacing", "displacing", "displacing", "insert-remove", "write-heavy",
                          "read-heavy", "read-heavy"}) {
    workers.push_back(
        start({.crowded = true, .mix = mix, .operations = 6'000, .pause_at = "any", .pause_us = pause_us}));
  }
  for (Worker& worker : workers) await(worker);
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

TEST_P(HesitationTest, ClientsThatWaitWhileTheIndexGrowsAreLinearizable) {
  fill(1'500);
  const WorkerSpec newcomer = {.key_prefix = "new",
                               .keys = 4'000,
                               .mix = "displacing",
                               .operations = 6'000,
                               .pause_at = "any",
                               .pause_us = pause_us};
  const WorkerSpec rewriter = {
      .key_prefix = "fill", .keys = 1'500, .operations = 6'000, .pause_at = "any", .pause_us = pause_us};
  std::vector<Worker> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(start(newcomer));
    workers.push_back(start(rewriter));
  }
  for (Worker& worker : workers) await(worker);
  const Result<Info> info = store().info();
  ASSERT_TRUE(info.has_value()) << info.error().message();
  EXPECT_GT(info->totals[Counter::growths], 0U) << "the index did not grow: the test shows nothing";
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

INSTANTIATE_TEST_SUITE_P(Candidates, HesitationTest, testing::Values(2U, 3U));

// Receive: a client that was about to replace what it read wakes up when that memory would have been used
// again for the same key, in the same slot. Expect: it finds out, because the memory was not used again while
// it slept.
class ReuseTest : public StoreProcesses, public testing::WithParamInterface<const char*> {};

TEST_P(ReuseTest, AStoppedChangeNeverTakesReusedMemoryForWhatItRead) {
  // Few enough writes that the same memory comes round every few.
  Worker other = start({.keys = 1, .mix = "write-heavy", .pause_at = ".item_written", .pause_us = 20'000});
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    Worker late = start({.keys = 1,
                         .mix = "replacing",
                         .environment = {fmt::format("LOCH_FAULT={}:stop:{}", GetParam(), 1 + i)}});
    const auto ending = late.process.wait(patience);
    ASSERT_TRUE(ending && ending->stopped) << late.process.output();
    if (i % 2 == 0) {
      continue_after_reuse(late);
    } else {
      continue_late(late);
    }
    finish(late, true);
  }
  finish(other);
  expect_linearizable();
  expect_accounted_for();
}

// Before its last look whether it may still act, and between that and its compare-swap.
INSTANTIATE_TEST_SUITE_P(Points, ReuseTest,
                         testing::Values("put.before_update", "swap.before_cas", "put_here.item_written",
                                         "put_here.before_update"),
                         test_name);

class FaultTest : public StoreProcesses, public testing::WithParamInterface<const char*> {
 protected:
  FaultTest() { call_time_max_ = call_held_up_max; }

  void SetUp() override {
    StoreProcesses::SetUp();
    if (HasFatalFailure()) return;
    const auto fits = [](const Scenario& s) { return std::string_view(GetParam()).starts_with(s.points); };
    scenario_ = &*std::ranges::find_if(scenarios, fits);
    fill(scenario_->filled);
    if (scenario_->is_far) lend();
    if (!scenario_->is_alone) start_others();
  }

  // A client that says nothing for so long holds nobody up any more.
  void lend() {
    const std::filesystem::path config = folder() / "lochd.toml";
    std::ofstream(config) << fmt::format("listen = [\"{}\"]\nsilence_s = 1\n", port_.at().text());
    auto lochd = lab::start_lochd({.words = {lochd_program(), "--config", config, "--directory", folder()},
                                   .log = folder() / "lochd.log"});
    ASSERT_TRUE(lochd.has_value()) << lochd.error().message();
    lochd_.emplace(std::move(*lochd));
  }

  void start_others() {
    for (int i = 0; i < 2; ++i) others_.push_back(start(scenario_->other));
  }

  Worker start_armed(std::string_view action) {
    WorkerSpec spec = scenario_->victim;
    spec.millis = reach_time;
    if (scenario_->is_far) {
      spec.url = fmt::format("tcp://{}/test", port_.at().text());
      spec.may_be_cut_off = true;  // while it is stopped
    }
    const std::uint64_t nth = 1 + random().below(scenario_->nth_max);
    spec.environment = {fmt::format("LOCH_FAULT={}:{}:{}", GetParam(), action, nth)};
    return start(spec);
  }

  // Waits for the victim to get to its point; clients keep dying meanwhile where the scenario says so.
  std::optional<lab::Ending> await_fault(Worker& victim) {
    if (*scenario_->helper == '\0') {
      const auto ending = victim.process.wait(patience);
      if (scenario_->is_alone) start_others();
      return ending;
    }
    WorkerSpec helper = scenario_->other;
    helper.environment = {fmt::format("LOCH_FAULT={}:kill", scenario_->helper)};
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
      Worker dying = start(helper);
      for (bool lives = true; lives; lives = !dying.process.wait(milliseconds(20)))
        if (const auto ending = victim.process.wait(milliseconds(0))) return ending;
    }
    return std::nullopt;
  }

  // The others have to be able to go on after what happened.
  void expect_everything_in_order() {
    milliseconds left = 4 * expiry;  // all have it together
    for (Worker& worker : others_)
      EXPECT_FALSE(worker.process.wait(std::exchange(left, {})).has_value()) << worker.process.output();
    finish_all(others_);
    expect_linearizable();
    expect_accounted_for();
  }

  const Scenario* scenario_ = nullptr;
  const net::fake::ReservedPort port_;
  std::optional<lab::Process> lochd_;
  std::vector<Worker> others_;
};

TEST_P(FaultTest, AClientKilledThereHarmsNobody) {
  Worker victim = start_armed("kill");
  const auto ending = await_fault(victim);
  ASSERT_TRUE(ending.has_value()) << GetParam() << " was not reached\n" << victim.process.output();
  EXPECT_EQ(ending->signal, SIGKILL) << GetParam() << " was not reached\n" << victim.process.output();
  expect_everything_in_order();
}

TEST_P(FaultTest, AClientStoppedThereForLongerThanTheExpiryHarmsNobody) {
  Worker victim = start_armed("stop");
  const auto ending = await_fault(victim);
  ASSERT_TRUE(ending.has_value()) << GetParam() << " was not reached\n" << victim.process.output();
  ASSERT_TRUE(ending->stopped) << GetParam() << " was not reached\n" << victim.process.output();
  continue_after_reuse(victim);
  // It goes on, with the others.
  EXPECT_FALSE(victim.process.wait(2 * expiry).has_value()) << victim.process.output();
  finish(victim, true);
  expect_everything_in_order();
}

INSTANTIATE_TEST_SUITE_P(Points, FaultTest,
                         testing::ValuesIn(base::fault_points().begin(), base::fault_points().end()),
                         test_name);

}  // namespace
}  // namespace loch::tests
