// What fabric.h promises (testing/conformance.h).
#include "fabric/testing/conformance.h"

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing/comes_true.h"
#include "coro/scope.h"
#include "fabric/endpoint.h"
#include "fabric/fabric.h"

namespace loch::fabric::conformance {
namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr RegionId new_region = 7;

// Whether a region becomes so long by itself. What a session only says goes with the next thing that it does.
bool becomes(Session& session, RegionId region, std::uint64_t length_bytes) {
  return base::fake::comes_true([&] {
    EXPECT_TRUE(session.read_word({small_region, 0}).has_value());
    return session.endpoint.length_bytes(region) == length_bytes;
  });
}

// ---- creation

TEST_P(Conformance, ANewStoreIsAsItWasFilledAndZeroElsewhere) {
  Session s(*world_);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(s.read_word({large_region, i * 8}).value(), i);
  EXPECT_EQ(s.fetch({large_region, 64}, large_bytes - 64).value(), std::string(large_bytes - 64, '\0'));
  EXPECT_EQ(s.fetch({small_region, 0}, small_bytes).value(), std::string(small_bytes, '\0'));
  EXPECT_EQ(s.endpoint.length_bytes(small_region), small_bytes);
  EXPECT_EQ(s.endpoint.length_bytes(large_region), large_bytes);
  EXPECT_EQ(s.endpoint.length_bytes(17), 0U) << "there is no such region";
  EXPECT_FALSE(s.fabric->location().empty());
  EXPECT_GT(s.fabric->free_bytes(), 0U);
}

// ---- words

TEST_P(Conformance, AWordThatWasWrittenIsReadByAll) {
  Session a(*world_);
  Session b(*world_);
  Session c(a.fabric);
  for (std::uint64_t i = 1; i < 50; ++i) {
    const Address at{small_region, i * 8};
    ASSERT_TRUE(a.write_word(at, i * 0x0101010101010101).has_value());
    for (Session* reader : {&a, &b, &c}) EXPECT_EQ(reader->read_word(at).value(), i * 0x0101010101010101);
  }
}

TEST_P(Conformance, ABatchReadsEachWordItWasAskedFor) {
  Session s(*world_);
  std::array<Address, batch_words_max> at;
  for (std::size_t count = 0; count <= batch_words_max; ++count) {
    for (std::size_t i = 0; i < count; ++i) {
      at[i] = {i % 2 == 0 ? small_region : large_region, 1'024 + 72 * i};
      ASSERT_TRUE(s.write_word(at[i], 100 * count + i).has_value());
    }
    std::array<std::uint64_t, batch_words_max + 1> words;
    words.fill(~std::uint64_t{0});
    ASSERT_TRUE(s.read_words(std::span(at).first(count), words.data()).has_value());
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(words[i], 100 * count + i);
    EXPECT_EQ(words[count], ~std::uint64_t{0});
  }
  at.fill({small_region, 8});
  std::array<std::uint64_t, batch_words_max> words{};
  ASSERT_TRUE(s.write_word(at[0], 5).has_value());
  ASSERT_TRUE(s.read_words(at, words.data()).has_value());
  for (const std::uint64_t word : words) EXPECT_EQ(word, 5U) << "one word many times";
}

TEST_P(Conformance, CompareSwapChangesOnlyWhatWasExpected) {
  Session s(*world_);
  const Address at{small_region, 8};
  EXPECT_EQ(s.compare_swap(at, 0, 7).value(), 0U);
  EXPECT_EQ(s.read_word(at).value(), 7U);
  EXPECT_EQ(s.compare_swap(at, 0, 9).value(), 7U);
  EXPECT_EQ(s.read_word(at).value(), 7U);
  EXPECT_EQ(s.compare_swap(at, 7, ~std::uint64_t{0}).value(), 7U);
  EXPECT_EQ(s.compare_swap(at, ~std::uint64_t{0}, 0).value(), ~std::uint64_t{0});
  EXPECT_EQ(s.read_word({small_region, 0}).value(), 0U);
  EXPECT_EQ(s.read_word({small_region, 16}).value(), 0U);
}

TEST_P(Conformance, FetchAddTellsTheWordBeforeAndWrapsAround) {
  Session s(*world_);
  const Address at{small_region, 8};
  EXPECT_EQ(s.fetch_add(at, 5).value(), 0U);
  EXPECT_EQ(s.fetch_add(at, ~std::uint64_t{0}).value(), 5U);
  EXPECT_EQ(s.fetch_add(at, 0).value(), 4U);
  ASSERT_TRUE(s.write_word(at, ~std::uint64_t{0}).has_value());
  EXPECT_EQ(s.fetch_add(at, 2).value(), ~std::uint64_t{0});
  EXPECT_EQ(s.read_word(at).value(), 1U);
  EXPECT_EQ(s.read_word({small_region, 16}).value(), 0U);
}

// ---- bytes

TEST_P(Conformance, BytesOfAnyLengthAndPlace) {
  Session a(*world_);
  Session b(*world_);
  base::Random random(1);
  std::string expected = a.fetch({large_region, 0}, large_bytes).value();
  for (const std::size_t length :
       {0UL, 1UL, 7UL, 8UL, 9UL, 63UL, 64UL, 65UL, 1'000UL, 4'096UL, 100'001UL, 262'144UL}) {
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t offset = random.below(large_bytes - length + 1);
      std::string bytes(length, '\0');
      for (char& c : bytes) c = static_cast<char>(random.next());
      ASSERT_TRUE(a.write({large_region, offset}, bytes).has_value());
      expected.replace(offset, length, bytes);
      EXPECT_EQ(b.fetch({large_region, offset}, length).value(), bytes);
    }
  }
  EXPECT_EQ(b.fetch({large_region, 0}, large_bytes).value(), expected);
}

TEST_P(Conformance, ABatchDoesOperationsOfAllKinds) {
  Session a(*world_);
  Session b(*world_);
  const std::string text = "some bytes that are no words";
  ASSERT_TRUE(a.write({large_region, 4'096}, text).has_value());
  for (const Urgency urgency : {Urgency::awaited, Urgency::background}) {
    std::string got(text.size(), '\0');
    std::uint64_t word = 0;
    const std::uint64_t written = 77;
    ASSERT_TRUE(a.write_word({small_region, 0}, 1).has_value());
    ASSERT_TRUE(a.write_word({small_region, 8}, 2).has_value());
    ASSERT_TRUE(a.write_word({small_region, 16}, 3).has_value());
    std::array operations = {Operation::read({large_region, 4'096}, got.data(), got.size()),
                             Operation::read({large_region, 40}, &word, sizeof word),
                             Operation::write({small_region, 24}, &written, sizeof written),
                             Operation::compare_swap({small_region, 0}, 1, 10),
                             Operation::compare_swap({small_region, 8}, 1, 10),
                             Operation::fetch_add({small_region, 16}, 30)};
    ASSERT_TRUE(b.perform(operations, urgency).has_value());
    EXPECT_EQ(got, text);
    EXPECT_EQ(word, 5U) << "as it was filled";
    EXPECT_EQ(operations[3].result, 1U);
    EXPECT_EQ(operations[4].result, 2U);
    EXPECT_EQ(operations[5].result, 3U);
    EXPECT_EQ(a.read_word({small_region, 0}).value(), 10U);
    EXPECT_EQ(a.read_word({small_region, 8}).value(), 2U);
    EXPECT_EQ(a.read_word({small_region, 16}).value(), 33U);
    EXPECT_EQ(a.read_word({small_region, 24}).value(), 77U);
  }
}

// Words of two regions in turn, neighbours among them, and what is not in order where it goes.
TEST_P(Conformance, ManyWordsFromAnywhereInOneBatch) {
  Session s(*world_);
  constexpr std::size_t count = 40;
  const auto place = [](std::size_t i) {
    return Address{i % 5 < 3 ? small_region : large_region, 8 * (i * i % 29)};
  };
  for (std::uint64_t word = 0; word < 29; ++word) {
    ASSERT_TRUE(s.write_word({small_region, 8 * word}, 100 + word).has_value());
    ASSERT_TRUE(s.write_word({large_region, 8 * word}, 200 + word).has_value());
  }
  std::array<std::uint64_t, count> words{};
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < count; ++i) {
    operations.push_back(Operation::read(place(i), &words[count - 1 - i], sizeof(std::uint64_t)));
    if (i % 7 == 6) operations.push_back(Operation::fetch_add({small_region, 512}, 1));
  }
  ASSERT_TRUE(s.perform(operations).has_value());
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t base = place(i).region == small_region ? 100 : 200;
    EXPECT_EQ(words[count - 1 - i], base + i * i % 29) << i;
  }
  EXPECT_EQ(s.read_word({small_region, 512}).value(), count / 7);

  std::array<Address, batch_words_max> at;
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = {small_region, 8 * (i < 4 ? i : 2 * i)};
  std::array<std::uint64_t, batch_words_max> read{};
  ASSERT_TRUE(s.read_words(at, read.data()).has_value());
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(read[i], 100 + at[i].offset_bytes / 8) << i;
}

TEST_P(Conformance, WhatIsSettledIsReadAsItIs) {
  Session s(*world_);
  std::string text(150'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 % 251);
  const Address place{large_region, 4'099};
  ASSERT_TRUE(s.write(place, text).has_value());
  std::vector<std::string> got;
  for (const std::size_t length : {1, 7, 8, 64, 1'000, 1'023, 1'024, 1'025, 4'097, 65'536, 65'537, 140'000})
    got.emplace_back(length, '\0');
  std::vector<Operation> operations;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    operations.push_back(Operation::read_settled(place + i * 11, got[i].data(), got[i].size()));
    operations.push_back(Operation::read({large_region, 8}, &word, sizeof word));
  }
  ASSERT_TRUE(s.perform(operations).has_value());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == text.substr(i * 11, got[i].size())) << got[i].size() << " bytes";
  EXPECT_EQ(word, 1U);
  Operation outside = Operation::read_settled({large_region, large_bytes - 1'000}, got[7].data(), 1'025);
  EXPECT_EQ(s.perform({&outside, 1}).error().code, Errc::corrupt);
  EXPECT_TRUE(outside.bad_address);
}

coro::Task<Result<std::uint64_t>> add_twice(Endpoint* endpoint, Address at) {
  if (auto first = co_await endpoint->fetch_add(at, 1); !first) co_return first;
  co_return co_await endpoint->fetch_add(at, 1);
}

// Receive: a coroutine under way, and batches for which its thread waits, one with an address that is none.
// Expect: what is done is done, and what is not says so; the coroutine goes on, then or afterwards.
TEST_P(Conformance, WhoWaitsForABatchIsToldOfEachOperation) {
  Session s(*world_);
  auto adding = add_twice(&s.endpoint, {small_region, 0});
  adding.start();
  std::uint64_t word = 0;
  std::array operations = {Operation::read({large_region, 8}, &word, sizeof word),
                           Operation::fetch_add({small_region, 8}, 3)};
  ASSERT_TRUE(s.endpoint.perform_each_waiting(operations).has_value());
  EXPECT_FALSE(operations[0].did_nothing() || operations[1].did_nothing());
  EXPECT_EQ(word, 1U);
  EXPECT_EQ(s.read_word({small_region, 8}).value(), 3U);
  Operation outside = Operation::read({small_region, small_bytes}, &word, sizeof word);
  ASSERT_TRUE(s.endpoint.perform_each_waiting({&outside, 1}).has_value());
  EXPECT_TRUE(outside.did_nothing());
  while (!adding.done()) s.endpoint.step();
  EXPECT_EQ(adding.take().value(), 1U);
  EXPECT_TRUE(s.endpoint.perform_each_waiting({}).has_value());
}

// ---- bounds

TEST_P(Conformance, AnAddressOutsideItsRegionIsCorruptAndTouchesNothing) {
  Session s(*world_);
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  for (const Address at :
       {Address{small_region, small_bytes}, Address{small_region, small_bytes + 8}, Address{9, 0},
        Address{127, 64}, Address{128, 0}, Address{255, 0}, Address{small_region, huge - 7},
        Address{small_region, huge - 15}, Address{small_region, std::uint64_t{1} << 63},
        Address{small_region, region_bytes_max - 8}, Address{small_region, region_bytes_max}}) {
    SCOPED_TRACE(fmt::format("region {} offset {:#x}", at.region, at.offset_bytes));
    EXPECT_EQ(s.read_word(at).error().code, Errc::corrupt);
    EXPECT_EQ(s.write_word(at, 1).error().code, Errc::corrupt);
    EXPECT_EQ(s.compare_swap(at, 0, 1).error().code, Errc::corrupt);
    EXPECT_EQ(s.fetch_add(at, 1).error().code, Errc::corrupt);
    EXPECT_EQ(s.fetch(at, 8).error().code, Errc::corrupt);
    EXPECT_EQ(s.write(at, "12345678").error().code, Errc::corrupt);
  }
  EXPECT_EQ(s.fetch({small_region, small_bytes - 8}, 9).error().code, Errc::corrupt);
  EXPECT_EQ(s.write({small_region, small_bytes - 8}, "123456789").error().code, Errc::corrupt);
  EXPECT_EQ(s.fetch({small_region, 8}, small_bytes).error().code, Errc::corrupt);
  const auto error = s.read_word({small_region, small_bytes}).error();
  EXPECT_NE(error.detail.find(fmt::format("{:#x}", small_bytes)), std::string::npos) << error.message();
  EXPECT_TRUE(s.read_word({small_region, small_bytes - 8}).has_value());
  EXPECT_EQ(s.fetch({small_region, 0}, small_bytes).value(), std::string(small_bytes, '\0'));
}

TEST_P(Conformance, OneBadAddressFailsItsBatch) {
  Session s(*world_);
  for (std::size_t bad = 0; bad < 3; ++bad) {
    std::array<Address, 3> at = {Address{small_region, 0}, Address{small_region, 8},
                                 Address{large_region, 0}};
    at[bad].offset_bytes = large_bytes;
    std::array<std::uint64_t, 3> words{};
    const auto read = s.read_words(at, words.data());
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, Errc::corrupt);
    std::array<Operation, 3> operations;
    for (std::size_t i = 0; i < 3; ++i) operations[i] = Operation::read(at[i], &words[i], sizeof words[i]);
    const auto performed = s.perform(operations);
    ASSERT_FALSE(performed.has_value());
    EXPECT_EQ(performed.error().code, Errc::corrupt);
  }
}

// ---- P1, P2: whole words, atomics

TEST_P(Conformance, WordsAreReadWholeWhileOthersWriteThem) {
  constexpr std::uint64_t words = 32;
  const auto pattern = [](std::uint64_t x) { return x << 48 | x << 32 | x << 16 | x; };
  Session s(*world_);
  const Thread reader([&] {
    Session reads(*world_);
    for (std::size_t i = 0; i < few(3'000); ++i) {
      std::array<Address, batch_words_max> at;
      for (std::size_t j = 0; j < at.size(); ++j) at[j] = {small_region, (i + j) % words * 8};
      std::array<std::uint64_t, batch_words_max> read{};
      ASSERT_TRUE(reads.read_words(at, read.data()).has_value());
      for (const std::uint64_t word : read) ASSERT_EQ(word, pattern(word & 0xffff));
    }
  });
  for (std::uint64_t x = 0; !reader.has_ended(); x = (x + 1) & 0xffff) {
    const Address at{small_region, x % words * 8};
    if (x % 3 == 0) {
      ASSERT_TRUE(s.write_word(at, pattern(x)).has_value());
    } else {
      const std::uint64_t now = s.read_word(at).value();
      ASSERT_EQ(s.compare_swap(at, now, pattern(x)).value(), now);
    }
  }
}

TEST_P(Conformance, AtomicsAreAtomicAgainstEachOther) {
  const std::size_t each = few(2'000);
  const Address counter{small_region, 64};
  Together all(3);
  const auto add = [&] {
    Together::Member member(all);
    Session s(*world_);
    member.wait();
    for (std::size_t i = 0; i < each; ++i) ASSERT_TRUE(s.fetch_add(counter, 1).has_value());
  };
  const auto swap = [&] {
    Together::Member member(all);
    Session s(*world_);
    member.wait();
    for (std::size_t done = 0; done < each;) {
      const std::uint64_t seen = s.read_word(counter).value();
      if (s.compare_swap(counter, seen, seen + 1).value() == seen) ++done;
    }
  };
  std::deque<Thread> threads;
  threads.emplace_back(add);
  threads.emplace_back(swap);
  threads.emplace_back(add);
  threads.clear();
  Session s(*world_);
  EXPECT_EQ(s.read_word(counter).value(), 3 * each);
}

// ---- turns

// `steps`: whose each step was.
coro::Task<std::uint64_t> sum_of(Endpoint* e, std::uint64_t first, std::vector<std::uint64_t>* steps) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 10; ++i) {
    steps->push_back(first);
    const std::array at{Address{large_region, (first + i) * 8}, Address{large_region, (first + i + 1) * 8}};
    std::array<std::uint64_t, 2> words{};
    if (!co_await e->read_words(at, words.data())) co_return 0;
    auto bytes = co_await e->fetch(at[0], 8);
    if (!bytes) co_return 0;
    std::uint64_t again = 0;
    std::memcpy(&again, bytes->data(), sizeof again);
    sum += words[0] + words[1] + again;
  }
  co_return sum;
}

coro::Task<int> many_sums(Endpoint* e, std::vector<std::uint64_t>* steps) {
  const Endpoint::Turns turns(*e);
  std::vector<coro::Task<std::uint64_t>> children;
  for (std::uint64_t i = 0; i < 50; ++i) children.push_back(sum_of(e, i, steps));
  coro::Scope scope(e->queue());
  for (auto& child : children) scope.start(child);
  co_await scope.join();
  int right = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::uint64_t expected = 0;
    for (std::uint64_t j = 0; j < 10; ++j) expected += 2 * (i + j) + (i + j + 1);
    right += children[i].take() == expected ? 1 : 0;
  }
  co_return right;
}

TEST_P(Conformance, CoroutinesTakeTurns) {
  Session s(*world_);
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(s.write_word({large_region, i * 8}, i).has_value());
  std::vector<std::uint64_t> steps;
  EXPECT_EQ(s.endpoint.run(many_sums(&s.endpoint, &steps)), 50);
  const auto second_begins = std::ranges::find(steps, 1U);
  EXPECT_NE(std::find(second_begins, steps.end(), 0U), steps.end()) << "the first has steps left then";
}

// ---- extending

TEST_P(Conformance, AnExtensionIsZeroKeepsWhatWasThereAndIsSeenByOthers) {
  Session a(*world_);
  Session b(*world_);
  Session same(a.fabric);
  ASSERT_TRUE(a.write_word({small_region, 0}, 77).has_value());
  EXPECT_FALSE(b.read_word({small_region, 40'000}).has_value());
  ASSERT_TRUE(a.fabric->extend(small_region, 65'536).has_value());
  for (Session* s : {&a, &b, &same}) {
    EXPECT_EQ(s->fetch({small_region, small_bytes}, 65'536 - small_bytes).value(),
              std::string(65'536 - small_bytes, '\0'));
    EXPECT_EQ(s->read_word({small_region, 0}).value(), 77U);
    EXPECT_EQ(s->endpoint.length_bytes(small_region), 65'536U);
  }
  ASSERT_TRUE(b.write_word({small_region, 65'528}, 5).has_value());
  EXPECT_EQ(a.read_word({small_region, 65'528}).value(), 5U);
  ASSERT_TRUE(b.fabric->extend(small_region, 8'192).has_value()) << "it is as long already";
  EXPECT_EQ(b.endpoint.length_bytes(small_region), 65'536U);
  EXPECT_EQ(a.read_word({small_region, 65'528}).value(), 5U);
}

TEST_P(Conformance, ARegionComesToLifeByItsExtension) {
  Session a(*world_);
  Session b(*world_);
  EXPECT_EQ(b.read_word({42, 0}).error().code, Errc::corrupt);
  ASSERT_TRUE(a.fabric->extend(42, 8'192).has_value());
  ASSERT_TRUE(a.write_word({42, 8}, 1).has_value());
  EXPECT_EQ(b.read_word({42, 8}).value(), 1U);
  EXPECT_EQ(b.endpoint.length_bytes(42), 8'192U);
}

TEST_P(Conformance, AllMayExtendAtOnce) {
  const std::uint64_t each = few(40);
  Together all(3);
  std::deque<Thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Together::Member member(all);
      Session s(*world_);
      member.wait();
      for (std::uint64_t i = 1; i <= each; ++i) {
        const std::uint64_t length = small_bytes + (i * 3 + t) * 4'096;
        ASSERT_TRUE(s.fabric->extend(small_region, length).has_value());
        ASSERT_GE(s.endpoint.length_bytes(small_region).value(), length) << "it never becomes shorter";
        ASSERT_TRUE(s.write_word({small_region, length - 8 * (t + 1)}, length).has_value());
        ASSERT_EQ(s.read_word({small_region, length - 8 * (t + 1)}).value(), length);
      }
    });
  }
  threads.clear();
  Session s(*world_);
  EXPECT_EQ(s.endpoint.length_bytes(small_region), small_bytes + (each * 3 + 2) * 4'096);
}

// ---- presence

TEST_P(Conformance, AClientNumberIsHeldOnce) {
  Session first(*world_);
  Session second(*world_);
  Port* a = &first.endpoint.port();
  Port* b = &second.endpoint.port();
  EXPECT_FALSE(a->present(7));
  EXPECT_TRUE(a->claim_presence(7).value());
  EXPECT_FALSE(a->claim_presence(7).value());
  EXPECT_FALSE(b->claim_presence(7).value());
  EXPECT_TRUE(a->present(7));
  EXPECT_TRUE(b->present(7));
  EXPECT_FALSE(b->present(8));
  EXPECT_TRUE(b->claim_presence(8).value());
  EXPECT_TRUE(a->present(8));
  a->release_presence(7);
  EXPECT_FALSE(b->present(7));
  EXPECT_TRUE(b->claim_presence(7).value());
  EXPECT_TRUE(a->present(7));
  EXPECT_TRUE(a->present(8)) << "letting one go keeps the others";
}

TEST_P(Conformance, PresenceEndsWithItsHolder) {
  Session stays(*world_);
  {
    Session goes(*world_);
    EXPECT_TRUE(goes.endpoint.port().claim_presence(1'023).value());
    EXPECT_TRUE(stays.endpoint.port().present(1'023));
  }
  EXPECT_FALSE(stays.endpoint.port().present(1'023));
}

TEST_P(Conformance, OneOfManyThreadsGetsANumber) {
  constexpr std::size_t threads_count = 6;
  constexpr std::size_t numbers = 10;
  std::uint32_t first = 1;
  for (std::size_t round = 0; round < few(30); ++round, first += numbers) {
    std::array<std::atomic<int>, numbers> got{};
    std::vector<std::shared_ptr<Fabric>> fabrics;
    for (int i = 0; i < 3; ++i) fabrics.push_back(world_->attach());
    std::vector<std::unique_ptr<Port>> ports(threads_count);
    Together all(threads_count);
    std::deque<Thread> threads;
    for (std::size_t t = 0; t < threads_count; ++t) {
      threads.emplace_back([&, t] {
        Together::Member member(all);
        ports[t] = fabrics[t % fabrics.size()]->connect();
        for (std::uint32_t i = 0; i < numbers; ++i) {
          member.wait();
          if (ports[t]->claim_presence(first + i).value()) ++got[i];
        }
      });
    }
    threads.clear();
    for (std::size_t i = 0; i < numbers; ++i) EXPECT_EQ(got[i], 1) << first + i;
  }
}

// ---- who may only read

TEST_P(ReadOnlyConformance, ReadsAllAndChangesNothing) {
  Session writer(*world_);
  Session reader(world_->attach_to_read());
  EXPECT_TRUE(reader.fabric->read_only());
  EXPECT_FALSE(writer.fabric->read_only());
  for (const Address at : {Address{small_region, 8}, Address{large_region, 4'096}}) {
    ASSERT_TRUE(writer.write_word(at, 7).has_value());
    EXPECT_EQ(reader.write_word(at, 8).error().code, Errc::corrupt);
    EXPECT_EQ(reader.write(at, std::string(16, 'x')).error().code, Errc::corrupt);
    EXPECT_EQ(reader.compare_swap(at, 7, 8).error().code, Errc::corrupt);
    EXPECT_EQ(reader.fetch_add(at, 1).error().code, Errc::corrupt);
    EXPECT_EQ(reader.read_word(at).value(), 7U);
    EXPECT_EQ(writer.read_word(at).value(), 7U);
  }
  EXPECT_EQ(reader.fetch({large_region, 0}, 8).value(), writer.fetch({large_region, 0}, 8).value());
  EXPECT_EQ(reader.fabric->extend(large_region, 2 * large_bytes).error().code, Errc::permission);
  EXPECT_EQ(writer.endpoint.length_bytes(large_region), large_bytes);
}

TEST_P(ReadOnlyConformance, WritesItsOwnWordsWhileItHasAClientNumber) {
  Session writer(*world_);
  Session reader(world_->attach_to_read());
  constexpr std::uint32_t client = 5;
  const auto [own, other] = World::own_words(client);
  const Address last = own.at + (own.length_bytes - 8);
  EXPECT_FALSE(reader.write_word(own.at, 1).has_value()) << "it has no number yet";
  EXPECT_FALSE(reader.endpoint.port().claim_presence(World::client_of_nobody).value());
  EXPECT_FALSE(writer.endpoint.port().present(World::client_of_nobody));
  ASSERT_TRUE(reader.endpoint.port().claim_presence(client).value());
  EXPECT_FALSE(writer.endpoint.port().claim_presence(client).value());
  EXPECT_EQ(reader.endpoint.port().claim_presence(client + 1).error().code, Errc::permission);

  ASSERT_TRUE(reader.write_word(own.at, 1).has_value());
  ASSERT_TRUE(reader.write_word(last, 2).has_value());
  ASSERT_TRUE(reader.write_word(other.at + 8, 3).has_value());
  EXPECT_EQ(writer.read_word(own.at).value(), 1U);
  EXPECT_EQ(writer.read_word(last).value(), 2U);
  EXPECT_EQ(writer.read_word(other.at + 8).value(), 3U);
  EXPECT_EQ(reader.compare_swap(own.at, 1, 3).error().code, Errc::corrupt);
  EXPECT_EQ(reader.fetch_add(own.at, 1).error().code, Errc::corrupt);
  const std::string two_words(16, 'x');
  for (const Address across : {Address{own.at.region, own.at.offset_bytes - 8}, last, other.at + 8}) {
    EXPECT_EQ(reader.write(across, two_words).error().code, Errc::corrupt);
    EXPECT_EQ(reader.write_word({large_region, across.offset_bytes}, 9).error().code, Errc::corrupt);
  }
  EXPECT_EQ(writer.read_word({own.at.region, own.at.offset_bytes - 8}).value(), 0U);
  EXPECT_EQ(writer.read_word(last + 8).value(), 0U);
  EXPECT_EQ(writer.read_word(own.at).value(), 1U);
  EXPECT_EQ(writer.read_word(last).value(), 2U);

  reader.endpoint.port().release_presence(client);
  EXPECT_EQ(world_->dismissed, client);
  EXPECT_EQ(reader.write_word(own.at, 4).error().code, Errc::corrupt);
  EXPECT_TRUE(writer.endpoint.port().claim_presence(client).value());
}

TEST_P(ReadOnlyConformance, NothingIsExtendedForIt) {
  Session writer(*world_);
  Session reader(world_->attach_to_read());
  reader.endpoint.port().extend_soon(large_region, 2 * mebibyte);
  ASSERT_TRUE(reader.read_word({large_region, 0}).has_value()) << "it goes with that";
  EXPECT_EQ(reader.endpoint.length_bytes(large_region), large_bytes);
  writer.endpoint.port().extend_soon(new_region, mebibyte);
  EXPECT_TRUE(becomes(writer, new_region, mebibyte)) << "which is asked for later, and has been done";
  EXPECT_EQ(writer.endpoint.length_bytes(large_region), large_bytes);
}

// ---- what is extended beforehand

TEST_P(ElsewhereConformance, WhatWillBeNeededIsThereBeforeLong) {
  Session asks(*world_);
  Session other(*world_);
  asks.endpoint.port().extend_soon(large_region, 3 * mebibyte);
  ASSERT_TRUE(becomes(asks, large_region, 3 * mebibyte));
  EXPECT_EQ(other.endpoint.length_bytes(large_region), 3 * mebibyte);
  EXPECT_EQ(other.read_word({large_region, 3 * mebibyte - 8}).value(), 0U);
  for (const std::uint64_t useless : {mebibyte, 2 * region_bytes_max}) {
    asks.endpoint.port().extend_soon(large_region, useless);
    ASSERT_TRUE(asks.read_word({small_region, 0}).has_value());
  }
  asks.endpoint.port().extend_soon(new_region, mebibyte);
  ASSERT_TRUE(becomes(asks, new_region, mebibyte));
  EXPECT_EQ(other.endpoint.length_bytes(new_region), mebibyte);
  EXPECT_EQ(other.endpoint.length_bytes(large_region), 3 * mebibyte);
}

// ---- P5: deadlines

TEST_P(Conformance, EveryOperationEndsThoughItIsGivenNoTime) {
  Session s(*world_);
  s.endpoint.set_timeout(0);
  const auto ended = [](const auto& result) {
    // A session that nobody knows how it ended may be of no more use.
    return result.has_value() || result.error().code == Errc::timed_out ||
           result.error().code == Errc::unavailable;
  };
  EXPECT_TRUE(ended(s.read_word({small_region, 0})));
  EXPECT_TRUE(ended(s.write_word({small_region, 0}, 1)));
  EXPECT_TRUE(ended(s.compare_swap({small_region, 0}, 1, 2)));
  EXPECT_TRUE(ended(s.fetch_add({small_region, 0}, 1)));
  EXPECT_TRUE(ended(s.fetch({small_region, 0}, 100)));
  EXPECT_TRUE(ended(s.write({small_region, 0}, "x")));
}

coro::Task<base::Nanos> sleep_task(Endpoint* e, base::Nanos until) {
  co_await e->sleep_until(until);
  co_return e->now();
}

TEST_P(Conformance, SleepingEnds) {
  Session s(*world_);
  const base::Nanos until = s.endpoint.now() + 20 * base::millisecond_ns;
  EXPECT_GE(s.endpoint.run(sleep_task(&s.endpoint, until)), until);
}

}  // namespace
}  // namespace loch::fabric::conformance
