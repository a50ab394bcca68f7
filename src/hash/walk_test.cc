// for_each, count, check and collect; times to live.
#include <cstddef>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/random.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/table.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::directory_of;
using fake::locations;
using fake::make_store;

// ---- iteration

// Changes are made from inside the visits. Expect: a key that is there throughout is visited, once if it is
// unchanged.
TEST(Walk, KeysThatStayAreVisitedWhateverIsChangedMeanwhile) {
  for (int seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    base::Random random(static_cast<std::uint64_t>(seed));
    const auto store = make_store({.expiry_ns = 50 * base::millisecond_ns, .hash_seed = 42});
    Client walker(*store);
    Client writer(*store);
    const auto value = [](std::uint64_t size_seed) { return std::string(1 + size_seed % 5'000, 'v'); };
    std::set<std::string> unchanged;
    std::set<std::string> updated;
    std::set<std::string> removed;
    for (int i = 0; i < 900; ++i) {
      const std::string key = fmt::format("key{}", i);
      ASSERT_TRUE(writer.put(key, value(random.next())).has_value());
      (i % 3 == 0 ? unchanged : i % 3 == 1 ? updated : removed).insert(key);
    }
    store->advance(base::second_ns);
    const std::vector<std::string> updatable(updated.begin(), updated.end());
    std::vector<std::string> removable(removed.begin(), removed.end());
    std::map<std::string, int> visits;
    int fresh = 0;
    const Shards::Visit visit = [&](const ItemView& view) {
      const std::string key(view.key());
      ++visits[key];
      Client& changer = random.below(2) == 0 ? walker : writer;
      const std::size_t visited = visits.size();
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(changer.put(updatable[random.below(updatable.size())], value(random.next())).has_value());
      }
      if (!removable.empty() && random.below(3) == 0) {
        EXPECT_TRUE(changer.remove(removable.back()).has_value());
        removable.pop_back();
      }
      if (fresh < 500)
        EXPECT_TRUE(changer.put(fmt::format("fresh{}", fresh++), value(random.next())).has_value());
      if (visited % 5 == 0) store->advance(60 * base::millisecond_ns);
      EXPECT_EQ(std::string(view.key()), key) << "the item stays while it is visited";
      return true;
    };
    const auto done = walker.run(walker.shards().for_each(&visit));
    ASSERT_TRUE(done.has_value()) << done.error().message();
    for (const std::string& key : unchanged) EXPECT_EQ(visits[key], 1) << key;
    for (const std::string& key : updated) EXPECT_GE(visits[key], 1) << key;
  }
}

// Receive: a put that has written its item, which it links at any step of a walk that began later. The item
// that it replaces lies behind it, or before it. Expect: the key is visited, and others are visited once.
TEST(Walk, AnItemThatIsLinkedLateIsVisited) {
  for (const bool new_one_first : {true, false}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("linked before step {}", at));
      const auto store = make_store();
      bool hold = true;
      const auto held = [&hold](std::span<const fabric::Operation> batch) {
        return hold && std::ranges::any_of(batch, [](const fabric::Operation& operation) {
                 return operation.kind == fabric::Operation::Kind::compare_swap;
               });
      };
      const auto posting = std::make_shared<fabric::fake::PostingFabric>(
          store, fabric::fake::PostingOptions{
                     .mapped = [](fabric::RegionId region) { return region != memory::index_region; },
                     .before = {},
                     .held = held});
      Client helper(*store);
      if (!new_one_first) ASSERT_TRUE(helper.put("first", "v").has_value());
      Client writer(*store, posting, {.timeout_ns = 3'600 * base::second_ns});
      hold = false;
      ASSERT_TRUE(writer.put("other", "v").has_value());
      hold = true;
      for (const char* key : {"before", "key", "after"}) ASSERT_TRUE(helper.put(key, "old").has_value());

      auto put = Client::put_task(&writer, "key", "new", Condition::none, 0, 0);
      put.start();
      for (int i = 0; i < 20; ++i) writer.session().endpoint().step();
      ASSERT_FALSE(put.done());
      store->advance(base::second_ns);
      std::map<std::string, int> visits;
      const Shards::Visit visit = [&visits](const ItemView& view) {
        ++visits[std::string(view.key())];
        return true;
      };
      fake::Stepper walker(*store);
      // Of the slots that it goes through at the end, only a few name items.
      std::vector<SlotNumber> of_keys;
      for (const char* key : {"first", "other", "before", "key", "after"}) {
        const Locations at_key = locations(helper, key);
        for (const SlotNumber slot : std::span(at_key.slot).first(at_key.count))
          of_keys.insert(of_keys.end(), {slot, slot / row_slots * row_slots});
      }
      walker.look_at(of_keys);
      bool linked = false;
      const auto done = walker.run(walker.client().shards().for_each(&visit), at, [&] {
        linked = true;
        hold = false;
        while (!put.done()) writer.session().endpoint().step();
        EXPECT_TRUE(put.take().has_value());
      });
      ASSERT_TRUE(done->has_value()) << done->error().message();
      EXPECT_GE(visits["key"], 1);
      for (const char* key : {"other", "before", "after"}) EXPECT_EQ(visits[key], 1) << key;
      if (!linked) {
        EXPECT_GE(at, 4);
        break;
      }
    }
  }
}

TEST(Walk, StopsWhenToldTo) {
  const auto store = make_store();
  Client client(*store);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.put(fmt::format("k{}", i), "v").has_value());
  int visits = 0;
  const Shards::Visit visit = [&visits](const ItemView&) { return ++visits < 4; };
  ASSERT_TRUE(client.run(client.shards().for_each(&visit)).has_value());
  EXPECT_EQ(visits, 4);
}

