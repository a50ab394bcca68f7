// What collections and checks make of hostile memory: slots and items that no client wrote. Expect: it is
// cleared up or told of, and nothing is taken from whom it belongs to.
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
using fake::MemoryStore;
using fake::slot;

memory::ItemKind kind_of(const MemoryStore& store, memory::ItemRef item) {
  return memory::ItemState::decode(fabric::load_word(store.at(item.address()))).kind;
}

// When what is under way has been over for long.
Collected collect_later(MemoryStore& store, Client& client) {
  store.advance(2 * base::second_ns);
  return client.collect().value();
}

// Receive: an item that does not say any more whose it is, so that the key can be put beside it, and removed,
// but not over it. Expect: it is not used again while a slot names it; a collection clears the slot and gets
// the memory back, and all is sound.
TEST(CollectedDamage, AnItemThatIsNoKeysAnyMoreIsCleared) {
  constexpr std::size_t hash = offsetof(memory::ItemHeader, key_hash);
  constexpr std::size_t key = sizeof(memory::ItemHeader);
  const std::vector<std::vector<std::size_t>> damages = {
      {offsetof(memory::ItemHeader, key_bytes)}, {key}, {key, hash}};
  for (const std::vector<std::size_t>& damaged : damages) {
    SCOPED_TRACE(testing::PrintToString(damaged));
    const auto store = make_store();
    Client client(*store);
    ASSERT_TRUE(client.put("k", "value").has_value());
    const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
    for (const std::size_t at : damaged) *store->at(item.address() + at) ^= std::byte{0x41};
    ASSERT_TRUE(client.put("k", "new").has_value());
    EXPECT_EQ(client.get("k").value(), "new");
    ASSERT_TRUE(client.remove("k").has_value());
    store->advance(2 * base::second_ns);
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(client.run(client.shards().make_room(store->now() + base::second_ns)).has_value());
    EXPECT_EQ(kind_of(*store, item), memory::ItemKind::in_use);
    EXPECT_EQ(client.get("k").error().code, Errc::corrupt);
    EXPECT_EQ(client.check()->items_corrupt, 1U);
    const auto collected = client.collect();
    ASSERT_TRUE(collected.has_value()) << collected.error().message();
    EXPECT_EQ(collected->slots_repaired, 1U);
    EXPECT_EQ(collected->items_reclaimed, 1U);
    EXPECT_EQ(client.get("k").error().code, Errc::not_found);
    EXPECT_TRUE(client.check()->findings.empty());
  }
}

// Receive: an item whose header gives another hash than its key has. Expect: a collection does not look for
// it by that, and take it for nobody's; the key is put over it.
TEST(CollectedDamage, AnItemWithADamagedHashIsItsKeysStill) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value").has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  *store->at(item.address() + offsetof(memory::ItemHeader, key_hash)) ^= std::byte{0xff};
  const Collected collected = collect_later(*store, client);
  EXPECT_EQ(collected.slots_repaired, 0U);
  EXPECT_EQ(collected.items_reclaimed, 0U);
  EXPECT_EQ(kind_of(*store, item), memory::ItemKind::in_use);
  EXPECT_EQ(client.get("k").error().code, Errc::corrupt);
  ASSERT_TRUE(client.put("k", "new").has_value());
  EXPECT_EQ(kind_of(*store, item), memory::ItemKind::retired);
  EXPECT_EQ(client.get("k").value(), "new");
  EXPECT_TRUE(client.check()->findings.empty());
}

// Receive: an item whose state says that nobody has ever had its memory. Expect: it is not taken from its
// key.
TEST(CollectedDamage, AnItemWithADamagedStateIsItsKeysStill) {
  const auto store = make_store();
  ASSERT_TRUE(Client(*store).put("k", "value").has_value());  // which leaves its block to others
  Client client(*store);
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  fabric::store_word(store->at(item.address()), 0);
  EXPECT_EQ(collect_later(*store, client).items_reclaimed, 0U);
  EXPECT_EQ(kind_of(*store, item), memory::ItemKind::fresh);
  EXPECT_EQ(client.get("k").value(), "value");
}

