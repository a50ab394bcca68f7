// Growth of the index with damage in its way.
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "hash/table.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::directory_of;
using fake::find_key;
using fake::key_number;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::slot;

// Puts healthy keys until the index has doubled twice; those whose slots are damaged are passed over.
void expect_growth_goes_on(Client& client, MemoryStore& store, const std::vector<SlotNumber>& damaged) {
  const auto hurt = [&](const std::string& key) {
    const Directory d = directory_of(store);
    // A slot of the key, now or at the level at which the damage was done.
    for (const SlotNumber bad : damaged) {
      for (const std::uint8_t level : {std::uint8_t{first_level}, d.level}) {
        const Locations at =
            Locations::of(client.key_of(key).hash, {.level = level, .growing = d.growing}, 3);
        if (at.index_of(bad) >= 0) return true;
      }
    }
    return false;
  };
  int failed = 0;
  std::string first_error;
  std::vector<int> there;
  for (int i = 0; directory_of(store).level < first_level + 2 && i < 30'000; ++i) {
    store.advance(20 * base::microsecond_ns);
    const bool passed_over = hurt(key_number(i));
    const auto put = client.put(key_number(i), key_number(i));
    if (put) there.push_back(i);
    if (put || passed_over) continue;
    if (failed++ == 0) first_error = fmt::format("{}: {}", key_number(i), put.error().message());
    if (failed > 20) break;
  }
  EXPECT_EQ(failed, 0) << first_error;
  EXPECT_GE(directory_of(store).level, first_level + 2) << "the growth has stopped";
  int lost = 0;
  for (const int i : there) {
    if (client.get(key_number(i)).has_value() || hurt(key_number(i))) continue;
    ++lost;
  }
  EXPECT_EQ(lost, 0);
}

// Receive: items whose bytes changed, in rows that are split. Expect: errors for their keys alone, and that
// they are damaged, of all that say whose they are.
TEST(Growth, DamagedItemsDoNotStopIt) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  const auto store = make_store();
  Client client(*store);
  constexpr int keys_before = 1'500;
  for (int i = 0; i < keys_before; ++i) ASSERT_TRUE(client.put(key_number(i), key_number(i)).has_value());
  std::set<std::string> damaged;
  std::set<std::string> known_as_damaged;
  while (damaged.size() < 40) {
    const std::string key = key_number(static_cast<int>(random.below(keys_before)));
    const Locations at = locations(client, key);
    for (unsigned j = 0; j < at.count; ++j) {
      const SlotWord word = slot(*store, at.slot[j]);
      if (!word.is(SlotType::committed)) continue;
      const auto* item = reinterpret_cast<const char*>(store->at(word.item().address()));
      const std::string key_and_value = key + key;
      if (std::string_view(item + sizeof(memory::ItemHeader), key_and_value.size()) != key_and_value)
        continue;
      if (!damaged.insert(key).second) continue;
      std::uint64_t offset =
          memory::summed_from + random.below(sizeof(memory::ItemHeader) + 3 - memory::summed_from);
      if (damaged.size() % 2 == 0) {
        offset = random.below(2) == 0 ? offsetof(memory::ItemHeader, written_at_ns) + random.below(16)
                                      : sizeof(memory::ItemHeader) + key.size() + random.below(key.size());
        known_as_damaged.insert(key);
      }
      *store->at(word.item().address() + offset) ^= std::byte{0x11};
    }
  }
  const unsigned level = directory_of(*store).level;
  int i = keys_before;
  for (; i < 20'000 && directory_of(*store).level < level + 2; ++i) {
    const auto put = client.put(key_number(i), key_number(i));
    if (put) continue;
    // A key that shares a slot with a damaged item may say so.
    ASSERT_EQ(put.error().code, Errc::corrupt) << put.error().message();
    damaged.insert(key_number(i));
  }
  EXPECT_GE(directory_of(*store).level, level + 2) << "it did not grow";
  for (int k = 0; k < i; ++k) {
    const auto got = client.get(key_number(k));
    if (got) {
      EXPECT_EQ(*got, key_number(k));
    } else {
      EXPECT_TRUE(damaged.contains(key_number(k))) << key_number(k) << ": " << got.error().message();
    }
  }
  for (const std::string& key : known_as_damaged) {
    const auto got = client.get(key);
    ASSERT_FALSE(got.has_value()) << key;
    EXPECT_EQ(got.error().code, Errc::corrupt) << key << ": " << got.error().message();
  }
}

