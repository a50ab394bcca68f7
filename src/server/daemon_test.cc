#include "server/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <string>

#include "base/testing/no_threads.h"
#include "lab/temp_folder.h"
#include "server/testing/earlier_boot.h"

namespace loch::server {
namespace {

using testing::HasSubstr;

// Receive: a process that has all the threads that it may have. Expect: lochd says so, and can be started
// when there are more.
TEST(Daemon, SaysThatItHasNoThreads) {
  const lab::TempFolder folder = lab::TempFolder::make("/dev/shm").value();
  Config config = default_config();
  config.listen = {{.host = "127.0.0.1", .port = "0"}};
  config.directory = folder.path();
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
}

// Receive: a store of the configuration that a reboot has left. Expect: lochd starts, and says why nobody can
// open it.
TEST(Daemon, SaysThatAStoreIsOfAnEarlierBoot) {
  const lab::TempFolder folder = lab::TempFolder::make("/dev/shm").value();
  Config config = default_config();
  config.listen = {{.host = "127.0.0.1", .port = "0"}};
  config.directory = folder.path();
  config.huge_pages = false;
  config.open_to_all = true;
  config.stores.push_back({.name = "left"});
  ASSERT_TRUE(Daemon::start(config, {}).has_value());
  ASSERT_NO_FATAL_FAILURE(fake::make_of_earlier_boot(folder.path() + "/loch.left/region.0"));
  std::mutex mutex;
  std::string log;
  const auto started = Daemon::start(config, {.log = [&](fabric::Host::Level, const std::string& text) {
                                       const std::scoped_lock lock(mutex);
                                       log += text + "\n";
                                     }});
  EXPECT_TRUE(started.has_value()) << started.error().message();
  const std::scoped_lock lock(mutex);
  EXPECT_THAT(log, testing::AllOf(HasSubstr("store 'left' is there, but can not be lent"),
                                  HasSubstr("left by an earlier boot")));
}

}  // namespace
}  // namespace loch::server
