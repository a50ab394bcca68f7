#include "bench/figure.h"

#include <gtest/gtest.h>
#include <optional>

#include "bench/bench.h"
#include "bench/suite.h"

namespace loch::bench {
namespace {

TEST(Target, IsMetAtItsLimitAndNotBeyond) {
  EXPECT_TRUE(at_most(3.2, 3.2).met);
  EXPECT_FALSE(at_most(3.21, 3.2).met);
  EXPECT_TRUE(at_least(1.85, 1.85).met);
  EXPECT_FALSE(at_least(1.84, 1.85).met);
  EXPECT_EQ(at_most(1, 3.2).text, "<= 3.2");
  EXPECT_EQ(at_least(1, 12).text, ">= 12");
}

// Receive: a ratio of 0, which is what a measurement that did not happen gives. Expect: no target is met by
// it.
TEST(Target, IsNotMetByNothing) {
  EXPECT_FALSE(at_most(0, 3.2).met);
  EXPECT_FALSE(at_least(0, 8).met);
}

TEST(Series, TheMedianIsOfOddAndOfEvenCounts) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

// Receive: a machine that gets twice as slow during the rounds. Expect: the ratio of two that run side by
// side is not touched by it.
TEST(Series, RatiosAreTakenWithinARound) {
  const Series one{{100, 80, 50}};
  const Series other{{200, 160, 100}};
  EXPECT_EQ(rate_ratio(one, other), 2);
  EXPECT_EQ(rate_ratio(other, one), 0.5);
  EXPECT_EQ(rate_ratio(Series{}, other), 0);
}

// Receive: a floor of one process and one of two, which two processes read together in half the time. Expect:
// what two processes do is told by the floor of two, and what three do by none.
TEST(OverFloor, IsByTheFloorOfAsManyProcesses) {
  Report report;
  report.figures.push_back(
      {.section = "floor", .name = "independent read", .subject = "machine", .value = 20});
  EXPECT_EQ(over_floor(report, 30, 1), 1.5);
  EXPECT_EQ(over_floor(report, 30, 2), std::nullopt);
  report.figures.push_back({.section = "processes",
                            .name = "floor: independent read",
                            .subject = "machine",
                            .processes = 2,
                            .value = 10});
  EXPECT_EQ(over_floor(report, 30, 1), 1.5);
  EXPECT_EQ(over_floor(report, 30, 2), 3);
  EXPECT_EQ(over_floor(report, 30, 3), std::nullopt);
}

TEST(Report, FindsFiguresAndCountsTargets) {
  Report report;
  report.figures.push_back({.section = "loch", .name = "get", .subject = "loch", .value = 100});
  report.figures.push_back({.section = "ycsb",
                            .name = "a",
                            .subject = "loch",
                            .processes = 2,
                            .value = 50,
                            .target = at_most(1, 2)});
  report.figures.push_back(
      {.section = "ycsb", .name = "b", .subject = "loch", .value = 50, .target = at_most(3, 2)});
  EXPECT_EQ(report.find("loch", "get", "loch"), report.figures.data());
  EXPECT_EQ(report.find("ycsb", "a", "loch"), nullptr);
  EXPECT_EQ(report.find("ycsb", "a", "loch", 2), &report.figures[1]);
  EXPECT_EQ(report.in("ycsb").size(), 2u);
  EXPECT_EQ(report.targets(), 2u);
  EXPECT_EQ(report.targets_met(), 1u);
  EXPECT_EQ(report.figures[0].rate(), 1e7);
}

}  // namespace
}  // namespace loch::bench
