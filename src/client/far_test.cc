// What several gets and puts at once, and gets of long values, cost a client on another host, and that they
// go by what is there now.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::client {
namespace {

class Far : public testing::Test {
 protected:
  explicit Far(bool keeps_order = false) : keeps_order_(keeps_order) {
    memory::fake::tell_time(*store_);
    far_ = open();
  }

  // A session, all of which know where items were.
  std::unique_ptr<Client> open(std::size_t cache_bytes = 0) {
    const auto count = [this](const fabric::Operation& one) {
      ++total_.operations;
      total_.bytes += one.length_bytes;
    };
    // Of those that link an item, since claiming and retiring go beside them.
    const auto count_batch = [this](std::span<const fabric::Operation> batch) {
      ++total_.batches;
      const bool links = std::ranges::any_of(batch, [](const fabric::Operation& one) {
        return one.kind == fabric::Operation::Kind::compare_swap && one.at.region == memory::index_region;
      });
      total_.linking += links;
      if (links && meanwhile_) meanwhile_();
      return false;
    };
    auto fabric = std::make_shared<fabric::fake::PostingFabric>(
        store_, fabric::fake::PostingOptions{.seed = 5,
                                             .keeps_order = keeps_order_,
                                             .mapped = {},
                                             .before = count,
                                             .round_trips = &total_.round_trips,
                                             .held = count_batch});
    return Client::open(memory::StoreMemory::attach(std::move(fabric)).value(),
                        {.cache_bytes = cache_bytes, .locations = &locations_})
        .value();
  }

  struct Cost {
    std::uint64_t round_trips = 0;
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t batches = 0;
    std::uint64_t linking = 0;  // of the batches
  };
  template <class T>
  Cost cost(coro::Task<T> task, T* result) {
    const Cost before = total_;
    *result = far_->run(std::move(task));
    return since(before);
  }
  Cost cost(coro::Task<void> task) {
    const Cost before = total_;
    far_->run(std::move(task));
    return since(before);
  }
  [[nodiscard]] Cost since(const Cost& before) const {
    return {.round_trips = total_.round_trips - before.round_trips,
            .operations = total_.operations - before.operations,
            .bytes = total_.bytes - before.bytes,
            .batches = total_.batches - before.batches,
            .linking = total_.linking - before.linking};
  }
  Cost multi_get(std::vector<Lookup>& lookups) { return cost(far_->multi_get(lookups)); }
  Cost multi_put(std::vector<Assignment>& assignments) { return cost(far_->multi_put(assignments)); }
  Cost get(const std::string& key, std::string& into, Result<void>& result) {
    return cost(far_->get(key, &into), &result);
  }
  // Keys with values of these lengths and more, which a client of this host puts there.
  std::vector<Lookup> put_keys(std::size_t count, std::size_t shortest) {
    for (std::size_t i = 0; i < count; ++i) {
      keys_.push_back(fmt::format("key{}", i));
      values_.emplace_back(shortest + i, static_cast<char>('a' + i % 26));
      EXPECT_TRUE(near_.put(keys_[i], values_[i]).has_value());
    }
    std::vector<Lookup> lookups(count);
    for (std::size_t i = 0; i < count; ++i) lookups[i].key = keys_[i];
    return lookups;
  }
  // That key, and another one with the same filter in one of its slots.
  void put_in_the_way_of(const std::string& key) {
    const hash::Locations at = hash::fake::locations(near_, key);
    const auto is_in_the_way = [&](const hash::Locations& other, std::uint64_t hash) {
      return hash::filter_of(hash) == near_.key_of(key).filter() && other.slot[0] == at.slot[0];
    };
    ASSERT_TRUE(near_.put(hash::fake::find_key(near_, "other", is_in_the_way), "1").has_value());
    ASSERT_TRUE(near_.put(key, "the key's own").has_value());
    EXPECT_EQ(hash::fake::slot(*store_, at.slot[0]).filter(), near_.key_of(key).filter());
  }
  // The next values of all keys.
  std::vector<Assignment> next_values() {
    std::vector<Assignment> assignments(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      values_[i] += "+";
      assignments[i].key = keys_[i];
      assignments[i].value = values_[i];
    }
    return assignments;
  }
  void expect_put(const std::vector<Assignment>& assignments) {
    for (const Assignment& one : assignments) {
      EXPECT_TRUE(one.result.has_value()) << one.key << ": " << one.result.error().message();
      EXPECT_EQ(near_.get(one.key).value_or("none"), one.value);
    }
  }
  // Until it has items at hand.
  void warm_up() {
    for (int round = 0; round < 20; ++round) {
      auto assignments = next_values();
      multi_put(assignments);
      expect_put(assignments);
    }
  }
  void expect_all(const std::vector<Lookup>& lookups) const {
    for (std::size_t i = 0; i < lookups.size(); ++i) {
      EXPECT_TRUE(lookups[i].result.has_value()) << i << ": " << lookups[i].result.error().message();
      EXPECT_TRUE(lookups[i].value == values_[i]) << lookups[i].key;
    }
  }

