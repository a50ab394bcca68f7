// A host, and links that do what they should not.
#include "fabric/host.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/testing/comes_true.h"
#include "base/testing/in_child.h"
#include "base/testing/in_seconds.h"
#include "fabric/endpoint.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/only_host.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/socket.h"
#include "net/testing/acceptor.h"
#include "net/testing/reserved_port.h"

namespace loch::fabric::host {
namespace {

using base::fake::in_seconds;
using remote::Link;
using remote::RemoteFabric;
using remote::Target;

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
    const std::string mine(2 * remote::nonce_bytes, 'c');
    const auto hello =
        messages.ask({{"protocol", remote::protocol_version}, {"nonce", mine}}, in_seconds(5)).value();
    const std::string proof = net::proof(
        net::no_key(), {"open", net::text_of(hello, "nonce"), mine, "store", remote::access_text(false)});
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

// Receive: a session of a store that keeps its time. Expect: it is the clock's before the session has asked
// for anything: what it asks for over RDMA passes the host by.
TEST(HostOfAStoreThatKeepsItsTime, RaisesItWhenASessionBegins) {
  const auto store = fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
  const auto host = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                                 .open_store = [&](const std::string&) { return store->attach(); },
                                 .time_of = [&](const Fabric&) { return store->at({0, 512}); }})
                        .value();
  const auto link = Link::open({.scheme = "tcp",
                                .host = {.host = "127.0.0.1", .port = std::to_string(host->ports().at(0))},
                                .store = "store"})
                        .value();
  for (int i = 0; i < 2; ++i) {
    store->advance(base::second_ns);
    ASSERT_TRUE(link->join({}).has_value());
    EXPECT_TRUE(base::fake::comes_true([&] { return load_word(store->at({0, 512})) == store->now(); }));
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

// Receive: a name of two addresses, and somebody at the first of them who was not there when the link was
// made to the second. Expect: a session goes where its link does, since no host proves anything to it.
TEST_F(HostTest, ASessionGoesToTheAddressOfItsLink) {
  Target target = target_;
  target.host.host.clear();  // ::1 and 127.0.0.1
  const auto link = Link::open(target).value();
  const auto other = net::listen({.host = "::1", .port = target.host.port});
  if (!other) GTEST_SKIP() << "there is no IPv6";
  const auto joined = link->join({});
  ASSERT_TRUE(joined.has_value()) << joined.error().message();
  EXPECT_EQ(net::peer_of(joined->stream->socket()), target_.host.text());
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
  EXPECT_TRUE(base::fake::comes_true([&] { return is_held_up.load(); }));
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

// Notes how long regions became, one step after the other.
class NotingFabric final : public fake::MemoryFabric {
 public:
  using MemoryFabric::MemoryFabric;
  Result<void> extend(RegionId region, std::uint64_t length_bytes) override {
    const std::scoped_lock lock(mutex_);
    steps_.push_back(length_bytes);
    return MemoryFabric::extend(region, length_bytes);
  }
  std::vector<std::uint64_t> steps() {
    const std::scoped_lock lock(mutex_);
    return steps_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> steps_;
};

class HostThatExtendsInSteps : public testing::Test {
 protected:
  static constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  static constexpr std::uint64_t step = remote::extension_bytes_max;

  Result<std::uint64_t> ask(RegionId region, std::uint64_t bytes) {
    const auto answer = link_->ask({{"do", "extend"}, {"region", region}, {"bytes", bytes}});
    if (!answer) return std::unexpected(answer.error());
    return net::number_of(*answer, "bytes").value();
  }

  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, mib}, {2, mib}}, .fill = {}});
  std::shared_ptr<NotingFabric> noting_ = std::make_shared<NotingFabric>(store_);
  std::atomic<std::uint64_t> bytes_max_ = 0;
  std::unique_ptr<Host> host_ =
      Host::start(
          {.listen = {{.host = "127.0.0.1", .port = "0"}},
           .open_store = [this](const std::string&) { return Result<std::shared_ptr<Fabric>>(noting_); },
           .bytes_max = [this](const Fabric&) { return bytes_max_.load(); }})
          .value();
  const Target target_{.scheme = "tcp",
                       .host = {.host = "127.0.0.1", .port = std::to_string(host_->ports().at(0))},
                       .store = "store"};
  std::shared_ptr<Link> link_ = Link::open(target_).value();
};

