// Hostile memory: slots and items that no client wrote. Expect: errors for the keys concerned, and harm to no
// other.
#include <array>
#include <chrono>
#include <cstddef>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/item.h"
#include "hash/table.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::directory_of;
using fake::locations;
using fake::make_store;
using fake::slot;

TEST(Damage, AnItemWithChangedBytesIsAnErrorUntilItIsWrittenAgain) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value").has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  for (std::uint64_t offset = memory::summed_from; offset < sizeof(memory::ItemHeader) + 6; ++offset) {
    SCOPED_TRACE(offset);
    *store->at(item.address() + offset) ^= std::byte{0x40};
    const auto got = client.get("k");
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Errc::corrupt);
    EXPECT_NE(got.error().key_hash, 0U);
    *store->at(item.address() + offset) ^= std::byte{0x40};
  }
  EXPECT_EQ(client.get("k").value(), "value");
  *store->at(item.address() + sizeof(memory::ItemHeader) + 3) ^= std::byte{1};
  const auto report = client.check();
  EXPECT_EQ(report->items_corrupt, 1U);
  EXPECT_FALSE(report->findings.empty());
  ASSERT_TRUE(client.put("k", "new").has_value());
  EXPECT_EQ(client.get("k").value(), "new");
  EXPECT_EQ(client.check()->items_corrupt, 0U);
}

TEST(Damage, ADamagedItemCanBeRemoved) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value").has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  *store->at(item.address() + sizeof(memory::ItemHeader) + 3) ^= std::byte{1};
  EXPECT_TRUE(client.remove("k").has_value());
  EXPECT_EQ(client.get("k").error().code, Errc::not_found);
}

// Receive: a slot whose word makes no sense. Expect: its keys say corrupt, the others are as before, check
// counts it; and a collection mends it.
TEST(Damage, ASlotThatNoClientWrites) {
  for (const std::uint64_t word :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{7}, SlotWord::empty(1, first_level + 1).raw}) {
    SCOPED_TRACE(word);
    const auto store = make_store();
    Client client(*store);
    std::vector<std::string> keys;
    for (int i = 0; i < 500; ++i) keys.push_back(fmt::format("key{}", i));
    for (const std::string& key : keys) ASSERT_TRUE(client.put(key, key).has_value());
    SlotNumber victim = 0;
    while (slot(*store, victim).is(SlotType::empty)) ++victim;
    fake::set_slot(*store, victim, {word});
    int hurt = 0;
    for (const std::string& key : keys) {
      const Locations at = locations(client, key);
      const bool concerned = at.index_of(victim) >= 0;
      const auto got = client.get(key);
      if (got) {
        EXPECT_EQ(*got, key);
      } else {
        EXPECT_TRUE(concerned) << key << ": " << got.error().message();
        EXPECT_EQ(got.error().code, Errc::corrupt) << got.error().message();
        ++hurt;
      }
      if (!concerned) {
        EXPECT_TRUE(client.put(key, key).has_value());
      }
    }
    EXPECT_GE(hurt, 1);
    EXPECT_EQ(client.check()->slots_corrupt, 1U);
    const auto collected = client.collect();
    ASSERT_TRUE(collected.has_value()) << collected.error().message();
    EXPECT_EQ(collected->slots_repaired, 1U);
    EXPECT_EQ(client.check()->slots_corrupt, 0U);
    for (const std::string& key : keys) {
      const auto put = client.put(key, key);
      EXPECT_TRUE(put.has_value()) << key << ": " << put.error().message();
    }
  }
}

