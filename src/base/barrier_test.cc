#include "base/barrier.h"

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace loch::base {
namespace {

constexpr std::uint64_t rounds = 20'000;

// Both threads of a round have come to it when this returns. They leave it at almost the same moment, and
// then take a little time, which is another one each round.
void meet(std::atomic<std::uint64_t>& arrived, std::uint64_t round, std::uint64_t jitter) {
  constexpr int spins_max = 1'000;  // the other may wait for this processor
  arrived.fetch_add(1, std::memory_order_acq_rel);
  for (int spins = 0; arrived.load(std::memory_order_acquire) < 2 * round; ++spins) {
    if (spins >= spins_max) std::this_thread::yield();
  }
  for (std::uint64_t i = 0; i < jitter; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Two threads that each store one word and then load the other's, the one without a fence, as operations
// begin, and the other with `between` in between. In so many rounds neither saw the other's.
template <class Between>
std::uint64_t count_missed(Between between) {
  std::atomic<std::uint64_t> arrived = 0;
  std::atomic<std::uint64_t> finished = 0;
  alignas(64) std::atomic<std::uint64_t> mine = 0;
  alignas(64) std::atomic<std::uint64_t> theirs = 0;
  alignas(64) std::uint64_t seen_there = 0;
  std::thread other([&] {
    for (std::uint64_t i = 1; i <= rounds; ++i) {
      meet(arrived, i, i % 150);
      theirs.store(i, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      seen_there = mine.load(std::memory_order_acquire);
      finished.store(i, std::memory_order_release);
    }
  });
  std::uint64_t missed = 0;
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    meet(arrived, i, i % 311);
    mine.store(i, std::memory_order_release);
    between();
    const std::uint64_t seen_here = theirs.load(std::memory_order_acquire);
    while (finished.load(std::memory_order_acquire) != i) std::this_thread::yield();
    missed += seen_here != i && seen_there != i ? 1 : 0;
  }
  other.join();
  return missed;
}

// Expect: one of them at least sees the other's. How often none does without the barrier is recorded; never,
// where nothing puts a load before a store.
TEST(Barrier, AStoreBeforeItIsSeenAndALoadBehindItSees) {
  if (!take_part_in_barriers()) GTEST_SKIP() << "this kernel gives none (membarrier)";
  bool is_given = true;
  EXPECT_EQ(count_missed([&] { is_given = barrier_for_all() && is_given; }), 0U);
  EXPECT_TRUE(is_given);
  RecordProperty("missed_without",
                 std::to_string(count_missed([] { std::atomic_signal_fence(std::memory_order_seq_cst); })));
}

}  // namespace
}  // namespace loch::base
