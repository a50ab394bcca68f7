// A port, against a host that does what it should not.
#include "fabric/tcp/tcp_port.h"

#include <array>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/random.h"
#include "fabric/endpoint.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/tcp/testing/raw_end.h"
#include "net/message.h"
#include "net/proof.h"
#include "net/testing/acceptor.h"

namespace loch::fabric::tcp {
namespace {

using raw::answer;
using raw::bytes_of;
using raw::in_seconds;
using raw::perform;
using raw::read_words;
using raw::receive;
using raw::send_all;
using testing::HasSubstr;

// Greets as a host does, and answers on data connections what a test wants.
class LyingHost {
 public:
  using Answers = std::function<void(net::Stream&)>;
  enum class Links : bool { end, stay };
  explicit LyingHost(Answers answers, Links links = Links::end)
      : answers_(std::move(answers)), what_of_links_(links) {}
  // Answers one question over each link: that a region is so long.
  explicit LyingHost(std::uint64_t region_bytes) : region_bytes_(region_bytes) {}
  [[nodiscard]] remote::Target target() const {
    return {.scheme = "tcp", .host = acceptor_.at(), .store = "store"};
  }
  // What comes next over its only link, if that stays.
  [[nodiscard]] Result<net::Message> next_asked() {
    const std::scoped_lock lock(mutex_);
    return links_.front()->wait_next(in_seconds(5));
  }

 private:
  void greet(base::FileDescriptor socket) {
    auto messages = std::make_unique<net::Messages>(std::make_unique<net::Stream>(std::move(socket)));
    const std::string mine(2 * remote::nonce_bytes, 'h');
    const auto hello = messages->wait_next(in_seconds(5));
    if (!hello) return;
    const std::string theirs = net::text_of(*hello, "nonce");
    const auto said = messages->ask({{"protocol", remote::protocol_version}, {"nonce", mine}}, in_seconds(5));
    if (!said) return;
    if (said->contains("join")) {
      std::ignore = messages->say({{"port", 1}});
      streams_.push_back(std::move(*messages).take_stream());
      answers_(*streams_.back());
      if (what_of_links_ == Links::end) links_.clear();  // nobody who leaves is to wait for it
    } else {
      const std::string proof = net::proof(net::no_key(), {"host", mine, theirs, "store", "change"});
      std::ignore = messages->say({{"proof", proof}, {"link", "1"}});
      if (region_bytes_ && messages->wait_next(in_seconds(5)))
        std::ignore = messages->say({{"bytes", *region_bytes_}});
      const std::scoped_lock lock(mutex_);
      links_.push_back(std::move(messages));
    }
  }

