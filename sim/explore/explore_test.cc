// Every interleaving of the small scenarios and of those of growth, and that the explorer's own parts can
// tell wrong from right.
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/planted.h"
#include "sim/explore/explorer.h"
#include "sim/explore/monitor.h"

namespace loch::explore {
namespace {

std::vector<std::string> lines_of(const char* file) {
  auto lines = read_scenarios(std::string(LOCH_EXPLORE_SCENARIOS "/") + file);
  LOCH_CHECK(lines.has_value() && !lines->empty());
  return std::move(*lines);
}

// A test for each line of a file, which run beside each other.
class Scenarios : public testing::TestWithParam<std::string> {};

TEST_P(Scenarios, EveryInterleaving) {
  const auto scenario = parse_scenario(GetParam());
  ASSERT_TRUE(scenario.has_value()) << scenario.error().message();
  const Findings found = explore(*scenario, {.seconds_max = 100});
  EXPECT_TRUE(found.violation.empty()) << tell(*scenario, found.choices);
  EXPECT_TRUE(found.exhaustive) << found.summary();
  EXPECT_GT(found.states, 50U);
  EXPECT_GT(found.ends, 0U);
}

// Its place in the file, and its operations: "7_S01_M01".
std::string scenario_name(const testing::TestParamInfo<std::string>& info) {
  const std::string_view text = info.param;
  std::string name = std::to_string(info.index);
  const auto from = text.find('=');
  for (const char c : text.substr(from, text.find(' ') - from)) {
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
    name += is_word ? c : '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Small, Scenarios, testing::ValuesIn(lines_of("small.txt")), scenario_name);
INSTANTIATE_TEST_SUITE_P(Growth, Scenarios, testing::ValuesIn(lines_of("growth.txt")), scenario_name);

TEST(Explore, RunsOfTheDeepScenarios) {
  const auto lines = read_scenarios(LOCH_EXPLORE_SCENARIOS "/deep.txt");
  ASSERT_TRUE(lines.has_value());
  ASSERT_FALSE(lines->empty());
  for (const std::string& line : *lines) {
    const auto scenario = parse_scenario(line);
    ASSERT_TRUE(scenario.has_value()) << scenario.error().message();
    const Findings found = wander(*scenario, 1, {.states_max = 200});
    EXPECT_TRUE(found.violation.empty()) << tell(*scenario, found.choices);
    EXPECT_EQ(found.states, 200U) << line << ": " << found.summary();
  }
}

// ---- teeth

class Teeth : public testing::TestWithParam<base::Planted> {};

// Receive: a rule that is broken on purpose. Expect: a run that shows it.
TEST_P(Teeth, FindWhatIsPlanted) {
  const auto lines = read_scenarios(LOCH_EXPLORE_SCENARIOS "/small.txt");
  ASSERT_TRUE(lines.has_value());
  base::plant(GetParam());
  const bool found = std::ranges::any_of(*lines, [](const std::string& line) {
    return !explore(parse_scenario(line).value(), {.seconds_max = 100}).violation.empty();
  });
  base::plant(base::Planted::nothing);
  EXPECT_TRUE(found);
}

std::string tooth_name(const testing::TestParamInfo<base::Planted>& info) {
  return std::string(std::ranges::find(base::planted_names, info.param, &base::PlantedName::fault)->name);
}
INSTANTIATE_TEST_SUITE_P(Planted, Teeth,
                         testing::Values(base::Planted::miss_by_one_collect,
                                         base::Planted::insert_without_look, base::Planted::wrong_roll_back),
                         tooth_name);

// ---- the parts

TEST(Explore, ARunIsRepeatedByItsChoices) {
  const auto scenario = parse_scenario("ops=P0;M0;G0 keys=0-1- init=0@0 crashes=1");
  ASSERT_TRUE(scenario.has_value());
  World world(*scenario);
  std::vector<Choice> choices;
  std::vector<std::uint64_t> hashes;
  for (;;) {
    const auto next = world.choices();
    if (next.empty()) break;
    choices.push_back(next[choices.size() % next.size()]);
    world.take(choices.back());
    hashes.push_back(world.hash());
  }
  EXPECT_GT(choices.size(), 10U);
  const auto decoded = decode(encode(choices));
  ASSERT_TRUE(decoded.has_value());
  world.reset();
  for (std::size_t i = 0; i < decoded->size(); ++i) {
    world.take((*decoded)[i]);
    EXPECT_EQ(world.hash(), hashes[i]) << "step " << i;
  }
}

TEST(Monitor, AnswersThatNoOrderExplains) {
  Monitor monitor;
  monitor.begin(0, Act::put, 0, 1);
  EXPECT_TRUE(monitor.respond(0, {.kind = Answer::Kind::ok}));
  monitor.begin(1, Act::get, 0, 0);
  EXPECT_FALSE(Monitor(monitor).respond(1, {.kind = Answer::Kind::not_found}));
  EXPECT_FALSE(Monitor(monitor).respond(1, {.kind = Answer::Kind::value, .value = 2}));
  EXPECT_TRUE(monitor.respond(1, {.kind = Answer::Kind::value, .value = 1}));
}

TEST(Monitor, WhoNeverEndedMayHaveTakenEffectOrNot) {
  Monitor monitor;
  monitor.set_initial(0, 9);
  monitor.begin(0, Act::remove, 0, 0);  // never ends
  monitor.begin(1, Act::get, 0, 0);
  EXPECT_TRUE(Monitor(monitor).respond(1, {.kind = Answer::Kind::value, .value = 9}));
  ASSERT_TRUE(monitor.respond(1, {.kind = Answer::Kind::not_found}));
  monitor.begin(1, Act::get, 0, 0);
  EXPECT_FALSE(monitor.respond(1, {.kind = Answer::Kind::value, .value = 9}));  // it does not come back
}

TEST(Monitor, OneInsertOfTwoWins) {
  Monitor monitor;
  monitor.begin(0, Act::insert, 0, 1);
  monitor.begin(1, Act::insert, 0, 2);
  ASSERT_TRUE(monitor.respond(0, {.kind = Answer::Kind::ok}));
  EXPECT_FALSE(monitor.respond(1, {.kind = Answer::Kind::ok}));
}

TEST(Scenario, WhatIsNotUnderstoodIsNamed) {
  for (const char* text :
       {"ops=X0 keys=0-1-", "ops=P0", "keys=0-1-", "ops=P1 keys=0-1-", "ops=P0 keys=0-1-/0-",
        "ops=P0 keys=0-1- init=0@2", "ops=P0 keys=0-1- retries=10", "ops=S0 keys=0-1-", "P0"}) {
    EXPECT_FALSE(parse_scenario(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace loch::explore
