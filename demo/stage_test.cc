#include "demo/stage.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lab/interrupt.h"

namespace loch::demo {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

bool never() { return false; }

class AwaitTest : public testing::Test {
 protected:
  void join(const char* role, std::size_t slot, const std::function<int()>& work) {
    crew_.push_back({role, slot, begin(work)});
    ASSERT_TRUE(all_began(crew_));
  }

  Shared<Board> board_ = Shared<Board>::make().value();
  std::vector<Member> crew_;
};

// Receive: one of two processes dies of a signal. Expect: whoever waits for something else is told which and
// of what, long before the time is over.
TEST_F(AwaitTest, OneThatDiesIsNamedWithItsSignalAtOnce) {
  join("reader 1", reader_1_slot, [] { return ::pause(); });
  join("writer 1", writer_1_slot, [] { return ::kill(::getpid(), SIGABRT); });
  const auto begun = std::chrono::steady_clock::now();
  const auto awaited = await("load", *board_, crew_, never);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(20));
  ASSERT_FALSE(awaited);
  EXPECT_THAT(awaited.error().message(), HasSubstr("writer 1"));
  EXPECT_THAT(awaited.error().message(), HasSubstr("signal 6"));
}

TEST_F(AwaitTest, OneThatFailsIsToldWithWhatItSaid) {
  join("writer 1", writer_1_slot, [this] {
    board_->slots[writer_1_slot].fail("no such store");
    return exit_failed;
  });
  const auto awaited = await("load", *board_, crew_, never);
  ASSERT_FALSE(awaited);
  EXPECT_THAT(awaited.error().message(), HasSubstr("no such store"));
  const auto ended = await_success(*crew_.front().process, board_->slots[writer_1_slot], "writer 1");
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message(), HasSubstr("ended with 1: no such store"));
}

// Receive: a Ctrl-C while others work. Expect: both kinds of waiting end as cancelled.
TEST_F(AwaitTest, AnInterruptEndsIt) {
  join("reader 1", reader_1_slot, [] { return ::pause(); });
  auto waits = lab::Process::fork([this] {
    lab::catch_interrupts();
    ::raise(SIGINT);
    auto sleeps = begin([] { return ::pause(); });
    const auto awaited = await("load", *board_, {}, never);
    const auto ended = await_success(*sleeps, board_->slots[reader_2_slot], "reader 2");
    const bool are_cancelled = !awaited && awaited.error().code == Errc::cancelled && !ended &&
                               ended.error().code == Errc::cancelled;
    return are_cancelled ? 7 : 1;
  });
  ASSERT_TRUE(waits) << waits.error().detail;
  EXPECT_EQ(waits->wait_for_end(seconds(20)), lab::Ending{.exit_code = 7});
}

TEST(CheckRoom, SaysWhatToDoWhereThereIsTooLittle) {
  EXPECT_TRUE(check_room("/dev/shm", 0));
  const auto refused = check_room("/dev/shm", std::uint64_t{1} << 50);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space);
  EXPECT_THAT(refused.error().detail, HasSubstr("--directory DIR"));
  EXPECT_THAT(refused.error().detail, HasSubstr("--shm-size=1g"));
}

}  // namespace
}  // namespace loch::demo
