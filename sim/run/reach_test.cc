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
  constexpr std::uint64_t first_seed = 1'011;  // from where those that are rare come soon
  constexpr std::uint64_t seeds_max = 60;      // of each workload
  std::set<std::string_view> listed;
  for (const char* point : simulated_fault_points()) listed.insert(point);
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

bool is_of_handovers(std::string_view point) {
  return std::ranges::count(base::handover_points(), point) != 0;
}

// Every player that comes to `point` meets a fault of `kind` there, the first time, and so does the mover at
// those of handovers; all else is as in `setup`.
Outcomes run_with(sim::Setup setup, Fault::Kind kind, const char* point) {
  const bool of_mover = is_of_handovers(point);
  std::vector<Fault> faults;
  for (std::uint32_t i = 0; i < (of_mover ? 1 : setup.players); ++i) {
    faults.push_back({.kind = kind,
                      .player = of_mover ? setup.players : i,
                      .at_point = point,
                      .lasts_ns = 50 * base::millisecond_ns});
  }
  setup.faults.insert(setup.faults.begin(), faults.begin(), faults.end());
  Outcomes outcomes = run(setup);
  outcomes.begun.resize(faults.size());
  return outcomes;
}

TEST(Reach, EveryFaultOfAPlayerAtEveryFaultPoint) {
  std::vector<const char*> points;
  for (const auto some : {simulated_fault_points(), base::handover_points()})
    points.insert(points.end(), some.begin(), some.end());
  constexpr std::size_t runs = 3;  // at each point
  constexpr std::uint64_t first_seed = 1'009;
  constexpr std::uint64_t seeds_max = 300;
  struct Passing {
    std::uint64_t operations = 0;
    sim::Setup setup{};
  };
  std::map<std::string_view, std::vector<Passing>> passing;  // those that do least, first
  const auto enough = [&](const char* point) { return passing[point].size() == runs; };
  const auto all_have_enough = [&] { return std::ranges::all_of(points, enough); };
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds_max && !all_have_enough(); ++seed) {
    for (const std::string_view workload : workloads()) {
      const sim::Setup setup = draw_setup(workload, seed).value();
      const Outcomes outcomes = run(setup);
      for (const char* point : points) {
        // Who looks at the store when all is over is no player.
        const auto& reached = is_of_handovers(point) ? outcomes.points_of_mover : outcomes.points_of_players;
        if (!reached.contains(point)) continue;
        auto& chosen = passing[point];
        chosen.insert(std::ranges::upper_bound(chosen, outcomes.operations, {}, &Passing::operations),
                      {outcomes.operations, setup});
        if (chosen.size() > runs) chosen.pop_back();
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
      for (const auto& [operations, setup] : passing[point]) {
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