TEST_F(HostThatExtendsInSteps, RefusesWhatWouldHoldUpOthers) {
  const auto refused = ask(2, mib + step + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(refused.error().detail, testing::HasSubstr("in steps"));
  EXPECT_EQ(ask(2, mib + step), mib + step);
  EXPECT_EQ(ask(9, step), step) << "a new region";
  EXPECT_EQ(ask(2, mib), mib + step) << "it is longer already";
  EXPECT_THAT(noting_->steps(), testing::ElementsAre(mib + step, step, mib));
}

TEST_F(HostThatExtendsInSteps, IsAskedForOneStepAfterTheOther) {
  const auto far = RemoteFabric::attach(target_).value();
  ASSERT_TRUE(far->extend(2, 3 * step).has_value());
  EXPECT_THAT(noting_->steps(), testing::ElementsAre(mib + step, mib + 2 * step, 3 * step));
  ASSERT_TRUE(far->extend(2, 3 * step + 1).has_value());
  ASSERT_TRUE(far->extend(9, step + 1).has_value()) << "a region that is not there yet";
  EXPECT_EQ(store_->length_bytes(9), step + 1);
}

// Receive: several that make the same region longer, each of them knowing nothing of the others. Expect: it
// is as long as the longest of them wants it.
TEST_F(HostThatExtendsInSteps, SeveralAtATime) {
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      const auto far = RemoteFabric::attach(target_).value();
      EXPECT_TRUE(far->extend(2, (4 + i) * step + i).has_value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->length_bytes(2), 7 * step + 3);
}

TEST_F(HostThatExtendsInSteps, TakesNothingOfWhatThereIsNoRoomFor) {
  store_->set_free_bytes(3 * step);
  const auto far = RemoteFabric::attach(target_).value();
  const auto full = far->extend(2, 5 * step);
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, Errc::no_space);
  EXPECT_EQ(store_->length_bytes(2), mib);
  EXPECT_TRUE(far->extend(2, 3 * step).has_value());
}

TEST_F(HostThatExtendsInSteps, NotBeyondWhatTheStoreWasCreatedFor) {
  bytes_max_ = 8 * mib;
  EXPECT_TRUE(ask(1, 2 * mib).has_value());
  EXPECT_TRUE(ask(2, 6 * mib).has_value());
  for (const RegionId region : {RegionId{1}, RegionId{2}, RegionId{9}}) {
    const auto full = ask(region, store_->length_bytes(region) + mib);
    ASSERT_FALSE(full.has_value()) << int{region};
    EXPECT_EQ(full.error().code, Errc::no_space);
    EXPECT_THAT(full.error().detail, testing::HasSubstr("max_bytes"));
  }
  const RegionId of_a_cluster = data_regions_end;
  EXPECT_EQ(ask(of_a_cluster, mib).error().code, Errc::not_found);
  for (const RegionId region : {RegionId{9}, of_a_cluster}) {
    link_->tell({{"do", "extend_soon"}, {"region", region}, {"bytes", mib}});
    EXPECT_EQ(ask(2, 6 * mib), 6 * mib);
    EXPECT_EQ(store_->length_bytes(region), 0U);
  }
}

// Receive: more connections than a host takes, of strangers who say nothing. Expect: the oldest of them give
// way, those who know what to say are let in and stay, and it is told of once.
TEST(HostWithoutRoom, StrangersKeepNobodyOut) {
  for (const std::size_t connections_max : {std::size_t{8}, std::size_t{400}}) {
    SCOPED_TRACE(connections_max);
    const std::size_t strangers_max =
        std::min(connections_max, std::max(connections_max / 4, std::size_t{64}));
    const auto store = fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
    std::mutex mutex;
    std::vector<std::string> warnings;
    const auto host = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                                   .open_store = [&](const std::string&) { return store->attach(); },
                                   .connections_max = connections_max,
                                   .log =
                                       [&](Host::Level level, const std::string& text) {
                                         const std::scoped_lock lock(mutex);
                                         if (level == Host::Level::warning) warnings.push_back(text);
                                       }})
                          .value();
    const net::HostPort at{.host = "127.0.0.1", .port = std::to_string(host->ports().at(0))};
    const Target target{.scheme = "tcp", .host = at, .store = "store"};
    const auto before = Link::open(target).value();
    std::vector<base::FileDescriptor> strangers;
    for (std::size_t i = 0; i < strangers_max + 20; ++i)
      strangers.push_back(net::connect(at, {}, in_seconds(5)).value());
    // Each that is let in has one more of them leave.
    const auto fabric = RemoteFabric::attach(target);
    ASSERT_TRUE(fabric.has_value()) << fabric.error().message();
    Endpoint endpoint(*fabric, (*fabric)->connect());
    EXPECT_TRUE(endpoint.run(read_word(&endpoint, {0, 0})).has_value());
    EXPECT_TRUE(before->is_alive());
    const auto has_ended = [](const base::FileDescriptor& socket) {
      std::byte byte{};
      return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
    };
    EXPECT_TRUE(has_ended(strangers.front()));
    EXPECT_TRUE(has_ended(strangers.at(19)));
    EXPECT_FALSE(has_ended(strangers.back()));
    const std::scoped_lock lock(mutex);
    EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("had not greeted yet")));
  }
}