// Receive: the word of a key's item, with a level that it can not have. Expect: a collection brings the key
// back; and a word whose item is damaged, or belongs elsewhere, is cleared.
TEST(Damage, AWordOfAnotherLevelIsMended) {
  for (unsigned more = 1; more < level_modulus; ++more) {
    for (const bool is_intact : {true, false}) {
      SCOPED_TRACE(fmt::format("{} levels more {}", more, is_intact));
      const auto store = make_store();
      Client client(*store);
      ASSERT_TRUE(client.put("key", "value").has_value());
      ASSERT_TRUE(client.put("another", "value").has_value());
      const SlotNumber home = locations(client, "key").slot[0];
      const SlotWord word = slot(*store, home);
      fake::set_slot(*store, home, word.with_level(first_level + more));
      const SlotNumber elsewhere = locations(client, "another").slot[0] ^ row_slots;
      ASSERT_TRUE(slot(*store, elsewhere).is(SlotType::empty));
      fake::set_slot(*store, elsewhere, word.with_level(first_level + more));
      if (!is_intact) *store->at(word.item().address() + sizeof(memory::ItemHeader)) ^= std::byte{1};
      EXPECT_EQ(client.put("key", "another").error().code, Errc::corrupt);
      EXPECT_EQ(client.collect()->slots_repaired, 2U);
      EXPECT_EQ(slot(*store, home).is(SlotType::committed), is_intact);
      EXPECT_TRUE(slot(*store, elsewhere).is(SlotType::empty));
      EXPECT_EQ(client.check()->slots_corrupt, 0U);
      EXPECT_EQ(client.get("key").value_or("none"), is_intact ? "value" : "none");
      EXPECT_TRUE(client.put("key", "another").has_value());
      EXPECT_EQ(client.get("key").value_or("none"), "another");
    }
  }
}

// Receive: a growth that begins while a collection mends a word which then looks as if its slot had been
// split; another key goes to the upper slot. Expect: the slot is not opened again, and nothing is lost.
TEST(Damage, AWordOfTheNextLevelIsNotMendedBesideAGrowth) {
  const auto store = make_store();
  Client client(*store);
  const std::string key = fake::find_key(client, "key", [](const Locations&, std::uint64_t hash) {
    return (home_row_mix(hash) >> first_level & 1) != 0;  // goes up
  });
  const SlotNumber home = locations(client, key).slot[0];
  const SlotWord looks_split = SlotWord::empty(client.session().next_nonce(), first_level + 1);
  fake::set_slot(*store, home, looks_split);
  bool has_begun = false;
  // When the word is to be set apart, by who has seen no growth.
  const auto begin = [&](const fabric::Operation& operation) {
    const bool is_mended = operation.kind == fabric::Operation::Kind::compare_swap &&
                           operation.at == index_of_one_host.slot(home);
    if (!is_mended || std::exchange(has_begun, true)) return;
    fake::begin_growth(*store, home / (rows_split_at_once * row_slots));
    ASSERT_TRUE(client.put("other", "value").has_value());
    ASSERT_TRUE(client.put(key, "value").has_value());
    ASSERT_TRUE(slot(*store, home + directory_of(*store).low_slots()).is(SlotType::committed));
  };
  Client collector(
      *store,
      std::make_shared<fabric::fake::PostingFabric>(
          store,
          fabric::fake::PostingOptions{.mapped = [](auto region) { return region != memory::index_region; },
                                       .before = begin,
                                       .held = {}}),
      {});
  ASSERT_TRUE(collector.collect().has_value());
  EXPECT_TRUE(has_begun);
  EXPECT_EQ(slot(*store, home), looks_split);
  EXPECT_EQ(client.get(key).value_or("none"), "value");
  ASSERT_TRUE(client.collect().has_value());
  EXPECT_FALSE(directory_of(*store).growing);
  EXPECT_EQ(client.get(key).value_or("none"), "value");
}

// Receive: an item whose time is over, and whose value is damaged. Expect: it ends as others do.
TEST(Damage, AnItemWithADamagedValueEndsWithItsTime) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value", store->now() + base::second_ns).has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  *store->at(item.address() + sizeof(memory::ItemHeader) + 3) ^= std::byte{1};
  store->advance(2 * base::second_ns);
  EXPECT_EQ(client.collect()->items_expired, 1U);
  EXPECT_EQ(client.get("k").error().code, Errc::not_found);
}

