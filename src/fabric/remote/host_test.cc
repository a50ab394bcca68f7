// A host, and links that do what they should not.
#include "fabric/host.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/testing/memory_store.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/socket.h"

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

}  // namespace
}  // namespace loch::fabric::remote