// The visited key is removed from inside its visit, and its memory is wanted at once.
TEST(Walk, TheVisitedItemStaysReadableWhenItIsRemoved) {
  const auto store = make_store({.expiry_ns = 50 * base::millisecond_ns, .hash_seed = 42});
  Client client(*store);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(client.put(fmt::format("k{}", i), fmt::format("value {}", i)).has_value());
  const Shards::Visit visit = [&](const ItemView& view) {
    const std::string key(view.key());
    const std::string value(view.value());
    EXPECT_TRUE(client.remove(key).has_value());
    store->advance(base::second_ns);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.put("other", "other value").has_value());
    EXPECT_EQ(view.key(), key);
    EXPECT_EQ(view.value(), value);
    return key != "other";
  };
  ASSERT_TRUE(client.run(client.shards().for_each(&visit)).has_value());
}

TEST(Walk, LargeItemsAndEmptyValuesToo) {
  const auto store = make_store();
  Client client(*store);
  std::map<std::string, std::size_t> lengths = {
      {"empty", 0}, {"small", 10}, {"class", 500'000}, {"large", 3'000'000}};
  for (const auto& [key, length] : lengths)
    ASSERT_TRUE(client.put(key, std::string(length, 'x')).has_value());
  const auto items = client.walk();
  ASSERT_TRUE(items.has_value());
  EXPECT_EQ(items->size(), lengths.size());
  for (const auto& [key, value] : *items) EXPECT_EQ(value.size(), lengths[key]);
}

// Receive: items, one of them long, whose values are damaged. Expect: they are left out, and count as damaged
// once each.
TEST(Walk, ADamagedValueIsLeftOutAndCountsOnce) {
  const auto store = make_store();
  Client client(*store);
  for (const auto& [key, length] : {std::pair{"whole", 100}, {"short", 100}, {"long", 3'000'000}})
    ASSERT_TRUE(client.put(key, std::string(static_cast<std::size_t>(length), 'x')).has_value());
  for (const std::string key : {"short", "long"}) {
    const memory::ItemRef item = fake::slot(*store, locations(client, key).slot[0]).item();
    *store->at(item.address() + item_bytes(key.size(), 50)) ^= std::byte{1};
  }
  const auto items = client.walk();
  ASSERT_TRUE(items.has_value()) << items.error().message();
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().first, "whole");
  EXPECT_EQ(client.counted(Counter::corrupt_items), 2U);
}

// Receive: a data region of zeros, as where its file was truncated, or of random bytes; no block tells of an
// item there any more. Expect: all that the slots name is left out, and counts as damaged; for who counts,
// too.
TEST(Walk, WhatNoBlockTellsOfAnyMoreCountsAsDamaged) {
  for (const bool is_random : {false, true}) {
    SCOPED_TRACE(is_random);
    const auto store = make_store();
    Client client(*store);
    constexpr std::uint64_t items = 200;
    for (std::uint64_t i = 0; i < items; ++i)
      ASSERT_TRUE(client.put(fmt::format("key{}", i), "value").has_value());
    base::Random random(1);
    for (std::uint64_t at = 0; at < store->length_bytes(memory::first_data_region); at += 8)
      fabric::store_word(store->at({memory::first_data_region, at}), is_random ? random.next() : 0);
    const auto walked = client.walk();
    ASSERT_TRUE(walked.has_value()) << walked.error().message();
    EXPECT_TRUE(walked->empty());
    EXPECT_EQ(client.counted(Counter::corrupt_items), items);
    EXPECT_EQ(client.count().value(), 0U);
    EXPECT_EQ(client.counted(Counter::corrupt_items), 2 * items);
  }
}

// Receive: an intact item whose state says that it is nobody's. Expect: it is visited, as a get finds it;
// once.
TEST(Walk, AnIntactItemIsVisitedWhateverItsStateSays) {
  for (const std::uint64_t state :
       {std::uint64_t{0}, memory::ItemState{.kind = memory::ItemKind::retired, .value = 1}.encode()}) {
    SCOPED_TRACE(state);
    const auto store = make_store();
    Client client(*store);
    for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(client.put(key, key).has_value());
    const memory::ItemRef item = fake::slot(*store, locations(client, "b").slot[0]).item();
    fabric::store_word(store->at(item.address()), state);
    const auto walked = client.walk();
    ASSERT_TRUE(walked.has_value()) << walked.error().message();
    const std::multiset<std::pair<std::string, std::string>> visited(walked->begin(), walked->end());
    EXPECT_EQ(visited,
              (std::multiset<std::pair<std::string, std::string>>{{"a", "a"}, {"b", "b"}, {"c", "c"}}));
    EXPECT_EQ(client.counted(Counter::corrupt_items), 0U);
    EXPECT_EQ(client.count().value(), 3U);
  }
}

// Receive: an item whose header is damaged, in its hash and in its length. Expect: it counts as damaged,
// once.
TEST(Walk, ADamagedHeaderCountsOnce) {
  for (const std::size_t at :
       {offsetof(memory::ItemHeader, key_hash) + 7, offsetof(memory::ItemHeader, key_bytes) + 1}) {
    SCOPED_TRACE(at);
    const auto store = make_store();
    Client client(*store);
    for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(client.put(key, key).has_value());
    const memory::ItemRef item = fake::slot(*store, locations(client, "b").slot[0]).item();
    *store->at(item.address() + at) ^= std::byte{0x40};
    const auto walked = client.walk();
    ASSERT_TRUE(walked.has_value()) << walked.error().message();
    EXPECT_EQ(walked->size(), 2U);
    EXPECT_EQ(client.counted(Counter::corrupt_items), 1U);
    EXPECT_EQ(client.count().value(), 2U);
    EXPECT_EQ(client.counted(Counter::corrupt_items), 2U);
  }
}

// ---- times to live

TEST(TimeToLive, AnItemIsThereUntilItsTime) {
  const auto store = make_store();
  Client client(*store);
  const base::Nanos end = store->now() + 10 * base::second_ns;
  ASSERT_TRUE(client.put("k", "v", end).has_value());
  ASSERT_TRUE(client.put("stays", "v").has_value());
  store->advance(10 * base::second_ns - 1);
  EXPECT_EQ(client.get("k").value(), "v");
  EXPECT_EQ(client.count().value(), 2U);
  store->advance(1);
  EXPECT_EQ(client.get("k").error().code, Errc::not_found);
  EXPECT_EQ(client.count().value(), 1U);
  EXPECT_EQ(client.walk()->size(), 1U);
  EXPECT_EQ(client.replace("k", "w", 1).error().code, Errc::not_found);
  EXPECT_EQ(client.remove("k").error().code, Errc::not_found);
}

TEST(TimeToLive, AnInsertTakesThePlaceOfAnExpiredItem) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "v", store->now() + base::second_ns).has_value());
  EXPECT_EQ(client.insert("k", "w").error().code, Errc::exists);
  store->advance(base::second_ns);
  EXPECT_TRUE(client.insert("k", "w").has_value());
  EXPECT_EQ(client.get("k").value(), "w");
  store->advance(100 * base::second_ns);
  EXPECT_EQ(client.get("k").value(), "w") << "the new one lives on";
}

