// update and touch: what changes an item by what it is (testing/calls.h).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <loch/loch.h>

#include "client/testing/calls.h"

namespace loch::calls {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;

std::optional<std::string> one_more(std::optional<std::string_view> value) {
  return std::to_string(value ? std::strtol(std::string(*value).c_str(), nullptr, 10) + 1 : 1);
}

TEST_P(Calls, UpdateInsertsReplacesAndLeaves) {
  const auto nothing = store_->update("k", [](auto /*value*/) { return std::nullopt; });
  ASSERT_TRUE(nothing.has_value()) << nothing.error().message();
  EXPECT_EQ(*nothing, Version{});
  EXPECT_FALSE(store_->exists("k").value());
  const auto inserted = store_->update("k", one_more);
  ASSERT_TRUE(inserted.has_value()) << inserted.error().message();
  EXPECT_EQ(store_->read("k").value().version, *inserted);
  const auto replaced = store_->update("k", one_more);
  ASSERT_TRUE(replaced.has_value()) << replaced.error().message();
  EXPECT_EQ(store_->get("k").value(), "2");
  EXPECT_EQ(store_->read("k").value().version, *replaced);
  const auto left = store_->update("k", [](auto /*value*/) { return std::nullopt; });
  EXPECT_EQ(left.value(), *replaced);
  EXPECT_EQ(store_->get("k").value(), "2");
}

// Receive: another client that changes the key between the look at it and the write, in each way. Expect:
// the change is asked again, with what is there then, and what the other one wrote is not lost.
TEST_P(Calls, UpdateLooksAgainWhenAnotherWasQuicker) {
  std::optional<Store> other;
  ASSERT_NO_FATAL_FAILURE(open(&other));
  const auto update_while = [&](auto another_acts) {
    int asked = 0;
    const auto updated = store_->update("k", [&](auto value) {
      if (asked++ == 0) another_acts();
      return std::string(value.value_or("nothing")) + "+";
    });
    EXPECT_TRUE(updated.has_value()) << updated.error().message();
    EXPECT_EQ(asked, 2);
    return store_->get("k").value_or("");
  };
  EXPECT_EQ(update_while([&] { EXPECT_TRUE(other->insert("k", "inserted").has_value()); }), "inserted+");
  EXPECT_EQ(update_while([&] { EXPECT_TRUE(other->put("k", "changed").has_value()); }), "changed+");
  EXPECT_EQ(update_while([&] { EXPECT_TRUE(other->remove("k").has_value()); }), "nothing+");
}

TEST_P(Calls, NoUpdateOfSeveralThreadsIsLost) {
  constexpr std::size_t threads = 4;
  const std::size_t each = few(2'000, 20);
  std::atomic<std::size_t> in_doubt{0};
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      for (std::size_t done = 0; done < each;) {
        const auto updated = store_->update("k", one_more);
        if (updated) {
          ++done;
          continue;
        }
        ASSERT_EQ(updated.error().code, Errc::timed_out) << updated.error().message();
        ++in_doubt;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  const std::size_t counted = std::strtoul(store_->get("k").value_or("").c_str(), nullptr, 10);
  EXPECT_GE(counted, threads * each);
  EXPECT_LE(counted, threads * each + in_doubt);
}

TEST_P(Calls, UpdateKeepsTheTimeToLive) {
  ASSERT_TRUE(store_->update("k", one_more, {.time_to_live = hours(1)}).has_value());
  const auto before = store_->read("k").value().time_to_live;
  ASSERT_TRUE(before.has_value());
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(store_->update("k", one_more, {.time_to_live = hours(24)}).has_value());
  const auto after = store_->read("k").value().time_to_live;
  ASSERT_TRUE(after.has_value());
  EXPECT_LE(*after, *before) << "it does not get longer, by no rounding either";
  EXPECT_GT(*after, minutes(1));
}

TEST_P(Calls, TouchSetsTheTimeToLiveAlone) {
  EXPECT_EQ(store_->touch("k", {.time_to_live = hours(1)}).error().code, Errc::not_found);
  const auto put = store_->put("k", "value");
  ASSERT_TRUE(put.has_value());
  const auto touched = store_->touch("k", {.time_to_live = hours(1)});
  ASSERT_TRUE(touched.has_value()) << touched.error().message();
  EXPECT_NE(*touched, *put);
  const auto item = store_->read("k");
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->value, "value");
  EXPECT_EQ(item->version, *touched);
  ASSERT_TRUE(item->time_to_live.has_value());
  EXPECT_LE(*item->time_to_live, hours(1));
  ASSERT_TRUE(store_->touch("k", {}).has_value());
  EXPECT_FALSE(store_->read("k").value().time_to_live.has_value()) << "it lives until it is removed";
}

TEST_P(Calls, UpdateAndTouchRefuseWhatPutRefuses) {
  EXPECT_EQ(store_->update("", one_more).error().code, Errc::invalid_argument);
  EXPECT_EQ(store_->touch("", {}).error().code, Errc::invalid_argument);
  ASSERT_TRUE(store_->put("there", "value", {.time_to_live = hours(1)}).has_value());
  for (const milliseconds bad : {milliseconds(0), milliseconds(-1), time_to_live_max + milliseconds(1)}) {
    const auto updated = store_->update("k", one_more, {.time_to_live = bad});
    ASSERT_FALSE(updated.has_value());
    EXPECT_EQ(updated.error().code, Errc::invalid_argument);
    const auto touched = store_->touch("there", {.time_to_live = bad});
    ASSERT_FALSE(touched.has_value());
    EXPECT_EQ(touched.error().code, Errc::invalid_argument);
  }
  EXPECT_FALSE(store_->exists("k").value());
  EXPECT_TRUE(store_->read("there").value().time_to_live.has_value()) << "it has the time that it had";
}

}  // namespace
}  // namespace loch::calls
