// Moves and pending inserts: half done, to and fro, left by the dead, aborted.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>

#include "fabric/testing/posting_fabric.h"
#include "hash/table.h"
#include "hash/testing/scenes.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fake::answer;
using fake::Client;
using fake::expect_sound;
using fake::find_key;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::name_of;
using fake::occupy;
using fake::Op;
using fake::padded;
using fake::perform;
using fake::Scene;
using fake::Setting;
using fake::slot;
using fake::Stepper;

// ---- moves

// Receive: a move that stopped after each of its steps. Expect: every operation works, as if there were no
// move.
class HalfMoved : public testing::TestWithParam<int> {
 protected:
  // Steps 2 to 5 of MIGRATE, by hand: announced, placed, marked, committed.
  void stop_after(Client& client, const std::string& key, int step) {
    const MemoryStore& store = client.store();
    client.session().begin_move();
    const Locations at = locations(client, key);
    from_ = at.slot[0];
    to_ = at.slot[2];
    const SlotWord source = slot(store, from_).with_tag(1);
    const SlotWord empty = slot(store, to_);
    const SlotWord placed =
        source.with_tag(2).with_type(SlotType::placed).with_ref(at.ref_of(0, 2)).with_level(empty.level());
    const SlotWord marked = source.with_tag(2).with_type(SlotType::moved).with_ref(at.ref_of(2, 0));
    fake::set_slot(store, from_, source);
    if (step >= 3) fake::set_slot(store, to_, placed);
    if (step >= 4) fake::set_slot(store, from_, marked);
    if (step >= 5) fake::set_slot(store, to_, placed.with_type(SlotType::committed).with_ref({}));
  }
  SlotNumber from_ = 0;
  SlotNumber to_ = 0;
};

TEST_P(HalfMoved, TheKeyIsReadAndCounted) {
  const auto store = make_store();
  Client a(*store);
  ASSERT_TRUE(a.put("k", "value").has_value());
  stop_after(a, "k", GetParam());
  EXPECT_EQ(answer(a.get("k")), "value");
  EXPECT_EQ(a.count().value(), 1U);
  EXPECT_EQ(a.walk().value().size(), 1U);
  expect_sound(a, 1);
  EXPECT_EQ(answer(a.get("k")), "value");
}

TEST_P(HalfMoved, TheKeyIsChanged) {
  for (const Op op : {Op::put, Op::insert, Op::replace, Op::remove}) {
    SCOPED_TRACE(name_of(op));
    const auto store = make_store();
    Client a(*store);
    const auto version = a.put("k", "old");
    stop_after(a, "k", GetParam());
    std::optional<std::string> model = "old";
    EXPECT_EQ(a.run(perform(&a, op, "k", "new", *version)), perform(model, op, "new"));
    EXPECT_EQ(answer(a.get("k")), model.value_or("not_found"));
    expect_sound(a, model ? 1 : 0);
  }
}

TEST_P(HalfMoved, AnotherKeyTakesTheSourcesPlace) {
  const auto store = make_store();
  Client a(*store);
  ASSERT_TRUE(a.put("k", "value").has_value());
  stop_after(a, "k", GetParam());
  const std::string other =
      find_key(a, "other", [this](const Locations& at, std::uint64_t) { return at.slot[0] == from_; });
  ASSERT_TRUE(a.put(other, "there").has_value());
  EXPECT_EQ(answer(a.get(other)), "there");
  EXPECT_EQ(answer(a.get("k")), "value");
  expect_sound(a, 2);
}