// Receive: a slot that another key's insert comes to names a damaged item, as if half done. Expect: no harm
// to it.
TEST(Damage, GarbageInTheWayOfAnInsert) {
  for (const SlotType type :
       {SlotType::committed, SlotType::pending, SlotType::aborted, SlotType::placed, SlotType::moved}) {
    const SlotWord nowhere =
        SlotWord::link(type, {.region = memory::first_data_region, .unit = 1'000'000}, 0, 0, first_level);
    for (int slots = 1; slots <= 3; ++slots) {
      SCOPED_TRACE(fmt::format("type {} in {} slots", static_cast<int>(type), slots));
      const auto store = make_store();
      Client client(*store);
      const Locations at = locations(client, "key");
      for (int i = 0; i < slots; ++i) fake::set_slot(*store, at.slot[static_cast<unsigned>(i)], nowhere);
      const auto put = client.put("key", "value");
      if (slots < 3) {
        EXPECT_TRUE(put.has_value()) << put.error().message();
        EXPECT_EQ(client.get("key").value(), "value");
      } else if (put) {
        EXPECT_EQ(client.get("key").value(), "value");
      } else {
        EXPECT_TRUE(put.error().code == Errc::corrupt || put.error().code == Errc::timed_out)
            << put.error().message();
      }
    }
  }
}

// Receive: a healthy key whose insert has to move others; one slot of those others is damaged. Expect: it is
// moved elsewhere, or the index grows; the healthy key does not fail.
TEST(Damage, AForeignKeysDamagedSlotDoesNotFailAnInsert) {
  const auto store = make_store();
  Client client(*store);
  const std::string key = "key";
  const Locations at = locations(client, key);
  for (unsigned i = 0; i < 3; ++i) {
    const std::string filler = fake::occupy(client, at.slot[i]);
    fake::set_slot(*store, locations(client, filler).slot[2], {~std::uint64_t{0}});
  }
  const auto put = client.put(key, "value");
  EXPECT_TRUE(put.has_value()) << put.error().message();
}

// Receive: a healthy key all of whose slots are taken, one of them by an insert that is half done, of a key
// that has a damaged slot. Expect: the insert is passed over, and room is made in another slot.
TEST(Damage, AForeignInsertThatCanNotBeSettledDoesNotFailAnInsert) {
  const auto store = make_store();
  Client client(*store);
  const Locations at = locations(client, "key");
  for (unsigned i = 0; i < 3; ++i) {
    const std::string filler = fake::occupy(client, at.slot[i]);
    if (i != 0) continue;
    fake::set_slot(*store, locations(client, filler).slot[2], {~std::uint64_t{0}});
    fake::set_slot(*store, at.slot[i], slot(*store, at.slot[i]).with_type(SlotType::pending));
  }
  const auto put = client.put("key", "value");
  ASSERT_TRUE(put.has_value()) << put.error().message();
  EXPECT_EQ(client.get("key").value(), "value");
}

// Receive: the home of a healthy key holds what a move left, of a key that has a damaged slot. Expect: if
// that is not the move's other end, the insert does not mind; if it is, nobody can say whether the move is
// over: the insert says which slot is in the way, at once, and a collection helps.
TEST(Damage, AForeignMoveThatCanNotBeSettledDoesNotFailAnInsert) {
  for (const bool is_other_end_damaged : {false, true}) {
    SCOPED_TRACE(is_other_end_damaged);
    const auto store = make_store();
    Client client(*store);
    const SlotNumber home = locations(client, "key").slot[0];
    const Locations of_filler = locations(client, fake::occupy(client, home));
    const Ref other_end = of_filler.ref_of(is_other_end_damaged ? 2 : 1, 0);
    fake::set_slot(*store, of_filler.slot[2], {~std::uint64_t{0}});
    fake::set_slot(*store, home, slot(*store, home).with_type(SlotType::moved).with_ref(other_end));
    const base::Nanos start = store->now();
    auto put = client.put("key", "value");
    if (is_other_end_damaged) {
      ASSERT_FALSE(put.has_value());
      EXPECT_EQ(put.error().code, Errc::corrupt);
      EXPECT_EQ(store->now(), start);
      EXPECT_NE(put.error().detail.find(fmt::format("slot {},", home)), std::string::npos)
          << put.error().detail;
      EXPECT_NE(put.error().detail.find("loch gc"), std::string::npos) << put.error().detail;
      ASSERT_TRUE(client.collect().has_value());
      put = client.put("key", "value");
    }
    ASSERT_TRUE(put.has_value()) << put.error().message();
    EXPECT_EQ(client.get("key").value(), "value");
    EXPECT_EQ(slot(*store, home).filter(), client.key_of("key").filter());
  }
}

