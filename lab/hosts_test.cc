#include "lab/hosts.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "base/clock.h"
#include "lab/temp_folder.h"
#include "net/socket.h"

namespace loch::lab {
namespace {

bool connects(const Hosts& hosts, std::size_t from, std::size_t to, const std::string& port) {
  const auto visit = hosts.visit(from);
  return net::connect({.host = Hosts::address(to), .port = port}, "",
                      base::Clock().now() + 300 * base::millisecond_ns)
      .has_value();
}

// A host that did not find another one asks for it again only after a while.
bool comes_to_connect(const Hosts& hosts, std::size_t from, std::size_t to, const std::string& port) {
  for (int i = 0; i < 20; ++i) {
    if (connects(hosts, from, to, port)) return true;
  }
  return false;
}

// Receive: cables that are pulled, and packets that are lost in one direction. Expect: just those hosts do
// not reach each other, until it is as it was.
void cut_and_join(const Hosts& hosts) {
  net::Listener listener;
  {
    const auto visit = hosts.visit(0);
    listener = net::listen({.host = Hosts::address(0), .port = "0"}).value();
  }
  const std::string port = std::to_string(listener.port);
  const auto connects_from = [&](std::size_t from) { return connects(hosts, from, 0, port); };
  const auto comes_from = [&](std::size_t from) { return comes_to_connect(hosts, from, 0, port); };
  EXPECT_TRUE(comes_from(0));
  EXPECT_TRUE(comes_from(1));
  ASSERT_TRUE(hosts.cut_off(1));
  EXPECT_FALSE(connects_from(1));
  EXPECT_TRUE(comes_from(2));
  ASSERT_TRUE(hosts.join_again(1));
  EXPECT_TRUE(comes_from(1));
  ASSERT_TRUE(hosts.lose(0, 2));
  EXPECT_FALSE(connects_from(2)) << "what it was answered got there";
  EXPECT_TRUE(comes_from(1));
  ASSERT_TRUE(hosts.deliver(0, 2));
  EXPECT_TRUE(comes_from(2));
}

TEST(Hosts, AreCutOffAndJoinedAgain) {
  const auto folder = TempFolder::make("/tmp").value();
  Error why_not;
  // A thread that makes hosts stays in their network.
  std::thread([&] {
    const auto hosts = Hosts::make(3, folder.path() + "/log");
    if (!hosts) {
      why_not = hosts.error();
    } else {
      cut_and_join(*hosts);
    }
  }).join();
  if (why_not.code == Errc::permission || why_not.code == Errc::not_found) GTEST_SKIP() << why_not.message();
  EXPECT_EQ(why_not.code, Errc{}) << why_not.message();
}

}  // namespace
}  // namespace loch::lab
