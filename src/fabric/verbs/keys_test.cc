#include "fabric/verbs/keys.h"

#include <gtest/gtest.h>

namespace loch::fabric::verbs {
namespace {

constexpr RegionId region = 3;

TEST(Keys, AreFoundByThePlacesThatTheyAreOf) {
  Keys keys;
  EXPECT_EQ(keys.find(region, 0), nullptr);
  ASSERT_TRUE(keys.add(region, 150, {.from_bytes = 100, .length_bytes = 100, .key = 1}));
  ASSERT_TRUE(keys.add(region, 250, {.from_bytes = 200, .length_bytes = 100, .key = 2}));
  ASSERT_TRUE(keys.add(region, 0, {.from_bytes = 0, .length_bytes = 64, .key = 3}));
  EXPECT_EQ(keys.find(region, 0)->key, 3U);
  EXPECT_EQ(keys.find(region, 63)->key, 3U);
  EXPECT_EQ(keys.find(region, 64), nullptr);
  EXPECT_EQ(keys.find(region, 100)->key, 1U);
  EXPECT_EQ(keys.find(region, 199)->key, 1U);
  EXPECT_EQ(keys.find(region, 200)->key, 2U);
  EXPECT_EQ(keys.find(region, 300), nullptr);
  EXPECT_EQ(keys.find(region + 1, 150), nullptr);
}

TEST(Keys, TellWhereWhatIsKnownEnds) {
  Keys keys;
  EXPECT_EQ(keys.end_before(region, 150), 0U);
  ASSERT_TRUE(keys.add(region, 100, {.from_bytes = 100, .length_bytes = 100}));
  ASSERT_TRUE(keys.add(region, 300, {.from_bytes = 300, .length_bytes = 50}));
  EXPECT_EQ(keys.end_before(region, 99), 0U);
  EXPECT_EQ(keys.end_before(region, 200), 200U);
  EXPECT_EQ(keys.end_before(region, 299), 200U);
  EXPECT_EQ(keys.end_before(region, 400), 350U);
  EXPECT_EQ(keys.end_before(region + 1, 400), 0U);
}

// Receive: answers that leave the place out, are empty, go beyond any region or wrap around, or lie over an
// earlier one. Expect: they are refused, and what is known stays as it was.
TEST(Keys, WhatCanNotBeIsRefused) {
  Keys keys;
  ASSERT_TRUE(keys.add(region, 5, {.from_bytes = 5, .length_bytes = 10}));
  EXPECT_FALSE(keys.add(region, 100, {.from_bytes = 64, .length_bytes = 36}));
  EXPECT_FALSE(keys.add(region, 100, {.from_bytes = 101, .length_bytes = 64}));
  EXPECT_FALSE(keys.add(region, 100, {.from_bytes = 100, .length_bytes = 0}));
  EXPECT_FALSE(keys.add(region, 100, {.from_bytes = 100, .length_bytes = ~std::uint64_t{0}}));
  EXPECT_FALSE(keys.add(region, ~std::uint64_t{0}, {.from_bytes = ~std::uint64_t{0}, .length_bytes = 1}));
  EXPECT_FALSE(keys.add(region, 4, {.from_bytes = 0, .length_bytes = 6}));
  EXPECT_FALSE(keys.add(region, 20, {.from_bytes = 14, .length_bytes = 64}));
  EXPECT_EQ(keys.find(region, 100), nullptr);
  EXPECT_EQ(keys.find(region, 4), nullptr);
  EXPECT_TRUE(keys.add(region, 4, {.from_bytes = 0, .length_bytes = 5}));
  EXPECT_TRUE(keys.add(region, 20, {.from_bytes = 15, .length_bytes = 64}));
}

}  // namespace
}  // namespace loch::fabric::verbs
