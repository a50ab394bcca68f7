// What several gets at once, gets of long values, and questions whether a key exists cost a client on another
// host, and that they go by what is there now.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/far.h"

namespace loch::client {
namespace {

using fake::Far;
using fake::FarInOrder;

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

// Receive: a read that is stopped for longer than it may act, while others write. Expect: it looks again, and
// is one hit.
TEST_F(Far, AReadThatHasToLookAgainIsOneHit) {
  ASSERT_TRUE(near_.put("k", "v").has_value());
  bool is_stopped = false;
  int slots_read = 0;
  const auto stop = [&](const fabric::Operation& /*slot*/) {
    ++slots_read;
    if (!std::exchange(is_stopped, false)) return;
    store_->advance(memory::Session::act_window_ns + base::second_ns);
    near_.session().next_write_time();
  };
  const auto is_mapped = [](fabric::RegionId region) { return region != memory::index_region; };
  auto fabric = std::make_shared<fabric::fake::PostingFabric>(
      store_, fabric::fake::PostingOptions{.seed = 5, .mapped = is_mapped, .before = stop});
  const auto client = Client::open(memory::StoreMemory::attach(std::move(fabric)).value(),
                                   {.timeout_ns = 3'600 * base::second_ns})
                          .value();
  for (const bool stops : {false, true}) {
    const Stats before = client->attachment().stats();
    is_stopped = stops;
    slots_read = 0;
    const auto read = client->run(client->read("k"));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->value, "v");
    EXPECT_EQ(slots_read, stops ? 6 : 3);
    EXPECT_EQ(client->attachment().stats()[Counter::get_hit], before[Counter::get_hit] + 1);
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

// ---- by where others saw them

// Receive: gets together of keys that another session got, where the order of a batch is not kept. Expect:
// the slots that named them, and after these the items, and no other slot.
TEST_F(Far, OfWhatOthersGotOneSlotIsReadAndThenTheItem) {
  const auto other = open();
  auto lookups = put_keys(40, 50);
  other->run(other->multi_get(lookups));
  const Cost cost = multi_get(lookups);
  EXPECT_EQ(cost.round_trips, 2U);
  EXPECT_EQ(cost.operations, 80U) << "a slot and an item each";
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i)
    bytes += 8 + hash::item_bytes(keys_[i].size(), values_[i].size());
  EXPECT_EQ(cost.bytes, bytes);
  expect_all(lookups);
}

// Receive: some of them have been changed, removed and given a time to live since. Expect: what is there now,
// which takes no more round trips where a slot names another item of the key.
TEST_F(Far, OfWhatOthersGotItIsFoundWhatIsThereNow) {
  const auto other = open();
  auto lookups = put_keys(40, 50);
  other->run(other->multi_get(lookups));
  values_[3] = "another";
  values_[7] = std::string(5'000, 'l');
  const base::Nanos in_an_hour = store_->now() + 3'600 * base::second_ns;
  ASSERT_TRUE(near_.put("key3", values_[3]).has_value());
  ASSERT_TRUE(near_.put("key7", values_[7]).has_value());
  EXPECT_EQ(multi_get(lookups).round_trips, 2U);
  expect_all(lookups);
  const auto next = open();
  ASSERT_TRUE(near_.remove("key5").has_value());
  ASSERT_TRUE(near_.put("key9", values_[9], in_an_hour).has_value());
  next->run(next->multi_get(lookups));
  EXPECT_EQ(lookups[5].result.error().code, Errc::not_found);
  lookups.erase(lookups.begin() + 5);
  values_.erase(values_.begin() + 5);
  expect_all(lookups);
}

// Receive: keys that were removed since, by others and by this session. Expect: their slot is looked at once
// more, and never after that.
TEST_F(Far, OfWhatIsGoneWhereItWasIsForgotten) {
  const auto other = open();
  auto lookups = put_keys(2, 50);
  other->run(other->multi_get(lookups));
  ASSERT_TRUE(near_.remove(keys_[0]).has_value());
  ASSERT_TRUE(other->run(other->remove(keys_[1])).has_value());
  EXPECT_TRUE(locations_.find(near_.key_of(keys_[0]).hash).has_value());
  EXPECT_FALSE(locations_.find(near_.key_of(keys_[1]).hash).has_value());
  const Cost first = multi_get(lookups);
  EXPECT_FALSE(locations_.find(near_.key_of(keys_[0]).hash).has_value());
  const Cost second = multi_get(lookups);
  EXPECT_LT(second.round_trips, first.round_trips);
  for (const Lookup& one : lookups) EXPECT_EQ(one.result.error().code, Errc::not_found);
}

// Receive: of items whose memory has been used again for their keys' next ones, longer and shorter, the
// lengths that they had. Expect: what is there now.
TEST_F(Far, OfWhatOthersGotTheLengthIsAHint) {
  const auto other = open();
  auto lookups = put_keys(2, 50);
  other->run(other->multi_get(lookups));
  for (const auto& [key, more] : {std::pair(keys_[0], -20), std::pair(keys_[1], 7)}) {
    const std::uint64_t hash = near_.key_of(key).hash;
    auto location = locations_.find(hash);
    ASSERT_TRUE(location.has_value());
    location->length_bytes += static_cast<std::uint64_t>(more);
    locations_.note(hash, *location);
  }
  multi_get(lookups);
  expect_all(lookups);
}

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

// ---- exists

// Receive: a long value, of a key that is not known, known, known with a time to live, and another one.
// Expect: whether it is there takes as many round trips as a get, and no byte of the value.
TEST_F(Far, ExistsReadsNoByteOfTheValue) {
  constexpr std::uint64_t slot = sizeof(std::uint64_t);
  const std::uint64_t head = hash::item_bytes(3, 0);
  const std::string value(1'000'000, 'v');
  Result<bool> exists;
  const auto ask = [&] { return cost(far_->exists("key"), &exists); };
  ASSERT_TRUE(near_.put("key", value).has_value());
  const Cost unknown = ask();
  EXPECT_TRUE(exists.value_or(false));
  EXPECT_EQ(unknown.round_trips, 2U);
  EXPECT_EQ(unknown.bytes, 3 * slot + head);
  const auto learn = [&] {
    Result<void> got;
    std::string into;
    get("key", into, got);
    EXPECT_TRUE(got.has_value());
  };
  learn();
  for (int i = 0; i < 2; ++i) {
    const Cost known = ask();
    EXPECT_TRUE(exists.value_or(false));
    EXPECT_EQ(known.round_trips, 1U);
    EXPECT_EQ(known.bytes, slot);
  }
  ASSERT_TRUE(near_.put("key", value, store_->now() + base::second_ns).has_value());
  EXPECT_LE(ask().bytes, 4 * slot + 2 * head + sizeof(base::Nanos));
  EXPECT_TRUE(exists.value_or(false));
  learn();
  const Cost mortal = ask();
  EXPECT_TRUE(exists.value_or(false));
  EXPECT_EQ(mortal.round_trips, 1U);
  EXPECT_EQ(mortal.bytes, slot + head + sizeof(base::Nanos));
  store_->advance(base::second_ns);
  memory::fake::tell_time(*store_);
  ask();
  EXPECT_FALSE(exists.value_or(true)) << "its time is over";
}

// Receive: a key of which another session knows where its item was. Expect: one round trip; and its slots
// tell, if it is elsewhere, or gone.
TEST_F(FarInOrder, ExistsGoesByALocation) {
  const std::string value(5'000, 'v');
  ASSERT_TRUE(near_.put("key", value).has_value());
  std::string into;
  ASSERT_TRUE(other_->run(other_->get("key", &into)).has_value());
  Result<bool> exists;
  const auto ask = [&] { return cost(far_->exists("key"), &exists); };
  for (int i = 0; i < 2; ++i) {
    const Cost located = ask();
    EXPECT_TRUE(exists.value_or(false));
    EXPECT_EQ(located.round_trips, 1U);
    EXPECT_EQ(located.bytes, sizeof(std::uint64_t) + hash::item_bytes(3, 0));
  }
  ASSERT_TRUE(near_.put("key", value).has_value());
  const Cost replaced = ask();
  EXPECT_TRUE(exists.value_or(false));
  EXPECT_EQ(replaced.round_trips, 2U);
  EXPECT_LT(replaced.bytes, 1'000U);
  ASSERT_TRUE(near_.remove("key").has_value());
  ask();
  EXPECT_FALSE(exists.value_or(true));
}

// ---- counters

// Receive: a damaged value, of a key that is asked for alone and with others. Expect: it is no miss.
TEST_F(Far, WhatFailsIsNoMiss) {
  auto lookups = put_keys(4, 50);
  const hash::SlotNumber slot = hash::fake::locations(near_, "key1").slot[0];
  const memory::ItemRef item = hash::fake::slot(*store_, slot).item();
  *store_->at(item.address() + hash::item_bytes(4, 0)) ^= std::byte{1};
  lookups[2].key = "absent";
  multi_get(lookups);
  EXPECT_EQ(lookups[1].result.error().code, Errc::corrupt);
  EXPECT_EQ(lookups[2].result.error().code, Errc::not_found);
  const auto counted = [&](Counter counter) { return far_->attachment().stats()[counter]; };
  EXPECT_EQ(counted(Counter::get_hit), 2U);
  EXPECT_EQ(counted(Counter::get_miss), 1U);
  Result<void> result;
  std::string into;
  get("key1", into, result);
  EXPECT_EQ(result.error().code, Errc::corrupt);
  EXPECT_EQ(counted(Counter::get_miss), 1U);
}

}  // namespace
}  // namespace loch::client