  const Answers answers_{};
  const Links what_of_links_ = Links::stay;
  const std::optional<std::uint64_t> region_bytes_{};
  std::mutex mutex_;
  std::vector<std::unique_ptr<net::Messages>> links_;
  std::vector<std::unique_ptr<net::Stream>> streams_;
  const net::fake::Acceptor acceptor_{[this](base::FileDescriptor socket) { greet(std::move(socket)); }};
};

coro::Task<Result<std::uint64_t>> read_one(Endpoint* endpoint) {
  co_return co_await endpoint->read_word({0, 0});
}

coro::Task<Result<std::uint64_t>> read_three(Endpoint* endpoint) {
  const std::array at = {Address{0, 0}, Address{0, 80}, Address{0, 160}};
  std::array<std::uint64_t, at.size()> words{};
  if (auto read = co_await endpoint->read_words(at, words.data()); !read)
    co_return std::unexpected(std::move(read.error()));
  co_return words[0] + words[1] + words[2];
}

Error error_against(LyingHost::Answers answers,
                    coro::Task<Result<std::uint64_t>> (*ask)(Endpoint*) = &read_one) {
  const LyingHost host(std::move(answers));
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  Endpoint endpoint(fabric, fabric->connect());
  endpoint.set_timeout(300 * base::millisecond_ns);
  const auto read = endpoint.run(ask(&endpoint));
  EXPECT_EQ(endpoint.run(read_one(&endpoint)).error().code, Errc::unavailable) << "it is of no more use";
  return read ? Error{.detail = "it was answered"} : read.error();
}

TEST(LyingHost, AnswersThatNobodyAskedForEndTheSession) {
  using enum Operation::Kind;
  const std::string word(8, 'w');
  const std::string wrong[] = {
      answer(read, Status::done, 1, 8, word),                  // to another operation
      answer(write, Status::done, 0, 0),                       // of another kind
      answer(read, Status::done, 0, 16, word + word),          // too long
      answer(read, Status::done, 0, ~std::uint32_t{0}, word),  // by far
      answer(read, Status::done, 0, 0),                        // too short
      answer(read, static_cast<Status>(7), 0, 8, word),        // neither done nor refused
      answer(read, Status::bad_address, 0, 8, word),           // refused, with a word
  };
  for (const std::string& each : wrong) {
    const Error error = error_against([&](net::Stream& stream) {
      receive(stream, sizeof(OperationHead));
      send_all(stream, each);
    });
    EXPECT_EQ(error.code, Errc::unavailable);
    EXPECT_THAT(error.detail, HasSubstr("nobody asked for"));
  }
}

TEST(LyingHost, WordsThatNobodyAskedForEndTheSession) {
  const std::string word(8, 'w');
  const std::string wrong[] = {
      answer(read_words, Status::done, 0, 16, word + word),                    // too few
      answer(read_words, Status::done, 0, 32, word + word + word + word),      // too many
      answer(read_words, Status::bad_address, 0, 24, word + word + word),      // without the bits
      answer(Operation::Kind::read, Status::done, 0, 24, word + word + word),  // in a row
      answer(Operation::Kind::read, Status::done, 0, 8, word),                 // the first alone
  };
  for (const std::string& each : wrong) {
    const Error error = error_against(
        [&](net::Stream& stream) {
          receive(stream, sizeof(OperationHead) + 2 * word_bytes);
          send_all(stream, each);
        },
        &read_three);
    EXPECT_EQ(error.code, Errc::unavailable);
    EXPECT_THAT(error.detail, HasSubstr("nobody asked for"));
  }
}

// Receive: a host that answers late. Expect: what is asked while two sends are under way waits for the first
// answer, and is sent then.
TEST(LyingHost, IsSentNoMoreWhileItOwesTwoAnswers) {
  const std::string word(8, '\1');
  std::atomic<bool> all_are_asked = false;
  std::atomic<bool> was_sent_more = true;
  const LyingHost host([&](net::Stream& stream) {
    receive(stream, 2 * sizeof(OperationHead));
    const base::Nanos deadline = in_seconds(5);
    while (!all_are_asked && base::Clock().now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    was_sent_more = net::wait_for(stream.socket(), POLLIN, base::Clock().now());
    for (std::uint16_t i = 0; i < 2; ++i)
      send_all(stream, answer(Operation::Kind::read, Status::done, i, 8, word));
    receive(stream, 2 * sizeof(OperationHead));
    for (std::uint16_t i = 2; i < 4; ++i)
      send_all(stream, answer(Operation::Kind::read, Status::done, i, 8, word));
  });
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  Endpoint endpoint(fabric, fabric->connect());
  endpoint.set_timeout(10 * base::second_ns);
  std::vector<coro::Task<Result<std::uint64_t>>> tasks;
  for (int i = 0; i < 4; ++i) {
    tasks.push_back(read_one(&endpoint));
    tasks.back().start();
    for (int step = 0; step < 5; ++step) endpoint.step();
  }
  all_are_asked = true;
  for (auto& task : tasks) {
    while (!task.done()) endpoint.step();
    EXPECT_TRUE(task.take().has_value());
  }
  EXPECT_FALSE(was_sent_more);
}

// Receive: a host that answers nothing before all of a long value is there. Expect: it is sent all of it, so
// that the value does not take a round trip for each part.
TEST(LyingHost, IsSentAllOfALongValueWithoutAnAnswer) {
  constexpr std::size_t pieces = 64;
  std::atomic<std::size_t> came = 0;
  constexpr std::size_t all_bytes = pieces * (sizeof(OperationHead) + piece_bytes_max);
  const LyingHost host([&](net::Stream& stream) {
    came = receive(stream, all_bytes).size();
    for (std::uint16_t i = 0; i < pieces; ++i)
      send_all(stream, answer(Operation::Kind::write, Status::done, i, 0, ""));
  });
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  Endpoint endpoint(fabric, fabric->connect());
  endpoint.set_timeout(10 * base::second_ns);
  const std::vector<std::byte> value(pieces * piece_bytes_max);
  std::array batch = {Operation::write({}, value.data(), value.size())};
  const auto written = endpoint.run(perform(&endpoint, batch));
  EXPECT_TRUE(written.has_value());
  EXPECT_EQ(came, all_bytes);
}

TEST(LyingHost, MoreAnswersThanWereAskedForEndTheSession) {
  const LyingHost host([](net::Stream& stream) {
    receive(stream, sizeof(OperationHead));
    const std::string one = answer(Operation::Kind::read, Status::done, 0, 8, std::string(8, 'w'));
    send_all(stream, one + one);
  });
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  Endpoint endpoint(fabric, fabric->connect());
  const auto first = endpoint.run(read_one(&endpoint));
  EXPECT_TRUE(!first || *first == 0x7777777777777777U);
  EXPECT_EQ(endpoint.run(read_one(&endpoint)).error().code, Errc::unavailable);
}

TEST(LyingHost, NoiseEndsTheSession) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  for (int i = 0; i < 20; ++i) {
    const Error error = error_against([&random](net::Stream& stream) {
      std::string noise(500, '\0');
      for (char& c : noise) c = static_cast<char>(random.next());
      send_all(stream, noise);
    });
    EXPECT_EQ(error.code, Errc::unavailable);
  }
}

std::string words_of_ending() { return bytes_of(&last_words, sizeof last_words); }

// Receive: a session that the host ends when it has answered nothing, a read, or an atomic. Expect: of the
// last alone nobody knows what became of its batch.
TEST(LyingHost, WhatIsUnansweredWhenItEndsTheSessionDidNotHappen) {
  using enum Operation::Kind;
  const std::string word(8, 'w');
  const auto code_after = [](Operation first, std::string said) {
    const LyingHost host([&](net::Stream& stream) { send_all(stream, said); });
    const auto fabric = remote::RemoteFabric::attach(host.target()).value();
    Endpoint endpoint(fabric, fabric->connect());
    std::array operations = {first, Operation::compare_swap({0, 64}, 1, 2)};
    const auto done = endpoint.run(perform(&endpoint, operations));
    EXPECT_EQ(endpoint.run(read_one(&endpoint)).error().code, Errc::moved) << "this one surely did not";
    return done ? Errc{} : done.error().code;
  };
  std::uint64_t into = 0;
  const auto reading = Operation::read({0, 0}, &into, sizeof into);
  const auto swapping = Operation::compare_swap({0, 0}, 1, 2);
  EXPECT_EQ(code_after(reading, words_of_ending()), Errc::moved);
  EXPECT_EQ(code_after(reading, answer(read, Status::done, 0, 8, word) + words_of_ending()), Errc::moved);
  EXPECT_EQ(code_after(swapping, answer(compare_swap, Status::done, 0, 8, word) + words_of_ending()),
            Errc::unavailable);
}

// Receive: the same over a connection that nothing can be written to any more. Expect: it is read to its end.
TEST(LyingHost, IsHeardThoughItHasResetTheConnection) {
  const LyingHost host([](net::Stream& stream) {
    send_all(stream, words_of_ending());
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(stream.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const base::FileDescriptor other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::dup2(other.get(), stream.socket());  // which closes it
  });
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  Endpoint endpoint(fabric, fabric->connect());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(endpoint.run(read_one(&endpoint)).error().code, Errc::moved);
}

// Receive: a host that says nothing any more, and a session of a cluster that asks it whether others are
// there, and at last leaves. Expect: it waits once for as long as it would to begin, then when it leaves, and
// takes everybody for present.
TEST(LyingHost, ThatIsSilentIsNotWaitedForAgainAndAgain) {
  const LyingHost host([](net::Stream&) {}, LyingHost::Links::stay);
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  auto port = fabric->connect("0123456789abcdef").value();
  const base::Nanos began = base::Clock().now();
  constexpr std::uint32_t questions = 20;
  for (std::uint32_t client = 1; client <= questions; ++client) EXPECT_TRUE(port->present(client));
  port = nullptr;
  EXPECT_LT(base::Clock().now() - began, questions / 2 * remote::joining_max_ns);
}

// Receive: the same, and a client number that is claimed. Expect: since it may be answered later, it is given
// back; and the session goes on.
TEST(LyingHost, ThatIsSilentIsNotLeftWithANumberThatWasClaimed) {
  LyingHost host([](net::Stream&) {}, LyingHost::Links::stay);
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  const auto port = fabric->connect("0123456789abcdef").value();
  EXPECT_EQ(port->claim_presence(5).error().code, Errc::timed_out);
  for (const char* what : {"claim", "release"}) {
    const auto asked = host.next_asked();
    ASSERT_TRUE(asked.has_value()) << asked.error().message();
    EXPECT_EQ(net::text_of(*asked, "do"), what);
    EXPECT_EQ(net::number_of(*asked, "client"), 5U);
  }
  port->abandon();
}

// Receive: the same of sessions that have failed towards another host. Expect: they go without a word.
TEST(LyingHost, ThatIsSilentIsNotToldOfTheEndOfSessionsThatHaveFailed) {
  const LyingHost host([](net::Stream&) {}, LyingHost::Links::stay);
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  constexpr std::uint32_t sessions = 20;
  std::vector<std::unique_ptr<remote::RemotePort>> ports;
  for (std::uint32_t i = 0; i < sessions; ++i) ports.push_back(fabric->connect("0123456789abcdef").value());
  const base::Nanos began = base::Clock().now();
  for (const auto& port : ports) port->abandon();
  ports.clear();
  EXPECT_LT(base::Clock().now() - began, sessions / 2 * remote::joining_max_ns);
}

// Receive: sessions that are broken off, with a read under way that nobody answers. Expect: the read ends at
// once, and what is asked for after it, both with an error that says so; and they go without a word.
TEST(LyingHost, ThatIsSilentIsNotToldOfSessionsThatAreBrokenOff) {
  const LyingHost host([](net::Stream&) {}, LyingHost::Links::stay);
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  constexpr std::uint32_t sessions = 20;
  const base::Nanos began = base::Clock().now();
  for (std::uint32_t i = 0; i < sessions; ++i) {
    Endpoint endpoint(fabric, fabric->connect("0123456789abcdef").value());
    endpoint.set_timeout(60 * base::second_ns);
    auto reading = read_one(&endpoint);
    reading.start();
    endpoint.port().break_off();
    while (!reading.done()) endpoint.step();
    for (const auto& read : {reading.take(), endpoint.run(read_one(&endpoint))})
      EXPECT_THAT(read.error().detail, HasSubstr("the session was broken off"));
  }
  EXPECT_LT(base::Clock().now() - began, sessions / 2 * remote::joining_max_ns);
}

// Receive: a sign behind a long answer, of which more comes, and then nothing. Expect: it is late when there
// was silence for too long, however long ago it was given; not for the time that the port stood still; and
// not once it is answered.
TEST(Sign, IsLateWhenNothingMovesAnyMore) {
  TcpPort::Sign sign;
  const base::Nanos limit = remote::sign_answer_max_ns;
  const base::Nanos now = base::Clock().now();
  const base::Nanos long_ago = now - 2 * limit;
  EXPECT_FALSE(sign.is_late(now)) << "there is none";
  sign.give(long_ago);
  EXPECT_FALSE(sign.is_late(long_ago + limit));
  EXPECT_TRUE(sign.is_late(now));
  sign.bytes_moved();
  EXPECT_FALSE(sign.is_late(now + limit));
  EXPECT_TRUE(sign.is_late(now + 2 * limit));
  sign.stood_still(limit);
  EXPECT_FALSE(sign.is_late(now + 2 * limit));
  EXPECT_TRUE(sign.is_late(now + 3 * limit));
  sign.is_under_way = false;
  EXPECT_FALSE(sign.is_late(now + 3 * limit));
}

// Receive: a host that is asked how long a region is, and to make it longer, and says that it is longer than
// any can be. Expect: it is not believed.
TEST(LyingHost, ARegionThatIsTooLongIsCorrupt) {
  const LyingHost host(region_bytes_max + 1);
  const auto fabric = remote::RemoteFabric::attach(host.target()).value();
  const auto extended = fabric->extend(3, 1U << 20);
  const auto link = remote::Link::open(host.target(), 5 * base::second_ns).value();
  const auto length = fabric->ask_length(*link, 3, in_seconds(5));
  ASSERT_FALSE(length || extended);
  for (const Error& error : {length.error(), extended.error()}) {
    EXPECT_EQ(error.code, Errc::corrupt);
    EXPECT_THAT(error.detail, HasSubstr("region 3 has 68719476737 bytes, more than a region can have"));
  }
  EXPECT_EQ(fabric->known_length(3), 0U);
}

TEST(LyingHost, SilenceIsATimeoutAndHalfAnAnswerIsNone) {
  EXPECT_EQ(error_against([](net::Stream&) {}).code, Errc::timed_out);
  EXPECT_EQ(error_against([](net::Stream& stream) {
              send_all(stream, answer(Operation::Kind::read, Status::done, 0, 8, "half"));
            }).code,
            Errc::timed_out);
  EXPECT_EQ(error_against([](net::Stream& stream) { ::shutdown(stream.socket(), SHUT_RDWR); }).code,
            Errc::unavailable);
}

}  // namespace
}  // namespace loch::fabric::tcp
