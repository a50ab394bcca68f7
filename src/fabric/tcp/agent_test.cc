// The agent, against clients that do what they should not.
#include "fabric/tcp/agent.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <time.h>
#include <utility>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "base/testing/comes_true.h"
#include "fabric/endpoint.h"
#include "fabric/host.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/tcp/testing/raw_end.h"
#include "fabric/testing/memory_store.h"

namespace loch::fabric::tcp {
namespace {

using raw::answer;
using raw::bytes_of;
using raw::in_seconds;
using raw::operation;
using raw::perform;
using raw::read_words;
using raw::receive;
using raw::send_all;
using testing::ElementsAre;

constexpr std::uint64_t region_bytes = 1 << 20;
// Where nobody writes.
constexpr RegionId guard_region = 1;
constexpr std::uint64_t guard_bytes = 4'096;

constexpr Operation::Kind after_previous(Operation::Kind kind) {
  return static_cast<Operation::Kind>(static_cast<unsigned>(kind) | after_previous_bit);
}

constexpr Operation::Kind settled(Operation::Kind kind) {
  return static_cast<Operation::Kind>(static_cast<unsigned>(kind) | settled_bit);
}

// Whether the other end closes the connection within five seconds.
bool is_closed(net::Stream& stream) {
  std::array<char, 4'096> rest;
  const base::Nanos deadline = in_seconds(5);
  for (;;) {
    const iovec part{.iov_base = rest.data(), .iov_len = rest.size()};
    const auto some = stream.read({&part, 1});
    if (!some) return true;
    if (*some == 0 && !net::wait_for(stream.socket(), POLLIN, deadline)) return false;
  }
}

class AgentTest : public testing::Test {
 public:
  AgentTest(const AgentTest&) = delete;
  AgentTest& operator=(const AgentTest&) = delete;
  ~AgentTest() override = default;

 protected:
  AgentTest() {
    host_ = Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                         .open_store = [this](const std::string&) { return store_->attach(); }})
                .value();
    const remote::Target target{.scheme = "tcp",
                                .host = {.host = "127.0.0.1", .port = std::to_string(host_->ports().at(0))},
                                .store = "store"};
    link_ = remote::Link::open(target).value();
    stream_ = link_->join({}).value().stream;
    fabric_ = remote::RemoteFabric::attach(target).value();
  }

  // That others are served.
  bool serves_others() {
    Endpoint endpoint(fabric_, fabric_->connect());
    const Address at{0, 64};
    return endpoint.run(add_one(&endpoint, at)).has_value();
  }
  static coro::Task<Result<std::uint64_t>> add_one(Endpoint* endpoint, Address at) {
    co_return co_await endpoint->fetch_add(at, 1);
  }

  std::shared_ptr<fake::MemoryStore> store_ =
      fake::MemoryStore::create({.regions = {{0, region_bytes}, {guard_region, guard_bytes}}, .fill = {}});
  std::unique_ptr<Host> host_;
  std::shared_ptr<remote::Link> link_;
  std::unique_ptr<net::Stream> stream_;
  std::shared_ptr<remote::RemoteFabric> fabric_;
};

// Receive: a connection that the kernel does not watch, as there are too many, or as this one is none.
// Expect: it is given up, which is told, and others are served.
TEST(AgentWithoutRoom, GivesUpAConnectionThatCanNotBeWatched) {
  const auto store = fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}});
  std::atomic<Agent::Id> gone = 0;
  Agent agent({.gone = [&gone](Agent::Id id) { gone = id; }});
  base::FileDescriptor unwatchable(::open("/dev/null", O_RDWR | O_CLOEXEC));
  agent.add(7, std::make_unique<net::Stream>(std::move(unwatchable)), store->attach());
  EXPECT_TRUE(base::fake::comes_true([&] { return gone == 7; }));
  EXPECT_EQ(agent.last_heard(7), 0U);
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  net::Stream stream{base::FileDescriptor(ends[0])};
  agent.add(8, std::make_unique<net::Stream>(base::FileDescriptor(ends[1])), store->attach());
  send_all(stream, operation(Operation::Kind::read, 0, 8, 0));
  EXPECT_EQ(receive(stream, sizeof(AnswerHead) + 8).size(), sizeof(AnswerHead) + 8);
}