  // Keys that are not there, whose slots are empty and none another's, but that every fourth has its home
  // taken.
  std::vector<std::string> absent_keys() {
    std::vector<std::string> absent;
    std::set<hash::SlotNumber> taken;
    const auto is_alone = [&](const hash::Locations& at, std::uint64_t /*hash*/) {
      return std::ranges::all_of(std::span(at.slot).first(at.count), [&](hash::SlotNumber slot) {
        return !taken.contains(slot) && hash::fake::slot(*store_, slot).is(hash::SlotType::empty);
      });
    };
    for (int i = 0; i < 40; ++i) {
      absent.push_back(hash::fake::find_key(near_, fmt::format("absent{}.", i), is_alone));
      const hash::Locations at = hash::fake::locations(near_, absent.back());
      if (i % 4 == 0) hash::fake::occupy(near_, at.slot[0]);
      taken.insert(at.slot.begin(), at.slot.begin() + at.count);
    }
    return absent;
  }

  const bool keeps_order_;  // of a batch
  hash::LocationCache locations_{std::size_t{1} << 16};
  Cost total_;
  std::function<void()> meanwhile_;  // called when a batch that links is about to happen
  std::shared_ptr<hash::fake::MemoryStore> store_ = hash::fake::make_store();
  hash::fake::Client near_{*store_};
  std::unique_ptr<Client> far_;
  std::vector<std::string> keys_;
  std::vector<std::string> values_;
};

TEST_F(Far, KnownKeysTakeOneRoundTripTogether) {
  auto lookups = put_keys(40, 50);
  EXPECT_EQ(multi_get(lookups).round_trips, 2U);
  expect_all(lookups);
  for (int i = 0; i < 3; ++i) {
    const Cost known = multi_get(lookups);
    EXPECT_EQ(known.round_trips, 1U);
    EXPECT_EQ(known.batches, 1U);
    EXPECT_EQ(known.operations, 80U) << "an item and a slot each";
    expect_all(lookups);
  }
}

TEST_F(Far, KeysThatAreNotKnownTakeTwoBesideThoseThatAre) {
  auto lookups = put_keys(40, 50);
  std::vector<Lookup> some(lookups.begin(), lookups.begin() + 20);
  multi_get(some);
  const Cost cost = multi_get(lookups);
  EXPECT_EQ(cost.round_trips, 2U);
  EXPECT_EQ(cost.batches, 2U);
  expect_all(lookups);
}

// Receive: gets together of keys that are not known, some of which are not there, one whose time is over, one
// with some left, and values that take more than one step. Expect: what each of them gets by itself.
TEST_F(Far, KeysThatAreNotKnownAreFoundAsEachByItself) {
  auto lookups = put_keys(40, 50);
  const base::Nanos in_an_hour = base::Clock().now() + 3'600 * base::second_ns;
  ASSERT_TRUE(near_.put("key3", values_[3], in_an_hour).has_value());
  ASSERT_TRUE(near_.put("key4", "over", 1).has_value());
  values_[7] = std::string(40'000, 'l');
  values_[8] = std::string(3'000'000, 'm');
  for (const std::size_t i : {7U, 8U}) ASSERT_TRUE(near_.put(keys_[i], values_[i]).has_value());
  lookups[9].key = "absent";
  const Cost cost = multi_get(lookups);
  EXPECT_LE(cost.round_trips, 5U);
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const bool is_there = i != 4 && i != 9;
    ASSERT_EQ(lookups[i].result.has_value(), is_there) << lookups[i].key;
    if (is_there) EXPECT_TRUE(lookups[i].value == values_[i]) << lookups[i].key;
    if (!is_there) EXPECT_EQ(lookups[i].result.error().code, Errc::not_found) << lookups[i].key;
  }
}

TEST_F(Far, KeysThatAreNotThereTakeTwoRoundTripsTogether) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz";
  std::vector<Lookup> lookups(letters.size());
  for (std::size_t i = 0; i < lookups.size(); ++i) lookups[i].key = letters.substr(i, 1);
  EXPECT_EQ(multi_get(lookups).round_trips, 2U);
  for (const Lookup& one : lookups) EXPECT_EQ(one.result.error().code, Errc::not_found);
}

