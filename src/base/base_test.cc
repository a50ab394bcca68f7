#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nmmintrin.h>
#include <set>
#include <signal.h>
#include <string>
#include <string_view>

#include <loch/error.h>
#include <loch/stats.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/random.h"

namespace loch::base {
namespace {

TEST(Error, MessageNamesOperationCodeAndKey) {
  const Error error{
      .code = Errc::no_space, .operation = "put", .key_hash = 0x1f, .detail = "remove something"};
  EXPECT_EQ(error.message(), "put: no_space (key hash 000000000000001f): remove something");
}

TEST(Stats, EveryCounterHasItsOwnName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < counter_count; ++i) names.insert(name(static_cast<Counter>(i)));
  EXPECT_EQ(names.size(), counter_count);
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(name(Counter::get_hit), "get_hit");
  EXPECT_EQ(name(Counter::second_collects), "second_collects");
  EXPECT_EQ(name(Counter::pending_inserts), "pending_inserts");
  EXPECT_EQ(name(Counter::helped_moves), "helped_moves");
  EXPECT_EQ(name(Counter::items_allocated), "items_allocated");
  EXPECT_EQ(name(Counter::items_reclaimed), "items_reclaimed");
}

std::string mixed_bytes(std::size_t length) {
  std::string bytes(length, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(mix(i));
  return bytes;
}

// What the shared library of xxHash 0.8.1 and its portable form make of the same bytes and seed: stores that
// are there already go by it.
TEST(Hash, IsXxh3) {
  struct Known {
    std::size_t length;
    std::uint64_t hash;
  };
  const std::string bytes = mixed_bytes(100'000);
  for (const auto [length, hash] :
       {Known{0, 0x913ae0873e9b7eb8}, Known{1, 0x2c45aa60ff5dc0e5}, Known{7, 0xdd3a28544af24ff8},
        Known{16, 0x088af340adc77228}, Known{200, 0xbb0dde5c66e2083d}, Known{240, 0xa81b64aa838ca2a0},
        Known{241, 0xd94aa205f0dbfecb}, Known{4'096, 0x1bd51457c846fcd7},
        Known{100'000, 0x9d7f7a153449a9d9}}) {
    EXPECT_EQ(hash_bytes(bytes.data(), length, 7), hash) << length;
  }
}

// The check values of RFC 3720, B.4, whose CRC begins and ends inverted.
TEST(Crc32c, OfWholeWordsIsTheStandardOne) {
  std::string bytes(32, '\0');
  EXPECT_EQ(~crc32c(~0U, bytes.data(), bytes.size(), nullptr), 0x8a9136aaU);
  for (char& byte : bytes) byte = '\xff';
  EXPECT_EQ(~crc32c(~0U, bytes.data(), bytes.size(), nullptr), 0x62a8ab43U);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  EXPECT_EQ(~crc32c(~0U, bytes.data(), bytes.size(), nullptr), 0x46dd794eU);
}

// Word by word, as it is defined.
std::uint32_t sum_of_words(std::uint64_t sum, std::string_view bytes) {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    sum = _mm_crc32_u64(sum, word);
  }
  if (at != bytes.size()) {
    std::uint64_t word = 0;
    if (bytes.size() < 8) {
      std::memcpy(&word, bytes.data(), bytes.size());
    } else {
      std::memcpy(&word, bytes.data() + bytes.size() - 8, 8);
    }
    sum = _mm_crc32_u64(sum, word);
  }
  return static_cast<std::uint32_t>(sum);
}

// `sum` is of a seed and bytes, `copy` of where to besides; both from the seed 5.
template <class Sum, class Copy>
void expect_that_it_copies_and_sees_every_byte(std::string bytes, Sum sum, Copy copy,
                                               std::uint32_t by_definition) {
  SCOPED_TRACE(bytes.size());
  std::string copied(bytes.size() + 1, '\0');
  EXPECT_EQ(copy(5, bytes, copied.data()), by_definition);
  EXPECT_EQ(copied, bytes + '\0') << "and nothing beyond";
  EXPECT_EQ(sum(5, bytes), by_definition);
  for (char& byte : bytes) {
    byte ^= 0x10;
    EXPECT_NE(sum(5, bytes), by_definition);
    byte ^= 0x10;
  }
}

TEST(Crc32c, CopiesWhatItSumsUpAndSeesEveryByte) {
  for (std::size_t length = 0; length <= 200; ++length) {
    const std::string bytes = mixed_bytes(length);
    expect_that_it_copies_and_sees_every_byte(
        bytes, [](auto seed, const auto& of) { return crc32c(seed, of.data(), of.size(), nullptr); },
        [](auto seed, const auto& of, char* to) { return crc32c(seed, of.data(), of.size(), to); },
        sum_of_words(5, bytes));
  }
}

// As it is defined: lane by lane.
std::uint32_t sum_of_lanes(std::uint32_t seed, std::string_view bytes) {
  const std::size_t lines = bytes.size() / 64;
  const auto mixed = [](std::uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return x ^ x >> 16;
  };
  std::uint32_t sum = 0;
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    std::string of_lane;
    for (std::size_t line = 0; line < lines; ++line) {
      of_lane += bytes.substr(line * 64 + lane * 8, 8);
      of_lane += bytes.substr(line * 64 + (lane + 4) * 8, 8);
    }
    const std::uint32_t whole = sum_of_words(lane == 0 ? seed : 0, of_lane);
    sum ^= lane == 0 ? whole : mixed(whole + lane * 0x9e3779b9U);
  }
  return sum_of_words(sum, bytes.substr(lines * 64));
}

TEST(Crc32cInLanes, CopiesWhatItSumsUpAndSeesEveryByte) {
  for (const std::size_t length : {513UL, 576UL, 577UL, 583UL, 639UL, 4'096UL, 10'000UL}) {
    const std::string bytes = mixed_bytes(length);
    expect_that_it_copies_and_sees_every_byte(
        bytes, [](auto seed, const auto& of) { return crc32c_in_lanes(seed, of.data(), of.size(), nullptr); },
        [](auto seed, const auto& of, char* to) { return crc32c_in_lanes(seed, of.data(), of.size(), to); },
        sum_of_lanes(5, bytes));
  }
}

// Receive: any two words of 24 lines, of which the same bit differs. Expect: it is seen.
TEST(Crc32cInLanes, SeesTwoBitsThatDiffer) {
  std::string bytes = mixed_bytes(1'536);
  const auto sum = [&] { return crc32c_in_lanes(5, bytes.data(), bytes.size(), nullptr); };
  const auto flip = [&](std::size_t word) { bytes[word * 8 + word % 3] ^= 4; };
  const std::uint32_t right = sum();
  for (std::size_t one = 0; one < bytes.size() / 8; ++one) {
    flip(one);
    for (std::size_t other = one + 3; other < bytes.size() / 8; other += 3) {
      flip(other);
      EXPECT_NE(sum(), right) << one << " and " << other;
      flip(other);
    }
    flip(one);
  }
}

TEST(Random, IsRepeatedByItsSeedAndBounded) {
  Random a(42);
  Random b(42);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = a.below(10);
    EXPECT_EQ(x, b.below(10));
    EXPECT_LT(x, 10U);
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(Clock, SimulatedTimeIsWhatItIsSetTo) {
  std::atomic<Nanos> time{5};
  const Clock clock(&time);
  EXPECT_EQ(clock.now(), 5U);
  time = 9;
  EXPECT_EQ(clock.now(), 9U);
  EXPECT_GT(Clock().now(), 0U);
}

TEST(Fault, PointsAreListedOnce) {
  std::set<std::string_view> names(fault_points().begin(), fault_points().end());
  names.insert(handover_points().begin(), handover_points().end());
  EXPECT_EQ(names.size(), fault_points().size() + handover_points().size());
}

TEST(FaultDeathTest, PointsOfClientsAndOfHandOversMayBeWishedFor) {
  for (const auto points : {fault_points(), handover_points()}) {
    const auto hit_last = [points] {
      ::setenv("LOCH_FAULT", fmt::format("{}:kill", points.back()).c_str(), 1);
      fault_hit(points.back());
    };
    EXPECT_EXIT(hit_last(), testing::KilledBySignal(SIGKILL), "");
  }
}

// Receive: a point that there is not, and one with an action that there is not. Expect: each is called wrong
// for what it is.
TEST(FaultDeathTest, AWishThatCanNotBeFulfilledEndsTheProcess) {
  const auto hit_with = [](const char* wish) {
    ::setenv("LOCH_FAULT", wish, 1);
    fault_hit("session.opened");
  };
  EXPECT_EXIT(hit_with("session.opend:kill"), testing::ExitedWithCode(2), "no such point");
  EXPECT_EXIT(hit_with("session.opened:die"), testing::ExitedWithCode(2), "want POINT:kill or POINT:stop");
}

}  // namespace
}  // namespace loch::base