TEST(TimeToLive, ACollectionDropsWhatHasExpired) {
  const auto store = make_store();
  Client client(*store);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(
        client.put(fmt::format("k{}", i), "v", i % 2 == 0 ? store->now() + base::second_ns : 0).has_value());
  }
  store->advance(2 * base::second_ns);
  EXPECT_EQ(client.collect()->items_expired, 25U);
  EXPECT_EQ(client.check()->items, 25U);
  EXPECT_EQ(client.collect()->items_expired, 0U);
}

// Receive: a put that finds no memory, and has no time left. Expect: it looks at nothing, and the next one
// goes on from there.
TEST(TimeToLive, WhoNeedsMemoryLooksForItUntilItsTimeIsOver) {
  const auto store = make_store();
  Client client(*store);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.put(fmt::format("k{}", i), "v", 1).has_value());
  store->advance(base::second_ns);
  const auto room_until = [&](base::Nanos until) {
    return client.run(client.shards().make_room(until)).value();
  };
  EXPECT_EQ(room_until(store->now()), std::nullopt);
  EXPECT_TRUE(room_until(store->now() + base::second_ns).has_value());
  EXPECT_EQ(client.count().value(), 0U);
}

// Receive: puts that find no memory, and nothing in any part of the store that could be had. Expect: they
// look no more, until a time to live ends that they have seen, or for an expiry.
TEST(TimeToLive, WhoFoundNoMemoryAnywhereDoesNotLookAtOnceAgain) {
  const auto store = make_store();
  Client client(*store);
  constexpr base::Nanos time_to_live = 300 * base::millisecond_ns;
  ASSERT_TRUE(client.put("ends", "v", store->now() + time_to_live).has_value());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.put(fmt::format("k{}", i), "v").has_value());
  int looks = 0;
  Client needs = fake::watched_client(*store, [&looks] { ++looks; });
  const auto looks_at_slots = [&] {
    looks = 0;
    EXPECT_TRUE(needs.run(needs.shards().make_room(store->now() + base::second_ns)).has_value());
    return looks != 0;
  };
  const auto look_at_all = [&] {
    int times = 0;
    while (looks_at_slots() && times < 10) ++times;
    EXPECT_GE(times, 1);
    EXPECT_LT(times, 10);
  };
  look_at_all();
  store->advance(time_to_live - 1);
  EXPECT_FALSE(looks_at_slots());
  store->advance(1);
  EXPECT_TRUE(looks_at_slots());
  EXPECT_TRUE(fake::slot(*store, locations(client, "ends").slot[0]).is(SlotType::empty));
  store->advance(2 * base::second_ns);  // what it found has rested
  look_at_all();
  store->advance(base::second_ns - 1);
  EXPECT_FALSE(looks_at_slots());
  store->advance(1);
  EXPECT_TRUE(looks_at_slots());
}

