// A host, and links that do what they should not.
#include "fabric/host.h"

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "base/testing/comes_true.h"
#include "fabric/endpoint.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/socket.h"
#include "net/testing/reserved_port.h"

namespace loch::fabric::remote {
namespace {

base::Nanos in_seconds(std::uint64_t n) { return base::Clock().now() + n * base::second_ns; }

// The host's end of a connection from 127.0.0.1; it is of this process too.
int host_end_of(int socket) {
  sockaddr_in mine{};
  socklen_t length = sizeof mine;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &length), 0);
  const std::string name = "127.0.0.1:" + std::to_string(ntohs(mine.sin_port));
  int end = 0;
  constexpr int descriptors_max = 1'024;
  while (end < descriptors_max && net::peer_of(end) != name) ++end;
  EXPECT_LT(end, descriptors_max);
  return end;
}

coro::Task<Result<std::uint64_t>> read_word(Endpoint* endpoint, Address at) {
  co_return co_await endpoint->read_word(at);
}

class HostTest : public testing::Test {
 protected:
  // A link to the store, greeted by hand.
  net::Messages greet_by_hand() {
    auto socket = net::connect(target_.host, {}, in_seconds(5)).value();
    net::Messages messages(std::make_unique<net::Stream>(std::move(socket)));
    const std::string mine(2 * nonce_bytes, 'c');
    const auto hello = messages.ask({{"protocol", protocol_version}, {"nonce", mine}}, in_seconds(5)).value();
    const std::string proof =
        net::proof(net::no_key(), {"open", net::text_of(hello, "nonce"), mine, "store", access_text(false)});
    const auto opened =
        messages.ask({{"open", "store"}, {"read_only", false}, {"proof", proof}}, in_seconds(5)).value();
    EXPECT_TRUE(opened.contains("link"));
    return messages;
  }

  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
  std::unique_ptr<Host> host_ =
      Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                   .open_store = [this](const std::string&) { return store_->attach(); }})
          .value();
  const Target target_{.scheme = "tcp",
                       .host = {.host = "127.0.0.1", .port = std::to_string(host_->ports().at(0))},
                       .store = "store"};
};

// Receive: questions without end, none of whose answers is taken. Expect: the host stops listening to who
// asks them, serves others, and answers every one when the answers are taken after all.
TEST_F(HostTest, ALinkThatTakesNoAnswersIsNotListenedTo) {
  net::Messages link = greet_by_hand();
  // The kernel would keep megabytes at either end, and break the connection off before they are full
  // (TCP_USER_TIMEOUT). To receive, not less than what it promised the other end.
  const int to_send = 4'096;
  const int to_receive = 131'072;
  for (const int socket : {link.stream().socket(), host_end_of(link.stream().socket())}) {
    ASSERT_EQ(::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &to_send, sizeof to_send), 0);
    ASSERT_EQ(::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &to_receive, sizeof to_receive), 0);
  }
  constexpr int questions_max = 200'000;  // more than all buffers on the way hold
  int asked = 0;
  const auto is_stuck = [&] {
    for (; asked < questions_max && !link.has_unsent(); ++asked) EXPECT_TRUE(link.say({{"do", "free"}}));
    for (int waited_ms = 0; link.has_unsent() && waited_ms < 300; ++waited_ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(link.flush());
    }
    return link.has_unsent();
  };
  while (asked < questions_max && !is_stuck()) {
  }
  EXPECT_LT(asked, questions_max);
  EXPECT_TRUE(Link::open(target_).has_value()) << "others are not served";
  for (int answered = 0; answered < asked; ++answered) {
    if (link.has_unsent()) EXPECT_TRUE(link.flush());
    ASSERT_TRUE(link.wait_next(in_seconds(5)).has_value()) << answered << " of " << asked;
  }
}

TEST_F(HostTest, OnlyStoresOfTheDirectoryAreOpened) {
  for (const std::string name : {"/dev/shm/other/store", "other/store", "..", ".hidden", ""}) {
    Target target = target_;
    target.store = name;
    const auto link = Link::open(target);
    ASSERT_FALSE(link.has_value()) << name;
    EXPECT_EQ(link.error().code, Errc::invalid_argument) << name;
  }
}