// Receive: operations on a store that keeps its time. Expect: whoever asks finds what the clock said when it
// asked, at least; a time that is ahead of it stays; and a store that keeps none is left alone.
TEST(AgentOfAStoreThatKeepsItsTime, RaisesItBeforeItCarriesOutWhatHasCome) {
  const auto store = fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}});
  constexpr std::uint64_t offset = 512;
  std::byte* const time = store->at({0, offset});
  Agent agent({});
  Agent::Id ids = 0;
  const auto connect = [&](std::byte* keeps_it_at) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    agent.add(++ids, std::make_unique<net::Stream>(base::FileDescriptor(ends[1])), store->attach(),
              keeps_it_at);
    return std::make_unique<net::Stream>(base::FileDescriptor(ends[0]));
  };
  const auto read_time = [](net::Stream& stream) {
    send_all(stream, operation(Operation::Kind::read, offset, word_bytes, 0));
    const std::string answered = receive(stream, sizeof(AnswerHead) + word_bytes);
    std::uint64_t read = ~std::uint64_t{0};
    if (answered.size() == sizeof(AnswerHead) + word_bytes)
      std::memcpy(&read, answered.data() + sizeof(AnswerHead), word_bytes);
    return read;
  };
  const auto without = connect(nullptr);
  EXPECT_EQ(read_time(*without), 0U);
  const auto with = connect(time);
  for (int i = 0; i < 3; ++i) {
    store->advance(base::second_ns);
    EXPECT_EQ(read_time(*with), store->now());
  }
  EXPECT_EQ(read_time(*without), store->now());
  const std::uint64_t ahead = store->now() + base::second_ns;
  store_word(time, ahead);
  EXPECT_EQ(read_time(*with), ahead);
}

TEST_F(AgentTest, WhatIsNoOperationEndsTheConnectionAndNoOther) {
  using enum Operation::Kind;
  const std::string wrong[] = {
      operation(static_cast<Operation::Kind>(6), 0, 8, 0),
      operation(static_cast<Operation::Kind>(255), 0, 8, 0),
      operation(after_previous(static_cast<Operation::Kind>(6)), 0, 8, 0),
      operation(after_previous(read_words), 0, 8, 0),
      operation(read_words, 0, 0, 0),
      operation(read_words, 0, 12, 0),
      operation(read_words, 0, (words_at_once_max + 1) * word_bytes, 0),
      operation(read, 0, piece_bytes_max + 1, 0),
      operation(write, 0, ~std::uint32_t{0}, 0),
      operation(compare_swap, 0, 16, 0, std::string(16, '\0')),
      operation(fetch_add, 0, 0, 0, std::string(8, '\0')),
      operation(settled(fetch_add), 0, 8, 0, std::string(8, '\0')),
      operation(settled(write), 0, 8, 0, std::string(8, '\0')),
      operation(settled(expect), 0, 8, 0, std::string(8, '\0')),
      operation(expect, 0, piece_bytes_max + 1, 0),
      operation(settled(read_words), 0, 8, 0),
  };
  for (const std::string& each : wrong) {
    auto stream = link_->join({}).value().stream;
    send_all(*stream, each);
    EXPECT_TRUE(is_closed(*stream));
    EXPECT_TRUE(serves_others());
  }
}

