#include "fabric/host/repeats.h"

#include <gtest/gtest.h>
#include <string>

namespace loch::fabric::host {
namespace {

// Receive: what a peer is told from one port after the other. Expect: it is a repetition, for a while; what
// another one is told, or what is another reason, is none.
TEST(Repeats, AreOfOnePeerAndOneReason) {
  Repeats repeats;
  constexpr base::Nanos begin = 5;
  EXPECT_FALSE(repeats.has("10.0.0.1:1", "why", begin));
  repeats.note("10.0.0.1:1", "why", begin);
  EXPECT_TRUE(repeats.has("10.0.0.1:2", "why", begin + Repeats::every_ns - 1));
  EXPECT_FALSE(repeats.has("10.0.0.1:2", "other", begin));
  EXPECT_FALSE(repeats.has("10.0.0.2:1", "why", begin));
  EXPECT_FALSE(repeats.has("10.0.0.1:2", "why", begin + Repeats::every_ns));
}

// Receive: as many peers as strangers like. Expect: a bound.
TEST(Repeats, AreForgottenWhenThereAreManyPeers) {
  Repeats repeats;
  repeats.note("[::1]:7", "why", 0);
  EXPECT_TRUE(repeats.has("[::1]:8", "why", 0));
  for (int i = 0; i < 2'000; ++i) repeats.note("h" + std::to_string(i) + ":1", "why", 0);
  EXPECT_FALSE(repeats.has("[::1]:8", "why", 0));
  EXPECT_TRUE(repeats.has("h1999:1", "why", 0));
}

}  // namespace
}  // namespace loch::fabric::host
