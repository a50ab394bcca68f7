// What run.h promises of the processes that it runs.
#include "tests/cli/run.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace loch::cli {
namespace {

// Receive: more that was printed than was read in time. Expect: it is left there.
TEST(Running, NothingIsReadAfterTheDeadline) {
  constexpr std::size_t printed_bytes = 60'000;  // by one write, into the pipe as a whole
  Running prints({"if=/dev/zero", "bs=" + std::to_string(printed_bytes), "count=1", "status=none"}, false,
                 "/usr/bin/dd");
  ASSERT_TRUE(prints.await(std::string_view("\0", 1)));
  const std::size_t in_time_bytes = prints.output().size();
  ASSERT_LT(in_time_bytes, printed_bytes);
  EXPECT_FALSE(prints.await("more", std::chrono::milliseconds(-1)));
  EXPECT_EQ(prints.output().size(), in_time_bytes);
}

// Receive: more than a pipe takes, and nobody who reads. Expect: that is seen, and leaves it as it is.
TEST(Running, SeesThatItsOutputIsFull) {
  Running prints({"if=/dev/zero", "bs=1000", "status=none"}, false, "/usr/bin/dd");
  EXPECT_TRUE(prints.await_full());
  prints.send_signal(SIGTERM);
  EXPECT_EQ(prints.wait_unread(), 128 + SIGTERM);
  EXPECT_EQ(prints.output(), "");
}

TEST(Run, PassesOnNoVariableOfLochButThoseOfTheTest) {
  ::setenv("LOCH_KEY_FILE", "of the caller", 1);
  const Outcome outcome = run({}, {.program = "/usr/bin/env", .variables = {"LOCH_FROM=the test"}});
  ::unsetenv("LOCH_KEY_FILE");
  EXPECT_EQ(outcome.out.find("LOCH_KEY_FILE"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("LOCH_FROM=the test\n"), std::string::npos) << outcome.out;
}

TEST(Running, EndsWithTheThreadThatStartedIt) {
  std::optional<Running> sleeps;
  std::thread([&] {
    sleeps.emplace(Arguments{"-c", "echo begun; exec sleep 600"}, false, "/bin/sh");
    EXPECT_TRUE(sleeps->await("begun"));
  }).join();
  EXPECT_EQ(sleeps->wait(), 128 + SIGKILL);
}

}  // namespace
}  // namespace loch::cli
