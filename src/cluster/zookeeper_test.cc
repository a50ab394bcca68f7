// A real ZooKeeper server, and what becomes of a cluster's map and of its hosts when it comes and goes.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/testing/comes_true.h"
#include "base/testing/no_threads.h"
#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "cluster/zookeeper_session.h"
#include "lab/process.h"
#include "lab/zookeeper_server.h"
#include "net/testing/acceptor.h"

namespace loch::cluster {
namespace {

using base::fake::comes_true;
using lab::ZooKeeperServer;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

net::HostPort at(int number) { return {.host = fmt::format("10.0.0.{}", number), .port = "7457"}; }
const ClusterMap& first() {
  static const ClusterMap map =
      first_map({{.name = "a", .at = at(1)}, {.name = "b", .at = at(2)}}, 4).value();
  return map;
}
ClusterMap later(const ClusterMap& map) {
  return with_node(map, fmt::format("n{}", map.epoch), at(static_cast<int>(8 + map.epoch))).value();
}

std::unique_ptr<Coordinator> open(const std::string& url) {
  auto opened = Coordinator::open(url);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  return std::move(*opened);
}
template <class T>
Errc code_of(const Result<T>& result) {
  return result ? Errc{} : result.error().code;
}
std::string text_of(const Result<void>& result) { return result ? "fine" : result.error().message(); }

// Waits for another version of the map than that; whether one of them came, and not the end of the wait.
bool is_told_of_a_change(Coordinator& waits, std::uint64_t version) {
  const auto begin = steady_clock::now();
  waits.wait_for_change(version, 60 * base::second_ns);
  return steady_clock::now() - begin < 20s;
}

// A call waits for 5 s, and for nothing twice.
constexpr auto call_time_max = 9s;

// By a session that the test is not about.
void write_node(const ZooKeeperServer& server, const std::string& path, const std::string& data) {
  ZooKeeperSignals signals;
  const auto address = ZooKeeperAddress::parse(server.address() + "/loch").value();
  const base::Nanos deadline = base::Clock().now() + 10 * base::second_ns;
  const auto session = ZooKeeperSession::begin(address, signals, deadline).value();
  ASSERT_TRUE(session->await_connected(deadline));
  const auto there = session->exists(path, false, deadline);
  const auto written = there.code == ZooKeeperSession::Code::ok
                           ? session->set(path, data, there.version, deadline)
                           : session->create(path, data, ZooKeeperSession::Lifetime::lasting, deadline);
  ASSERT_EQ(written.code, ZooKeeperSession::Code::ok) << written.text;
}

// A process that does this, and then nothing.
lab::Process child_that(const std::function<void()>& act) {
  return lab::Process::fork([&act]() -> int {
           act();
           while (true) ::pause();
         })
      .value();
}

// Lists in each other, more than a message may have.
constexpr const char* deep_lists = "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]";

TEST(ZooKeeper, AnAddressSaysServersPathAndUser) {
  const auto plain = ZooKeeperAddress::parse("a,b:7,[fd00::3]:8/loch/x/").value();
  EXPECT_EQ(plain.servers(), "a:2181,b:7,[fd00::3]:8");
  EXPECT_EQ(plain.path, "/loch/x");
  EXPECT_EQ(plain.credentials, "");
  const auto of_user = ZooKeeperAddress::parse("me:p@ss:word@a/loch").value();
  EXPECT_EQ(of_user.servers(), "a:2181");
  EXPECT_EQ(of_user.credentials, "me:p@ss:word");
  const auto of_other = ZooKeeperAddress::parse("loch:aB3/x@Y9@a,b:7/loch").value();
  EXPECT_EQ(of_other.servers(), "a:2181,b:7");
  EXPECT_EQ(of_other.credentials, "loch:aB3/x@Y9");
  EXPECT_EQ(of_other.path, "/loch");
  for (const char* bad :
       {"", "a", "a/", "/loch", "a,,b/loch", "a:x/loch", "a/x//y", "a/./x", "a/x/..", "me@a/loch",
        ":secret@a/loch", "me:@a/loch", "me:sec/ret@a", "me:secret/@,a/loch"}) {
    const auto coordinator = Coordinator::open(std::string("zookeeper://") + bad);
    ASSERT_FALSE(coordinator.has_value()) << bad;
    EXPECT_EQ(coordinator.error().code, Errc::invalid_argument);
    EXPECT_THAT(coordinator.error().message(), HasSubstr("zookeeper://HOST:PORT,HOST:PORT/PATH")) << bad;
    EXPECT_THAT(coordinator.error().message(), testing::Not(HasSubstr("sec")));
  }
  EXPECT_EQ(without_password("zookeeper://me:secret@a:1,b:2/loch"), "zookeeper://a:1,b:2/loch");
  EXPECT_EQ(without_password("zookeeper://me:p@ss@h/x"), "zookeeper://h/x");
  EXPECT_EQ(without_password("zookeeper://me:a/b@h/x"), "zookeeper://h/x");
  EXPECT_EQ(without_password("zookeeper://a:1/loch"), "zookeeper://a:1/loch");
  EXPECT_EQ(without_password("file:/etc/x.toml"), "file:/etc/x.toml");
}

// Receive: servers of which all but one are down. Expect: the one is found, however many they are, and
// nobody asks them without a pause.
TEST(ZooKeeper, OneServerOfSeveralIsEnough) {
  const ZooKeeperServer server;
  for (const char* others : {"127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "[::1]:1,127.0.0.1:2,127.0.0.1:3"}) {
    for (int i = 0; i < 4; ++i) {  // the client shuffles them
      const auto one = open(fmt::format("zookeeper://{},{}/loch", others, server.address()));
      EXPECT_EQ(code_of(one->read_map()), Errc::not_found) << others;
    }
  }
}

TEST(ZooKeeper, AMapIsMadeAndChangedByVersion) {
  const ZooKeeperServer server;
  const auto one = open(server.url());
  const auto other = open(server.url());
  EXPECT_TRUE(one->may_change());
  EXPECT_EQ(code_of(one->read_map()), Errc::not_found);
  ASSERT_EQ(text_of(one->write_map(first(), 0)), "fine");
  EXPECT_EQ(code_of(other->write_map(first(), 0)), Errc::changed);

  const auto read = other->read_map().value();
  EXPECT_EQ(read.map, first());
  EXPECT_GT(read.version, 0U);
  const ClusterMap changed = later(read.map);
  ASSERT_EQ(text_of(other->write_map(changed, read.version)), "fine");
  const auto stale = one->write_map(later(changed), read.version);
  EXPECT_EQ(code_of(stale), Errc::changed);
  const auto now = one->read_map().value();
  EXPECT_EQ(now.map, changed);
  EXPECT_EQ(now.version, read.version + 1);

  // One that waits sees what the other one does soon, and what was done before at once.
  EXPECT_TRUE(is_told_of_a_change(*one, read.version));
  const auto waits = open(server.url());
  const std::uint64_t watches_before = server.watches();
  std::thread writer([&] {
    EXPECT_TRUE(comes_true([&] { return server.watches() > watches_before; }));
    EXPECT_EQ(text_of(other->write_map(later(changed), now.version)), "fine");
  });
  EXPECT_TRUE(is_told_of_a_change(*waits, now.version));
  EXPECT_GT(one->read_map().value().version, now.version);
  writer.join();
  const auto quiet = steady_clock::now();
  one->wait_for_change(now.version + 1, 300 * base::millisecond_ns);
  EXPECT_GE(steady_clock::now() - quiet, 280ms);

  for (const char* garbage : {"", "no map", "{\"epoch\": 7}", "[]"}) {
    write_node(server, "/loch/map", garbage);
    const auto corrupt = one->read_map();
    EXPECT_EQ(code_of(corrupt), Errc::corrupt) << garbage;
    EXPECT_THAT(corrupt.error().message(), HasSubstr("/loch/map"));
  }
  write_node(server, "/loch/map", fmt::format(R"({{"epoch":1,"x":{}}})", deep_lists));
  const auto deep = one->read_map();
  ASSERT_EQ(code_of(deep), Errc::corrupt);
  EXPECT_THAT(deep.error().message(), AllOf(HasSubstr("/loch/map"), HasSubstr("nested more than 16 deep")));
}

TEST(ZooKeeper, OneWhoWaitsSeesTheFirstMap) {
  const ZooKeeperServer server;
  const auto one = open(server.url() + "/deep/below");
  std::thread writer([&] {
    EXPECT_TRUE(comes_true([&] { return server.watches() == 1; }));
    EXPECT_EQ(text_of(open(server.url() + "/deep/below")->write_map(first(), 0)), "fine");
  });
  EXPECT_TRUE(is_told_of_a_change(*one, 0));
  writer.join();
  EXPECT_EQ(one->read_map().value().map, first());
}

TEST(ZooKeeper, HostsAreThereUntilTheyGo) {
  const ZooKeeperServer server;
  auto one = open(server.url());
  const auto other = open(server.url());
  EXPECT_TRUE(other->present().value().empty());
  const Present a{.name = "a", .at = at(1)};
  const Present b{.name = "b", .at = {.host = "fd00::3", .port = "1"}};
  ASSERT_EQ(text_of(one->announce(a)), "fine");
  ASSERT_EQ(text_of(other->announce(b)), "fine");
  ASSERT_EQ(text_of(one->announce(a)), "fine") << "again, by the same";
  EXPECT_THAT(other->present().value(), ElementsAre(a, b));
  const Present moved{.name = "a", .at = at(7)};
  ASSERT_EQ(text_of(one->announce(moved)), "fine");
  EXPECT_THAT(other->present().value(), ElementsAre(moved, b));

  // Receive: another one that lives. Expect: an error, but not before a dead one would have been noticed.
  const auto begin = steady_clock::now();
  const auto taken = other->announce(a);
  EXPECT_EQ(code_of(taken), Errc::exists);
  EXPECT_THAT(taken.error().message(), HasSubstr("/loch/members/a"));
  EXPECT_GE(steady_clock::now() - begin, 7s);
  EXPECT_LE(steady_clock::now() - begin, 15s) << "not for two that are dead";
  // Receive: one that goes meanwhile. Expect: the name is free.
  auto next = open(server.url());
  EXPECT_TRUE(next->present().has_value()) << "it is connected";
  std::thread goes([&] {
    std::this_thread::sleep_for(300ms);
    one.reset();
  });
  EXPECT_EQ(text_of(next->announce(a)), "fine");
  goes.join();
  next.reset();
  EXPECT_THAT(other->present().value(), ElementsAre(b)) << "it is gone with who said so";
  EXPECT_EQ(code_of(other->announce({.name = "../map", .at = at(1)})), Errc::invalid_argument);
  write_node(server, "/loch/members/a b", R"({"at":"10.0.0.9:7457"})");
  EXPECT_THAT(other->present().value(), ElementsAre(b)) << "no host is called so";
  write_node(server, "/loch/members/y", fmt::format(R"({{"at":"10.0.0.9:7457","x":{}}})", deep_lists));
  const auto deep = other->present();
  ASSERT_EQ(code_of(deep), Errc::corrupt);
  EXPECT_THAT(deep.error().message(),
              AllOf(HasSubstr("/loch/members/y"), HasSubstr("nested more than 16 deep")));
  write_node(server, "/loch/members/y", R"({"at":"10.0.0.9:7457"})");
  EXPECT_THAT(other->present().value(), ElementsAre(b, Present{.name = "y", .at = at(9)}));
  write_node(server, "/loch/members/z", "garbage");
  EXPECT_EQ(code_of(other->present()), Errc::corrupt);
}

// Receive: a process that has all the threads that it may have. Expect: it says so, and the host can be
// announced when there are more.
TEST(ZooKeeper, AHostHasNoThreadToAnnounceItAgain) {
  const ZooKeeperServer server;
  const auto one = open(server.url());
  EXPECT_TRUE(one->present().has_value()) << "it is connected, and has the threads for that";
  const Present a{.name = "a", .at = at(1)};
  {
    const base::fake::NoThreads none;
    const auto announced = one->announce(a);
    EXPECT_EQ(code_of(announced), Errc::unavailable);
    EXPECT_THAT(text_of(announced), HasSubstr("TasksMax"));
  }
  EXPECT_EQ(text_of(one->announce(a)), "fine");
  EXPECT_EQ(one->present(), std::vector{a});
}

TEST(ZooKeeper, CallsEndWithoutItAndGoOnWithIt) {
  ZooKeeperServer server;
  const auto one = open(server.url());
  const Present a{.name = "a", .at = at(1)};
  ASSERT_EQ(text_of(one->write_map(first(), 0)), "fine");
  ASSERT_EQ(text_of(one->announce(a)), "fine");
  const auto is_unavailable_in_time = [&](const std::function<Errc(std::string&)>& call) {
    const auto begin = steady_clock::now();
    std::string text;
    EXPECT_EQ(call(text), Errc::unavailable) << text;
    EXPECT_LT(steady_clock::now() - begin, call_time_max);
    EXPECT_THAT(text, HasSubstr(server.address()));
  };
  const auto read = [&](std::string& text) {
    const auto result = one->read_map();
    if (!result) text = result.error().message();
    return code_of(result);
  };

  server.kill();
  is_unavailable_in_time(read);
  const auto begin = steady_clock::now();
  one->wait_for_change(1, base::second_ns);
  EXPECT_GE(steady_clock::now() - begin, 980ms) << "nobody asks without end";
  server.start();
  EXPECT_EQ(one->read_map().value().map, first());
  EXPECT_EQ(text_of(one->write_map(later(first()), 1)), "fine");
  EXPECT_TRUE(comes_true([&] { return one->present() == std::vector{a}; }));

  // Receive: one that does not answer, for longer than it lets sessions live. Expect: the same.
  server.pause();
  is_unavailable_in_time([&](std::string& text) {
    const auto result = one->write_map(first(), 2);
    text = text_of(result);
    return code_of(result);
  });
  server.resume();
  EXPECT_TRUE(comes_true([&] { return one->present() == std::vector{a}; }));

  // Receive: one that knows of no session and of no cluster. Expect: the host says again that it is there.
  server.kill();
  server.forget_everything();
  server.start();
  EXPECT_TRUE(comes_true([&] { return open(server.url())->present() == std::vector{a}; }));
  EXPECT_EQ(code_of(one->read_map()), Errc::not_found);
  EXPECT_EQ(text_of(one->write_map(first(), 0)), "fine");
}

TEST(ZooKeeper, AClusterOfAUserIsForNobodyElse) {
  const ZooKeeperServer server;
  const auto url = [&](const std::string& user) {
    return "zookeeper://" + user + server.address() + "/loch";
  };
  const auto owner = open(url("me:right@"));
  ASSERT_EQ(text_of(owner->write_map(first(), 0)), "fine");
  ASSERT_EQ(text_of(owner->announce({.name = "a", .at = at(1)})), "fine");
  EXPECT_EQ(open(url("me:right@"))->read_map().value().map, first());
  for (const char* user : {"", "me:wrong@", "you:right@"}) {
    const auto stranger = open(url(user));
    EXPECT_EQ(code_of(stranger->read_map()), Errc::permission) << user;
    EXPECT_EQ(code_of(stranger->write_map(first(), 1)), Errc::permission) << user;
    EXPECT_EQ(code_of(stranger->announce({.name = "b", .at = at(2)})), Errc::permission) << user;
    EXPECT_EQ(code_of(stranger->present()), Errc::permission) << user;
    EXPECT_THAT(text_of(stranger->write_map(first(), 1)), testing::Not(HasSubstr("wrong")));
  }
}

TEST(ZooKeeper, NobodyThereIsUnavailable) {
  const auto begin = steady_clock::now();
  const auto nowhere = open("zookeeper://127.0.0.1:1,127.0.0.1:2/loch");
  const auto read = nowhere->read_map();
  EXPECT_EQ(code_of(read), Errc::unavailable);
  EXPECT_THAT(read.error().message(), HasSubstr("127.0.0.1:1,127.0.0.1:2"));
  EXPECT_LT(steady_clock::now() - begin, call_time_max);
  const auto nameless_begin = steady_clock::now();
  const auto nameless = open("zookeeper://no-such-host.invalid/loch")->read_map();
  EXPECT_EQ(code_of(nameless), Errc::unavailable);
  EXPECT_THAT(nameless.error().message(), HasSubstr("can be found"));
  EXPECT_GE(steady_clock::now() - nameless_begin, 4s) << "the resolver may be there in a moment";
}

// Receive: two that hang up on whoever comes. Expect: both are tried again and again, with pauses.
TEST(ZooKeeper, WhoHangsUpIsAskedAgainWithPauses) {
  std::array<std::atomic<int>, 2> calls{};
  const net::fake::Acceptor one([&](const base::FileDescriptor&) { ++calls[0]; });
  const net::fake::Acceptor other([&](const base::FileDescriptor&) { ++calls[1]; });
  const auto begin = steady_clock::now();
  const auto nobody = open(fmt::format("zookeeper://{},{}/loch", one.at().text(), other.at().text()));
  EXPECT_EQ(code_of(nobody->read_map()), Errc::unavailable);
  EXPECT_LT(steady_clock::now() - begin, call_time_max);
  EXPECT_GT(calls[0], 1);
  EXPECT_GT(calls[1], 1);
  EXPECT_LT(calls[0] + calls[1], 500);
}

// Receive: what a killed process said. Expect: its name is free once its session has timed out.
TEST(ZooKeeper, AHostTakesTheNameOfItsPredecessorThatWasKilled) {
  const ZooKeeperServer server;
  const Present a{.name = "a", .at = at(1)};
  std::unique_ptr<Coordinator> theirs;
  lab::Process predecessor = child_that([&] {
    theirs = open(server.url());
    if (!theirs->announce(a)) ::_exit(1);
  });
  const auto one = open(server.url());
  EXPECT_TRUE(comes_true([&] { return one->present() == std::vector{a}; }));
  predecessor.kill();
  EXPECT_EQ(one->present(), std::vector{a});
  EXPECT_EQ(text_of(one->announce(a)), "fine");
  EXPECT_EQ(one->present(), std::vector{a});
}

// Receive: a host whose session expires while it is stopped, and whose name another one takes. Expect: it is
// told once that it does not have it any more, and why.
TEST(ZooKeeper, AHostIsToldThatItsNameIsTaken) {
  const ZooKeeperServer server;
  const Present a{.name = "a", .at = at(1)};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const base::FileDescriptor told(ends[0]);
  base::FileDescriptor tells(ends[1]);
  std::unique_ptr<Coordinator> theirs;
  const lab::Process stopped = child_that([&] {
    theirs = open(server.url());
    theirs->tell_of_lost_name([&](const std::string& why) {
      if (::write(tells.get(), why.c_str(), why.size() + 1) < 0) ::_exit(1);
    });
    if (!theirs->announce(a)) ::_exit(1);
  });
  tells = base::FileDescriptor();
  const auto one = open(server.url());
  EXPECT_TRUE(comes_true([&] { return one->present() == std::vector{a}; }));
  stopped.signal(SIGSTOP);
  EXPECT_EQ(text_of(one->announce(a)), "fine") << "its session has expired";
  stopped.signal(SIGCONT);
  pollfd more{.fd = told.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&more, 1, 30'000), 1) << "it is told nothing";
  std::string why(1000, '\0');
  const ssize_t length = ::read(told.get(), why.data(), why.size());
  ASSERT_GT(length, 0);
  why.resize(static_cast<std::size_t>(length));
  EXPECT_THAT(why, HasSubstr("/loch/members/a: another lochd that runs says that it is this node"));
  EXPECT_EQ(::poll(&more, 1, 1500), 0) << "once is enough";
}

}  // namespace
}  // namespace loch::cluster
