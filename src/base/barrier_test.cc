#include "base/barrier.h"

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <thread>

namespace loch::base {
namespace {

// Receive: two threads that each store one word and then load the other's, the one without a fence, as
// operations begin, and the other with a barrier in between. Expect: one of them at least sees the other's.
TEST(Barrier, AStoreBeforeItIsSeenAndALoadBehindItSees) {
  if (!take_part_in_barriers()) GTEST_SKIP() << "this kernel gives none (membarrier)";
  constexpr std::uint64_t rounds = 2'000;
  std::atomic<std::uint64_t> round = 0;
  std::atomic<std::uint64_t> finished = 0;
  alignas(64) std::atomic<std::uint64_t> mine = 0;
  alignas(64) std::atomic<std::uint64_t> theirs = 0;
  std::uint64_t seen_there = 0;
  std::thread other([&] {
    for (std::uint64_t i = 1; i <= rounds; ++i) {
      while (round.load(std::memory_order_acquire) != i) std::this_thread::yield();
      theirs.store(i, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      seen_there = mine.load(std::memory_order_acquire);
      finished.store(i, std::memory_order_release);
    }
  });
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    round.store(i, std::memory_order_release);
    mine.store(i, std::memory_order_release);
    ASSERT_TRUE(barrier_for_all());
    const std::uint64_t seen_here = theirs.load(std::memory_order_acquire);
    while (finished.load(std::memory_order_acquire) != i) std::this_thread::yield();
    EXPECT_TRUE(seen_here == i || seen_there == i) << "round " << i;
  }
  other.join();
}

}  // namespace
}  // namespace loch::base
