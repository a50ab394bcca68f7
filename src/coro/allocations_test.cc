// What tasks take from the heap: nothing, once the pool has frames of their sizes.
#include "base/testing/allocations.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>

#include <loch/coro/task.h>

namespace loch::coro {
namespace {

Task<std::uint64_t> leaf(std::uint64_t i) { co_return i + 1; }

// Of one of several sizes.
template <std::size_t words>
Task<std::uint64_t> branch(std::uint64_t i) {
  std::array<std::uint64_t, words> kept{};
  for (std::size_t j = 0; j < words; ++j) kept[j] = co_await leaf(i + j);
  std::uint64_t sum = 0;
  for (const std::uint64_t each : kept) sum += each;
  co_return sum;
}

Task<void> tree(std::uint64_t* sum, std::uint64_t i) {
  *sum += co_await branch<1>(i);
  *sum += co_await branch<10>(i);
  Task<std::uint64_t> moved = branch<100>(i);
  Task<std::uint64_t> to = std::move(moved);
  *sum += co_await std::move(to);
}

// Receive: tasks that finish without suspending, as all operations on mapped memory do, of many sizes and
// some levels deep. Expect: their frames are those of the ones before.
TEST(Allocations, ATaskThatNeverSuspendsTakesAFrameOfThePool) {
  std::uint64_t sum = 0;
  const auto run = [&sum](std::uint64_t i) {
    Task<void> task = tree(&sum, i);
    task.start();
    ASSERT_TRUE(task.done());
  };
  const std::uint64_t at_first = base::fake::allocations();
  run(0);
  EXPECT_GT(base::fake::allocations(), at_first) << "what is counted are the frames, too";
  const std::uint64_t before = base::fake::allocations();
  for (std::uint64_t i = 0; i < 1'000; ++i) run(i);
  EXPECT_EQ(base::fake::allocations() - before, 0U);
  EXPECT_GT(sum, 0U);
}

}  // namespace
}  // namespace loch::coro
