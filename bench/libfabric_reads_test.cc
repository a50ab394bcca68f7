#include "bench/libfabric_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loch::bench {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t region_bytes = 1 << 20;

// Receive: as many reads at a time as one look takes, one, and more. Expect: each word is what the other end
// put there, and all that were posted have completed. Without libfabric: what to install.
TEST(LibfabricReads, EveryReadIsAnsweredOrItSaysWhatIsMissing) {
  const auto found = find_libfabric();
  for (const std::size_t outstanding : {std::size_t{64}, std::size_t{1}, std::size_t{100}}) {
    const auto lap = run_libfabric_reads(
        {.host = "127.0.0.1", .seconds = 0.01, .outstanding = outstanding, .region_bytes = region_bytes});
    ASSERT_EQ(lap.has_value(), found.has_value()) << lap.error().detail;
    if (lap) {
      EXPECT_GE(lap->operations, outstanding);
      EXPECT_GT(lap->elapsed_ns, 0u);
    } else {
      EXPECT_THAT(lap.error().detail, HasSubstr("apt-get install libfabric"));
    }
  }
  if (!found) GTEST_SKIP() << found.error().detail;
}

// Receive: an address that this host does not have. Expect: what failed at the end that should be there.
TEST(LibfabricReads, WhatFailsAtTheTargetIsTold) {
  if (const auto found = find_libfabric(); !found) GTEST_SKIP() << found.error().detail;
  const auto lap = run_libfabric_reads({.host = "192.0.2.77", .seconds = 0.01, .region_bytes = region_bytes});
  ASSERT_FALSE(lap);
  EXPECT_THAT(lap.error().detail, HasSubstr("libfabric: fi_"));
}

}  // namespace
}  // namespace loch::bench