// Receive: more processes than a host takes. Expect: the last is refused, the others stay.
TEST(HostWithoutRoom, RefusesThoseBeyondItsConnections) {
  const auto store = fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
  const auto host = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                                 .open_store = [&](const std::string&) { return store->attach(); },
                                 .connections_max = 2})
                        .value();
  const Target target{.scheme = "tcp",
                      .host = {.host = "127.0.0.1", .port = std::to_string(host->ports().at(0))},
                      .store = "store"};
  const auto first = Link::open(target).value();
  const auto second = Link::open(target).value();
  EXPECT_FALSE(Link::open(target).has_value());
  EXPECT_TRUE(first->is_alive());
  EXPECT_TRUE(second->is_alive());
}

// Receive: a process that may open one more descriptor, two, and so on. Expect: a host says what it lacks
// until it has all that it needs.
TEST(HostWithoutRoom, SaysThatItHasNoDescriptors) {
  const auto store = fake::MemoryStore::create({.regions = {{0, std::uint64_t{1} << 20}}, .fill = {}});
  const auto start = [&store] {
    return Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                        .open_store = [&](const std::string&) { return store->attach(); }});
  };
  const std::string said = base::fake::in_child([&]() -> std::string {
    // Of each type of objects the sanitizer looks at one, for which it needs descriptors itself.
    EXPECT_TRUE(start().has_value());
    try {
      throw std::system_error(EMFILE, std::generic_category());
    } catch (const std::system_error& known) {
      std::ignore = fmt::format("{}", known.code().message());
    }
    const rlim_t first = static_cast<rlim_t>(base::FileDescriptor(::dup(STDIN_FILENO)).get());
    constexpr rlim_t more_max = 64;
    int lacked = 0;
    for (rlim_t more = 0; more < more_max; ++more) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = first + more;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto host = start();
      if (host) return lacked >= 3 ? "ok" : fmt::format("it lacked some {} times", lacked);
      if (host.error().code != Errc::unavailable) continue;  // it could not listen
      if (!host.error().detail.contains("ulimit -n")) return host.error().detail;
      ++lacked;
    }
    return "it never had enough";
  });
  EXPECT_EQ(said, "ok");
}

// Receive: a store that two pause at the same time. Expect: its sessions end, and others wait to begin until
// both of them let that be.
TEST_F(HostTest, AStoreIsPausedUntilNobodyPausesIt) {
  const auto fabric = RemoteFabric::attach(target_).value();
  Endpoint endpoint(fabric, fabric->connect());
  EXPECT_TRUE(endpoint.run(read_word(&endpoint, {0, 0})).has_value());
  std::optional first(host_->pause("store").value());
  EXPECT_FALSE(endpoint.run(read_word(&endpoint, {0, 0})).has_value());
  std::optional second(host_->pause("store").value());
  first.reset();
  std::atomic<bool> is_over = false;
  const std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    is_over = true;
    second.reset();
  });
  Endpoint another(fabric, fabric->connect());
  EXPECT_TRUE(is_over);
  EXPECT_TRUE(another.run(read_word(&another, {0, 0})).has_value());
}

// Receive: a host of a cluster that pauses a store for long. Expect: a session does without it.
TEST_F(HostTest, AStoreThatIsPausedForLongIsDoneWithout) {
  const net::fake::ReservedPort port;
  const auto host =
      Host::start(fake::only_host(port.at(), [&](const std::string&) { return store_->attach(); })).value();
  const auto fabric = RemoteFabric::attach({.scheme = "tcp", .host = port.at(), .store = "store"}).value();
  const auto pause = host->pause("store");
  ASSERT_TRUE(pause.has_value());
  const auto session = fabric->connect("0123456789abcdef");
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code, Errc::unavailable);
}

// Receive: sessions with names of which a host would note only the beginning, or something else, for the one
// that is started in its place. Expect: they are refused.
TEST_F(HostTest, OfAClusterASessionHasANameThatCanBeNoted) {
  const net::fake::ReservedPort port;
  const auto host =
      Host::start(fake::only_host(port.at(), [&](const std::string&) { return store_->attach(); })).value();
  const auto fabric = RemoteFabric::attach({.scheme = "tcp", .host = port.at(), .store = "store"}).value();
  EXPECT_TRUE(fabric->connect("0123456789abcdef").has_value());
  for (const std::string& name :
       {std::string("watcher\0s", 9), std::string("two words"), std::string("h\u00f6her"),
        std::string(remote::session_name_bytes_max + 1, 's')}) {
    const auto refused = fabric->connect(name);
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_THAT(refused.error().detail, testing::HasSubstr("at most 32 bytes, of letters and digits"));
  }
}

// Receive: a cluster's host that answers, and makes no queue pairs. Expect: sessions do without it and say
// why, and it is not said to be found as long as that is so.
TEST_F(HostTest, OfAClusterAHostWithoutQueuePairsIsNotReachedOverVerbs) {
  const net::fake::ReservedPort port;
  std::atomic<int> opened = 0;
  const auto host = Host::start(fake::only_host(port.at(), [&](const std::string&) {
                      ++opened;
                      return store_->attach();
                    })).value();
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
}  // namespace loch::fabric::host