// Receive: a slot of the key is damaged when its insert stands as pending in another one. Expect: who is told
// that it failed need not fear that it is committed later.
TEST(Damage, AnInsertThatFailsWhileItIsPendingIsTakenBack) {
  const auto store = make_store();
  Client client(*store);
  const Locations at = locations(client, "key");
  fake::occupy(client, at.slot[0]);
  const SlotWord empty = slot(*store, at.slot[2]);
  bool was_pending = false;
  Client hurt = fake::watched_client(*store, [&] {
    if (!slot(*store, at.slot[1]).is(SlotType::pending) || std::exchange(was_pending, true)) return;
    fake::set_slot(*store, at.slot[2], {~std::uint64_t{0}});
  });
  const auto put = hurt.put("key", "value");
  ASSERT_FALSE(put.has_value());
  EXPECT_EQ(put.error().code, Errc::corrupt) << put.error().message();
  EXPECT_TRUE(was_pending);
  EXPECT_TRUE(slot(*store, at.slot[1]).is(SlotType::empty));
  fake::set_slot(*store, at.slot[2], empty);
  EXPECT_EQ(client.get("key").error().code, Errc::not_found);
}

// Receive: an index whose words, committed or pending, name items by other filters than those of their keys.
// Expect: puts of healthy keys do not wait for what can not be moved: the index grows, to its end.
TEST(Damage, WordsOfOtherFiltersHoldUpNeitherInsertsNorGrowth) {
  const auto store = make_store();
  Client client(*store);
  const SlotNumber slots = directory_of(*store).slots();
  for (SlotNumber i = 0; i < slots / 8; ++i)
    ASSERT_TRUE(client.put(fmt::format("old{}", i), "value").has_value());
  ASSERT_EQ(directory_of(*store).level, first_level);
  for (SlotNumber i = 0; i < slots; ++i) {
    const SlotWord word = slot(*store, i);
    if (!word.names_item()) continue;
    const auto other = static_cast<std::uint8_t>(word.filter() ^ 1U);
    const SlotType type = i % 2 == 0 ? SlotType::committed : SlotType::pending;
    fake::set_slot(*store, i, SlotWord::link(type, word.item(), other, word.tag(), word.level()));
  }
  for (SlotNumber i = 0; i < slots; ++i) {
    const std::string key = fmt::format("key{}", i);
    const auto put = client.put(key, key);
    ASSERT_TRUE(put.has_value()) << key << ": " << put.error().message();
  }
  ASSERT_TRUE(client.collect().has_value());
  EXPECT_FALSE(directory_of(*store).growing);
  EXPECT_GT(directory_of(*store).level, first_level);
  for (SlotNumber i = 0; i < slots; ++i) EXPECT_TRUE(client.get(fmt::format("key{}", i)).has_value()) << i;
}

// Receive: slots in the way of an insert that name another key's item, which is whole and belongs elsewhere.
// Expect: room is made in another slot, or by growth.
TEST(Damage, AnotherKeysItemInTheWayOfAnInsert) {
  for (const unsigned damaged : {1U, 3U}) {
    SCOPED_TRACE(damaged);
    const auto store = make_store();
    Client client(*store);
    ASSERT_TRUE(client.put("other", "value").has_value());
    const memory::ItemRef item = slot(*store, locations(client, "other").slot[0]).item();
    const std::uint64_t rows = directory_of(*store).rows();
    const std::string key = fake::find_key(client, "key", [&](const Locations&, std::uint64_t hash) {
      return (home_row_mix(hash) & other_row_mix(hash) & rows) != 0;  // has room when the index has grown
    });
    const Locations at = locations(client, key);
    for (unsigned i = 0; i < 3; ++i) {
      if (i >= damaged) {
        fake::occupy(client, at.slot[i]);
      } else {
        fake::set_slot(*store, at.slot[i], SlotWord::link(SlotType::committed, item, 0, 0, first_level));
      }
    }
    const auto put = client.put(key, "value");
    ASSERT_TRUE(put.has_value()) << put.error().message();
    EXPECT_EQ(client.get(key).value(), "value");
    EXPECT_EQ(client.get("other").value(), "value");
  }
}

