#include "bench/dataset.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <unordered_set>

namespace loch::bench {
namespace {

bool is_lower(char letter) { return letter >= 'a' && letter <= 'z'; }

class KeysOf : public testing::TestWithParam<std::size_t> {};

TEST_P(KeysOf, AnySizeAreDistinctPrintableAndOfThatSize) {
  const auto dataset = Dataset::make(100'000, GetParam(), 0).value();
  Room room(dataset, 1);
  std::unordered_set<std::string> seen;
  for (std::uint64_t id = 0; id < dataset.items(); ++id) {
    const std::string key(room.key(0, id));
    ASSERT_EQ(key.size(), GetParam());
    ASSERT_TRUE(std::ranges::all_of(key, is_lower)) << key;
    ASSERT_TRUE(seen.insert(key).second) << key;
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, KeysOf, testing::Values(8, 9, 15, 16, 17, 250));

class ValuesOf : public testing::TestWithParam<std::size_t> {};

TEST_P(ValuesOf, AnySizePassTheirOwnCheckAndNoOther) {
  const auto dataset = Dataset::make(1000, 16, GetParam()).value();
  Room room(dataset, 2);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    const auto value = room.value(0, id, 7);
    ASSERT_EQ(value.size(), GetParam());
    ASSERT_TRUE(dataset.check(id, value));
    ASSERT_FALSE(dataset.check(id, std::string(value) + "x"));
    if (GetParam() >= 8) ASSERT_FALSE(dataset.check(id + 1, value));
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, ValuesOf, testing::Values(0, 1, 7, 8, 23, 24, 25, 64, 131072));

TEST(Dataset, AValueTornBetweenTwoVersionsDoesNotPass) {
  const auto dataset = Dataset::make(10, 16, 64).value();
  Room room(dataset, 2);
  const std::string older(room.value(0, 3, 1));
  const std::string newer(room.value(1, 3, 2));
  EXPECT_TRUE(dataset.check(3, older));
  EXPECT_TRUE(dataset.check(3, newer));
  EXPECT_FALSE(dataset.check(3, older.substr(0, 32) + newer.substr(32)));
  EXPECT_FALSE(dataset.check(3, newer.substr(0, 32) + older.substr(32)));
}

TEST(Dataset, SizesOutsideTheLimitsAreRefusedByName) {
  EXPECT_NE(Dataset::make(0, 16, 64).error().detail.find("items"), std::string::npos);
  EXPECT_NE(Dataset::make(10, 7, 64).error().detail.find("key bytes"), std::string::npos);
  EXPECT_NE(Dataset::make(10, 4097, 64).error().detail.find("key bytes"), std::string::npos);
  EXPECT_NE(Dataset::make(10, 16, (std::size_t{128} << 20) + 1).error().detail.find("value bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace loch::bench
