// Hosts of a cluster that end each other's sessions, and those that should not.
#include "fabric/host/fencer.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/testing/comes_true.h"
#include "base/testing/in_seconds.h"
#include "fabric/host.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/only_host.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/testing/acceptor.h"
#include "net/testing/reserved_port.h"

namespace loch::fabric::host {
namespace {

using base::fake::in_seconds;
using remote::Link;
using remote::RemoteFabric;
using remote::Target;

class FencerTest : public testing::Test {
 protected:
  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
};

// Receive: a session of a cluster that is taken for dead while another host, which it reached, is not there,
// and comes back at another address. Expect: that host is asked there, and what the session held is kept
// until it has answered.
TEST_F(FencerTest, ASessionIsFencedWhereTheOtherHostIsNow) {
  const net::fake::ReservedPort port;
  const net::fake::ReservedPort nobody;
  std::atomic<int> asked = 0;
  const net::fake::Acceptor other([&asked](const base::FileDescriptor&) { ++asked; });
  std::mutex mutex;
  ClusterMap map =
      ClusterMap::spread({{.name = "a", .at = port.at()}, {.name = "b", .at = nobody.at()}}, 1).value();
  const auto host = Host::start({.listen = {port.at()},
                                 .open_store = [&](const std::string&) { return store_->attach(); },
                                 .cluster_of =
                                     [&](const std::string&) {
                                       const std::scoped_lock lock(mutex);
                                       return Host::Options::Cluster{.map = map};
                                     }})
                        .value();
  const Target target{.scheme = "tcp", .host = port.at(), .store = "store"};
  constexpr std::uint32_t client = 7;
  {
    const auto way = RemoteFabric::attach(target).value();
    const auto session = way->connect("0123456789abcdef").value();
    EXPECT_TRUE(session->claim_presence(client).value());
    session->abandon();
    const std::scoped_lock lock(mutex);
    map.nodes[1].at = other.at();
    ++map.epoch;
  }
  EXPECT_TRUE(base::fake::comes_true([&] { return asked >= 2; }));
  const auto watcher = RemoteFabric::attach(target).value();
  const auto watching = watcher->connect("watcher").value();
  EXPECT_TRUE(watching->present(client));
  {
    const std::scoped_lock lock(mutex);
    map.nodes[1].state = ClusterMap::NodeState::gone;
    ++map.epoch;
  }
  EXPECT_TRUE(base::fake::comes_true([&] { return !watching->present(client); }));
}

// Receive: several sessions that are taken for dead while one of the other hosts says nothing to whoever asks
// it. Expect: it is waited for once, and not for each of them before the last host ends them; it is told of
// when that begins and when it is over.
TEST_F(FencerTest, AHostThatSaysNothingIsNotWaitedForByEachSession) {
  constexpr std::size_t sessions = 6;
  std::array<net::fake::ReservedPort, 2> ports;
  std::mutex mutex;
  std::vector<base::FileDescriptor> unanswered;
  const net::fake::Acceptor silent([&](base::FileDescriptor socket) {
    const std::scoped_lock lock(mutex);
    unanswered.push_back(std::move(socket));
  });
  ClusterMap map = ClusterMap::spread({{.name = "a", .at = ports[0].at()},
                                       {.name = "b", .at = silent.at()},
                                       {.name = "c", .at = ports[1].at()}},
                                      1)
                       .value();
  std::vector<std::string> told;
  const auto start = [&](const net::HostPort& at, std::uint32_t node) {
    return Host::start({.listen = {at},
                        .open_store = [&](const std::string&) { return store_->attach(); },
                        .cluster_of =
                            [&, node](const std::string&) {
                              const std::scoped_lock lock(mutex);
                              return Host::Options::Cluster{.map = map, .node = node};
                            },
                        .log =
                            [&](Host::Level, const std::string& text) {
                              const std::scoped_lock lock(mutex);
                              if (text.starts_with("b (")) told.push_back(text);
                            }})
        .value();
  };
  const auto c = start(ports[1].at(), 2);
  const auto a = start(ports[0].at(), 0);
  const auto at_a = RemoteFabric::attach({.scheme = "tcp", .host = ports[0].at(), .store = "store"}).value();
  const auto at_c = RemoteFabric::attach({.scheme = "tcp", .host = ports[1].at(), .store = "store"}).value();
  std::vector<std::unique_ptr<remote::RemotePort>> ways;
  for (std::uint32_t i = 0; i < sessions; ++i) {
    const std::string name = fmt::format("session{}", i);
    ways.push_back(at_a->connect(name).value());
    EXPECT_TRUE(ways.back()->claim_presence(i + 1).value());
    ways.back()->abandon();
    ways.push_back(at_c->connect(name).value());
  }
  for (std::size_t i = 0; i < ways.size(); i += 2) ways[i] = nullptr;
  EXPECT_TRUE(base::fake::comes_true([&] { return c->counts().sessions == 0; }));
  {
    const std::scoped_lock lock(mutex);
    EXPECT_LT(unanswered.size(), sessions);
    EXPECT_THAT(told, testing::ElementsAre(testing::HasSubstr("asked again each second")));
  }
  // It comes back elsewhere.
  const net::fake::ReservedPort elsewhere;
  const auto b = start(elsewhere.at(), 1);
  {
    const std::scoped_lock lock(mutex);
    map.nodes[1].at = elsewhere.at();
    ++map.epoch;
  }
  const auto watching = at_a->connect("watcher").value();
  EXPECT_TRUE(base::fake::comes_true([&] { return !watching->present(sessions); }));
  const std::scoped_lock lock(mutex);
  EXPECT_THAT(told.back(), testing::HasSubstr("ends sessions again"));
}

// Receive: somebody in the place of another host of the cluster, who says that a session has ended there.
// Expect: he is believed if he proves that he knows the host's key, for this session alone.
TEST_F(FencerTest, WhoProvesNothingHasFencedNobody) {
  const std::string mine(2 * remote::nonce_bytes, 'h');
  const auto fence = [&](const std::function<net::Message(const std::string& theirs)>& lie) {
    const net::fake::Acceptor other([&](base::FileDescriptor socket) {
      net::Messages messages(std::make_unique<net::Stream>(std::move(socket)));
      const auto hello = messages.wait_next(in_seconds(5)).value();
      const net::Message greeting{{"protocol", remote::protocol_version}, {"nonce", mine}};
      if (messages.ask(greeting, in_seconds(5)))
        EXPECT_TRUE(messages.say(lie(net::text_of(hello, "nonce"))).has_value());
    });
    const auto fenced = remote::fence({.scheme = "tcp", .host = other.at(), .store = "store", .node = "b"},
                                      "session", in_seconds(5));
    return fenced ? std::nullopt : std::optional(fenced.error().code);
  };
  const auto proof_of = [&](const std::string& theirs, const std::string& session, const std::string& node) {
    return net::proof(net::no_key(), {"fenced", mine, theirs, session, "store", node});
  };
  using net::Message;
  EXPECT_EQ(fence([](const auto& /*theirs*/) { return Message::object(); }), Errc::permission);
  EXPECT_EQ(fence([&](const auto& theirs) { return Message{{"proof", proof_of(theirs, "another", "b")}}; }),
            Errc::permission);
  EXPECT_EQ(fence([&](const auto& theirs) { return Message{{"proof", proof_of(theirs, "session", "c")}}; }),
            Errc::permission);
  EXPECT_EQ(fence([&](const auto& /*theirs*/) {
              return Message{{"proof", proof_of(std::string(2 * remote::nonce_bytes, 'x'), "session", "b")}};
            }),
            Errc::permission);
  EXPECT_EQ(fence([&](const auto& theirs) { return Message{{"proof", proof_of(theirs, "session", "b")}}; }),
            std::nullopt);
}

// Receive: what another host of the cluster is to do, passed on to this one. Expect: it does not, nor says
// so.
TEST_F(FencerTest, AnotherHostDoesNotFenceInItsPlace) {
  const net::fake::ReservedPort port;
  const auto host =
      Host::start(fake::only_host(port.at(), [&](const std::string&) { return store_->attach(); })).value();
  Target target{.scheme = "tcp", .host = port.at(), .store = "store", .node = "b"};
  const auto refused = remote::fence(target, "session", in_seconds(5));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::not_found);
  target.node = "a";
  const auto fenced = remote::fence(target, "session", in_seconds(5));
  EXPECT_TRUE(fenced.has_value()) << fenced.error().message();
}

// Can say only sometimes which sessions it had.
class ForgettingFabric final : public fake::MemoryFabric {
 public:
  using MemoryFabric::MemoryFabric;
  Result<NotedSessions> noted_sessions() override {
    ++asked;
    if (forgets) return fail(Errc::io, "open", "too many open files");
    return NotedSessions{};
  }
  std::atomic<bool> forgets = true;
  std::atomic<int> asked = 0;
};

// Receive: a store of a cluster of which the host can not tell what sessions it had before. Expect: nobody
// opens it before the host has looked at them, once.
TEST_F(FencerTest, AStoreIsNotOpenedBeforeTheSessionsOfBeforeAreSeenTo) {
  const net::fake::ReservedPort port;
  const auto forgetting = std::make_shared<ForgettingFabric>(store_);
  const auto host = Host::start(fake::only_host(port.at(), [&](const std::string&) {
                      return Result<std::shared_ptr<Fabric>>(forgetting);
                    })).value();
  const Target target{.scheme = "tcp", .host = port.at(), .store = "store"};
  for (int i = 0; i < 2; ++i) {
    const auto refused = Link::open(target);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::io);
  }
  forgetting->forgets = false;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Link::open(target).has_value());
  EXPECT_EQ(forgetting->asked, 3);
}

}  // namespace
}  // namespace loch::fabric::host
