// What is on the second node moves to the first.
#include <algorithm>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "hash/testing/two_nodes.h"

namespace loch::hash::two_nodes {
namespace {

using Evacuation = Moving;

// Receive: a node that takes no new items. Expect: what was there is elsewhere, and nothing names it any
// more.
TEST_F(Evacuation, ANodeIsEmptied) {
  const auto on_second = [&](const std::string& key) { return item_of(key).region % 2 == 1; };
  const auto present = std::span(keys_).first(keys_.size() - 1);
  EXPECT_GT(std::ranges::count_if(present, on_second), 5);
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  EXPECT_GT(emptied->copied, 5U);
  EXPECT_EQ(std::ranges::count_if(present, on_second), 0);
  for (const std::string& key : present) EXPECT_EQ(client_->put(key).region % 2, 0) << "no new ones either";
  EXPECT_EQ(mover_->run(mover_->shards().evacuate(1)).value().copied, 0U);
  client_.reset();  // which retires what its last puts have unlinked
  const auto report = mover_->run(mover_->shards().check());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_TRUE(report->findings.empty()) << report->findings.front();
}

// Receive: a node with a long value. Expect: it is read once, and written once.
TEST_F(Evacuation, ANodeIsEmptiedOfALongValueByOneReading) {
  constexpr std::size_t length = 8'000'000;
  constexpr memory::Placement to_second{.policy = memory::Placement::Policy::node, .node = 1};
  Client writer(*store_, to_second);
  ASSERT_TRUE(writer.fake::Client::put("long", std::string(length, 'l')).has_value());
  fabric::store_word(store_->at({regions().nodes[1].control, memory::closed_offset}), 1);
  client_tells();
  std::uint64_t bytes = 0;
  Client mover(*store_, {}, regions(),
               {.before = [&bytes](const fabric::Operation& one) { bytes += one.length_bytes; }});
  ASSERT_TRUE(mover.run(mover.attachment().refresh()).has_value());
  bytes = 0;
  const auto emptied = mover.run(mover.shards().evacuate(1));
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_GT(emptied->copied, 5U);
  EXPECT_EQ(item_of("long").region % 2, 0);
  EXPECT_GE(bytes, 2 * length);
  EXPECT_LT(bytes, length / 2 * 5);
}

// Receive: a node is to be emptied by one who is told to end. Expect: nothing is done, and it says that there
// is more to do.
TEST_F(Evacuation, ANodeIsEmptiedUntilItIsToEnd) {
  fabric::store_word(store_->at({regions().nodes[1].control, memory::closed_offset}), 1);
  client_tells();
  int operations = 0;
  Client mover(*store_, {}, regions(), {.before = [&operations](const fabric::Operation&) { ++operations; }});
  ASSERT_TRUE(mover.run(mover.attachment().refresh()).has_value());
  operations = 0;
  const auto ended = mover.run(mover.shards().evacuate(1, [] { return false; }));
  ASSERT_TRUE(ended.has_value()) << ended.error().message();
  EXPECT_LE(operations, 2) << "which blocks there are";
  EXPECT_EQ(ended->copied, 0U);
  EXPECT_GT(ended->left, 0U);
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_GT(emptied->copied, 5U);
}

// Receive: damaged words that name an item of another key there, and a place where none can be. Expect: they
// are cleared, too.
TEST_F(Evacuation, ANodeIsEmptiedOfWhatDamagedWordsName) {
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return item_of(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  memory::ItemRef nowhere = item_of(*found);
  nowhere.unit = std::uint32_t{1} << 29;
  std::vector<fabric::Address> damaged;
  const fabric::RegionId index = regions().shards[1].index;
  for (std::uint64_t at = 0; damaged.size() < 2; at += sizeof(std::uint64_t)) {
    const SlotWord word{fabric::load_word(store_->at({index, at}))};
    if (!word.is(SlotType::empty)) continue;
    const memory::ItemRef item = damaged.empty() ? item_of(*found) : nowhere;
    fabric::store_word(store_->at({index, at}),
                       SlotWord::link(SlotType::committed, item, 1, 0, word.level()).raw);
    damaged.push_back({index, at});
  }
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  for (const fabric::Address at : damaged)
    EXPECT_TRUE(SlotWord{fabric::load_word(store_->at(at))}.is(SlotType::empty));
  EXPECT_EQ(item_of(*found).region % 2, 0) << "and it has moved";
}

// Receive: an item there that was half moved when its mover died, of a key one of whose slots changes all the
// time, so that nobody gets a snapshot of it. Expect: it is not lost by that, and moved when it can be.
TEST_F(Evacuation, AHalfMovedItemIsNotLost) {
  const auto place = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  const auto word_at = [&](SlotNumber slot) {
    return SlotWord{fabric::load_word(store_->at(place.slot(slot)))};
  };
  const auto locations_of = [&](const std::string& key) {
    return Locations::of(Key::of(key, geometry.hash_seed).hash, directory(), geometry.candidates);
  };
  const auto found = std::ranges::find_if(keys_, [&](const std::string& key) {
    const Locations at = locations_of(key);
    return item_of(key).region == 3 && word_at(at.slot[0]).item() == item_of(key) &&
           word_at(at.slot[1]).is(SlotType::empty) && word_at(at.slot[2]).is(SlotType::empty);
  });
  ASSERT_NE(found, keys_.end());
  const Locations at = locations_of(*found);
  const SlotWord committed = word_at(at.slot[0]);
  const auto half = [&](SlotType type, unsigned other, unsigned location) {
    const SlotWord word = SlotWord::link(type, committed.item(), committed.filter(), 2, committed.level());
    fabric::store_word(store_->at(place.slot(at.slot[location])),
                       word.with_ref(at.ref_of(other, location)).raw);
  };
  half(SlotType::placed, 0, 1);
  half(SlotType::moved, 1, 0);
  ASSERT_EQ(client_->error_of_get(*found), Errc{});

  bool is_busy = true;
  std::uint64_t nonce = std::uint64_t{1} << 30;
  const auto change = [&](const fabric::Operation& one) {
    if (is_busy && one.at.region == place.slots)
      fabric::store_word(store_->at(place.slot(at.slot[2])), SlotWord::empty(++nonce, committed.level()).raw);
  };
  fabric::store_word(store_->at({regions().nodes[1].control, memory::closed_offset}), 1);
  client_tells();
  Client mover(*store_, {}, regions(), {.before = change});
  ASSERT_TRUE(mover.run(mover.attachment().refresh()).has_value());
  const auto emptied = mover.run(mover.shards().evacuate(1));
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_GT(emptied->left, 0U);
  is_busy = false;
  EXPECT_EQ(client_->error_of_get(*found), Errc{});
  EXPECT_EQ(mover.run(mover.shards().evacuate(1)).value().left, 0U);
  EXPECT_EQ(item_of(*found).region, 2);
}

// Receive: a damaged item there. Expect: it goes with its memory.
TEST_F(Evacuation, ANodeIsEmptiedOfADamagedItem) {
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return item_of(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  *store_->at(item_of(*found).address() + sizeof(memory::ItemHeader) + found->size()) ^= std::byte{1};
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  EXPECT_EQ(client_->error_of_get(*found), Errc::not_found);
}

// Receive: a key whose item is there, and that has a damaged slot. Expect: its item is copied all the same,
// and so are all others.
TEST_F(Evacuation, ANodeIsEmptiedBesideADamagedSlot) {
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return item_of(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  const auto place = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  const auto at = Locations::of(Key::of(*found, geometry.hash_seed).hash, {}, geometry.candidates);
  const auto word_in = [&](unsigned i) {
    return SlotWord{fabric::load_word(store_->at(place.slot(at.slot[i])))};
  };
  ASSERT_EQ(word_in(0).item(), item_of(*found));
  const SlotWord before = word_in(2);
  fabric::store_word(store_->at(place.slot(at.slot[2])), ~std::uint64_t{0});
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(word_in(0).item().region, 2);
  EXPECT_EQ(mover_->run(mover_->shards().evacuate(1)).value().left, 0U);
  fabric::store_word(store_->at(place.slot(at.slot[2])), before.raw);
  EXPECT_EQ(client_->error_of_get(*found), Errc{});
}

}  // namespace
}  // namespace loch::hash::two_nodes
