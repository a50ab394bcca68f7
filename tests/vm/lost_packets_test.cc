// What a queue pair says has completed has an answer, also when packets are lost. For the nodes of nodes.sh.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <span>

#include "fabric/testing/conformance.h"
#include "tests/vm/nodes.h"

namespace loch::tests {
namespace {

using fabric::Address;
using fabric::Operation;
using fabric::conformance::Session;
using fabric::conformance::small_region;
using fabric::conformance::Thread;

// A queue pair stands still until it sends once more what was lost; so there are several, each with words of
// its own.
class LostPackets : public testing::Test {
 protected:
  static constexpr int percent = 5;
  static constexpr std::uint64_t pairs = 6;
  static constexpr std::uint64_t chains_of_each = 100;

  struct Pair {
    Pair(fabric::conformance::World& world, Address words)
        : session(world), written(words), counter(words + 64) {}
    Session session;
    Address written;
    Address counter;
  };

  LostPackets() {
    for (std::uint64_t i = 0; i < pairs; ++i) pairs_.emplace_back(world_, Address{small_region, 512 * i});
  }
  void SetUp() override {
    for (const int node : nodes) lose(node, percent);
    lost_before_ = lost(nodes);
    asked_again_before_ = asked_again(nodes[0]);
  }
  void TearDown() override {
    EXPECT_GT(lost(nodes), lost_before_);
    EXPECT_GT(asked_again(nodes[0]), asked_again_before_) << "no answer was lost";
    for (const int node : nodes) lose(node, 0);
  }

  void on_each_pair(const std::function<void(Pair& pair)>& act) {
    std::deque<Thread> threads;
    for (Pair& pair : pairs_) threads.emplace_back([&] { act(pair); });
  }

  static constexpr std::array nodes = {1, 2};
  fabric::conformance::HostWorld world_{{.regions = {{small_region, fabric::conformance::small_bytes}},
                                         .fill = [](std::span<const fabric::Mapping> /*regions*/) {},
                                         .atomics = Atomics::device},
                                        "verbs",
                                        "10.0.0.1",
                                        "10.0.0.2"};
  std::deque<Pair> pairs_;
  std::uint64_t lost_before_ = 0;
  std::uint64_t asked_again_before_ = 0;
};

// (Soft-RoCE, asked once more for a WRITE that it has executed, acknowledges the newest that it has executed
// instead; and at the other end it takes that for the answer of an atomic, if that is the newest.)
TEST_F(LostPackets, AnAtomicBehindAWriteTellsTheWordBefore) {
  on_each_pair([](Pair& pair) {
    for (std::uint64_t i = 0; i < chains_of_each; ++i) {
      std::array operations = {Operation::write(pair.written, &i, sizeof i),
                               Operation::fetch_add(pair.counter, 1)};
      operations[1].after_previous = true;
      const auto done = pair.session.perform(operations);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      ASSERT_EQ(operations[1].result, i);
    }
  });
}

TEST_F(LostPackets, AReadBehindAWriteReadsIt) {
  on_each_pair([](Pair& pair) {
    for (std::uint64_t i = 0; i < chains_of_each; ++i) {
      std::uint64_t found = 0;
      std::array operations = {Operation::write(pair.written, &i, sizeof i),
                               Operation::read(pair.written, &found, sizeof found)};
      operations[1].after_previous = true;
      const auto done = pair.session.perform(operations);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      ASSERT_EQ(found, i);
    }
  });
}

// Also behind a message.
TEST_F(LostPackets, SoDoWhatComesBehindAMessage) {
  on_each_pair([](Pair& pair) {
    ASSERT_TRUE(pair.session.write_word(pair.written, 7).has_value());
    for (std::uint64_t i = 0; i < chains_of_each; ++i) {
      pair.session.endpoint.port().extend_soon(small_region, 0);
      std::uint64_t found = 0;
      std::array operations = {Operation::read(pair.written, &found, sizeof found),
                               Operation::fetch_add(pair.counter, 1)};
      const auto done = pair.session.perform(operations);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      ASSERT_EQ(found, 7U);
      ASSERT_EQ(operations[1].result, i);
    }
  });
}

}  // namespace
}  // namespace loch::tests
