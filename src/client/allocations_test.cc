// What reads into memory that is used again take from the heap: nothing, once they have found their sizes.
#include "base/testing/allocations.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "client/testing/store_test.h"

namespace loch {
namespace {

class Allocations : public fake::StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    // Of keys and values of which one is read by another way than the next.
    for (const std::size_t key_bytes : {5, 15, 40, 200}) {
      for (const std::size_t value_bytes : {1, 64, 500, 700, 5'000}) {
        keys_.push_back(std::string(key_bytes, 'k') + std::to_string(keys_.size()));
        values_.emplace_back(value_bytes, 'v');
        ASSERT_TRUE(store_->put(keys_.back(), values_.back()).has_value());
        // The same that does not live for ever.
        keys_.push_back(std::string(key_bytes, 'm') + std::to_string(keys_.size()));
        values_.emplace_back(value_bytes, 'w');
        ASSERT_TRUE(
            store_->put(keys_.back(), values_.back(), {.time_to_live = std::chrono::hours(1)}).has_value());
      }
    }
  }

  // What many calls take, after a few.
  static std::uint64_t taken_by(const std::function<void()>& calls) {
    for (int i = 0; i < 3; ++i) calls();
    const std::uint64_t before = base::fake::allocations();
    for (int i = 0; i < 200; ++i) calls();
    return base::fake::allocations() - before;
  }

  std::vector<std::string> keys_;
  std::vector<std::string> values_;
};

// Receive: one string for all values, long and short, as long as the value and not.
TEST_F(Allocations, GetsIntoOneString) {
  std::string into;
  const std::uint64_t taken = taken_by([&] {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      for (int twice = 0; twice < 2; ++twice) {
        ASSERT_TRUE(store_->get(keys_[i], into).has_value());
        ASSERT_TRUE(into == values_[i]);
      }
    }
  });
  EXPECT_EQ(taken, 0U);
}

TEST_F(Allocations, MultiGetsIntoTheirStrings) {
  std::vector<Lookup> lookups;
  for (const std::string& key : keys_) lookups.push_back({.key = key, .value = {}});
  const std::uint64_t taken = taken_by([&] {
    store_->multi_get(lookups);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      ASSERT_TRUE(lookups[i].result.has_value());
      ASSERT_TRUE(lookups[i].value == values_[i]);
    }
  });
  EXPECT_EQ(taken, 0U);
}

// Receive: calls that are coroutines, which on mapped memory end without having waited: one that finds the
// key, and one that looks twice before it says that there is none.
TEST_F(Allocations, CoroutinesThatDoNotWait) {
  const std::uint64_t taken = taken_by([&] {
    for (const std::string& key : keys_) {
      ASSERT_TRUE(store_->exists(key).value());
      ASSERT_FALSE(store_->exists("absent").value());
    }
  });
  EXPECT_EQ(taken, 0U);
}

}  // namespace
}  // namespace loch