// Receive: an insert and a move that the dead left half done, of a key that has a damaged slot. Expect: a
// collection sees to all others, and does not take the move for settled before the slot is mended.
TEST(CollectedDamage, ACollectionPassesOverADamagedSlot) {
  const auto unsettled = [](const MemoryStore& store) {
    const auto word = [&](std::uint64_t offset) {
      return fabric::load_word(store.at({memory::control_region, offset}));
    };
    return word(memory::unfinished_moves_offset) - word(memory::settled_moves_offset);
  };
  for (const SlotType type : {SlotType::pending, SlotType::placed}) {
    SCOPED_TRACE(static_cast<int>(type));
    const auto store = make_store();
    Client client(*store);
    Client dead(*store);
    for (const char* key : {"key", "orphan"}) ASSERT_TRUE(dead.put(key, "value").has_value());
    const Locations at = locations(dead, "key");
    const SlotWord left = slot(*store, at.slot[0]).with_type(type);
    const SlotWord empty = slot(*store, at.slot[2]);
    dead.session().begin_move();
    fake::set_slot(*store, at.slot[0], {~std::uint64_t{0}});
    fake::set_slot(*store, at.slot[1], left);
    const SlotNumber orphans = locations(dead, "orphan").slot[0];
    fake::set_slot(*store, orphans, SlotWord::empty(dead.session().next_nonce(), first_level));
    dead.die();
    const auto collected = client.collect();
    ASSERT_TRUE(collected.has_value()) << collected.error().message();
    EXPECT_EQ(collected->items_reclaimed, 1U);
    EXPECT_EQ(slot(*store, at.slot[1]), left);
    EXPECT_EQ(unsettled(*store), 1U);
    fake::set_slot(*store, at.slot[0], empty);
    ASSERT_TRUE(client.collect().has_value());
    EXPECT_NE(slot(*store, at.slot[1]), left);
    EXPECT_EQ(unsettled(*store), 0U);
  }
}

// Receive: an item that is being written over another one: its state has arrived, and its header not yet.
// Expect: a collection leaves it alone while its writer's operation runs.
TEST(CollectedDamage, CollectingLeavesAloneWhatIsBeingWritten) {
  const auto store = make_store();
  Client client(*store);
  Client writer(*store);
  ASSERT_TRUE(writer.put("old", "value").has_value());
  const SlotNumber home = locations(writer, "old").slot[0];
  const fabric::Address item = slot(*store, home).item().address();
  fake::set_slot(*store, home, SlotWord::empty(writer.session().next_nonce(), first_level));
  store->advance(2 * base::second_ns);
  const base::Nanos start = writer.session().begin_operation();
  const std::uint64_t state =
      memory::ItemState::in_use(writer.session().client(), writer.session().next_write_time()).encode();
  fabric::store_word(store->at(item), state);
  const auto collect = [&client] {
    // The first one may find that it has looked too long ago.
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(client.collect().has_value());
  };
  // Also later, and when another millisecond has begun.
  for (int i = 0; i < 2; ++i) {
    collect();
    EXPECT_EQ(fabric::load_word(store->at(item)), state);
    EXPECT_EQ(client.check()->items_unaccounted, 0U);
    store->advance(2 * base::second_ns);
  }
  writer.session().end_operation(start);
  collect();
  EXPECT_EQ(memory::ItemState::decode(fabric::load_word(store->at(item))).kind, memory::ItemKind::retired);
}

// Receive: more damage than a report has room for. Expect: it says how much it leaves out.
TEST(CollectedDamage, ACheckSaysHowManyFindingsItLeavesOut) {
  const auto store = make_store();
  Client client(*store);
  constexpr std::uint64_t items = 150;
  for (std::uint64_t i = 0; i < items; ++i) {
    ASSERT_TRUE(client.put(fmt::format("key{}", i), "value").has_value());
  }
  for (SlotNumber i = 0; i < directory_of(*store).slots(); ++i) {
    if (slot(*store, i).names_item())
      *store->at(slot(*store, i).item().address() + sizeof(memory::ItemHeader)) ^= std::byte{1};
  }
  const auto report = client.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt, items);
  EXPECT_EQ(report->findings.size(), 100U);
  EXPECT_EQ(report->findings_left_out, items - 100);
}

