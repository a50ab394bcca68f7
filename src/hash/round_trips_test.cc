// What each operation costs a client on another host: round trips, that is how often it waits, and bytes.
#include <algorithm>
#include <gtest/gtest.h>
#include <string>

#include "fabric/testing/posting_fabric.h"
#include "hash/testing/scenes.h"
#include "hash/testing/test_table.h"
#include "hash/testing/two_nodes.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fabric::OperationCost;
using fake::Client;
using fake::make_store;
using fake::MemoryStore;
using memory::fake::tell_time;

class RoundTrips : public testing::Test {
 protected:
  RoundTrips() {
    tell_time(*store_);
    // So that its first items are claimed, and its block is leased.
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(warm_.put("warm" + std::to_string(i), value).has_value());
  }

  std::shared_ptr<fabric::Fabric> counting(bool keeps_order = false,
                                           OperationCost operation_cost = OperationCost::little) {
    return std::make_shared<fabric::fake::PostingFabric>(
        store_, fabric::fake::PostingOptions{.seed = 3,
                                             .keeps_order = keeps_order,
                                             .operation_cost = operation_cost,
                                             .mapped = {},
                                             .before =
                                                 [this](const fabric::Operation& operation) {
                                                   if (time_goes_on_) tell_time(*store_);
                                                   bytes_ += operation.length_bytes;
                                                   ++operations_;
                                                   const bool is_read =
                                                       operation.kind == fabric::Operation::Kind::read;
                                                   if (is_read && operation.at.region == memory::index_region)
                                                     ++slots_read_;
                                                 },
                                             .round_trips = &round_trips_,
                                             .held = {}});
  }

  struct Cost {
    std::uint64_t round_trips = 0;
    std::uint64_t bytes = 0;
    std::uint64_t slots_read = 0;
  };
  // Of what the warm client does in `act`.
  template <class Act>
  Cost cost(Act act) {
    const std::uint64_t round_trips = round_trips_;
    const std::uint64_t bytes = bytes_;
    const std::uint64_t slots_read = slots_read_;
    EXPECT_TRUE(act());
    return {.round_trips = round_trips_ - round_trips,
            .bytes = bytes_ - bytes,
            .slots_read = slots_read_ - slots_read};
  }

  const std::string value = std::string(64, 'v');
  bool time_goes_on_ = false;
  std::uint64_t round_trips_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t slots_read_ = 0;
  std::shared_ptr<MemoryStore> store_ = make_store();
  Client near_{*store_};
  Client warm_{*store_, counting(), {}};
};

TEST_F(RoundTrips, AGetTakesTwoAndOneWithAPointer) {
  ASSERT_TRUE(near_.put("key", value).has_value());
  const auto get = [this] { return warm_.get("key") == value; };
  const Cost first = cost(get);
  EXPECT_EQ(first.round_trips, 2U);
  // Three slots and the item.
  EXPECT_LE(first.bytes, std::uint64_t{3} * 8 + item_bytes(3, value.size()) + 64);
  const Cost second = cost(get);
  EXPECT_EQ(second.round_trips, 1U);
  EXPECT_EQ(second.bytes, 8 + item_bytes(3, value.size()))
      << "the slot, and the item without what is behind it";
  // A pointer to what is not there any more costs what it costs without: the slot names the new item.
  ASSERT_TRUE(near_.put("key", value).has_value());
  EXPECT_EQ(cost(get).round_trips, 2U);
  EXPECT_EQ(cost(get).round_trips, 1U);
}

// Receive: a client that keeps copies. Expect: it reads what it read before once more, and then the slot
// alone, and the time if that matters.
TEST_F(RoundTrips, AGetOfWhatIsKeptReadsItsSlot) {
  Client keeping(*store_, counting(), {.cache_bytes = 1U << 20});
  ASSERT_TRUE(near_.put("key", value).has_value());
  ASSERT_TRUE(near_.put("mortal", value, store_->now() + base::second_ns).has_value());
  for (const auto& [key, bytes] : {std::pair{"key", 8U}, std::pair{"mortal", 16U}}) {
    const auto get = [&] { return keeping.get(key) == value; };
    EXPECT_GE(cost(get).round_trips, 2U);
    EXPECT_GT(cost(get).bytes, value.size());
    const Cost kept = cost(get);
    EXPECT_EQ(kept.round_trips, 1U);
    EXPECT_EQ(kept.bytes, bytes);
  }
}