// Receive: inserts under way whose items do not say any more whose they are. Expect: the growth comes to its
// end.
TEST(Growth, UnfinishedInsertsOfDamagedItemsDoNotStopIt) {
  for (const SlotType type : {SlotType::pending, SlotType::aborted}) {
    SCOPED_TRACE(static_cast<int>(type));
    const auto store = make_store();
    Client client(*store);
    ASSERT_TRUE(client.put("key", "value").has_value());
    const SlotNumber home = locations(client, "key").slot[0];
    const SlotWord word = slot(*store, home);
    *store->at(word.item().address() + sizeof(memory::ItemHeader)) ^= std::byte{1};
    fake::set_slot(*store, home, word.with_type(type));
    fake::begin_growth(*store, 0);
    ASSERT_TRUE(client.collect().has_value());
    EXPECT_FALSE(directory_of(*store).growing);
  }
}

constexpr std::uint64_t nowhere(SlotType type, unsigned level) {
  return SlotWord::link(type, {.region = memory::first_data_region, .unit = 1'000'000}, 0, 0, level).raw;
}

// Operations of others alone bring the growth to its end, as far as they can: each looks at it when it is
// due.
void put_while_it_grows(Client& client, const std::string& key) {
  for (int i = 0; i < 10 && directory_of(client.store()).growing; ++i) {
    client.store().advance(base::second_ns);
    const auto put = client.put(key, "other");
    ASSERT_TRUE(put.has_value()) << put.error().message();
  }
}

// Receive: slots that hold what no client writes there: of those that were there, and of those that come to
// life; at each of the levels that words tell apart, since such a word may look like one of the next. Expect:
// the growth comes to its end, by a collection or by puts alone, and all of them are mended.
TEST(Growth, WhatNoClientWritesDoesNotStopItAtAnyLevel) {
  struct Case {
    std::uint64_t word;
    bool is_high;
  };
  for (unsigned level = first_level; level < first_level + level_modulus; ++level) {
    std::vector<Case> cases;
    for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}})
      cases.insert(cases.end(), {{word, false}, {word, true}});
    // Nobody places anything in an upper slot before the lower one is split.
    for (const SlotType type :
         {SlotType::committed, SlotType::pending, SlotType::aborted, SlotType::placed, SlotType::moved})
      cases.push_back({nowhere(type, level + 1), true});
    cases.push_back({SlotWord::empty(0, level + 3).raw, true});
    // A region that has no items.
    cases.push_back(
        {SlotWord::link(SlotType::pending, {.region = memory::index_region}, 0, 0, level).raw, false});
    for (const auto& [word, is_high] : cases) {
      for (const bool by_puts : {false, true}) {
        SCOPED_TRACE(fmt::format("level {} word {:x} {} {}", level, word, is_high ? "high" : "low",
                                 by_puts ? "by puts" : "by a collection"));
        const auto store = make_store({.hash_seed = 42}, {}, level);
        Client client(*store);
        const std::string key = find_key(client, "key", [&](const Locations&, std::uint64_t hash) {
          return (home_row_mix(hash) >> level & 1) != 0;  // goes up
        });
        ASSERT_TRUE(client.put(key, "value").has_value());
        const Locations at = locations(client, key);
        const SlotNumber low_slots = directory_of(*store).low_slots();
        SlotNumber victim = at.slot[0];
        while (at.index_of(victim) >= 0) victim = (victim + 1) % low_slots;
        if (is_high) victim = at.slot[0] + low_slots;
        fake::begin_growth(*store);
        fake::set_slot(*store, victim, {word});
        if (by_puts) {
          put_while_it_grows(client, find_key(client, "other", [&](const Locations& its, std::uint64_t) {
                               return its.index_of(victim) < 0;
                             }));
        } else {
          ASSERT_TRUE(client.collect().has_value());
        }
        EXPECT_FALSE(directory_of(*store).growing);
        EXPECT_EQ(client.get(key).value_or("none"), "value");
        EXPECT_EQ(client.check()->slots_corrupt, 0U);
      }
    }
  }
}

