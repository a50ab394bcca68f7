// What several puts at once cost a client on another host, and that they go by what is there now.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/testing/far.h"

namespace loch::client {
namespace {

using fake::Far;
using fake::FarInOrder;

TEST_F(Far, PutsOfKnownKeysTakeOneRoundTripTogether) {
  put_keys(40, 50);
  warm_up();
  for (int round = 0; round < 20; ++round) {
    auto assignments = next_values();
    const Cost known = multi_put(assignments);
    EXPECT_EQ(known.round_trips, 1U);
    EXPECT_EQ(known.linking, 1U) << "all in one batch";
    expect_put(assignments);
  }
  EXPECT_EQ(near_.count().value(), 40U);
  EXPECT_EQ(near_.check()->items_corrupt, 0U);
}

// A time to live counts from the store's time, which a put asks for; an update keeps the one that an item
// has.
TEST_F(Far, APutWithATimeToLiveTakesOneMoreAndAnUpdateThatKeepsItDoesNot) {
  put_keys(40, 50);
  warm_up();
  const PutOptions mortal{.time_to_live = std::chrono::hours(1)};
  const std::string value(80, 'x');
  Result<std::uint64_t> result{};
  const auto put = [&](const PutOptions& options) {
    const Cost put = cost(far_->put({.key = "key1", .value = value, .options = options}), &result);
    EXPECT_TRUE(result.has_value());
    return put.round_trips;
  };
  const Change same = [](std::optional<std::string_view> was) { return std::string(was.value_or("none")); };
  const auto update = [&](const PutOptions& options) {
    const Cost update = cost(far_->update("key1", &same, options), &result);
    EXPECT_TRUE(result.has_value());
    return update.round_trips;
  };
  EXPECT_EQ(put({}), 1U);
  EXPECT_EQ(put(mortal), 2U);
  const std::uint64_t plain = update({});
  EXPECT_EQ(update(mortal), plain);
  EXPECT_EQ(near_.get("key1").value_or("none"), value);
}

TEST_F(Far, RemovalsTogetherTakeAsLongAsOne) {
  put_keys(40, 50);
  warm_up();
  Result<void> result;
  const Cost alone = cost(far_->remove("key39"), &result);
  ASSERT_TRUE(result.has_value());
  std::vector<Removal> removals;
  for (int i = 0; i < 39; ++i) removals.push_back({.key = keys_[static_cast<std::size_t>(i)]});
  EXPECT_LE(cost(far_->multi_remove(removals)).round_trips, alone.round_trips);
  for (const Removal& one : removals) EXPECT_TRUE(one.result.has_value()) << one.key;
  EXPECT_EQ(near_.count().value(), 0U);
}

// Receive: puts of which some are of one key. Expect: the last of its values, no round trip more, and one
// result for all of them.
TEST_F(Far, PutsOfOneKeyTogetherAreOnePut) {
  put_keys(40, 50);
  warm_up();
  for (int round = 0; round < 20; ++round) {
    auto assignments = next_values();
    for (const std::size_t repeated : {3, 4, 17}) assignments[repeated].key = "key30";
    const Cost cost = multi_put(assignments);
    EXPECT_EQ(cost.round_trips, 1U);
    for (const Assignment& one : assignments) EXPECT_TRUE(one.result.has_value());
    EXPECT_EQ(near_.get("key30").value_or("none"), assignments[30].value);
  }
  auto assignments = next_values();
  assignments[29].key = assignments[31].key = "key30";
  assignments[31].options.time_to_live = std::chrono::milliseconds(-1);
  multi_put(assignments);
  EXPECT_EQ(assignments[31].result.error().code, Errc::invalid_argument);
  EXPECT_TRUE(assignments[29].result.has_value());
  EXPECT_EQ(near_.get("key30").value_or("none"), assignments[30].value) << "the last that can be put at all";
}

// Receive: keys that this client has not used, some of which are not there. Expect: as many round trips as
// one of them takes by itself.
TEST_F(Far, PutsOfOtherKeysTakeAsManyAsOneOfThem) {
  put_keys(40, 50);
  warm_up();
  // Others with values as long, for which there are items at hand.
  for (std::string& key : keys_) {
    key.insert(0, "other");
    ASSERT_TRUE(near_.put(key, "old").has_value());
  }
  auto updates = next_values();
  const Cost update = multi_put(updates);
  EXPECT_EQ(update.round_trips, 3U);
  EXPECT_EQ(update.linking, 1U) << "all in one batch";
  expect_put(updates);
  for (int i = 0; i < 5; ++i) keys_[static_cast<std::size_t>(i)] = fmt::format("absent{}", i);
  auto inserts = next_values();
  EXPECT_LE(multi_put(inserts).round_trips, 4U);
  expect_put(inserts);
  EXPECT_EQ(near_.count().value(), 85U);
}

TEST_F(Far, PutsOfKeysThatAreNotThereTakeAsManyAsAnInsert) {
  put_keys(40, 50);
  warm_up();
  keys_ = absent_keys();
  const std::uint64_t before = near_.count().value();
  auto inserts = next_values();
  const Cost cost = multi_put(inserts);
  EXPECT_EQ(cost.round_trips, 4U);
  EXPECT_EQ(cost.linking, 3U) << "pending words; words in homes; what was pending is committed";
  expect_put(inserts);
  EXPECT_EQ(near_.count().value(), before + inserts.size());
}

// Receive: puts together of keys that are not there, which another client puts or removes just before any of
// the steps. Expect: each key is there once, with the value of the one or the other; or not, if it was
// removed.
TEST_F(Far, PutsTogetherMeetOthersThatInsertTheirKeys) {
  put_keys(40, 50);
  warm_up();
  for (const int step : {1, 2, 3}) {
    for (const bool removes : {false, true}) {
      SCOPED_TRACE(fmt::format("before step {}{}", step, removes ? ", and removed" : ""));
      keys_ = absent_keys();
      const std::uint64_t before = near_.count().value();
      auto inserts = next_values();
      int steps = 0;
      meanwhile_ = [&] {
        if (++steps != step) return;
        for (std::size_t i = 0; i < keys_.size(); i += 2) {
          EXPECT_TRUE(near_.put(keys_[i], "theirs").has_value());
          if (removes) EXPECT_TRUE(near_.remove(keys_[i]).has_value());
        }
      };
      multi_put(inserts);
      meanwhile_ = nullptr;
      std::uint64_t there = 0;
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        EXPECT_TRUE(inserts[i].result.has_value()) << inserts[i].result.error().message();
        const std::string found = near_.get(keys_[i]).value_or("none");
        const bool theirs_may_win = i % 2 == 0 && found == (removes ? "none" : "theirs");
        EXPECT_TRUE(found == inserts[i].value || theirs_may_win) << keys_[i] << ": " << found;
        there += found == "none" ? 0 : 1;
      }
      EXPECT_EQ(near_.count().value(), before + there);
      for (const std::string& key : keys_) [[maybe_unused]]
        const auto gone = near_.remove(key);
      EXPECT_EQ(near_.count().value(), before);
    }
  }
  EXPECT_EQ(near_.check()->slots_corrupt, 0U);
}

// Receive: puts together, of keys that others have put or removed since, of a key that is none, and of one
// with a time to live and a long one. Expect: all of them done, or told.
TEST_F(Far, PutsTogetherGoByWhatIsThereNow) {
  put_keys(40, 50);
  warm_up();
  ASSERT_TRUE(near_.put("key3", "another").has_value());
  ASSERT_TRUE(near_.remove("key5").has_value());
  const std::string long_value(20'000, 'l');
  auto assignments = next_values();
  assignments[7].value = long_value;
  assignments[9].options.time_to_live = std::chrono::hours(1);
  assignments[11].key = "";
  multi_put(assignments);
  EXPECT_EQ(assignments[11].result.error().code, Errc::invalid_argument);
  assignments.erase(assignments.begin() + 11);
  expect_put(assignments);
  EXPECT_EQ(near_.count().value(), 40U);
}

// Receive: where no order is kept, puts of keys that another session got. Expect: of each of them the slot is
// read where it was, the item there, and no other slot.
TEST_F(Far, PutsOfWhatOthersGotLookAtOneSlotOfEach) {
  put_keys(40, 50);
  warm_up();
  const auto put_others = [this](const std::string& prefix, bool are_seen) {
    for (std::string& key : keys_) {
      key.insert(0, prefix);
      EXPECT_TRUE(near_.put(key, "old").has_value());
    }
    if (are_seen) {
      const auto other = open();
      std::string value;
      for (const std::string& key : keys_) EXPECT_TRUE(other->run(other->get(key, &value)).has_value());
    }
    auto updates = next_values();
    const std::string alone(updates.back().key);
    updates.pop_back();
    const Cost together = multi_put(updates);
    expect_put(updates);
    Result<std::uint64_t> done;
    const Cost by_itself = cost(put_alone(alone, values_.back()), &done);
    EXPECT_TRUE(done.has_value());
    EXPECT_EQ(near_.get(alone).value_or("none"), values_.back());
    return std::pair(together, by_itself);
  };
  const auto [new_ones, a_new_one] = put_others("new", false);
  const auto [seen_ones, a_seen_one] = put_others("seen", true);
  EXPECT_EQ(new_ones.slots, 39U * 3);
  EXPECT_EQ(a_new_one.slots, 3U);
  EXPECT_EQ(seen_ones.slots, 39U);
  EXPECT_EQ(a_seen_one.slots, 1U);
  EXPECT_EQ(seen_ones.round_trips, 3U);
  EXPECT_EQ(a_seen_one.round_trips, 3U);
  EXPECT_EQ(near_.count().value(), 120U);
}

// Receive: where no order is kept, puts of keys that another session got, whose slots hold now another item
// of the key, another key's, or none. Expect: all of them done.
TEST_F(Far, PutsOfWhatOthersGotGoByWhatIsThereNow) {
  for (const bool are_together : {true, false}) {
    auto lookups = put_keys(40, 50);
    const auto other = open();
    other->run(other->multi_get(lookups));
    for (std::size_t i = 0; i < keys_.size(); i += 3) {
      if (i % 2 == 0) ASSERT_TRUE(near_.remove(keys_[i]).has_value());
      if (i % 4 == 0) put_in_the_way_of(keys_[i]);
      if (i % 2 != 0) ASSERT_TRUE(near_.put(keys_[i], "another").has_value());
    }
    const std::uint64_t taken = near_.count().value();
    auto assignments = next_values();
    if (are_together) {
      multi_put(assignments);
    } else {
      for (Assignment& one : assignments) {
        const auto done = far_->run(put_alone(one.key, one.value));
        if (!done) one.result = std::unexpected(done.error());
      }
    }
    expect_put(assignments);
    EXPECT_EQ(near_.check()->slots_corrupt, 0U);
    EXPECT_GE(near_.count().value(), taken);
    for (const std::string& key : keys_) ASSERT_TRUE(near_.remove(key).has_value());
    for (const Lookup& one : lookups) EXPECT_EQ(near_.get(one.key).error().code, Errc::not_found);
    keys_.clear();
    values_.clear();
  }
}

TEST_F(FarInOrder, PutsOfWhatOthersGotTakeOneRoundTripTogether) {
  put_keys(40, 50);
  warm_up();
  for (std::string& key : keys_) {
    key.insert(0, "other");
    ASSERT_TRUE(near_.put(key, "old").has_value());
  }
  std::vector<Lookup> lookups(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) lookups[i].key = keys_[i];
  other_->run(other_->multi_get(lookups));
  auto updates = next_values();
  const Cost update = multi_put(updates);
  EXPECT_EQ(update.round_trips, 1U);
  EXPECT_EQ(update.linking, 1U);
  expect_put(updates);
  EXPECT_EQ(near_.count().value(), 80U);
}

// Receive: puts together of keys that were put, removed and given a time to live since another session saw
// them. Expect: all of them done.
TEST_F(FarInOrder, PutsTogetherGoByWhatIsThereNow) {
  auto lookups = put_keys(40, 50);
  other_->run(other_->multi_get(lookups));
  ASSERT_TRUE(near_.put("key3", "another").has_value());
  ASSERT_TRUE(near_.remove("key5").has_value());
  ASSERT_TRUE(near_.put("key7", "mortal", store_->now() + 3'600 * base::second_ns).has_value());
  for (int round = 0; round < 2; ++round) {
    auto assignments = next_values();
    multi_put(assignments);
    expect_put(assignments);
  }
  EXPECT_EQ(near_.count().value(), 40U);
}

// Receive: puts together, again and again, which use up several blocks, where there are free ones. Expect:
// none of them waits for the next one.
TEST_F(Far, PutsTogetherDoNotWaitForTheNextBlock) {
  ASSERT_TRUE(near_.put("large", std::string(8 * memory::block_bytes, 'x')).has_value());
  ASSERT_TRUE(near_.remove("large").has_value());
  store_->advance(3 * base::second_ns);
  memory::fake::tell_time(*store_);
  ASSERT_TRUE(near_.collect().has_value());
  put_keys(32, 1);
  warm_up();
  const auto leased = [this] { return far_->run(far_->totals()).value()[Counter::blocks_leased]; };
  const std::uint64_t leased_before = leased();
  for (int round = 0; round < 1'200; ++round) {
    auto assignments = next_values();
    for (Assignment& one : assignments) one.value = "short";
    EXPECT_EQ(multi_put(assignments).round_trips, 1U) << round;
  }
  EXPECT_GE(leased() - leased_before, 2U);
}

// Receive: puts together of more keys than are done in one group, again and again, and gets of them.
TEST_F(Far, ManyPutsAndGetsGoGroupByGroup) {
  auto lookups = put_keys(200, 20);
  warm_up();
  multi_get(lookups);
  expect_all(lookups);
  const auto report = near_.check();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt, 0U);
}

}  // namespace
}  // namespace loch::client