// Receive: keys that are no longer known, since their items might have been used again meanwhile, over a
// network that keeps the order of a batch. Expect: where they were is known all the same, so that a get and
// an update take one round trip; and to a session that was not there, too.
TEST_F(RoundTrips, WhereAnItemWasIsKnownForAsLongAsItIsThere) {
  LocationCache locations(std::size_t{1} << 20);
  Client first(*store_, counting(true), {.locations = &locations});
  const auto key = [](int i) { return "key" + std::to_string(i); };
  constexpr int keys = 20;
  const auto pass_a_minute = [this](Client& client) {
    for (int half = 0; half < 2; ++half) {
      // So that nothing of it is under way then.
      for (int i = 0; i < 4; ++i) ASSERT_TRUE(client.get("warm0").has_value());
      store_->advance(30 * base::second_ns);
      tell_time(*store_);
      ASSERT_TRUE(client.put("warm", value).has_value()) << "it learns of the time";
    }
  };
  for (int i = 0; i < keys; ++i) ASSERT_TRUE(first.put(key(i), value).has_value());
  Client second(*store_, counting(true), {.locations = &locations});
  pass_a_minute(second);
  for (int i = 0; i < keys; ++i) {
    const Cost get = cost([&] { return second.get(key(i)) == value; });
    EXPECT_EQ(get.round_trips, 1U);
    EXPECT_EQ(get.slots_read, 1U);
  }
  pass_a_minute(second);
  for (int i = 0; i < keys; ++i) {
    const Cost put = cost([&] { return second.put(key(i), value).has_value(); });
    EXPECT_EQ(put.round_trips, 1U) << i;
    EXPECT_EQ(put.slots_read, 1U) << i;
  }
  // It does not matter to a put whether an item has a time to live.
  ASSERT_TRUE(first.put("mortal", value, store_->now() + 3'600 * base::second_ns).has_value());
  ASSERT_TRUE(first.put("mortal too", value, store_->now() + 3'600 * base::second_ns).has_value());
  pass_a_minute(second);
  EXPECT_EQ(cost([&] { return second.put("mortal", value).has_value(); }).round_trips, 1U);
  EXPECT_EQ(cost([&] { return second.put_in_batch("mortal too", value).has_value(); }).round_trips, 1U);
  ASSERT_TRUE(near_.put("mortal", value, store_->now() + 3'600 * base::second_ns).has_value());
  EXPECT_EQ(cost([&] { return second.put_in_batch("mortal", value).has_value(); }).round_trips, 3U);
  pass_a_minute(second);
  EXPECT_EQ(second.insert(key(4), value).error().code, Errc::exists);
  EXPECT_EQ(second.replace(key(4), value, 1).error().code, Errc::changed);
  // What is there instead is looked at next.
  ASSERT_TRUE(near_.put(key(0), value).has_value());
  ASSERT_TRUE(near_.put(key(1), value).has_value());
  ASSERT_TRUE(near_.put(key(2), value, store_->now() + 3'600 * base::second_ns).has_value());
  ASSERT_TRUE(near_.remove(key(3)).has_value());
  pass_a_minute(second);
  EXPECT_EQ(cost([&] { return second.get(key(0)) == value; }).round_trips, 2U);
  EXPECT_EQ(cost([&] { return second.get(key(0)) == value; }).round_trips, 1U);
  for (const int i : {1, 2})
    EXPECT_LE(cost([&] { return second.put(key(i), value).has_value(); }).round_trips, 3U);
  EXPECT_LE(cost([&] { return second.put(key(3), value).has_value(); }).round_trips, 6U);
  for (const int i : {1, 2, 3}) EXPECT_EQ(near_.get(key(i)).value_or("none"), value) << i;
}

// Receive: keys of many kinds, from two sessions alike: one's thread waits for each step, the other's is a
// coroutine. Expect: they answer the same, and at the same cost.
TEST_F(RoundTrips, WhoWaitsGoesTheSameWayAsACoroutine) {
  const auto hour = [this] { return store_->now() + 3'600 * base::second_ns; };
  for (const bool keeps_order : {false, true}) {
    for (const auto operation_cost :
         {OperationCost::little, OperationCost::message, OperationCost::round_trip}) {
      SCOPED_TRACE(testing::Message() << keeps_order << static_cast<int>(operation_cost));
      LocationCache locations(std::size_t{1} << 20);
      LocationCache others(std::size_t{1} << 20);
      Client waiting(*store_, counting(keeps_order, operation_cost), {.locations = &locations});
      Client other(*store_, counting(keeps_order, operation_cost), {.locations = &others});
      const auto expect_same = [&](const std::string& key, const Result<std::string>& expected) {
        SCOPED_TRACE(key);
        const auto get = [&](auto of) {
          return cost([&] {
            const Result<std::string> got = of();
            if (expected) return got == *expected;
            return !got && got.error().code == expected.error().code;
          });
        };
        const Cost one = get([&] { return waiting.get_waiting(key); });
        const Cost two = get([&] { return other.get(key); });
        EXPECT_EQ(one.round_trips, two.round_trips);
        EXPECT_EQ(one.bytes, two.bytes);
      };
      const Result<std::string> none = fail(Errc::not_found, "get", {});
      const auto refresh_both = [&] {
        for (Client* one : {&waiting, &other}) EXPECT_TRUE(one->run(one->attachment().refresh()).has_value());
      };
      const std::string longer(2'000, 'l');
      const std::string longest(100'000, 'L');
      ASSERT_TRUE(near_.put("key", value).has_value());
      ASSERT_TRUE(near_.put("longer", longer).has_value());
      ASSERT_TRUE(near_.put("longest", longest).has_value());
      ASSERT_TRUE(near_.put("mortal", value, hour()).has_value());
      ASSERT_TRUE(near_.put("short-lived", value, store_->now() + base::second_ns).has_value());
      const std::string home_taken =
          find_key(near_, "other", [&](const Locations& at, std::uint64_t /*hash*/) {
            return fake::slot(*store_, at.slot[0]).is(SlotType::committed) &&
                   fake::slot(*store_, at.slot[2]).is(SlotType::empty);
          });
      ASSERT_TRUE(near_.put(home_taken, value).has_value());
      refresh_both();
      for (int time = 0; time < 3; ++time) {
        expect_same("key", value);
        expect_same("longer", longer);
        expect_same("longest", longest);
        expect_same("mortal", value);
        expect_same("short-lived", value);
        expect_same(home_taken, value);
        expect_same("none", none);
      }
      store_->advance(2 * base::second_ns);
      tell_time(*store_);
      ASSERT_TRUE(near_.put("key", longer).has_value());
      ASSERT_TRUE(near_.remove("longer").has_value());
      refresh_both();
      for (int time = 0; time < 3; ++time) {
        expect_same("key", longer);
        expect_same("longer", none);
        expect_same("mortal", value);
        expect_same("short-lived", none);
      }
      Client newcomer(*store_, counting(keeps_order, operation_cost), {});
      EXPECT_EQ(newcomer.get_waiting("short-lived").error().code, Errc::not_found);
      EXPECT_EQ(newcomer.get_waiting("mortal"), value);
      for (const char* key : {"key", "longest", "mortal", "short-lived"}) (void)near_.remove(key);
      (void)near_.remove(home_taken);
    }
  }
}

TEST_F(RoundTrips, AMissTakesTwo) {
  const Cost miss = cost([this] { return warm_.get("none").error().code == Errc::not_found; });
  EXPECT_EQ(miss.round_trips, 2U);
  EXPECT_EQ(miss.bytes, std::uint64_t{2} * 3 * 8 + 8) << "with the directory once";
}

TEST_F(RoundTrips, AnUpdateTakesThreeAndOneWithAPointer) {
  ASSERT_TRUE(near_.put("key", value).has_value());
  const auto put = [this] { return warm_.put("key", value).has_value(); };
  EXPECT_LE(cost(put).round_trips, 3U);
  for (int i = 0; i < 100; ++i) {
    const Cost known = cost(put);
    EXPECT_EQ(known.round_trips, 1U) << i;
    EXPECT_EQ(known.slots_read, 0U) << i;
  }
  // The word that is there instead names the key's item, or the key is looked for.
  ASSERT_TRUE(near_.put("key", value).has_value());
  EXPECT_EQ(cost(put).round_trips, 3U);
  EXPECT_EQ(cost(put).round_trips, 1U);
  ASSERT_TRUE(near_.remove("key").has_value());
  EXPECT_LE(cost(put).round_trips, 5U);
  EXPECT_EQ(cost(put).round_trips, 1U);
}

// What does not depend on the time does not ask for it.
TEST_F(RoundTrips, AnUpdateOfWhatExpiresTakesNoLonger) {
  ASSERT_TRUE(near_.put("key", value).has_value());
  ASSERT_TRUE(near_.put("mortal", value, store_->now() + 3'600 * base::second_ns).has_value());
  const auto put = [this](const char* key) {
    return cost([&] { return warm_.put(key, value).has_value(); }).round_trips;
  };
  const std::uint64_t immortal = put("key");
  EXPECT_EQ(put("mortal"), immortal);
}

TEST_F(RoundTrips, AnInsertTakesFiveAtMost) {
  for (int i = 0; i < 100; ++i) {
    const std::string key = "new" + std::to_string(i);
    EXPECT_LE(cost([&] { return warm_.insert(key, value).has_value(); }).round_trips, 5U) << i;
  }
}

TEST_F(RoundTrips, ARemoveTakesThree) {
  for (int i = 0; i < 50; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_TRUE(near_.put(key, value).has_value());
    EXPECT_LE(cost([&] { return warm_.remove(key).has_value(); }).round_trips, 3U) << i;
  }
}

// Receive: an index of which eight slots in ten are in use. Expect: a get takes hardly more than two, though
// its filter bits are those of other keys' items now and then.
TEST_F(RoundTrips, AGetTakesHardlyMoreThanTwoInAnIndexThatIsNearlyFull) {
  const std::uint64_t slots = Table::initial_index_bytes / sizeof(std::uint64_t);
  const std::uint64_t keys = slots * 8 / 10;
  const auto key = [](std::uint64_t i) { return "key" + std::to_string(i); };
  for (std::uint64_t i = 20; i < keys; ++i) ASSERT_TRUE(near_.put(key(i), value).has_value());
  ASSERT_EQ(fake::directory_of(*store_).level, first_level) << "it has not grown";
  Client reader(*store_, counting(), {});
  const std::uint64_t before = round_trips_;
  for (std::uint64_t i = 20; i < keys; ++i) ASSERT_EQ(reader.get(key(i)).value(), value);
  const double mean = static_cast<double>(round_trips_ - before) / static_cast<double>(keys - 20);
  EXPECT_LT(mean, 2.15);
  EXPECT_GE(mean, 2.0);
}

// Receive: a fabric on which each operation is a message of its own, and an index that gets fuller. Expect: a
// get asks for the home row and the item, as long as that is where nearly all keys are; for both rows from
// then on, so that it does not take more round trips than elsewhere.
TEST_F(RoundTrips, AGetTakesHardlyMoreThanTwoMessages) {
  const std::uint64_t slots = Table::initial_index_bytes / sizeof(std::uint64_t);
  const auto key = [](std::uint64_t i) { return "key" + std::to_string(i); };
  std::uint64_t count = 0;
  for (const double load : {0.3, 0.5, 0.8}) {
    SCOPED_TRACE(load);
    for (; static_cast<double>(count) < load * static_cast<double>(slots); ++count)
      ASSERT_TRUE(near_.put(key(count), value).has_value());
    ASSERT_EQ(fake::directory_of(*store_).level, first_level) << "it has not grown";
    Client reader(*store_, counting(false, OperationCost::message), {});
    const std::uint64_t round_trips = round_trips_;
    const std::uint64_t operations = operations_;
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(reader.get(key(i)).value(), value);
    const auto mean = [&](std::uint64_t from, std::uint64_t to) {
      return static_cast<double>(to - from) / static_cast<double>(count);
    };
    EXPECT_LT(mean(round_trips, round_trips_), 2.15);
    const double messages = mean(operations, operations_);
    if (load < 0.6) EXPECT_LT(messages, 2.3);
    if (load > 0.6) EXPECT_LT(messages, 4.1) << "three slots and the item";
  }
}

// Receive: a fabric on which each operation takes as long as a round trip, and an index that is nearly full.
// Expect: a get asks for the other row's slot only if the home row has nothing of the key.
TEST_F(RoundTrips, AGetAsksForAsLittleAsItCanWhereEachOperationTakesARoundTrip) {
  const std::uint64_t slots = Table::initial_index_bytes / sizeof(std::uint64_t);
  const std::uint64_t keys = slots * 8 / 10;
  const auto key = [](std::uint64_t i) { return "key" + std::to_string(i); };
  for (std::uint64_t i = 20; i < keys; ++i) ASSERT_TRUE(near_.put(key(i), value).has_value());
  Client reader(*store_, counting(false, OperationCost::round_trip), {});
  const std::uint64_t before = operations_;
  std::uint64_t three = 0;
  for (std::uint64_t i = 20; i < keys; ++i) {
    const Cost get = cost([&] { return reader.get(key(i)) == value; });
    three += get.round_trips == 3 ? 1 : 0;
  }
  const auto count = static_cast<double>(keys - 20);
  EXPECT_LT(static_cast<double>(operations_ - before) / count, 2.4);
  EXPECT_GT(static_cast<double>(three) / count, 0.1) << "which are in the other row";
  EXPECT_EQ(cost([&] { return reader.get("none").error().code == Errc::not_found; }).round_trips, 3U);
}

// Expect: keys that are not there cost a third round trip only until the session has learned of them.
TEST_F(RoundTrips, MissesTakeTwoWhereEachOperationIsAMessage) {
  Client reader(*store_, counting(false, OperationCost::message), {});
  const auto miss = [&] { return reader.get("none").error().code == Errc::not_found; };
  EXPECT_EQ(cost(miss).round_trips, 3U);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(miss());
  EXPECT_EQ(cost(miss).round_trips, 2U);
  ASSERT_TRUE(near_.put("key", value).has_value());
  EXPECT_EQ(cost([&] { return reader.get("key") == value; }).round_trips, 2U);
}

// Receive: a key that was known, or used long ago, and has been removed since. Expect: it is looked for once
// where it was, then in its home row, and then in a snapshot; and the next time where it was no more.
TEST_F(RoundTrips, AKeyThatIsGoneIsLookedForOnceWhereItWas) {
  LocationCache locations(std::size_t{1} << 16);
  Client reader(*store_, counting(false, OperationCost::message), {.locations = &locations});
  ASSERT_TRUE(near_.put("key", value).has_value());
  ASSERT_EQ(reader.get("key").value(), value);
  ASSERT_TRUE(near_.remove("key").has_value());
  const auto miss = [&] { return reader.get("key").error().code == Errc::not_found; };
  EXPECT_EQ(cost(miss).round_trips, 4U);
  EXPECT_EQ(cost(miss).round_trips, 3U);
  ASSERT_TRUE(reader.put("key", value).has_value());
  ASSERT_TRUE(reader.remove("key").has_value());
  EXPECT_EQ(cost(miss).round_trips, 3U);
}

// Receive: inserts one after the other, by which the index doubles twice. Expect: keys that make room and
// rows that are split take about as many round trips as the inserts themselves.
TEST_F(RoundTrips, InsertsThatMakeTheIndexGrowTakeTenOnAverage) {
  const std::uint64_t slots = Table::initial_index_bytes / sizeof(std::uint64_t);
  std::uint64_t count = 0;
  const std::uint64_t before = round_trips_;
  while (fake::directory_of(*store_).level < first_level + 2) {
    ASSERT_TRUE(warm_.put("key" + std::to_string(++count), value).has_value());
    ASSERT_LT(count, 4 * slots);
  }
  EXPECT_LE(static_cast<double>(round_trips_ - before) / static_cast<double>(count), 10);
}

// What is moved beside the item that is written: what the session looks at and changes in the index, the word
// of an item that it has unlinked, and of what it claims.
TEST_F(RoundTrips, WritesMoveTheItemOnceAndFewBytesBesides) {
  constexpr std::uint64_t slots = std::uint64_t{3} * 8;
  constexpr std::uint64_t swap = 8;
  constexpr std::uint64_t key_bytes = 5;
  const std::uint64_t item = item_bytes(key_bytes, value.size());
  const std::uint64_t head = item_bytes(key_bytes, 0);
  // Of 40 keys that `act` is asked for: the fewest bytes, and how many more the mean is. A session claims
  // memory for many items at a time.
  constexpr int first = 10;
  constexpr int end = 50;
  const auto bytes = [&](const std::string& prefix, const auto& act) {
    std::uint64_t fewest = ~std::uint64_t{0};
    std::uint64_t all = 0;
    for (int i = first; i < end; ++i) {
      const Cost each = cost([&] { return act(prefix + std::to_string(i)).has_value(); });
      fewest = std::min(fewest, each.bytes);
      all += each.bytes;
    }
    EXPECT_LE(all / (end - first), fewest + 64) << prefix;
    return fewest;
  };
  const auto put = [&](const std::string& key) { return warm_.put(key, value); };
  for (const char* prefix : {"put", "del"}) {
    for (int i = first; i < end; ++i) ASSERT_TRUE(near_.put(prefix + std::to_string(i), value).has_value());
  }
  EXPECT_EQ(bytes("put", put), item + slots + head + swap);
  EXPECT_EQ(bytes("put", put), item + swap + 8) << "with pointers; and the mark of what was replaced before";
  EXPECT_LE(bytes("new", [&](const std::string& key) { return warm_.insert(key, value); }),
            item + 2 * slots + 2 * swap);
  EXPECT_LE(bytes("del", [&](const std::string& key) { return warm_.remove(key); }), 2 * slots + head + swap);
}

// Receive: long values. Expect: who visits them all reads each once.
TEST_F(RoundTrips, AWalkReadsEachValueOnce) {
  constexpr std::size_t length = 4'000'000;
  constexpr std::size_t count = 3;
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(near_.put("long" + std::to_string(i), std::string(length, 'l')).has_value());
  time_goes_on_ = true;
  const Cost walk = cost([&] {
    const auto items = warm_.walk();
    return items && items->size() == count + 20;
  });
  EXPECT_GE(walk.bytes, count * length);
  EXPECT_LT(walk.bytes, count * length * 3 / 2);
}

// The same of a store on two nodes: slots are on the first, and items on the second.
class RoundTripsOfACluster : public testing::Test {
 protected:
  RoundTripsOfACluster() {
    two_nodes::let_pass(*store_, base::second_ns);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(warm_.put("warm" + std::to_string(i)).region == 3);
  }
  template <class Act>
  std::uint64_t cost(Act act) {
    const std::uint64_t before = round_trips_;
    EXPECT_TRUE(act());
    return round_trips_ - before;
  }

  static constexpr memory::Placement to_second_{.policy = memory::Placement::Policy::node, .node = 1};
  std::uint64_t round_trips_ = 0;
  std::shared_ptr<MemoryStore> store_ = two_nodes::make_store();
  two_nodes::Client other_{*store_, to_second_};
  two_nodes::Client warm_{*store_, to_second_, two_nodes::regions(), {.round_trips = &round_trips_}};
};

TEST_F(RoundTripsOfACluster, AGetTakesTwoAndOneWithAPointer) {
  for (int i = 0; i < 20; ++i) {
    const std::string key = "key" + std::to_string(i);
    other_.put(key);
    const auto get = [&] { return warm_.fake::Client::get(key).has_value(); };
    EXPECT_EQ(cost(get), 2U) << i;
    EXPECT_EQ(cost(get), 1U) << i;
    EXPECT_EQ(cost([&] { return warm_.error_of_get("none" + std::to_string(i)) == Errc::not_found; }), 2U);
  }
}

// An update with a pointer, too, looks at the directory before it changes the slot.
TEST_F(RoundTripsOfACluster, AnUpdateTakesThreeAndTwoWithAPointer) {
  for (int i = 0; i < 20; ++i) {
    const std::string key = "key" + std::to_string(i);
    other_.put(key);
    const auto put = [&] { return warm_.error_of_put(key) == Errc{}; };
    EXPECT_EQ(cost(put), 3U) << i;
    EXPECT_EQ(cost(put), 2U) << i;
    EXPECT_EQ(cost(put), 2U) << i;
    other_.put(key);
    EXPECT_LE(cost(put), 4U) << i;
  }
}

TEST_F(RoundTripsOfACluster, AnInsertTakesFiveAtMostAndARemoveThree) {
  for (int i = 0; i < 20; ++i) {
    const std::string key = "key" + std::to_string(i);
    EXPECT_LE(cost([&] { return warm_.insert(key, std::string(100, 'v')).has_value(); }), 5U) << i;
    const std::string others = "other" + std::to_string(i);
    other_.put(others);
    EXPECT_EQ(cost([&] { return warm_.error_of_remove(others) == Errc{}; }), 3U) << i;
  }
}

}  // namespace
}  // namespace loch::hash