// Receive: a key of which a slot names another key's item, with the same filter. Expect: a get and a put of
// it read that one beside its own.
TEST_F(Far, TheItemOfAnotherKeyWithTheSameFilterIsLookedAtBeside) {
  put_keys(4, 50);
  warm_up();
  for (const std::string key : {"gets", "puts"}) put_in_the_way_of(key);
  std::vector<Lookup> lookups(1);
  lookups[0].key = "absent";
  for (int i = 0; i < 4; ++i) multi_get(lookups);  // with which what is left of the puts goes
  lookups[0].key = "gets";
  const Cost get = multi_get(lookups);
  EXPECT_EQ(lookups[0].value, "the key's own");
  EXPECT_EQ(get.round_trips, 2U);
  EXPECT_EQ(get.operations, 5U) << "three slots, and both items";
  std::vector<Assignment> assignments(1);
  assignments[0] = {.key = "puts", .value = values_[0], .options = {}, .result = {}};
  EXPECT_EQ(multi_put(assignments).round_trips, 3U);
  expect_put(assignments);
}

// Receive: of known keys some have another value now, one longer than what is read at once, one has none, and
// one is no key. Expect: what is there now, at no more round trips than each of them takes by itself.
TEST_F(Far, WhatIsNotAsItWasKnownIsFoundAllTheSame) {
  auto lookups = put_keys(40, 50);
  multi_get(lookups);
  values_[3] = "another";
  values_[7] = std::string(5'000, 'l');
  ASSERT_TRUE(near_.put("key3", values_[3]).has_value());
  ASSERT_TRUE(near_.put("key7", values_[7]).has_value());
  EXPECT_EQ(multi_get(lookups).round_trips, 2U);
  expect_all(lookups);
  EXPECT_EQ(multi_get(lookups).round_trips, 1U);
  expect_all(lookups);
  ASSERT_TRUE(near_.remove("key5").has_value());
  lookups[9].key = "";
  multi_get(lookups);
  EXPECT_EQ(lookups[5].result.error().code, Errc::not_found);
  EXPECT_EQ(lookups[9].result.error().code, Errc::invalid_argument);
  EXPECT_EQ(lookups[10].value, values_[10]);
}

TEST_F(Far, OfAKeyThatIsAskedForTwiceBothAreAnswered) {
  auto lookups = put_keys(5, 50);
  multi_get(lookups);
  std::vector<Lookup> twice = {lookups[2], lookups[2]};
  EXPECT_EQ(multi_get(twice).round_trips, 1U);
  EXPECT_EQ(twice[0].value, values_[2]);
  EXPECT_EQ(twice[1].value, values_[2]);
}

// Expect: a long value of a known key takes one round trip, of as many bytes as there are; and is another one
// when another one is there.
TEST_F(Far, ALongValueOfAKnownKeyTakesOneRoundTrip) {
  Result<void> result;
  std::string into;
  for (const std::size_t length : {1'000, 1'500, 5'001, 100'000}) {
    const std::string value(length, 'x');
    ASSERT_TRUE(near_.put("key", value).has_value());
    get("key", into, result);
    EXPECT_TRUE(into == value) << length;
    into = "what was there before";
    const Cost known = get("key", into, result);
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(into == value) << length;
    EXPECT_EQ(known.round_trips, 1U) << length;
    EXPECT_EQ(known.operations, 3U) << "the value apart from what stands before it, and the slot";
    EXPECT_EQ(known.bytes, 8 + hash::item_bytes(3, length)) << length;
  }
  ASSERT_TRUE(near_.remove("key").has_value());
  get("key", into, result);
  EXPECT_EQ(result.error().code, Errc::not_found);
}

// Receive: known values with a time to live, short and long ones, one at a time and together. Expect: one
// round trip until the time is over; then they are not there.
TEST_F(Far, AKnownValueWithATimeToLiveTakesOneRoundTripWithTheTime) {
  constexpr base::Nanos lives_ns = base::second_ns / 2;
  for (const std::size_t length : {50, 5'001}) {
    const std::string value(length, 'x');
    ASSERT_TRUE(near_.put("key", value, store_->now() + lives_ns).has_value());
    Result<void> result;
    std::string into;
    get("key", into, result);
    into.clear();
    EXPECT_EQ(get("key", into, result).round_trips, 1U) << length;
    EXPECT_TRUE(into == value) << length;
    std::vector<Lookup> lookups(1);
    lookups[0].key = "key";
    EXPECT_EQ(multi_get(lookups).round_trips, 1U) << length;
    EXPECT_TRUE(lookups[0].value == value) << length;
    // Another one in its place.
    const std::string next(length + 1, 'y');
    ASSERT_TRUE(near_.put("key", next, store_->now() + lives_ns).has_value());
    EXPECT_EQ(multi_get(lookups).round_trips, 2U) << length;
    EXPECT_TRUE(lookups[0].value == next) << length;
    store_->advance(lives_ns);
    memory::fake::tell_time(*store_);
    multi_get(lookups);
    EXPECT_EQ(lookups[0].result.error().code, Errc::not_found) << length;
    get("key", into, result);
    EXPECT_EQ(result.error().code, Errc::not_found) << length;
  }
}

// Receive: a byte of a long value of a known key changes where it lies. Expect: corrupt, and no value.
TEST_F(Far, ALongValueThatIsDamagedIsNotGivenOut) {
  Result<void> result;
  std::string into;
  ASSERT_TRUE(near_.put("key", std::string(3'000, 'x')).has_value());
  get("key", into, result);
  ASSERT_TRUE(result.has_value());
  const hash::Locations at = hash::fake::locations(near_, "key");
  for (unsigned j = 0; j < at.count; ++j) {
    const hash::SlotWord word = hash::fake::slot(*store_, at.slot[j]);
    if (word.is(hash::SlotType::committed)) *store_->at(word.item().address() + 2'000) = std::byte{'y'};
  }
  get("key", into, result);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Errc::corrupt);
}

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

// ---- copies of what is read again

// Receive: items that are got again. Expect: the second time they are read once more, then their slots alone;
// and again what has been changed.
TEST_F(Far, OfWhatIsKeptTheSlotsAreReadTogether) {
  far_ = open(std::size_t{1} << 20);
  auto lookups = put_keys(40, 50);
  multi_get(lookups);
  EXPECT_EQ(multi_get(lookups).operations, 80U);
  const Cost kept = multi_get(lookups);
  EXPECT_EQ(kept.round_trips, 1U);
  EXPECT_EQ(kept.operations, 40U);
  EXPECT_EQ(kept.bytes, 40U * 8);
  expect_all(lookups);
  values_[3] = "another";
  values_[7] = std::string(300, '7');
  const base::Nanos in_an_hour = store_->now() + 3'600 * base::second_ns;
  ASSERT_TRUE(near_.put("key3", values_[3]).has_value());
  ASSERT_TRUE(near_.put("key7", values_[7], in_an_hour).has_value());
  ASSERT_TRUE(near_.remove("key5").has_value());
  multi_get(lookups);
  EXPECT_EQ(lookups[5].result.error().code, Errc::not_found);
  lookups.erase(lookups.begin() + 5);
  values_.erase(values_.begin() + 5);
  expect_all(lookups);
  multi_get(lookups);
  expect_all(lookups);
  EXPECT_EQ(multi_get(lookups).operations, 40U) << "with the time of one that has one to live";
  expect_all(lookups);
}

// Receive: a long value, got again. Expect: the same, also together with others.
TEST_F(Far, OfALongValueThatIsKeptTheSlotIsRead) {
  far_ = open(std::size_t{4} << 20);
  auto lookups = put_keys(2, 100'000);
  Result<void> result;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      get(keys_[i], lookups[i].value, result);
      EXPECT_TRUE(result.has_value());
    }
  }
  EXPECT_EQ(get(keys_[0], lookups[0].value, result).bytes, 8U);
  EXPECT_TRUE(lookups[0].value == values_[0]);
  EXPECT_EQ(multi_get(lookups).bytes, 16U);
  expect_all(lookups);
}

// ---- where the order of a batch is kept, and other sessions know where the items are

class FarInOrder : public Far {
 protected:
  FarInOrder() : Far(true) {}
  std::unique_ptr<Client> other_ = open();
};

TEST_F(FarInOrder, WhatOthersGotTakesOneRoundTripTogether) {
  auto lookups = put_keys(40, 50);
  other_->run(other_->multi_get(lookups));
  const Cost known = multi_get(lookups);
  EXPECT_EQ(known.round_trips, 1U);
  EXPECT_EQ(known.operations, 80U) << "a slot and an item each";
  expect_all(lookups);
}

// Receive: items that have been changed, removed and given a time to live since another session saw them.
// Expect: what is there now, in the round trips that it takes without what is known, and not in more of them
// ever after.
TEST_F(FarInOrder, WhatIsNotWhereItWasIsFoundAllTheSame) {
  auto lookups = put_keys(40, 50);
  other_->run(other_->multi_get(lookups));
  values_[3] = "another";
  values_[7] = std::string(5'000, 'l');
  ASSERT_TRUE(near_.put("key3", values_[3]).has_value());
  ASSERT_TRUE(near_.put("key7", values_[7]).has_value());
  ASSERT_TRUE(near_.remove("key5").has_value());
  const base::Nanos in_an_hour = store_->now() + 3'600 * base::second_ns;
  ASSERT_TRUE(near_.put("key9", values_[9], in_an_hour).has_value());
  multi_get(lookups);
  EXPECT_EQ(lookups[5].result.error().code, Errc::not_found);
  lookups.erase(lookups.begin() + 5);
  values_.erase(values_.begin() + 5);
  expect_all(lookups);
  EXPECT_EQ(multi_get(lookups).round_trips, 1U) << "with the time";
  expect_all(lookups);
}

// Receive: a long value of a key that is longer than what a session itself remembers. Expect: one round trip.
TEST_F(FarInOrder, ALongValueOfALongKeyTakesOneRoundTrip) {
  const std::string key(4'000, 'k');
  const std::string value(5'000, 'v');
  ASSERT_TRUE(near_.put(key, value).has_value());
  Result<void> result;
  std::string into;
  get(key, into, result);
  into.clear();
  EXPECT_EQ(get(key, into, result).round_trips, 1U);
  EXPECT_TRUE(result.has_value());
  EXPECT_TRUE(into == value);
}

// Receive: of a long key, the location of another one's item, which is shorter than the key. Expect: its own.
TEST_F(FarInOrder, ALocationOfAnotherKeyIsNoneOfIts) {
  const std::string key(4'000, 'k');
  const std::string value(5'000, 'v');
  ASSERT_TRUE(near_.put(key, value).has_value());
  ASSERT_TRUE(near_.put("other", std::string(1'500, 'o')).has_value());
  Result<void> result;
  std::string into;
  get("other", into, result);
  const auto other = locations_.find(near_.key_of("other").hash);
  ASSERT_TRUE(other.has_value());
  locations_.note(near_.key_of(key).hash, *other);
  get(key, into, result);
  EXPECT_TRUE(result.has_value());
  EXPECT_TRUE(into == value);
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
  const std::uint64_t leased_before = far_->totals()[Counter::blocks_leased];
  for (int round = 0; round < 1'200; ++round) {
    auto assignments = next_values();
    for (Assignment& one : assignments) one.value = "short";
    EXPECT_EQ(multi_put(assignments).round_trips, 1U) << round;
  }
  EXPECT_GE(far_->totals()[Counter::blocks_leased] - leased_before, 2U);
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
