#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <nmmintrin.h>
#include <set>
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

TEST(Stats, EveryCounterHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < counter_count; ++i) names.insert(name(static_cast<Counter>(i)));
  EXPECT_EQ(names.size(), counter_count);
  EXPECT_FALSE(names.contains(""));
}

TEST(Hash, LongAndShortInputsAgreeWithXxh3) {
  std::string bytes(100'000, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(mix(i));
  for (const std::size_t length : {0UL, 1UL, 16UL, 240UL, 241UL, 4096UL, 100'000UL}) {
    EXPECT_EQ(hash_bytes(bytes.data(), length, 7), XXH3_64bits_withSeed(bytes.data(), length, 7)) << length;
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

TEST(Crc32c, CopiesWhatItSumsUpAndSeesEveryByte) {
  std::string bytes(200, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(mix(i));
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    SCOPED_TRACE(length);
    std::string copy(length + 1, '\0');
    const std::uint32_t sum = crc32c(5, bytes.data(), length, copy.data());
    EXPECT_EQ(copy.substr(0, length), bytes.substr(0, length));
    EXPECT_EQ(copy[length], '\0') << "nothing beyond";
    EXPECT_EQ(crc32c(5, bytes.data(), length, nullptr), sum);
    EXPECT_EQ(sum_of_words(5, std::string_view(bytes).substr(0, length)), sum);
    for (std::size_t i = 0; i < length; ++i) {
      bytes[i] ^= 0x10;
      EXPECT_NE(crc32c(5, bytes.data(), length, nullptr), sum) << "byte " << i;
      bytes[i] ^= 0x10;
    }
  }
}

// As it is defined: lane by lane.
std::uint32_t sum_of_lanes(std::uint32_t seed, std::string_view bytes) {
  const std::size_t lines = bytes.size() / 64;
  std::uint32_t sum = 0;
  for (std::size_t lane = 0; lane < 4; ++lane) {
    std::string of_lane;
    for (std::size_t line = 0; line < lines; ++line) {
      of_lane += bytes.substr(line * 64 + lane * 8, 8);
      of_lane += bytes.substr(line * 64 + (lane + 4) * 8, 8);
    }
    const std::uint32_t whole = sum_of_words(lane == 0 ? seed : 0, of_lane);
    sum = lane == 0 ? whole : static_cast<std::uint32_t>(_mm_crc32_u64(sum, whole));
  }
  return sum_of_words(sum, bytes.substr(lines * 64));
}

TEST(Crc32cInLanes, CopiesWhatItSumsUpAndSeesEveryByte) {
  std::string bytes(10'000, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(mix(i));
  for (const std::size_t length : {513UL, 576UL, 577UL, 583UL, 639UL, 4'096UL, 10'000UL}) {
    SCOPED_TRACE(length);
    std::string copy(length + 1, '\0');
    const std::uint32_t sum = crc32c_in_lanes(5, bytes.data(), length, copy.data());
    EXPECT_EQ(copy.substr(0, length), bytes.substr(0, length));
    EXPECT_EQ(copy[length], '\0') << "nothing beyond";
    EXPECT_EQ(crc32c_in_lanes(5, bytes.data(), length, nullptr), sum);
    EXPECT_EQ(sum_of_lanes(5, std::string_view(bytes).substr(0, length)), sum);
    for (std::size_t i = 0; i < length; ++i) {
      bytes[i] ^= 0x10;
      EXPECT_NE(crc32c_in_lanes(5, bytes.data(), length, nullptr), sum) << "byte " << i;
      bytes[i] ^= 0x10;
    }
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
  const std::set<std::string_view> names(fault_points().begin(), fault_points().end());
  EXPECT_EQ(names.size(), fault_points().size());
}

}  // namespace
}  // namespace loch::base