// Receive: a damaged slot that names an item of another slot, which has expired. Expect: it is dropped once,
// by the slot that names it by right, and nobody is given its place twice.
TEST(TimeToLive, AnExpiredItemIsDroppedByItsOwnSlotAlone) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("key", "v", 1).has_value());
  const Locations at = locations(client, "key");
  const SlotWord word = fake::slot(*store, at.slot[0]);
  for (SlotNumber other : {SlotNumber{0}, directory_of(*store).slots() - 1}) {
    while (at.index_of(other) >= 0) ++other;
    fake::set_slot(*store, other, word);
  }
  store->advance(base::second_ns);
  EXPECT_EQ(client.collect()->items_expired, 1U);
}

// ---- accounting

// Receive: items that a dead client wrote and did not link, or unlinked and did not retire. Expect: check
// tells of them and changes nothing; collect gets them back.
TEST(Collect, WhatTheDeadLeftIsFoundAndGotBack) {
  const auto store = make_store();
  Client client(*store);
  {
    Client dead(*store);
    ASSERT_TRUE(dead.put("unlinked", "v").has_value());
    ASSERT_TRUE(dead.put("kept", "v").has_value());
    ASSERT_TRUE(dead.run(dead.allocator().allocate(100)).has_value());
    const SlotNumber at = locations(dead, "unlinked").slot[0];
    fake::set_slot(*store, at, SlotWord::empty(dead.session().next_nonce(), first_level));
    dead.die();
    auto before = client.check();
    ASSERT_TRUE(before.has_value());
    EXPECT_GE(before->items_unaccounted, 1U);
    EXPECT_FALSE(before->findings.empty());
    EXPECT_EQ(client.check()->items_unaccounted, before->items_unaccounted) << "check changes nothing";
    const auto collected = client.collect();
    ASSERT_TRUE(collected.has_value());
    EXPECT_EQ(collected->sessions_reaped, 1U);
    EXPECT_GE(collected->items_reclaimed, 1U);
    EXPECT_EQ(client.check()->items_unaccounted, 0U);
    EXPECT_EQ(client.get("kept").value(), "v");
    // What follows is done by an object whose process is gone; nothing is looked at afterwards.
  }
}

