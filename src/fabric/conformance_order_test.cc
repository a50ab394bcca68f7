// What fabric.h promises of the order of operations, P3 (testing/conformance.h).
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/testing/comes_true.h"
#include "fabric/testing/conformance.h"

namespace loch::fabric::conformance {
namespace {

// What `publish(session, place, bytes, word, round)` writes to a place of its own before it raises the word
// to `round` is there for whoever sees the word. It gives the word as it was before.
template <class Publish>
void publish_to_a_reader(World& world, Publish publish) {
  constexpr std::uint64_t rounds = 500;
  const Address word{small_region, 0};
  const auto place = [](std::uint64_t round) { return Address{large_region, round * 128}; };
  const auto bytes = [](std::uint64_t round) {
    return std::string(100, static_cast<char>('a' + round % 26));
  };
  std::atomic<std::uint64_t> seen = 0;
  const Thread writer([&] {
    Session s(world);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      ASSERT_EQ(publish(s, place(round), bytes(round), word, round).value(), round - 1);
      // The reader is to be at work when the next ones are written.
      const auto is_seen = [&] { return seen >= round; };
      if (round % 100 == 1)
        ASSERT_TRUE(base::fake::comes_true(is_seen)) << "the reader has not seen " << round;
    }
  });
  Session s(world);
  for (bool has_ended = false; seen < rounds && !has_ended;) {
    has_ended = writer.has_ended();  // asked before the last look
    const std::uint64_t now = s.read_word(word).value();
    if (now != 0) ASSERT_EQ(s.fetch(place(now), 100).value(), bytes(now));
    seen = now;
  }
  EXPECT_EQ(seen, rounds);
}

TEST_P(Conformance, WhatWasWrittenAndAwaitedIsThereForWhoeverSeesTheNextWord) {
  publish_to_a_reader(
      *world_, [](Session& s, Address place, const std::string& bytes, Address word, std::uint64_t round) {
        s.write(place, bytes).value();
        return s.compare_swap(word, round - 1, round);
      });
}

TEST_P(Conformance, SoIsWhatWasWrittenByThePreviousOperationOfABatch) {
  publish_to_a_reader(
      *world_, [](Session& s, Address place, const std::string& bytes, Address word, std::uint64_t round) {
        std::array operations = {Operation::write(place, bytes.data(), bytes.size()),
                                 Operation::compare_swap(word, round - 1, round)};
        operations[1].after_previous = true;
        s.perform(operations).value();
        return Result<std::uint64_t>(operations[1].result);
      });
}

// A batch of which each operation goes by what those before it did.
void expect_each_after_the_previous(World& world, std::size_t rounds, bool after_previous) {
  Session s(world);
  const std::string text(150'000, 'x');
  const Address place{large_region, 4'096};
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    const std::uint64_t written = round + 1'000;
    std::string got(text.size(), '\0');
    std::array operations = {Operation::read({small_region, 0}, &first, sizeof first),
                             Operation::fetch_add({small_region, 0}, 1),
                             Operation::compare_swap({small_region, 0}, round + 1, round + 500),
                             Operation::write({small_region, 0}, &written, sizeof written),
                             Operation::read({small_region, 0}, &second, sizeof second),
                             Operation::write(place, text.data(), text.size()),
                             Operation::read(place, got.data(), got.size())};
    for (std::size_t i = 1; i < operations.size(); ++i) operations[i].after_previous = after_previous;
    ASSERT_TRUE(s.write_word({small_region, 0}, round).has_value());
    ASSERT_TRUE(s.write(place, std::string(text.size(), '-')).has_value());
    ASSERT_TRUE(s.perform(operations).has_value());
    ASSERT_EQ(first, round);
    ASSERT_EQ(operations[1].result, round);
    ASSERT_EQ(operations[2].result, round + 1);
    ASSERT_EQ(second, written);
    ASSERT_EQ(got, text);
  }
}

TEST_P(Conformance, OperationsOfAllKindsExecuteAfterThePreviousOne) {
  expect_each_after_the_previous(*world_, few(100), true);
}

// A queue pair keeps no order of READs.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrderedConformance);

TEST_P(OrderedConformance, OperationsOfAllKindsExecuteInTheirOrder) {
  ASSERT_TRUE(Session(*world_).endpoint.keeps_order());
  expect_each_after_the_previous(*world_, few(100), false);
}

// Receive: batches that expect what is there, and what is not, short and long. Expect: what is to come after
// that happens only in the first case, and what stands by itself in both.
TEST_P(OrderedConformance, WhatComesAfterAnExpectationHappensIfItHolds) {
  Session s(*world_);
  for (const std::size_t length : {std::size_t{1}, std::size_t{14}, std::size_t{300}, std::size_t{150'000}}) {
    const std::string there(length, 'x');
    const Address place{large_region, 4'096 + 3};
    ASSERT_TRUE(s.write(place, there).has_value());
    for (const bool holds : {true, false}) {
      for (const std::size_t differs_at : {std::size_t{0}, length / 2, length - 1}) {
        std::string expected = there;
        if (!holds) expected[differs_at] = 'y';
        ASSERT_TRUE(s.write_word({small_region, 0}, 1).has_value());
        ASSERT_TRUE(s.write_word({small_region, 8}, 1).has_value());
        std::uint64_t read = 0;
        std::array operations = {Operation::expect({small_region, 0}, "\1\0\0\0\0\0\0", 8),
                                 Operation::expect(place, expected.data(), expected.size()),
                                 Operation::compare_swap({small_region, 0}, 1, 2),
                                 Operation::fetch_add({small_region, 8}, 1),
                                 Operation::read({small_region, 8}, &read, sizeof read)};
        operations[1].after_previous = operations[2].after_previous = true;
        const auto performed = s.perform(operations);
        EXPECT_EQ(performed.has_value(), holds);
        EXPECT_FALSE(operations[0].bad_address);
        EXPECT_EQ(operations[1].bad_address, !holds) << length << ", " << differs_at;
        EXPECT_EQ(operations[2].bad_address, !holds);
        EXPECT_EQ(s.read_word({small_region, 0}).value(), holds ? 2U : 1U);
        EXPECT_EQ(read, 2U);
      }
    }
  }
}

// Receive: words that say what is there, and in the same batch settled reads of that, short ones and long
// ones. Expect: what was there before a word was raised is read with whoever sees that.
TEST_P(OrderedConformance, WhatIsReadBehindAWordIsWhatTheWordSaysOrLater) {
  constexpr std::uint64_t rounds = 20;
  constexpr std::size_t places = 4;
  const std::array<std::size_t, places> length = {100, 1'000, 20'000, 40'000};
  const auto word = [](std::size_t i) { return Address{small_region, i * 64}; };
  const auto place = [](std::size_t i) { return Address{large_region, i * 65'536}; };
  const auto bytes = [&](std::size_t i, std::uint64_t round) {
    return std::string(length[i], static_cast<char>('a' + round));
  };
  const Thread writer([&] {
    Session s(*world_);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      for (std::size_t i = 0; i < places; ++i) {
        ASSERT_TRUE(s.write(place(i), bytes(i, round)).has_value());
        ASSERT_TRUE(s.write_word(word(i), round).has_value());
      }
    }
  });
  Session s(*world_);
  std::array<std::uint64_t, places> seen{};
  const auto has_seen_all = [&] { return *std::ranges::min_element(seen) == rounds; };
  for (bool has_ended = false; !has_seen_all() && !has_ended;) {
    has_ended = writer.has_ended();  // asked before the last look
    std::array<std::string, places> got;
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < places; ++i)
      operations.push_back(Operation::read(word(i), &seen[i], sizeof seen[i]));
    for (std::size_t i = 0; i < places; ++i) {
      got[i].resize(length[i]);
      operations.push_back(Operation::read_settled(place(i), got[i].data(), length[i]));
    }
    ASSERT_TRUE(s.perform(operations).has_value());
    for (std::size_t i = 0; i < places; ++i) {
      if (seen[i] != 0) ASSERT_GE(*std::ranges::min_element(got[i]), 'a' + static_cast<int>(seen[i])) << i;
    }
  }
  EXPECT_TRUE(has_seen_all());
}

TEST_P(Conformance, WhatComesAfterAnOperationThatDidNothingDoesNothingEither) {
  Session s(*world_);
  const std::string text(100'000, 'x');
  for (const std::uint64_t fits : {std::uint64_t{0}, std::uint64_t{70'000}}) {
    ASSERT_TRUE(s.write_word({small_region, 0}, 1).has_value());
    ASSERT_TRUE(s.write_word({small_region, 8}, 1).has_value());
    ASSERT_TRUE(s.write_word({small_region, 16}, 1).has_value());
    std::array operations = {Operation::write({large_region, large_bytes - fits}, text.data(), text.size()),
                             Operation::compare_swap({small_region, 0}, 1, 2),
                             Operation::fetch_add({small_region, 8}, 1),
                             Operation::fetch_add({small_region, 16}, 1)};
    operations[1].after_previous = operations[2].after_previous = true;
    const auto performed = s.perform(operations);
    ASSERT_FALSE(performed.has_value());
    EXPECT_EQ(performed.error().code, Errc::corrupt);
    EXPECT_TRUE(operations[1].bad_address && operations[2].bad_address);
    EXPECT_EQ(s.read_word({small_region, 0}).value(), 1U);
    EXPECT_EQ(s.read_word({small_region, 8}).value(), 1U);
    EXPECT_EQ(s.read_word({small_region, 16}).value(), operations[3].bad_address ? 1U : 2U);
  }
}

}  // namespace
}  // namespace loch::fabric::conformance