// Receive: an item that is replaced, and rests for long, when a check has seen that it is linked and before
// it looks at the item. Expect: no finding.
TEST(CollectedDamage, ACheckFindsNothingInWhatWasReplacedMeanwhile) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value").has_value());
  const memory::BlockNumber block = memory::block_of(slot(*store, locations(client, "k").slot[0]).item());
  bool was_replaced = false;
  const auto replace = [&](const fabric::Operation& operation) {
    if (operation.at != memory::lease_address(block) || std::exchange(was_replaced, true)) return;
    ASSERT_TRUE(client.put("k", "new").has_value());
    store->advance(2 * base::second_ns);
  };
  Client checker(*store,
                 std::make_shared<fabric::fake::PostingFabric>(
                     store,
                     fabric::fake::PostingOptions{
                         .mapped = [](auto region) { return region != memory::first_data_region; },
                         .before = replace,
                         .held = {}}),
                 {});
  const auto report = checker.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_TRUE(was_replaced);
  EXPECT_EQ(report->items_corrupt, 0U);
  for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
}

// Receive: a slot that points into another key's value, at bytes that look like the header of an item that
// has expired. Expect: a collection writes nothing there.
TEST(CollectedDamage, CollectingDoesNotWriteWhereADamagedSlotPoints) {
  const auto store = make_store();
  Client client(*store);
  memory::ItemHeader looks_expired{};
  looks_expired.expires_at_ns = 1;
  looks_expired.key_bytes = 1;
  std::string value(4'000, 'x');
  // At each place of the value where an item may begin.
  const std::uint64_t first =
      memory::item_unit_bytes - (sizeof(memory::ItemHeader) + 1) % memory::item_unit_bytes;
  for (std::uint64_t at = first; at + sizeof looks_expired <= value.size(); at += memory::item_unit_bytes)
    std::memcpy(value.data() + at, &looks_expired, sizeof looks_expired);
  ASSERT_TRUE(client.put("k", value).has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  SlotNumber victim = 0;
  while (!slot(*store, victim).is(SlotType::empty)) ++victim;
  const memory::ItemRef inside{.region = item.region, .size_class = 1, .unit = item.unit + 2};
  fake::set_slot(*store, victim, SlotWord::link(SlotType::committed, inside, 0, 0, first_level));
  store->advance(10 * base::second_ns);
  [[maybe_unused]] const auto collected = client.collect();
  const auto got = client.get("k");
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_EQ(*got, value);
}

// Receive: a block that is freed and cut otherwise while a collection looks at its items, and then holds
// bytes that look like an item of somebody who is gone. Expect: nothing is written there.
TEST(CollectedDamage, CollectingDoesNotWriteWhereABlockWasCutAnew) {
  const auto store = make_store();
  Client client(*store);
  ASSERT_TRUE(client.put("k", "value").has_value());
  const memory::ItemRef item = slot(*store, locations(client, "k").slot[0]).item();
  const memory::BlockNumber block = memory::block_of(item);
  const fabric::Address inside = memory::item_in_block(block, item.size_class, 100).address();
  const std::uint64_t looks_claimed = memory::ItemState::claimed(4'000, 1).encode();
  bool was_cut_anew = false;
  const auto cut_anew = [&](const fabric::Operation& operation) {
    const bool looks_at_all = operation.kind == fabric::Operation::Kind::read &&
                              operation.at == memory::block_address(block) && operation.length_bytes > 4'096;
    if (!looks_at_all || std::exchange(was_cut_anew, true)) return;
    fabric::store_word(store->at(inside), looks_claimed);
    const std::byte* lease = store->at(memory::lease_address(block));
    const auto before = memory::LeaseWord::decode(fabric::load_word(lease));
    fabric::store_word(store->at(memory::lease_address(block)),
                       before.next(memory::BlockState::full, memory::size_class_of(5'000), 0).encode());
  };
  Client collector(*store,
                   std::make_shared<fabric::fake::PostingFabric>(
                       store,
                       fabric::fake::PostingOptions{
                           .mapped = [](auto region) { return region != memory::first_data_region; },
                           .before = cut_anew,
                           .held = {}}),
                   {});
  ASSERT_TRUE(collector.collect().has_value());
  EXPECT_TRUE(was_cut_anew);
  EXPECT_EQ(fabric::load_word(store->at(inside)), looks_claimed);
}

}  // namespace
}  // namespace loch::hash
