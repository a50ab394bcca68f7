#include "fabric/verbs/rdma.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace loch::fabric::verbs {
namespace {

// A device gives numbers that fit into no message, or none.
TEST(Rdma, AClientAsksForAsManyOperationsAsItsDeviceBears) {
  EXPECT_EQ(asked_depth(16), 16);
  EXPECT_EQ(asked_depth(256), 255);
  EXPECT_EQ(asked_depth(0), 1);
}

// Receive: devices that bear unlike numbers of READs and atomics. Expect: the lower counts, since the
// client's device can not be told to have more under way than it bears.
TEST(Rdma, AHostGrantsNoMoreOperationsThanAreAskedForAndBorne) {
  EXPECT_EQ(granted_depth(128, 16), 16);
  EXPECT_EQ(granted_depth(16, 128), 16);
  EXPECT_EQ(granted_depth(16, 16), 16);
  EXPECT_EQ(granted_depth(1'000, 255), 255);
  EXPECT_EQ(granted_depth(0, 16), 1);
  EXPECT_EQ(granted_depth(16, 0), 0);
}

// Receive: what hosts say with a refusal, and what none does. Expect: a client is told what a host has told,
// and takes nothing else for final.
TEST(Rdma, ARefusalSaysWhatItIsFor) {
  for (const Errc why : {Errc::permission, Errc::incompatible, Errc::unavailable})
    EXPECT_EQ(decode_refusal(encode_refusal(why)), why);
  for (const unsigned said : {0U, static_cast<unsigned>(Errc::not_found), 255U})
    EXPECT_EQ(decode_refusal(static_cast<std::uint8_t>(said)), Errc::unavailable) << said;
}

// Receive: an event channel that has failed, which is ready at once, each time that it is waited for, and has
// no event. Expect: none comes of it when the deadline has passed.
TEST(Rdma, AFailedChannelIsNotWaitedForBeyondTheDeadline) {
  rdma_event_channel channel{.fd = ::eventfd(0, 0)};
  ASSERT_EQ(::close(channel.fd), 0);
  EXPECT_EQ(wait_event(channel, base::Clock().now()), nullptr);
}

}  // namespace
}  // namespace loch::fabric::verbs