// Random words over slots, descriptors and items; then every call. Expect: an error, or a value that the key
// had, soon.
TEST(Damage, EveryCallSurvivesRandomBytes) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  const auto soon = [](auto call) {
    const auto begun = std::chrono::steady_clock::now();
    auto result = call();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    return result;
  };
  for (int round = 0; round < 60; ++round) {
    const auto store = make_store();
    Client client(*store);
    std::map<std::string, std::set<std::string>> written;
    const auto put = [&](Client& by, const std::string& key, std::size_t bytes) {
      const auto [value, is_new] = written[key].insert(fmt::format("{} {}", key, std::string(bytes, 'x')));
      return by.put(key, *value);
    };
    const auto expect_own = [&](const std::string& key, const std::string& got) {
      EXPECT_TRUE(written[key].contains(got)) << key << " has " << got.substr(0, 100);
    };
    for (int i = 0; i < 200; ++i)
      ASSERT_TRUE(put(client, fmt::format("k{}", i), random.below(3'000)).has_value());
    ASSERT_TRUE(put(client, "large", 2'000'000).has_value());
    const auto hits = static_cast<int>(1 + random.below(200));
    for (int i = 0; i < hits; ++i) {
      const auto region = static_cast<fabric::RegionId>(random.below(2) == 0 ? memory::index_region
                                                                             : memory::first_data_region);
      std::uint64_t limit = store->length_bytes(region);
      if (region == memory::first_data_region && random.below(2) == 0)
        limit = 16 * sizeof(std::uint64_t);  // descriptors
      const std::uint64_t word = random.below(3) == 0 ? random.next() & 0xfff : random.next();
      fabric::store_word(store->at({region, random.below(limit / 8) * 8}), word);
    }
    if (random.below(2) == 0) fake::begin_growth(*store, 0);
    Client second(*store);
    for (int i = 0; i < 40; ++i) {
      const std::string key = fmt::format("k{}", random.below(400));
      const auto got = soon([&] { return client.get(key); });
      if (got) expect_own(key, *got);
      std::ignore = soon([&] { return put(second, key, random.below(3'000)); });
      std::ignore = soon([&] { return client.remove(fmt::format("k{}", random.below(400))); });
      store->advance(random.below(300) * base::millisecond_ns);
    }
    if (const auto large = soon([&] { return client.get("large"); })) expect_own("large", *large);
    const auto walked = soon([&] { return client.walk(); });
    if (walked) {
      for (const auto& [key, value] : *walked) expect_own(key, value);
    }
    std::ignore = soon([&] { return client.count(); });
    std::ignore = soon([&] { return client.check(); });
    for (int i = 0; i < 2; ++i) std::ignore = soon([&] { return client.collect(); });
  }
}

// Receive: a file that is truncated after the plain get has found the key, so that it copies zeros. Expect:
// they are nobody's value, though they agree with a sum of zero.
TEST(Damage, ZerosThatCameMeanwhileAreNoValue) {
  alignas(memory::item_unit_bytes) std::array<std::byte, 256> bytes{};
  const memory::ItemRef ref{.region = memory::first_data_region, .size_class = 0, .unit = 1};
  const std::string value(100, 'v');
  write_item(bytes.data(), ref, {}, "key", value);
  ItemView view;
  view.begin(bytes.data(), ref);
  ASSERT_TRUE(view.is_plain("key", value.size()));
  std::string into(value.size(), ' ');
  EXPECT_TRUE(view.copy_just_value_to(into.data()));
  EXPECT_EQ(into, value);
  bytes.fill({});
  EXPECT_FALSE(view.copy_just_value_to(into.data()));
}

}  // namespace
}  // namespace loch::hash