// Every other one begins with an operation, on what is there or past it.
TEST_F(AgentTest, NoiseEndsTheConnectionOrTouchesOnlyWhatIsThere) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  for (int i = 0; i < 100; ++i) {
    auto stream = link_->join({}).value().stream;
    std::string noise(random.below(2'000) + 64, '\0');
    for (char& c : noise) c = static_cast<char>(random.next());
    if (i % 2 == 0) {
      const std::uint64_t past = i % 4 == 0 ? 0 : region_bytes;
      const auto kind = static_cast<Operation::Kind>(i / 4 % 5);
      const std::string begins = operation(kind, past + random.below(region_bytes / 8) * 8, 8, 0);
      noise.replace(0, begins.size(), begins);
    }
    send_all(*stream, noise);
    ::shutdown(stream->socket(), SHUT_WR);
    EXPECT_TRUE(is_closed(*stream)) << i;
  }
  const Host::Counts counts = host_->counts();
  EXPECT_GT(counts.reads, 0U);
  EXPECT_GT(counts.writes, 0U);
  EXPECT_GT(counts.atomics, 0U);
  EXPECT_GT(counts.bad_addresses, 0U);
  EXPECT_TRUE(serves_others());
  EXPECT_EQ(store_->length_bytes(0), region_bytes);
  const std::string guard(guard_bytes, '\0');
  EXPECT_EQ(std::memcmp(store_->at({guard_region, 0}), guard.data(), guard.size()), 0);
}

TEST_F(AgentTest, AnOperationOutsideItsRegionIsRefusedByItself) {
  using enum Operation::Kind;
  const std::string two_words(16, '\7');
  send_all(*stream_, operation(read, region_bytes, 8, 0) +                          //
                         operation(write, region_bytes - 8, 16, 1, two_words) +     //
                         operation(compare_swap, 4, 8, 2, std::string(16, '\0')) +  // across two words
                         operation(fetch_add, ~std::uint64_t{7}, 8, 3, std::string(8, '\1')) +
                         operation(read, 0, 8, 4));
  const std::string got = receive(*stream_, 4 * sizeof(AnswerHead) + sizeof(AnswerHead) + 8);
  EXPECT_EQ(got, answer(read, Status::bad_address, 0, 0) + answer(write, Status::bad_address, 1, 0) +
                     answer(compare_swap, Status::bad_address, 2, 0) +
                     answer(fetch_add, Status::bad_address, 3, 0) +
                     answer(read, Status::done, 4, 8, std::string(8, '\0')));
  EXPECT_EQ(host_->counts().bad_addresses, 4U);
  EXPECT_EQ(load_word(store_->at({0, region_bytes - 8})), 0U);
}

// Receive: words of one region that are asked for together, and then with some that are none. Expect: those
// that there are, and a bit for each of the others.
TEST_F(AgentTest, OfWordsThatAreAskedForTogetherThoseComeThatThereAre) {
  const std::uint64_t one = 1;
  const std::uint64_t nine = 9;
  std::memcpy(store_->at({0, 8}), &one, sizeof one);
  std::memcpy(store_->at({0, region_bytes - 8}), &nine, sizeof nine);
  const auto words = [](std::initializer_list<std::uint64_t> all) {
    return bytes_of(all.begin(), all.size() * word_bytes);
  };
  send_all(*stream_, operation(read_words, 8, 24, 0, words({0, region_bytes - 8})) +
                         operation(read_words, 8, 40, 1, words({region_bytes, 9, ~std::uint64_t{7}, 0})) +
                         operation(read_words, region_bytes - 8, 8, 2));
  const std::string expected =
      answer(read_words, Status::done, 0, 24, words({1, 0, 9})) +
      answer(read_words, Status::bad_address, 1, 48, words({0b01110, 1, 0, 0, 0, 0})) +
      answer(read_words, Status::done, 2, 8, words({9}));
  EXPECT_EQ(receive(*stream_, expected.size()), expected);
  EXPECT_EQ(host_->counts().bad_addresses, 3U);
  EXPECT_EQ(host_->counts().reads, 6U);
}

// Receive: operations that come after another one, which did nothing, and which was done.
TEST_F(AgentTest, WhatComesAfterAnotherOperationGoesByIt) {
  using enum Operation::Kind;
  const std::string one("\1\0\0\0\0\0\0\0", word_bytes);
  const std::string zero(word_bytes, '\0');
  send_all(*stream_, operation(write, region_bytes, 8, 0, zero) +
                         operation(after_previous(fetch_add), 128, 8, 1, one) +
                         operation(after_previous(read), 128, 8, 2) + operation(fetch_add, 128, 8, 3, one) +
                         operation(after_previous(read), 128, 8, 4));
  const std::string expected =
      answer(write, Status::bad_address, 0, 0) + answer(fetch_add, Status::bad_address, 1, 0) +
      answer(read, Status::bad_address, 2, 0) + answer(fetch_add, Status::done, 3, 8, zero) +
      answer(read, Status::done, 4, 8, one);
  EXPECT_EQ(receive(*stream_, expected.size()), expected);
  EXPECT_EQ(host_->counts().bad_addresses, 1U);
}

// Receive: a read of what is settled that is long enough to go out from where it lies, and a write after it
// to the same place. Expect: what was there before the write.
TEST_F(AgentTest, WhatComesAfterAReadOfWhatIsSettledDoesNotOvertakeIt) {
  using enum Operation::Kind;
  const std::string before(16'384, 'b');
  const std::string after(16'384, 'a');
  const auto length = static_cast<std::uint32_t>(before.size());
  std::memcpy(store_->at({0, 4'096}), before.data(), before.size());
  send_all(*stream_, operation(settled(read), 4'096, length, 0) +
                         operation(after_previous(write), 4'096, length, 1, after) +
                         operation(settled(read), 4'096, length, 2));
  const std::string expected = answer(read, Status::done, 0, length, before) +
                               answer(write, Status::done, 1, 0) +
                               answer(read, Status::done, 2, length, after);
  EXPECT_TRUE(receive(*stream_, expected.size()) == expected);
}

// Receive: reads of what is settled that go out from where they lie, and behind each one that does so, too,
// or is read at once. Expect: the latter is read when what it goes by has been; the former is, anyway.
TEST_F(AgentTest, AReadDoesNotOvertakeTheOneItGoesBy) {
  using enum Operation::Kind;
  constexpr std::uint32_t length = 1'024;
  const std::string there(length, 't');
  std::memcpy(store_->at({0, 4'096}), there.data(), there.size());
  std::memcpy(store_->at({0, 128}), "abcdefgh", 8);
  const auto sends_for = [&](const std::string& asked, const std::string& expected) {
    const std::uint64_t before = host_->counts().sends;
    send_all(*stream_, asked);
    EXPECT_TRUE(receive(*stream_, expected.size()) == expected);
    return host_->counts().sends - before;
  };
  EXPECT_EQ(
      sends_for(operation(settled(read), 4'096, length, 0) +
                    operation(after_previous(settled(read)), 4'096, length, 1) + operation(read, 128, 8, 2),
                answer(read, Status::done, 0, length, there) + answer(read, Status::done, 1, length, there) +
                    answer(read, Status::done, 2, 8, "abcdefgh")),
      1U);
  EXPECT_EQ(
      sends_for(operation(settled(read), 4'096, length, 3) + operation(after_previous(read), 128, 8, 4),
                answer(read, Status::done, 3, length, there) + answer(read, Status::done, 4, 8, "abcdefgh")),
      2U);
}

// Expect: the operations of a batch tell each for itself, also where they go together.
TEST_F(AgentTest, OfABatchOnlyTheOperationThatIsOutsideItsRegionDoesNothing) {
  Endpoint endpoint(fabric_, fabric_->connect());
  const std::uint64_t seven = 7;
  std::memcpy(store_->at({0, 800}), &seven, sizeof seven);
  std::array<std::uint64_t, 3> into{1, 1, 1};
  std::array operations = {Operation::read({0, 800}, into.data() + 2, word_bytes),
                           Operation::read({0, region_bytes}, into.data() + 1, word_bytes),
                           Operation::read({0, 1600}, into.data(), word_bytes)};
  EXPECT_EQ(endpoint.run(perform(&endpoint, operations)).error().code, Errc::corrupt);
  EXPECT_THAT(into, ElementsAre(0U, 1U, 7U));
  EXPECT_FALSE(operations[0].bad_address);
  EXPECT_TRUE(operations[1].bad_address);
  EXPECT_FALSE(operations[2].bad_address);
  EXPECT_EQ(host_->counts().sends, 1U);
}

// Receive: operations of sessions that the host has ended, before and after they were sent. Expect: they are
// told that it did not happen, and it did not.
TEST_F(AgentTest, OfASessionThatTheHostHasEndedNothingHappensAndItKnows) {
  const Address at{0, 64};
  for (int round = 0; round < 20; ++round) {
    Endpoint endpoint(fabric_, fabric_->connect());
    const std::uint64_t before = endpoint.run(add_one(&endpoint, at)).value();
    auto asked = add_one(&endpoint, at);
    const bool is_posted_before = round % 2 == 0;  // it is sent with the next step
    if (is_posted_before) asked.start();
    {
      const auto paused = host_->pause("store").value();
    }
    if (!is_posted_before) asked.start();
    while (!asked.done()) endpoint.step();
    const auto added = asked.take();
    ASSERT_FALSE(added.has_value());
    EXPECT_EQ(added.error().code, Errc::moved) << added.error().message();
    const auto later = endpoint.run(add_one(&endpoint, at));
    ASSERT_FALSE(later.has_value());
    EXPECT_EQ(later.error().code, Errc::moved) << later.error().message();
    Endpoint another(fabric_, fabric_->connect());
    EXPECT_EQ(another.run(add_one(&another, at)).value(), before + 1);
  }
}

// Receive: an operation that comes byte by byte. Expect: its word is written whole, when all of it is there.
TEST_F(AgentTest, AnOperationThatComesInPiecesHappensOnceItIsThere) {
  const std::string bytes = operation(Operation::Kind::write, 128, 8, 0, "abcdefgh");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(load_word(store_->at({0, 128})), 0U) << i;
    send_all(*stream_, std::string_view(bytes).substr(i, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(receive(*stream_, sizeof(AnswerHead)), answer(Operation::Kind::write, Status::done, 0, 0));
  EXPECT_EQ(std::memcmp(store_->at({0, 128}), "abcdefgh", 8), 0);
}

// Receive: reads of all lengths, every other one of what is settled, of which more is asked for than the
// kernel keeps for one who takes none of the answers. Expect: others are served; and all of them come when
// they are taken after all.
TEST_F(AgentTest, WhoTakesNoAnswersHoldsNobodyUp) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  auto* bytes = reinterpret_cast<char*>(store_->at({0, 128}));
  std::string there(region_bytes - 128, '\0');
  for (char& c : there) c = static_cast<char>(random.next());
  std::ranges::copy(there, bytes);
  constexpr int reads = 1'000;
  std::string many;
  std::vector<std::string> expected;
  for (std::uint16_t i = 0; i < reads; ++i) {
    const auto length = static_cast<std::uint32_t>(random.below(piece_bytes_max + 1));
    const std::size_t from = random.below(there.size() - length + 1);
    many +=
        operation(i % 2 == 0 ? Operation::Kind::read : settled(Operation::Kind::read), 128 + from, length, i);
    std::string rest = there.substr(from, length);
    rest.resize(whole_words(length));
    expected.push_back(answer(Operation::Kind::read, Status::done, i, length, rest));
  }
  send_all(*stream_, many);
  EXPECT_TRUE(serves_others());
  for (int i = 0; i < reads; ++i)
    ASSERT_TRUE(receive(*stream_, expected[i].size()) == expected[i]) << "answer " << i;
}

// Receive: reads whose answers are not taken. Expect: whoever carries them out sleeps until they are.
TEST_F(AgentTest, WhoTakesNoAnswersCostsNothing) {
  constexpr std::uint32_t length = piece_bytes_max;
  std::string many;
  for (std::uint16_t i = 0; i < 500; ++i) many += operation(Operation::Kind::read, 0, length, i);
  send_all(*stream_, many);
  const auto cpu_ns = [] {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<std::int64_t>(used.tv_sec) * 1'000'000'000 + used.tv_nsec;
  };
  EXPECT_TRUE(base::fake::comes_true([&] {
    const std::int64_t before = cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return cpu_ns() - before < 20'000'000;
  }));
}

// Receive: answers that are taken late, by one that asks for nothing more. Expect: it counts as silent while
// it takes none, and is heard from when it does.
TEST(AgentThatIsNotAsked, HearsWhoTakesItsAnswers) {
  const auto store = fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}});
  Agent agent({.gone = {}});
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  net::Stream stream{base::FileDescriptor(ends[0])};
  auto far = std::make_unique<net::Stream>(base::FileDescriptor(ends[1]));
  const int to_send = 4'096;
  ASSERT_EQ(::setsockopt(far->socket(), SOL_SOCKET, SO_SNDBUF, &to_send, sizeof to_send), 0);
  agent.add(1, std::move(far), store->attach());
  constexpr std::uint32_t length = piece_bytes_max;
  std::string many;
  for (std::uint16_t i = 0; i < 8; ++i) many += operation(Operation::Kind::read, 0, length, i);
  send_all(stream, many);
  constexpr base::Nanos silence_ns = 50 * base::millisecond_ns;
  ASSERT_TRUE(base::fake::comes_true(
      [&] { return agent.counts().sends != 0 && agent.last_heard(1) + silence_ns < base::Clock().now(); }));
  const base::Nanos before = agent.last_heard(1);
  EXPECT_EQ(receive(stream, length).size(), length);
  EXPECT_TRUE(base::fake::comes_true([&] { return agent.last_heard(1) > before; }, std::chrono::seconds(5)));
}

// Receive: one that always has work, asking for the next as soon as it is answered. Expect: others are served
// beside it.
TEST_F(AgentTest, WhoAlwaysHasWorkHoldsNobodyUp) {
  std::atomic<bool> stop{false};
  std::atomic<int> answers{0};
  std::thread busy([&] {
    Endpoint endpoint(fabric_, fabric_->connect());
    const Address at{0, 0};
    while (!stop && endpoint.run(add_one(&endpoint, at))) ++answers;
  });
  EXPECT_TRUE(base::fake::comes_true([&] { return answers > 1'000; }));  // so that it alone is looked for
  EXPECT_TRUE(serves_others());
  const int before = answers;
  EXPECT_TRUE(base::fake::comes_true([&] { return answers > before; }));
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace loch::fabric::tcp
