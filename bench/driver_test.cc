// The driver against a session that keeps its items in a map, and that can be told to answer wrongly.
#include "bench/driver.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace loch::bench {
namespace {

class MapSession final : public Session {
 public:
  Result<void> get(std::string_view key, std::string& into) override {
    ++gets;
    seen.emplace(key);
    const auto found = items.find(std::string(key));
    if (found == items.end()) return fail(Errc::not_found, "get");
    into = found->second;
    if (tear_after != 0 && gets > tear_after) into.back() ^= 1;
    return {};
  }
  Result<void> put(std::string_view key, std::string_view value) override {
    ++puts;
    items.insert_or_assign(std::string(key), std::string(value));
    return {};
  }
  void multi_get(std::span<Lookup> lookups) override {
    for (Lookup& lookup : lookups) lookup.result = get(lookup.key, lookup.value);
  }
  void multi_put(std::span<Assignment> assignments) override {
    for (Assignment& assignment : assignments) assignment.result = put(assignment.key, assignment.value);
  }
  Result<MemoryUse> memory() override { return MemoryUse{}; }

  std::map<std::string, std::string, std::less<>> items;
  std::set<std::string, std::less<>> seen;  // keys that were asked for
  std::uint64_t gets = 0;
  std::uint64_t puts = 0;
  std::uint64_t tear_after = 0;  // gets after which values come torn; 0: never
};

class OneWorker final : public Gathering {
 public:
  bool arrive(std::uint32_t) override { return true; }
  void set_inserted(std::uint32_t, std::uint64_t count) override { inserted_ = count; }
  [[nodiscard]] std::uint64_t inserted(std::uint32_t) const override { return inserted_; }

 private:
  std::uint64_t inserted_ = 0;
};

class DriverTest : public testing::Test {
 protected:
  static constexpr std::uint64_t items = 1000;

  Result<void> run(Task task, double seconds = 0.005) {
    task.seconds = seconds;
    task.items = items;
    task.insert_base = items;
    *outcome_ = Outcome{};
    OneWorker gathering;
    return Driver(session_, dataset_, task, gathering, *outcome_).run();
  }

  void load() { ASSERT_TRUE(run({.act = Act::load, .first = 0, .last = items})); }

  Dataset dataset_ = Dataset::make(items, 16, 64).value();
  MapSession session_;
  std::unique_ptr<Outcome> outcome_ = std::make_unique<Outcome>();
};

TEST_F(DriverTest, LoadPutsEveryItemOnce) {
  load();
  EXPECT_EQ(session_.items.size(), items);
  EXPECT_EQ(session_.puts, items);
  EXPECT_EQ(outcome_->lap.operations, items);
}

TEST_F(DriverTest, WorkersShareALoadWithoutGapOrOverlap) {
  OneWorker gathering;
  for (const Act act : {Act::load, Act::read_back}) {
    for (std::uint32_t worker = 0; worker < 3; ++worker) {
      const Task task{.act = act, .last = items, .worker = worker, .workers = 3};
      ASSERT_TRUE(Driver(session_, dataset_, task, gathering, *outcome_).run());
    }
  }
  EXPECT_EQ(session_.items.size(), items);
  EXPECT_EQ(session_.puts, items);
  EXPECT_EQ(session_.gets, items);
}

TEST_F(DriverTest, ReadingBackFindsWhatIsMissing) {
  load();
  ASSERT_TRUE(run({.act = Act::read_back, .last = items}));
  EXPECT_EQ(outcome_->lap.operations, items);
  session_.items.erase(session_.items.find(std::string(Room(dataset_, 1).key(0, items - 1))));
  EXPECT_FALSE(run({.act = Act::read_back, .last = items}));
}

TEST_F(DriverTest, CountsEveryKeyOfEveryAct) {
  load();
  for (const Act act : {Act::gets, Act::dependent_gets, Act::multi_gets}) {
    session_.gets = 0;
    ASSERT_TRUE(run({.act = act}));
    EXPECT_EQ(outcome_->lap.operations, session_.gets);
    EXPECT_GT(outcome_->lap.elapsed_ns, 0u);
  }
  for (const Act act : {Act::puts, Act::multi_puts}) {
    session_.puts = 0;
    ASSERT_TRUE(run({.act = act}));
    EXPECT_EQ(outcome_->lap.operations, session_.puts);
  }
  EXPECT_EQ(session_.items.size(), items);
}

// A chain that followed the values alone would close to a cycle of about 40 of the 1000 items.
TEST_F(DriverTest, DependentGetsDoNotCloseToAShortCycle) {
  load();
  // One chain of as many gets as there are items, however slow they are.
  for (double seconds = 0.005; session_.gets < items; seconds *= 2) {
    ASSERT_LT(seconds, 10);
    session_.seen.clear();
    session_.gets = 0;
    ASSERT_TRUE(run({.act = Act::dependent_gets}, seconds));
  }
  EXPECT_GT(session_.seen.size(), items / 2);
}

TEST_F(DriverTest, AMissingItemEndsTheTaskWithItsNumber) {
  const auto result = run({.act = Act::gets});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::not_found);
  EXPECT_NE(result.error().detail.find("item "), std::string::npos);
}

TEST_F(DriverTest, ATornValueEndsTheTask) {
  load();
  for (const Act act : {Act::gets, Act::dependent_gets, Act::multi_gets, Act::mix}) {
    session_.tear_after = session_.gets + 50;
    const auto result = run({.act = act});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::corrupt);
  }
}

TEST_F(DriverTest, EveryMixRunsAndTimesItsOperations) {
  load();
  for (const Mix& mix : mixes()) {
    session_.gets = session_.puts = 0;
    ASSERT_TRUE(run({.act = Act::mix, .mix = mix, .latencies = true})) << mix.name;
    EXPECT_EQ(outcome_->reads.count() + outcome_->writes.count(), outcome_->lap.operations) << mix.name;
    EXPECT_EQ(session_.gets, outcome_->reads.count() + (mix.modify != 0 ? outcome_->writes.count() : 0))
        << mix.name;
    EXPECT_EQ(session_.puts, outcome_->writes.count()) << mix.name;
    EXPECT_EQ(outcome_->inserted, mix.insert != 0 ? outcome_->writes.count() : 0) << mix.name;
  }
  EXPECT_GT(session_.items.size(), items);  // mix d inserted
}

TEST_F(DriverTest, TheHarnessAloneIsMeasured) {
  const Lap lap = measure_harness(dataset_, Task{.seconds = 0.001, .items = items});
  EXPECT_GT(lap.operations, 0u);
  EXPECT_GE(lap.elapsed_ns, 1'000'000u);
}

}  // namespace
}  // namespace loch::bench