// What the move left must not name the item's memory once that is used by another key.
TEST_P(HalfMoved, TheItemsMemoryIsClearedBeforeItIsUsedAgain) {
  const auto store = make_store();
  Client a(*store);
  ASSERT_TRUE(a.put("k", "value").has_value());
  const memory::ItemRef item = slot(*store, locations(a, "k").slot[0]).item();
  stop_after(a, "k", GetParam());
  ASSERT_TRUE(a.put("k", "other").has_value());
  store->advance(2 * base::second_ns);
  bool reused = false;
  for (int i = 0; i < 5 && !reused; ++i) {
    const auto got = a.run(a.allocator().allocate(60));
    ASSERT_TRUE(got.has_value());
    reused = *got == item;
  }
  EXPECT_TRUE(reused);
  for (const SlotNumber number : {from_, to_}) {
    const SlotWord word = slot(*store, number);
    EXPECT_FALSE(word.names_item() && word.item() == item) << number;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, HalfMoved, testing::Values(2, 3, 4, 5));

// Receive: the item goes to and fro between two slots while a get collects. Expect: found, never "not found"
// (the paper's form misses it: EMPTY, K, EMPTY).
TEST(Move, AReaderNeverMissesAKeyThatIsMovedToAndFro) {
  const auto store = make_store();
  Client mover(*store);
  constexpr unsigned reads_max = 9;  // of slots: three collects
  std::uint64_t looked_again = 0;
  // Bit i of `when`: a move comes before the reading of the i-th slot.
  for (unsigned when = 0; when < 1U << reads_max; ++when) {
    SCOPED_TRACE(when);
    ASSERT_TRUE(mover.put("k", "value").has_value());  // whose tags are not used up
    const Locations where = locations(mover, "k");
    unsigned reads = 0;
    Client reader = fake::watched_client(*store, [&] {
      if ((when >> std::min(reads++, reads_max) & 1) == 0) return;
      const bool home = slot(*store, where.slot[0]).is(SlotType::committed);
      const SlotNumber from = where.slot[home ? 0 : 1];
      const auto moved = mover.run(mover.table().resolver().move(
          slot(*store, from).item(), mover.key_of("k").hash, from, where.slot[home ? 1 : 0]));
      ASSERT_TRUE(moved.has_value() && *moved);
    });
    ASSERT_EQ(answer(reader.get("k")), "value");
    looked_again += reader.counted(Counter::second_collects);
  }
  EXPECT_GT(looked_again, 0U);
}

// Receive: a move that the dead left at its destination, and a helper that dies at any step. Expect: while
// its source is marked, somebody has the move on his account: the mover's may have been settled before that.
TEST(Move, WhoeverMarksASourceAccountsForIt) {
  bool was_marked = false;
  bool reached = true;
  for (int at = 0; reached; ++at) {
    SCOPED_TRACE(at);
    reached = false;
    const auto store = make_store();
    Client a(*store);
    ASSERT_TRUE(a.put("k", "value").has_value());
    const Locations where = locations(a, "k");
    const SlotWord source = slot(*store, where.slot[0]).with_tag(1);
    const SlotWord empty = slot(*store, where.slot[2]);
    fake::set_slot(*store, where.slot[0], source);
    fake::set_slot(*store, where.slot[2],
                   source.with_tag(2)
                       .with_type(SlotType::placed)
                       .with_ref(where.ref_of(0, 2))
                       .with_level(empty.level()));
    Stepper helper(*store);
    const auto number = helper.client().session().client();
    const std::uint64_t* account = &reinterpret_cast<const memory::ClientEntry*>(
                                        store->at({memory::control_region, memory::registry_offset}))[number]
                                        .unfinished_moves;
    helper.look_at({where.slot[0], where.slot[2]});
    helper.run(helper.client().shards().collect_garbage(), at, [&] { reached = true; }, true);
    if (!slot(*store, where.slot[0]).is(SlotType::moved)) continue;
    was_marked = true;
    EXPECT_EQ(*account, 1U);
  }
  EXPECT_TRUE(was_marked);
}

TEST(Move, AnItemWhoseTagIsUsedUpStaysButCanBeUpdated) {
  const auto store = make_store();
  Client a(*store);
  ASSERT_TRUE(a.put("k", "value").has_value());
  const Locations at = locations(a, "k");
  int moves = 0;
  for (unsigned from = 0; moves < 100; from = 1 - from, ++moves) {
    const auto moved = a.run(a.table().resolver().move(slot(*store, at.slot[from]).item(), a.key_of("k").hash,
                                                       at.slot[from], at.slot[1 - from]));
    ASSERT_TRUE(moved.has_value());
    if (!*moved) break;
    ASSERT_EQ(answer(a.get("k")), "value");
  }
  EXPECT_GT(moves, 55);
  EXPECT_LT(moves, 64);
  ASSERT_TRUE(a.put("k", "new").has_value());
  EXPECT_EQ(answer(a.get("k")), "new");
  expect_sound(a, 1);
}

TEST(Move, FullSlotsWithTagsUsedUpMakeTheIndexGrow) {
  const auto store = make_store();
  Client a(*store);
  const std::string key = "key";
  const Locations at = locations(a, key);
  std::vector<std::string> fillers;
  for (unsigned i = 0; i < 3; ++i) {
    fillers.push_back(occupy(a, at.slot[i]));
    fake::set_slot(*store, at.slot[i], slot(*store, at.slot[i]).with_tag(tag_max));
  }
  ASSERT_TRUE(a.put(key, "value").has_value());
  EXPECT_EQ(answer(a.get(key)), "value");
  for (const std::string& filler : fillers) EXPECT_EQ(answer(a.get(filler)), "filler");
  EXPECT_EQ(a.counted(Counter::growths), 1U);
  expect_sound(a, 4);
}

// Receive: an item with a long value that a client elsewhere moves, then finds in a slot that it splits, and
// then drops when its time is over. Expect: it reads header and key of it, and nothing of the value.
TEST(Move, AClientElsewhereReadsNoneOfTheValue) {
  const auto store = make_store();
  Client near(*store);
  const std::string key = find_key(near, "key", [](const Locations&, std::uint64_t hash) {
    return (other_row_mix(hash) >> first_level & 1) != 0;  // goes up when the index grows
  });
  const std::string value(2'000'000, 'v');
  const base::Nanos end = store->now() + 3'600 * base::second_ns;
  ASSERT_TRUE(near.put(key, value, end).has_value());
  const Locations at = locations(near, key);
  const memory::ItemRef item = slot(*store, at.slot[0]).item();
  std::uint64_t longest = 0;
  const auto note = [&](const fabric::Operation& one) {
    const std::uint64_t first = item.address().offset_bytes;
    const bool is_of_item = one.at.region == item.region && one.at.offset_bytes >= first &&
                            one.at.offset_bytes < first + value.size();
    if (is_of_item && one.kind == fabric::Operation::Kind::read)
      longest = std::max<std::uint64_t>(longest, one.length_bytes);
  };
  memory::fake::tell_time(*store);
  Client far(*store,
             std::make_shared<fabric::fake::PostingFabric>(
                 store, fabric::fake::PostingOptions{.mapped = {}, .before = note}),
             {});
  const auto moved = far.run(far.table().resolver().move(item, far.key_of(key).hash, at.slot[0], at.slot[2]));
  ASSERT_TRUE(moved.has_value() && *moved);
  fake::begin_growth(*store);
  ASSERT_TRUE(far.collect().has_value());
  EXPECT_EQ(slot(*store, at.slot[2] + (SlotNumber{row_slots} << first_level)).item(), item);
  EXPECT_EQ(near.get(key).value(), value);
  store->advance(7'200 * base::second_ns);
  memory::fake::tell_time(*store);
  const auto collected = far.collect();
  ASSERT_TRUE(collected.has_value()) << collected.error().message();
  EXPECT_EQ(collected->items_expired, 1U);
  EXPECT_GT(longest, 0U);
  EXPECT_LE(longest, sizeof(memory::ItemHeader) + key_bytes_max);
}

// ---- pending inserts

// Receive: pending words of one key in both alternates, left by clients that died. Expect: nothing is found
// until somebody writes; then what is settled is settled for everybody.
TEST(Pending, TwoLeftByTheDeadAreSettled) {
  for (const Scene scene : {Scene::all_free, Scene::home_taken}) {
    for (const Op op : {Op::put, Op::insert, Op::remove, Op::replace}) {
      SCOPED_TRACE(fmt::format("scene {} {}", static_cast<int>(scene), name_of(op)));
      Setting setting(scene, false, false);
      Client dead(*setting.store);
      const Locations where = locations(dead, setting.key);
      std::array<SlotWord, 2> pending;
      for (SlotWord& word : pending) {
        ASSERT_TRUE(dead.put(setting.key, padded("in doubt")).has_value());
        for (unsigned j = 0; j < 3; ++j) {
          const SlotWord there = slot(*setting.store, where.slot[j]);
          if (!there.is(SlotType::committed) || j != (scene == Scene::all_free ? 0 : 1)) continue;
          word = there.with_type(SlotType::pending);
          fake::set_slot(*setting.store, where.slot[j],
                         SlotWord::empty(dead.session().next_nonce(), there.level()));
        }
      }
      dead.die();
      fake::set_slot(*setting.store, where.slot[1], pending[0]);
      fake::set_slot(*setting.store, where.slot[2], pending[1]);
      Client c(*setting.store);
      EXPECT_EQ(answer(c.get(setting.key)), "not_found");
      const std::string said = c.run(perform(&c, op, setting.key, "from c", 1));
      // In doubt: whichever way it is settled, what follows agrees with it.
      const std::string found = answer(setting.helper.get(setting.key));
      if (op == Op::put) EXPECT_EQ(said + found, "okfrom c");
      if (op == Op::insert)
        EXPECT_TRUE(said + found == "okfrom c" || said + found == "existsin doubt") << said << found;
      if (op == Op::remove) EXPECT_EQ(found, "not_found");
      if (op == Op::replace) {
        EXPECT_TRUE(said + found == "changedin doubt" || said + found == "not_foundnot_found")
            << said << found;
      }
      // One that is still in doubt may be committed by the collection.
      ASSERT_TRUE(c.collect().has_value());
      expect_sound(c, c.count().value());
    }
  }
}

// Receive: an insert whose pending word was aborted by another, and which is stopped for longer than it may
// act before it learns of that. Expect: it does not take its next place while the aborted word names the
// item; whoever cleared that word would retire it.
TEST(Pending, AnAbortedWordIsClearedBeforeItsItemIsLinkedElsewhere) {
  int aborted = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE(fmt::format("before step {}", at));
    Setting setting(Scene::home_taken, false, false);
    Stepper a(*setting.store, {.timeout_ns = 3'600 * base::second_ns});
    bool reached = false;
    const auto said = a.run(perform(&a.client(), Op::put, setting.key, "value", 0), at, [&] {
      reached = true;
      const Locations at_now = locations(setting.helper, setting.key);
      for (unsigned j = 0; j < at_now.count; ++j) {
        const SlotWord there = slot(*setting.store, at_now.slot[j]);
        if (!there.is(SlotType::pending)) continue;
        fake::set_slot(*setting.store, at_now.slot[j], there.with_type(SlotType::aborted));
        ++aborted;
      }
      setting.store->advance(memory::Session::act_window_ns + base::second_ns);
      setting.helper.session().next_write_time();
    });
    if (!reached) break;
    EXPECT_EQ(*said, "ok");
    EXPECT_EQ(answer(setting.helper.get(setting.key)), "value");
    expect_sound(setting.helper, 2);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(aborted, 2);
}

}  // namespace
}  // namespace loch::hash