// Receive: a slot that can not be split while another slot of its item's key is damaged, which was born
// already, far behind it. Expect: puts look beyond the one, mend the other, and come back.
TEST(Growth, ASlotIsSplitWhenTheDamageThatHoldsItUpIsMended) {
  const auto store = make_store();
  Client client(*store);
  const std::string key = find_key(client, "key", [&](const Locations&, std::uint64_t hash) {
    return (home_row_mix(hash) >> first_level & 1) != 0;  // goes up
  });
  ASSERT_TRUE(client.put(key, "value").has_value());
  const SlotNumber alternate = locations(client, key).slot[1];
  const SlotNumber upper = alternate + directory_of(*store).low_slots();
  fake::begin_growth(*store);
  fake::set_slot(*store, alternate, SlotWord::empty(client.session().next_nonce(), first_level + 1));
  fake::set_slot(*store, upper, SlotWord::empty(0, first_level + 3));
  put_while_it_grows(client, find_key(client, "other", [&](const Locations& its, std::uint64_t) {
                       return its.index_of(upper) < 0;
                     }));
  EXPECT_FALSE(directory_of(*store).growing);
  EXPECT_EQ(client.get(key).value_or("none"), "value");
}

// Receive: the words of intact items, with levels that they can not have; some belong into the upper half.
// Expect: the growth comes to its end, and the keys are back.
TEST(Growth, WordsOfAnotherLevelAreMendedByTheirSplits) {
  for (const unsigned more : {2U, 3U}) {
    for (const bool goes_up : {false, true}) {
      SCOPED_TRACE(fmt::format("{} levels more {}", more, goes_up));
      const auto store = make_store();
      Client client(*store);
      const std::string key = find_key(client, "key", [&](const Locations&, std::uint64_t hash) {
        return (home_row_mix(hash) >> first_level & 1) == (goes_up ? 1 : 0);
      });
      ASSERT_TRUE(client.put(key, "value").has_value());
      const SlotNumber home = locations(client, key).slot[0];
      fake::set_slot(*store, home, slot(*store, home).with_level(first_level + more));
      fake::begin_growth(*store, 0);
      ASSERT_TRUE(client.collect().has_value());
      EXPECT_FALSE(directory_of(*store).growing);
      EXPECT_EQ(client.get(key).value_or("none"), "value");
      EXPECT_EQ(client.check()->slots_corrupt, 0U);
    }
  }
}

struct Damage {
  const char* name;
  std::uint64_t word;
};
class DamagedGrowth : public testing::TestWithParam<Damage> {};

// Receive: words that no client writes, in the slots that exist. Expect: errors for the keys of those slots
// alone.
TEST_P(DamagedGrowth, ALowSlot) {
  const auto store = make_store();
  Client client(*store);
  const std::vector<SlotNumber> damaged = {5, 1234, 4095};
  for (const SlotNumber number : damaged) fake::set_slot(*store, number, {GetParam().word});
  expect_growth_goes_on(client, *store, damaged);
}

// Receive: the same in slots that come to life by the growth. Expect: likewise.
TEST_P(DamagedGrowth, AHighSlot) {
  const auto store = make_store();
  Client client(*store);
  fake::begin_growth(*store, 0);
  const std::vector<SlotNumber> damaged = {4096 + 5, 4096 + 1234, 8191};
  for (const SlotNumber number : damaged) fake::set_slot(*store, number, {GetParam().word});
  expect_growth_goes_on(client, *store, damaged);
}

INSTANTIATE_TEST_SUITE_P(
    Words, DamagedGrowth,
    testing::Values(Damage{"Zero", 0}, Damage{"AllOnes", ~std::uint64_t{0}},
                    Damage{"CommittedNowhere", nowhere(SlotType::committed, first_level)},
                    Damage{"CommittedNowhereNextLevel", nowhere(SlotType::committed, first_level + 1)},
                    Damage{"PendingNowhere", nowhere(SlotType::pending, first_level)},
                    Damage{"AbortedNowhere", nowhere(SlotType::aborted, first_level)},
                    Damage{"PlacedNowhere", nowhere(SlotType::placed, first_level)},
                    Damage{"MovedNowhere", nowhere(SlotType::moved, first_level)},
                    Damage{"MovedNowhereNextLevel", nowhere(SlotType::moved, first_level + 1)},
                    Damage{"EmptyOfAnotherLevel", SlotWord::empty(0, first_level + 3).raw}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace loch::hash
