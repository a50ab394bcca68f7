#include "hash/pointer_cache.h"

#include <gtest/gtest.h>

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
  PointerCache cache;
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
  PointerCache cache;
  for (std::uint64_t n = 0; n < 4; ++n) note(cache, n);
  cache.note("key1", 1 * same_place, {.slot = 7, .seen_at = 50});
  EXPECT_EQ(find(cache, 1)->slot, 7U);
  for (const std::uint64_t n : {0, 2, 3}) EXPECT_TRUE(find(cache, n).has_value()) << n;
}

TEST(PointerCache, AKeyIsFoundByItsBytesAndNotByItsHashAlone) {
  PointerCache cache;
  cache.note("a key", 1, {.slot = 1, .seen_at = 1});
  EXPECT_FALSE(cache.find("another", 1).has_value());
  cache.note(std::string(65, 'k'), 2, {.slot = 2, .seen_at = 1});
  EXPECT_FALSE(cache.find(std::string(65, 'k'), 2).has_value()) << "longer than what is kept";
}

}  // namespace
}  // namespace loch::hash
