#include "hash/location_cache.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <utility>

#include "base/random.h"

namespace loch::hash {
namespace {

using Location = LocationCache::Location;

constexpr std::size_t one_set = 64;
// Hashes so far apart share their set, and are told apart.
constexpr std::uint64_t apart = std::uint64_t{1} << 50;

Location location(std::uint64_t n) { return {.word = {1'000 + n}, .slot = n, .length_bytes = 100 + n}; }

void expect_found(const LocationCache& cache, std::uint64_t key_hash, std::uint64_t n) {
  const auto found = cache.find(key_hash);
  ASSERT_TRUE(found.has_value()) << n;
  EXPECT_EQ(found->word, location(n).word);
  EXPECT_EQ(found->slot, location(n).slot);
  EXPECT_EQ(found->length_bytes, location(n).length_bytes);
}

TEST(LocationCache, FindsWhatWasNotedLast) {
  LocationCache cache(1'000'000);
  EXPECT_FALSE(cache.find(7).has_value());
  cache.note(7, location(1));
  expect_found(cache, 7, 1);
  cache.note(7, location(2));
  expect_found(cache, 7, 2);
  EXPECT_FALSE(cache.find(7 + apart).has_value());
  EXPECT_FALSE(cache.find(7)->is_mortal);
  cache.note(7, {.word = {1}, .slot = 1, .length_bytes = 1, .is_mortal = true});
  EXPECT_TRUE(cache.find(7)->is_mortal);
}

// Receive: a key that is noted where it was looked for in vain. Expect: it is found; and where others have
// noted theirs meanwhile, so are they.
TEST(LocationCache, NotesAKeyWhereItWasLookedFor) {
  LocationCache cache(1'000'000);
  cache.note(0, location(0));  // so that it has memory
  LocationCache::Spot spot;
  EXPECT_FALSE(cache.find(apart, &spot).has_value());
  cache.note(apart, location(1), spot);
  expect_found(cache, apart, 1);
  EXPECT_TRUE(cache.find(apart, &spot).has_value());
  cache.note(apart, location(2), spot);
  expect_found(cache, apart, 2);

  EXPECT_FALSE(cache.find(2 * apart, &spot).has_value());
  cache.note(3 * apart, location(3));
  cache.note(2 * apart, location(4), spot);
  for (const auto [n, at] : {std::pair{0, 0}, {1, 2}, {2, 4}, {3, 3}}) expect_found(cache, n * apart, at);
}

TEST(LocationCache, ForgetsAKeyThatIsInItsSlotNoMore) {
  LocationCache cache(1'000'000);
  cache.forget(7, 1);
  cache.note(7, location(1));
  cache.note(7 + apart, location(2));
  cache.forget(7, 2);
  expect_found(cache, 7, 1);
  cache.forget(7, 1);
  EXPECT_FALSE(cache.find(7).has_value());
  expect_found(cache, 7 + apart, 2);
  cache.note(7, location(3));
  expect_found(cache, 7, 3);
}

TEST(LocationCache, KeepsTheLastAndThreeMoreWhereThereIsRoomForFour) {
  LocationCache cache(one_set);
  constexpr std::uint64_t keys = 20;
  for (std::uint64_t n = 0; n < keys; ++n) {
    cache.note(n * apart, location(n));
    expect_found(cache, n * apart, n);
    std::uint64_t kept = 0;
    for (std::uint64_t other = 0; other <= n; ++other) kept += cache.find(other * apart).has_value() ? 1 : 0;
    EXPECT_EQ(kept, std::min<std::uint64_t>(n + 1, 4));
  }
}

// Receive: more keys than the first tier has places for, and then than there are places at all. Expect:
// nearly all are found while there is room, whichever tier they are in, and the last one always.
TEST(LocationCache, GoesOnInTheNextTierWhereOneIsFull) {
  constexpr std::size_t bytes = 3 * LocationCache::first_tier_bytes;
  constexpr std::uint64_t places = bytes / 16;
  LocationCache cache(bytes);
  const auto hash_of = [](std::uint64_t n) { return base::mix(n + 1); };
  const auto found_of = [&](std::uint64_t keys) {
    std::uint64_t found = 0;
    for (std::uint64_t n = 0; n < keys; ++n) {
      const auto location = cache.find(hash_of(n));
      found += location && location->slot == n ? 1 : 0;
    }
    return found;
  };
  std::uint64_t noted = 0;
  const auto note_until = [&](std::uint64_t end) {
    for (; noted < end; ++noted) {
      cache.note(hash_of(noted), location(noted));
      expect_found(cache, hash_of(noted), noted);
    }
  };
  note_until(places * 8 / 10);
  EXPECT_GE(found_of(noted), noted * 98 / 100);
  note_until(places * 2);
  EXPECT_GE(found_of(noted), places * 8 / 10);
}

// Receive: a key that is forgotten, of two whose first set is the same, and full. Expect: the other one is
// found in its second set still, and the free place is used again.
TEST(LocationCache, FindsWhatIsBehindAForgottenKey) {
  LocationCache cache(LocationCache::first_tier_bytes);
  std::uint64_t noted = 0;
  const auto hash_of = [](std::uint64_t n) { return n * apart | n << 44; };  // with a second set of its own
  for (; noted < 5; ++noted) cache.note(hash_of(noted), location(noted));
  cache.forget(hash_of(1), 1);
  EXPECT_FALSE(cache.find(hash_of(1)).has_value());
  expect_found(cache, hash_of(4), 4);
  cache.note(hash_of(5), location(5));
  for (const std::uint64_t n : {0, 2, 3, 4, 5}) expect_found(cache, hash_of(n), n);
}

// Receive: half as many keys as the first tier of a large cache has places for. Expect: they are found on a
// few pages, as many as that tier has and hardly more, not on some for each key.
TEST(LocationCache, FewKeysTouchFewPages) {
  const auto pages_of_all_keys = [] {
    constexpr std::uint64_t keys = 2'048;
    const auto pages_touched = [] {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_minflt;
    };
    LocationCache cache(std::size_t{16} << 20);
    cache.note(base::mix(0), location(0));
    const auto before = pages_touched();
    std::uint64_t found = 0;
    for (std::uint64_t n = 0; n < keys; ++n) {
      cache.note(base::mix(n), location(n));
      found += cache.find(base::mix(n)).has_value() ? 1 : 0;
    }
    EXPECT_EQ(found, keys);
    return pages_touched() - before;
  };
  // Sanitizers touch pages of their own, at first.
  auto least = pages_of_all_keys();
  for (int again = 0; again < 4; ++again) least = std::min(least, pages_of_all_keys());
  EXPECT_LT(least, 100);
}

TEST(LocationCache, KeepsTheLargestOfAllThatFits) {
  LocationCache cache(one_set);
  const Location largest{.word = {~std::uint64_t{0}},
                         .slot = (std::uint64_t{1} << 33) - 1,
                         .length_bytes = LocationCache::length_bytes_max,
                         .is_mortal = false};
  cache.note(~std::uint64_t{0}, largest);
  const auto found = cache.find(~std::uint64_t{0});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->slot, largest.slot);
  EXPECT_EQ(found->length_bytes, largest.length_bytes);
  cache.note(1, {.word = {1}, .slot = 1, .length_bytes = largest.length_bytes + 1});
  cache.note(2, {.word = {1}, .slot = largest.slot + 1, .length_bytes = 1});
  EXPECT_FALSE(cache.find(1).has_value());
  EXPECT_FALSE(cache.find(2).has_value());
}

TEST(LocationCache, WithoutMemoryItKeepsNothing) {
  LocationCache cache(one_set - 1);
  cache.note(7, location(1));
  cache.fetch(7);
  EXPECT_FALSE(cache.find(7).has_value());
}

}  // namespace
}  // namespace loch::hash
