// A host, and links that do what they should not.
#include "fabric/host.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/testing/memory_store.h"
#include "net/message.h"
#include "net/proof.h"

namespace loch::fabric::remote {
namespace {

base::Nanos in_seconds(std::uint64_t n) { return base::Clock().now() + n * base::second_ns; }

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
  const int small = 4'096;
  for (const int buffer : {SO_RCVBUF, SO_SNDBUF})
    ASSERT_EQ(::setsockopt(link.stream().socket(), SOL_SOCKET, buffer, &small, sizeof small), 0);
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
