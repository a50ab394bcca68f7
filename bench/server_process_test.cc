#include "bench/server_process.h"

#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <unistd.h>

#include "bench/temp_folder.h"

namespace loch::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class ServerProcessTest : public testing::Test {
 protected:
  TempFolder folder_ = TempFolder::make("/tmp").value();
  std::string log_ = folder_.path() + "/log";
  std::string mark_ = folder_.path() + "/ready";
};

TEST_F(ServerProcessTest, IsReadyWhenItSaysSoAndIsKilledAtTheEnd) {
  pid_t id = 0;
  {
    const auto server = ServerProcess::start(
        {"/bin/sh", "-c", "touch " + mark_ + "; exec sleep 1000"}, log_,
        [this] { return std::filesystem::exists(mark_); }, seconds(20));
    ASSERT_TRUE(server) << server.error().detail;
    id = server->id();
    EXPECT_EQ(kill(id, 0), 0);
  }
  EXPECT_EQ(kill(id, 0), -1);
}

TEST_F(ServerProcessTest, OneThatEndsAtOnceIsAnErrorWithWhatItSaid) {
  const auto server = ServerProcess::start(
      {"/bin/sh", "-c", "echo no port >&2; exit 3"}, log_, [] { return false; }, seconds(20));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Errc::io);
  EXPECT_THAT(server.error().detail, HasSubstr("no port"));
}

TEST_F(ServerProcessTest, OneThatIsNeverReadyIsAnErrorInTime) {
  const auto server =
      ServerProcess::start({"/bin/sleep", "1000"}, log_, [] { return false; }, milliseconds(50));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Errc::timed_out);
  EXPECT_THAT(server.error().detail, HasSubstr("/bin/sleep 1000"));
}

TEST_F(ServerProcessTest, RunToEndTellsSuccessFailureAndTimeApart) {
  EXPECT_TRUE(run_to_end({"/bin/true"}, log_, seconds(20)));
  const auto failed = run_to_end({"/bin/sh", "-c", "echo bad line; exit 1"}, log_, seconds(20));
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().detail, HasSubstr("bad line"));
  const auto late = run_to_end({"/bin/sleep", "1000"}, log_, milliseconds(50));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::timed_out);
}

TEST(FindProgram, FindsWhatIsThereAndNamesThePackageOfWhatIsNot) {
  EXPECT_TRUE(find_program("sh", "dash"));
  const auto absent = find_program("loch-no-such-program", "the-package");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::not_found);
  EXPECT_THAT(absent.error().detail, HasSubstr("apt-get install the-package"));
}

TEST(ResidentBytes, OfThisProcessIsSomethingAndOfNoneIsNothing) {
  EXPECT_GT(resident_bytes(getpid()), 0u);
  EXPECT_EQ(resident_bytes(-1), 0u);
}

}  // namespace
}  // namespace loch::bench
