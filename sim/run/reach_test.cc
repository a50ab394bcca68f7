// What some run has to reach, or the others show nothing of it. At full speed alone: it takes many.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/fault.h"
#include "sim/run/run.h"

namespace loch::sim {
namespace {

// But for those of the plain steps on memory that is mapped, as the simulator's is not: tests of processes
// stop there (tests/fault_test.cc).
std::vector<const char*> points_of_operations() {
  std::vector<const char*> points;
  std::ranges::copy_if(base::fault_points(), std::back_inserter(points),
                       [](std::string_view point) { return !point.contains("_here."); });
  return points;
}

constexpr std::array rare_branches = {Counter::second_collects, Counter::conflicts,
                                      Counter::backoffs,        Counter::timeouts,
                                      Counter::pending_inserts, Counter::pending_withdrawn,
                                      Counter::displacements,   Counter::displacement_failures,
                                      Counter::growths,         Counter::slots_split,
                                      Counter::helped_moves,    Counter::helped_inserts,
                                      Counter::cleared_words,   Counter::items_reused,
                                      Counter::blocks_freed,    Counter::large_allocated,
                                      Counter::segments_added,  Counter::sessions_reaped,
                                      Counter::items_reclaimed, Counter::cache_hit,
                                      Counter::expired_reads};

// No more runs than it takes. What is not listed is found at its place, too (cmake/check_fault_points.cmake).
TEST(Reach, EveryFaultPointAndRareBranch) {
  constexpr std::uint64_t first_seed = 1'000;
  constexpr std::uint64_t seeds_max = 60;  // of each workload
  std::set<std::string_view> listed;
  for (const char* point : points_of_operations()) listed.insert(point);
  for (const char* point : base::handover_points()) listed.insert(point);
  std::set<std::string_view> points;
  Stats counted;
  const auto happened = [&](Counter counter) { return counted[counter] > 0; };
  const auto all_happened = [&] {
    return std::ranges::includes(points, listed) && std::ranges::all_of(rare_branches, happened);
  };
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds_max && !all_happened(); ++seed) {
    for (const std::string_view workload : workloads()) {
      const Outcomes outcomes = run(draw_setup(workload, seed).value());
      points.insert(outcomes.points.begin(), outcomes.points.end());
      counted += outcomes.counted;
    }
  }
  for (const std::string_view point : listed)
    EXPECT_TRUE(points.contains(point)) << point << " was not reached";
  for (const std::string_view point : points)
    EXPECT_TRUE(listed.contains(point)) << point << " is not listed";
  for (const Counter counter : rare_branches)
    EXPECT_TRUE(happened(counter)) << name(counter) << " never happened";
}

// Every player that comes to `point` meets a fault of `kind` there, the first time; all else is as in
// `setup`.
Outcomes run_with(sim::Setup setup, Fault::Kind kind, const char* point) {
  for (std::uint32_t player = 0; player < setup.players; ++player) {
    setup.faults.insert(
        setup.faults.begin() + player,
        {.kind = kind, .player = player, .at_point = point, .lasts_ns = 50 * base::millisecond_ns});
  }
  Outcomes outcomes = run(setup);
  outcomes.begun.resize(setup.players);
  return outcomes;
}

TEST(Reach, EveryFaultOfAPlayerAtEveryFaultPoint) {
  const auto points = points_of_operations();
  constexpr std::size_t runs = 3;  // at each point
  constexpr std::uint64_t first_seed = 1'000;
  constexpr std::uint64_t seeds_max = 300;
  std::map<std::string_view, std::vector<sim::Setup>> passing;
  const auto enough = [&](const char* point) { return passing[point].size() == runs; };
  const auto all_have_enough = [&] { return std::ranges::all_of(points, enough); };
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds_max && !all_have_enough(); ++seed) {
    for (const std::string_view workload : workloads()) {
      const sim::Setup setup = draw_setup(workload, seed).value();
      // Who looks at the store when all is over is no player.
      const auto reached = run(setup).points_of_players;
      for (const char* point : points) {
        if (passing[point].size() < runs && reached.contains(point)) passing[point].push_back(setup);
      }
    }
  }
  for (const char* point : points) {
    EXPECT_TRUE(enough(point)) << point << " is passed by players in " << passing[point].size()
                               << " runs only";
    for (const auto kind : {Fault::Kind::kill, Fault::Kind::pause, Fault::Kind::fail}) {
      // Nobody plays yet who opens the store; that may fail alone.
      if (std::string_view(point) == "session.opened" && kind != Fault::Kind::fail) continue;
      std::ptrdiff_t begun = 0;
      for (const sim::Setup& setup : passing[point]) {
        const Outcomes outcomes = run_with(setup, kind, point);
        EXPECT_EQ(outcomes.violation, "")
            << describe(setup) << describe({.kind = kind, .at_point = point}) << "\n"
            << outcomes.history;
        begun += std::ranges::count(outcomes.begun, true);
      }
      EXPECT_GT(begun, 0) << describe({.kind = kind, .at_point = point});
    }
  }
}

// Receive: a run with one fault, and the same run without it. Expect: both are clean, and they differ.
class OneFault : public testing::TestWithParam<Fault::Kind> {};

TEST_P(OneFault, ChangesWhatHappens) {
  bool differs = false;
  for (std::uint64_t seed = 0; seed < 20 && !differs; ++seed) {
    // Of a cluster, nodes may come back without their memory, come and go.
    using enum Fault::Kind;
    const bool is_change = GetParam() == death || GetParam() == drain || GetParam() == join;
    const bool of_cluster = GetParam() == amnesia || is_change;
    sim::Setup setup = draw_setup(of_cluster ? "cluster" : "hot", seed).value();
    setup.remote_chance = fabric::sim::Network::always;
    setup.nodes = 2;
    setup.nodes_max = is_change ? 3 : 0;
    setup.think_max_ns = 20 * base::millisecond_ns;
    setup.faults.clear();
    const std::uint64_t without = run(setup).trace_hash;
    setup.faults.push_back({.kind = GetParam(),
                            .node = 1,
                            .jump_ns = std::int64_t{base::second_ns},
                            .after_acts = 20,
                            .lasts_ns = 300 * base::millisecond_ns});
    const Outcomes outcomes = run(setup);
    EXPECT_EQ(outcomes.violation, "") << describe(setup) << outcomes.history;
    differs = outcomes.trace_hash != without;
  }
  EXPECT_TRUE(differs);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OneFault,
                         testing::Values(Fault::Kind::kill, Fault::Kind::pause, Fault::Kind::fail,
                                         Fault::Kind::fence, Fault::Kind::clock, Fault::Kind::partition,
                                         Fault::Kind::outage, Fault::Kind::amnesia, Fault::Kind::death,
                                         Fault::Kind::drain, Fault::Kind::join, Fault::Kind::cut_off,
                                         Fault::Kind::loss, Fault::Kind::slow, Fault::Kind::shortage,
                                         Fault::Kind::flip),
                         [](const auto& info) {
                           const std::string text = describe(Fault{.kind = info.param});
                           return text.substr(0, text.find(' '));
                         });

}  // namespace
}  // namespace loch::sim