TEST_F(HostTest, AClientNumberThatThereIsNotIsRefused) {
  const std::uint64_t beyond = std::uint64_t{1} << client_number_bits;
  const auto link = Link::open(target_).value();
  for (const std::uint64_t client : {beyond, beyond << 16, ~std::uint64_t{0}}) {
    const auto answer = link->ask({{"do", "present"}, {"client", client}});
    ASSERT_FALSE(answer.has_value()) << client;
    EXPECT_EQ(answer.error().code, Errc::invalid_argument) << client;
  }
}

// Receive: a host that is held up for longer than somebody waits. Expect: who asks next is told what it asked
// for, and who sees to the connection does not take a late answer for its end.
TEST_F(HostTest, AnAnswerThatComesTooLateIsNotTakenForAnother) {
  std::latch goes_on(1);
  std::atomic<bool> is_held_up = false;
  const auto host = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                                 .open_store =
                                     [&](const std::string& name) {
                                       is_held_up = name == "slow";
                                       if (is_held_up) goes_on.wait();
                                       return store_->attach();
                                     }})
                        .value();
  Target target = target_;
  target.host.port = std::to_string(host->ports().at(0));
  const auto link = Link::open(target).value();
  target.store = "slow";
  std::thread other([target] { EXPECT_TRUE(Link::open(target).has_value()); });
  while (!is_held_up) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) {
    const auto late = link->ask({{"do", "free"}}, base::Clock().now() + 20 * base::millisecond_ns);
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, Errc::timed_out);
  }
  goes_on.count_down();
  other.join();
  const auto answer = link->ask({{"do", "present"}, {"client", 1}}, in_seconds(5));
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_TRUE(answer->contains("present"));
  EXPECT_TRUE(link->is_alive());
}

// Receive: a store that two pause at the same time. Expect: its sessions end, and none begins before both of
// them let that be.
TEST_F(HostTest, AStoreIsPausedUntilNobodyPausesIt) {
  const auto fabric = RemoteFabric::attach(target_).value();
  Endpoint endpoint(fabric, fabric->connect());
  EXPECT_TRUE(endpoint.run(read_word(&endpoint, {0, 0})).has_value());
  std::optional first(host_->pause("store").value());
  EXPECT_FALSE(endpoint.run(read_word(&endpoint, {0, 0})).has_value());
  const auto begins = [&] {
    Endpoint another(fabric, fabric->connect());
    return another.run(read_word(&another, {0, 0})).has_value();
  };
  {
    const auto second = host_->pause("store");
    ASSERT_TRUE(second.has_value());
    first.reset();
    EXPECT_FALSE(begins());
  }
  EXPECT_TRUE(begins());
}

// Receive: a cluster's host that answers, and makes no queue pairs. Expect: sessions do without it and say
// why, and it is not said to be found as long as that is so.
TEST_F(HostTest, OfAClusterAHostWithoutQueuePairsIsNotReachedOverVerbs) {
  const net::fake::ReservedPort port;
  const ClusterMap map = ClusterMap::spread({{.name = "a", .at = port.at()}}, 1).value();
  std::atomic<int> opened = 0;
  const auto host =
      Host::start({.listen = {port.at()},
                   .open_store =
                       [&](const std::string&) {
                         ++opened;
                         return store_->attach();
                       },
                   .cluster_of = [&](const std::string&) { return Host::Options::Cluster{.map = map}; }})
          .value();
  const Target target{.scheme = "verbs", .host = port.at(), .store = "store"};
  const auto way = RemoteFabric::attach(target).value();
  const auto refused = way->connect("session");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().detail, testing::HasSubstr("does not lend over verbs"));

  const auto fabric = attach(target.text(), {}).value();
  Endpoint endpoint(fabric, fabric->connect());
  const auto read = endpoint.run(read_word(&endpoint, {control_region_of(0), 0}));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::unavailable);
  EXPECT_THAT(read.error().detail, testing::HasSubstr("does not lend over verbs"));
  const int before = opened;
  EXPECT_TRUE(base::fake::comes_true([&] { return opened >= before + 3; }));
  EXPECT_EQ(fabric->hosts_found(), 0U);
}

}  // namespace
}  // namespace loch::fabric::remote
