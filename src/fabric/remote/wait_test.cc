#include "fabric/remote/wait.h"

#include <gtest/gtest.h>

namespace loch::fabric::remote {
namespace {

constexpr base::Nanos us = base::microsecond_ns;

TEST(Wakefulness, EndsSoonAtFirst) {
  const Wakefulness wakefulness;
  EXPECT_FALSE(wakefulness.is_over(Wakefulness::shortest_ns));
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::shortest_ns + 1));
}

TEST(Wakefulness, LastsLongerAfterShortSleeps) {
  Wakefulness wakefulness;
  wakefulness.learn(70 * us);
  EXPECT_FALSE(wakefulness.is_over(2 * Wakefulness::shortest_ns));
  EXPECT_TRUE(wakefulness.is_over(2 * Wakefulness::shortest_ns + 1));
  for (int sleep = 0; sleep < 100; ++sleep) wakefulness.learn(Wakefulness::longest_ns);
  EXPECT_FALSE(wakefulness.is_over(Wakefulness::longest_ns));
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::longest_ns + 1));
}

TEST(Wakefulness, EndsSoonAgainAfterALongSleep) {
  Wakefulness wakefulness;
  for (int sleep = 0; sleep < 100; ++sleep) wakefulness.learn(100 * us);
  wakefulness.learn(Wakefulness::longest_ns + 1);
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::shortest_ns + 1));
}

}  // namespace
}  // namespace loch::fabric::remote