// Receive: the same, and clients that find no memory. Expect: each looks at a part, and all together at all.
TEST(Collect, WhatTheDeadLeftIsGotBackByWhoNeedsMemory) {
  const auto store = make_store();
  Client client(*store);
  {
    Client dead(*store);
    ASSERT_TRUE(dead.run(dead.allocator().allocate(3 * memory::block_bytes)).has_value());
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(dead.put(fmt::format("k{}", i), "v").has_value());
    const SlotNumber at = locations(dead, "k0").slot[0];
    fake::set_slot(*store, at, SlotWord::empty(dead.session().next_nonce(), first_level));
    dead.die();
    ASSERT_GE(client.check()->items_unaccounted, 1U);
    store->advance(2 * base::second_ns);
    std::optional<base::Nanos> ready;
    for (int i = 0; i < 4 && !ready; ++i) {
      const memory::Attachment::Operation during(client.attachment());
      const auto room = client.run(client.shards().make_room(store->now() + base::second_ns));
      ASSERT_TRUE(room.has_value()) << room.error().message();
      ready = *room;
    }
    ASSERT_TRUE(ready.has_value());
    EXPECT_GT(*ready, store->now());
    EXPECT_EQ(client.run(client.shards().make_room(store->now() + base::second_ns)).value(), ready)
        << "first what it found is waited for";
    ASSERT_TRUE(client.collect().has_value()) << "for the dead session itself";
    EXPECT_EQ(client.check()->items_unaccounted, 0U);
    for (int i = 1; i < 100; ++i) EXPECT_EQ(client.get(fmt::format("k{}", i)).value(), "v");
  }
}

// Receive: an insert that found its key there, so that its session keeps the item that it had written for the
// next one. Expect: a collection by somebody else does not take it for an item that nobody has.
TEST(Collect, AnItemThatASessionKeepsForLaterIsNotTakenFromIt) {
  const auto store = make_store();
  Client keeper(*store);
  Client other(*store);
  ASSERT_TRUE(keeper.put("there", "v").has_value());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(keeper.insert("there", "w").error().code, Errc::exists);
  store->advance(2 * base::second_ns);
  EXPECT_EQ(other.check()->items_unaccounted, 0U);
  const auto collected = other.collect();
  ASSERT_TRUE(collected.has_value());
  EXPECT_EQ(collected->items_reclaimed, 0U);
  store->advance(2 * base::second_ns);
  ASSERT_TRUE(other.collect().has_value());
  // Each of both puts items of that class; none is lost.
  std::vector<std::string> keys;
  for (int i = 0; i < 40'000; ++i) {
    keys.push_back(fmt::format("key{}", i));
    ASSERT_TRUE((i % 2 == 0 ? keeper : other).put(keys.back(), "v").has_value());
  }
  int lost = 0;
  for (const std::string& key : keys) lost += other.get(key).has_value() ? 0 : 1;
  EXPECT_EQ(lost, 0);
}

TEST(Collect, EmptyBlocksAreFreed) {
  const auto store = make_store();
  Client client(*store);
  for (int i = 0; i < 3'000; ++i)
    ASSERT_TRUE(client.put(fmt::format("k{}", i), std::string(1'000, 'x')).has_value());
  for (int i = 0; i < 3'000; ++i) ASSERT_TRUE(client.remove(fmt::format("k{}", i)).has_value());
  EXPECT_EQ(client.collect()->blocks_freed, 0U) << "they rest";
  store->advance(2 * base::second_ns);
  EXPECT_GE(client.collect()->blocks_freed, 2U);
  const auto report = client.check();
  EXPECT_EQ(report->items_unaccounted + report->items_corrupt, 0U);
}

// A walk waits before it begins, for longer than an operation may take here.
TEST(Walk, NeedsNoMoreTimeThanAnOperationHas) {
  const auto store = make_store();
  Client client(*store, {.timeout_ns = base::millisecond_ns});
  ASSERT_TRUE(client.put("k", "v").has_value());
  const auto walked = client.walk();
  ASSERT_TRUE(walked.has_value()) << walked.error().message();
  EXPECT_EQ(walked->size(), 1U);
}

}  // namespace
}  // namespace loch::hash
