#include "hash/pointer_cache.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <memory>

namespace loch::hash {
namespace {

constexpr std::uint64_t same_place = std::uint64_t{1} << 32;  // hashes so far apart share their place

// What is noted of the n-th of some keys that share a place, seen at that time.
void note(PointerCache& cache, std::uint64_t n) {
  cache.note("key" + std::to_string(n), n * same_place, {.slot = 100 + n, .seen_at = 1 + n});
}
std::optional<PointerCache::Pointer> find(const PointerCache& cache, std::uint64_t n) {
  return cache.find("key" + std::to_string(n), n * same_place);
}

TEST(PointerCache, KeepsFourKeysThatShareAPlaceAndForgetsTheOldest) {
  PointerCache cache(0);
  EXPECT_FALSE(find(cache, 0).has_value());
  for (const std::uint64_t n : {2, 0, 1, 3}) note(cache, n);
  for (std::uint64_t n = 0; n < 4; ++n) {
    ASSERT_TRUE(find(cache, n).has_value()) << n;
    EXPECT_EQ(find(cache, n)->slot, 100 + n);
  }
  note(cache, 4);
  EXPECT_FALSE(find(cache, 0).has_value());
  for (std::uint64_t n = 1; n <= 4; ++n) EXPECT_TRUE(find(cache, n).has_value()) << n;
}

TEST(PointerCache, AKeyThatIsNotedAgainHasOneEntry) {
  PointerCache cache(0);
  for (std::uint64_t n = 0; n < 4; ++n) note(cache, n);
  cache.note("key1", 1 * same_place, {.slot = 7, .seen_at = 50});
  EXPECT_EQ(find(cache, 1)->slot, 7U);
  for (const std::uint64_t n : {0, 2, 3}) EXPECT_TRUE(find(cache, n).has_value()) << n;
}

// Receive: the slot of a key has nothing of it any more, and a slot that it was not in. Expect: the key is
// forgotten with its copy, and the place it had is the next one's; in the other case it is known still.
TEST(PointerCache, AKeyIsForgottenWithTheSlotItWasIn) {
  PointerCache cache(1024);
  for (std::uint64_t n = 0; n < 4; ++n) note(cache, n);
  cache.note("key1", same_place,
             {.slot = 101, .seen_at = 50, .length_bytes = 8, .copy = std::make_shared<std::byte[]>(8)});
  cache.forget("key1", same_place, 100);
  EXPECT_TRUE(find(cache, 1).has_value());
  cache.forget("key1", same_place, 101);
  EXPECT_FALSE(find(cache, 1).has_value());
  EXPECT_EQ(cache.copies_bytes(), 0U);
  note(cache, 4);
  for (const std::uint64_t n : {0, 2, 3, 4}) EXPECT_TRUE(find(cache, n).has_value()) << n;
}

TEST(PointerCache, AKeyIsFoundByItsBytesAndNotByItsHashAlone) {
  PointerCache cache(0);
  cache.note("a key", 1, {.slot = 1, .seen_at = 1});
  EXPECT_FALSE(cache.find("another", 1).has_value());
  cache.note(std::string(65, 'k'), 2, {.slot = 2, .seen_at = 1});
  EXPECT_FALSE(cache.find(std::string(65, 'k'), 2).has_value()) << "longer than what is kept";
}

// Receive: as many keys as usually have places of their own, and one of the shards of a cluster, which has
// fewer. Expect: it keeps as many as it has places for, and no more.
TEST(PointerCache, OfAShardHasFewerPlaces) {
  constexpr std::size_t places = 128;
  PointerCache usual(0);
  PointerCache of_shard(0, places);
  const auto count = [](PointerCache& cache) {
    for (std::uint64_t hash = 0; hash < PointerCache::places_usual; ++hash)
      cache.note("key", hash, {.slot = hash, .seen_at = 1 + hash});
    std::size_t found = 0;
    for (std::uint64_t hash = 0; hash < PointerCache::places_usual; ++hash) {
      const auto pointer = cache.find("key", hash);
      if (!pointer) continue;
      EXPECT_EQ(pointer->slot, hash);
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count(usual), PointerCache::places_usual);
  EXPECT_EQ(count(of_shard), 4 * places);
}

// ---- copies

PointerCache::Copy copy_of(std::size_t length) { return std::make_shared<std::byte[]>(length); }

// Notes a copy of so many bytes for the key of that hash.
void note_copy(PointerCache& cache, std::uint64_t hash, std::size_t length) {
  cache.note("key", hash, {.seen_at = hash, .length_bytes = length, .copy = copy_of(length)});
}
bool has_copy(const PointerCache& cache, std::uint64_t hash) {
  const auto found = cache.find("key", hash);
  return found && found->copy != nullptr;
}

TEST(PointerCache, CopiesStayWithinTheirBytesAndOthersMakeRoom) {
  constexpr std::size_t bytes_max = 10'000;
  PointerCache cache(bytes_max);
  constexpr std::uint64_t keys = 100;
  for (std::uint64_t hash = 1; hash <= keys; ++hash) {
    note_copy(cache, hash, 200 + hash);
    EXPECT_LE(cache.copies_bytes(), bytes_max);
    EXPECT_TRUE(has_copy(cache, hash)) << hash;
  }
  std::size_t length = 0;
  std::uint64_t count = 0;
  for (std::uint64_t hash = 1; hash <= keys; ++hash) {
    ASSERT_TRUE(cache.find("key", hash).has_value()) << "a pointer stays without its copy";
    if (!has_copy(cache, hash)) continue;
    length += 200 + hash;
    ++count;
  }
  EXPECT_EQ(cache.copies_bytes(), length);
  EXPECT_GT(count, 20U);
  EXPECT_TRUE(cache.keeps_copy_of(bytes_max / 16));
  EXPECT_FALSE(cache.keeps_copy_of(bytes_max / 16 + 1));
}

TEST(PointerCache, WhatIsNotedOfAKeyTakesThePlaceOfItsCopy) {
  PointerCache cache(10'000);
  note_copy(cache, 1, 300);
  note_copy(cache, 1, 200);
  EXPECT_EQ(cache.copies_bytes(), 200U);
  // The same copy again.
  cache.note("key", 1, *cache.find("key", 1));
  EXPECT_TRUE(has_copy(cache, 1));
  EXPECT_EQ(cache.copies_bytes(), 200U);
  // The same word, seen later, without it.
  cache.note("key", 1, {.seen_at = 9, .length_bytes = 200});
  EXPECT_FALSE(has_copy(cache, 1));
  EXPECT_EQ(cache.copies_bytes(), 0U);
}

TEST(PointerCache, ACopyThatIsInUseOutlivesItsPlace) {
  PointerCache cache(10'000);
  note_copy(cache, 1, 100);
  const PointerCache::Copy held = cache.find("key", 1)->copy;
  for (std::uint64_t n = 2; n <= 6; ++n) note_copy(cache, 1 + n * same_place, 100);
  EXPECT_FALSE(cache.find("key", 1).has_value());
  EXPECT_EQ(held[99], std::byte{0});
  EXPECT_EQ(cache.copies_bytes(), 400U);
}

}  // namespace
}  // namespace loch::hash
