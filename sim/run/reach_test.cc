// What some run has to reach, or the others show nothing of it. At full speed alone: it takes many.
#include <gtest/gtest.h>
#include <set>
#include <string_view>

#include "base/fault.h"
#include "sim/run/run.h"

namespace loch::sim {
namespace {

TEST(Reach, EveryFaultPointAndRareBranch) {
  std::set<std::string_view> points;
  Stats counted;
  for (const std::string_view workload : workloads()) {
    for (std::uint64_t seed = 1'000; seed < 1'060; ++seed) {
      const Outcomes outcomes = run(draw_setup(workload, seed).value());
      points.insert(outcomes.points.begin(), outcomes.points.end());
      counted += outcomes.counted;
    }
  }
  for (const char* point : base::fault_points())
    EXPECT_TRUE(points.contains(point)) << point << " was not reached";
  for (const Counter counter : {Counter::second_collects, Counter::conflicts,
                                Counter::backoffs,        Counter::timeouts,
                                Counter::pending_inserts, Counter::pending_withdrawn,
                                Counter::displacements,   Counter::displacement_failures,
                                Counter::growths,         Counter::slots_split,
                                Counter::helped_moves,    Counter::helped_inserts,
                                Counter::cleared_words,   Counter::items_reused,
                                Counter::blocks_freed,    Counter::large_allocated,
                                Counter::segments_added,  Counter::sessions_reaped,
                                Counter::items_reclaimed, Counter::cache_hit,
                                Counter::expired_reads}) {
    EXPECT_GT(counted[counter], 0U) << name(counter) << " never happened";
  }
}

}  // namespace
}  // namespace loch::sim
