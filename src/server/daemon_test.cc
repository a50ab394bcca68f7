#include "server/daemon.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "base/testing/no_threads.h"

namespace loch::server {
namespace {

using testing::HasSubstr;

// Receive: a process that has all the threads that it may have. Expect: lochd says so, and can be started
// when there are more.
TEST(Daemon, SaysThatItHasNoThreads) {
  std::string folder = "/dev/shm/loch-daemon.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Config config = default_config();
  config.listen = {{.host = "127.0.0.1", .port = "0"}};
  config.directory = folder;
  config.open_to_all = true;
  {
    const base::fake::NoThreads none;
    const auto refused = Daemon::start(config, {});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::unavailable);
    EXPECT_THAT(refused.error().detail, testing::AllOf(HasSubstr("no thread for it"), HasSubstr("TasksMax")));
  }
  const auto started = Daemon::start(config, {});
  EXPECT_TRUE(started.has_value()) << started.error().message();
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace loch::server
