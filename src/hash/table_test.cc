// Table: single operations, pairs of operations interleaved at every step, deaths at every step, moves.
#include "hash/table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <thread>

#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::find_key;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::occupy;
using fake::slot;
using fake::Stepper;

// After everything is done: each item, block and slot is accounted for, once what is half done was brought
// on.
void expect_sound(Client& client, std::uint64_t items) {
  const auto collected = client.collect();
  ASSERT_TRUE(collected.has_value()) << collected.error().message();
  const auto report = client.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items, items);
  EXPECT_EQ(report->slots_pending, 0U);
  EXPECT_EQ(report->slots_corrupt, 0U);
  EXPECT_EQ(report->items_corrupt, 0U);
  EXPECT_EQ(report->items_unaccounted, 0U);
  for (const std::string& finding : report->findings) ADD_FAILURE() << finding;
  EXPECT_EQ(client.count().value(), items);
  EXPECT_EQ(client.walk().value().size(), items);
}

// ---- where a key may stand
// -----------------------------------------------------------------------------------------

// Values are long, so that blocks hold few items and are soon looked through.
std::string padded(std::string_view value) {
  std::string text(value);
  text.resize(30'000, '\0');
  return text;
}

// The value that a get found without what it was padded with, or the name of the error.
std::string answer(const Result<std::string>& r) {
  return r ? r->substr(0, r->find('\0')) : std::string(name(r.error().code));
}

// How the slots are around the key that a test is about.
enum class Scene { all_free, home_taken, one_alternate_free, full, full_and_crowded };
constexpr std::array scenes = {Scene::all_free, Scene::home_taken, Scene::one_alternate_free, Scene::full,
                               Scene::full_and_crowded};

struct Stage {
  std::shared_ptr<MemoryStore> store = make_store();
  Client helper{*store};
  std::string key;
  std::map<std::string, std::string> others;

  Stage(Scene scene, bool present, bool growing) {
    key = find_key(helper, "key", [](const Locations& at, std::uint64_t) { return at.slot[0] % 7 == 3; });
    const Locations at = locations(helper, key);
    const auto fill = [&](SlotNumber number) { others[occupy(helper, number)] = "filler"; };
    if (present) {
      // The key comes first, so that it stands at an alternate if its home is taken.
      if (scene != Scene::all_free) fill(at.slot[0]);
      LOCH_CHECK(helper.put(key, padded("old")).has_value());
      for (unsigned i = 1; i < 3; ++i) {
        const bool wanted = scene == Scene::full || scene == Scene::full_and_crowded ||
                            (scene == Scene::one_alternate_free && i == 1);
        if (wanted && slot(*store, at.slot[i]).is(SlotType::empty)) fill(at.slot[i]);
      }
    } else {
      if (scene != Scene::all_free) fill(at.slot[0]);
      if (scene != Scene::all_free && scene != Scene::home_taken) fill(at.slot[1]);
      if (scene == Scene::full || scene == Scene::full_and_crowded) fill(at.slot[2]);
    }
    if (scene == Scene::full_and_crowded) {
      // The fillers' own alternates are taken too, so that chains of moves are needed.
      const auto first = others;
      for (const auto& [filler, value] : first) {
        const Locations its = locations(helper, filler);
        for (unsigned i = 0; i < 3; ++i) {
          if (slot(*store, its.slot[i]).is(SlotType::empty)) fill(its.slot[i]);
        }
      }
    }
    if (growing) fake::begin_growth(*store);
  }

  void expect_others(Client& client) {
    for (const auto& [k, value] : others) {
      const auto got = client.get(k);
      ASSERT_TRUE(got.has_value()) << k << ": " << got.error().message();
      EXPECT_EQ(answer(got), value);
    }
  }
};

// ---- operations and what they may answer
// ---------------------------------------------------------------------------

enum class Op { get, put, insert, replace, remove };
constexpr std::array ops = {Op::get, Op::put, Op::insert, Op::replace, Op::remove};
const char* name_of(Op op) {
  constexpr std::array names = {"get", "put", "insert", "replace", "remove"};
  return names[static_cast<std::size_t>(op)];
}

template <class T>
std::string answer(const Result<T>& r) {
  return r ? "ok" : std::string(name(r.error().code));
}

// One that writes writes `value`; a replace expects `version`, that of the value "old".
coro::Task<std::string> perform(Client* client, Op op, std::string key, std::string value,
                                std::uint64_t version) {
  value = padded(value);
  switch (op) {
    case Op::get:
      co_return answer(co_await Client::get_task(client, key));
    case Op::put:
      co_return answer(co_await Client::put_task(client, key, value, Condition::none, 0, 0));
    case Op::insert:
      co_return answer(co_await Client::put_task(client, key, value, Condition::absent, 0, 0));
    case Op::replace:
      co_return answer(co_await Client::put_task(client, key, value, Condition::version, version, 0));
    case Op::remove:
      co_return answer(co_await Client::remove_task(client, key));
  }
  co_return "";
}

// The same on a model of one key.
std::string perform(std::optional<std::string>& state, Op op, const std::string& value) {
  switch (op) {
    case Op::get:
      return state.value_or("not_found");
    case Op::put:
      state = value;
      return "ok";
    case Op::insert:
      if (state) return "exists";
      state = value;
      return "ok";
    case Op::replace:
      if (!state) return "not_found";
      if (*state != "old") return "changed";
      state = value;
      return "ok";
    case Op::remove:
      if (!state) return "not_found";
      state.reset();
      return "ok";
  }
  return "";
}

struct Case {
  Scene scene;
  bool present;
  bool growing;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Scene scene : scenes) {
    for (const bool present : {false, true}) {
      for (const bool growing : {false, true}) cases.push_back({scene, present, growing});
    }
  }
  return cases;
}
class Interleaved : public testing::TestWithParam<Case> {};

std::uint64_t version_of(Client& client, const std::string& key) {
  const base::Nanos start = client.session().begin_operation();
  const auto found = client.run(client.table().get(client.key_of(key)));
  client.session().end_operation(start);
  return found ? found->view.version() : 0;
}

// An operation of A, and before each of its steps in turn a whole operation of B on the same key, after which
// `pause_ns` passes and a third client writes something else. Expect: the answers, and the value at the end,
// are those of one order of the two.
void expect_one_came_first(const Case& of, base::Nanos pause_ns) {
  const auto [scene, present, growing] = of;
  const TableOptions patient{.timeout_ns = 3'600 * base::second_ns};
  for (const Op first : ops) {
    for (const Op second : ops) {
      if (first == Op::get && second == Op::get) continue;
      for (int at = 0;; ++at) {
        SCOPED_TRACE(fmt::format("{} with {} before its step {}", name_of(first), name_of(second), at));
        Stage stage(scene, present, growing);
        const std::uint64_t version = version_of(stage.helper, stage.key);
        Stepper a(*stage.store, patient);
        Client b(*stage.store);
        std::string b_says;
        bool b_acted = false;
        const auto a_says = a.run(perform(&a.client(), first, stage.key, "from a", version), at, [&] {
          b_acted = true;
          b_says = b.run(perform(&b, second, stage.key, "from b", version));
          if (pause_ns == 0) return;
          stage.store->advance(pause_ns);
          stage.helper.session().next_write_time();
        });
        if (!b_acted) break;  // A has fewer steps
        std::string expected;
        bool right = false;
        const std::string final = answer(stage.helper.get(stage.key));
        for (const bool a_first : {true, false}) {
          std::optional<std::string> state;
          if (present) state = "old";
          std::string a_would;
          std::string b_would;
          if (a_first) a_would = perform(state, first, "from a");
          b_would = perform(state, second, "from b");
          if (!a_first) a_would = perform(state, first, "from a");
          expected += fmt::format("({} {} {}) ", a_would, b_would, state.value_or("not_found"));
          right = right || (a_would == *a_says && b_would == b_says && final == state.value_or("not_found"));
        }
        EXPECT_TRUE(right) << "got (" << *a_says << " " << b_says << " " << final << "), one of " << expected;
        stage.expect_others(b);
        expect_sound(b, stage.others.size() + (final == "not_found" ? 0 : 1));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(Interleaved, TwoOperationsActAsIfOneCameFirst) { expect_one_came_first(GetParam(), 0); }

// Receive: a client that is stopped at any step for longer than it may act. Expect: it looks again.
TEST_P(Interleaved, AClientThatComesTooLateActsAsIfItCameFirstOrLast) {
  expect_one_came_first(GetParam(), memory::Session::act_window_ns + base::second_ns);
}

// A dies before each of its steps. Expect: what it had not been told about is there whole or not at all, the
// key can be read and changed at once, and the memory is accounted for.
TEST_P(Interleaved, ADeathAtAnyStepHurtsNobody) {
  const auto [scene, present, growing] = GetParam();
  for (const Op op : ops) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} dies before its step {}", name_of(op), at));
      Stage stage(scene, present, growing);
      const std::uint64_t version = version_of(stage.helper, stage.key);
      Stepper a(*stage.store);
      const auto said = a.run(perform(&a.client(), op, stage.key, "from a", version), at, [] {}, true);
      if (said) break;
      Client b(*stage.store);
      std::optional<std::string> before;
      if (present) before = "old";
      std::optional<std::string> after = before;
      perform(after, op, "from a");
      const std::string found = answer(b.get(stage.key));
      EXPECT_TRUE(found == before.value_or("not_found") || found == after.value_or("not_found")) << found;
      EXPECT_EQ(answer(b.get(stage.key)), found) << "read again";
      stage.expect_others(b);
      const auto put = b.put(stage.key, padded("from b"));
      EXPECT_TRUE(put.has_value()) << put.error().message();
      EXPECT_EQ(answer(stage.helper.get(stage.key)), "from b");
      EXPECT_TRUE(b.remove(stage.key).has_value());
      EXPECT_EQ(answer(stage.helper.get(stage.key)), "not_found");
      EXPECT_TRUE(b.insert(stage.key, padded("again")).has_value());
      expect_sound(b, stage.others.size() + 1);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A dies, and before anybody touches the key everything is collected. Expect: as if it had happened or not.
TEST_P(Interleaved, CollectingAfterADeathLeavesNothingHalfDone) {
  const auto [scene, present, growing] = GetParam();
  for (const Op op : {Op::put, Op::insert, Op::remove}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} dies before its step {}", name_of(op), at));
      Stage stage(scene, present, growing);
      Stepper a(*stage.store);
      if (a.run(perform(&a.client(), op, stage.key, "from a", 0), at, [] {}, true)) break;
      Client b(*stage.store);
      std::optional<std::string> before;
      if (present) before = "old";
      std::optional<std::string> after = before;
      perform(after, op, "from a");
      ASSERT_TRUE(b.collect().has_value());
      const std::string found = answer(b.get(stage.key));
      EXPECT_TRUE(found == before.value_or("not_found") || found == after.value_or("not_found")) << found;
      stage.expect_others(b);
      expect_sound(b, stage.others.size() + (found == "not_found" ? 0 : 1));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// ---- splits
// --------------------------------------------------------------------------------------------------------

// A splits the rows of the key, which moves up or stays; before each step that touches the key's slots, B
// acts on the key. Expect: B's answer and what is there afterwards are those of B alone.
class Splitting : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  // Each stage is a store of its own with the key at its home, or at its first alternate.
  struct Growing {
    std::shared_ptr<MemoryStore> store = make_store();
    Client helper{*store};
    std::string key;
    std::string other;
    std::vector<SlotNumber> slots;
    std::uint64_t others = 0;

    Growing(bool moves_up, bool at_home) {
      const std::uint64_t rows = directory_rows;
      key = find_key(helper, "key", [&](const Locations& at, std::uint64_t hash) {
        return at.slot[0] < 200 && at.slot[1] < 200 &&
               ((row_mix(hash, at_home ? 0 : 1) & rows) != 0) == moves_up;
      });
      const Locations at = locations(helper, key);
      if (!at_home) {
        occupy(helper, at.slot[0]);
        ++others;
      }
      LOCH_CHECK(helper.put(key, padded("old")).has_value());
      fake::begin_growth(*store, 0);
      const Locations now = locations(helper, key);
      slots.assign(now.slot.begin(), now.slot.begin() + now.count);
      other =
          find_key(helper, "other", [&](const Locations& its, std::uint64_t) { return its.slot[0] > 2000; });
    }
    static constexpr std::uint64_t directory_rows = std::uint64_t{1} << first_level;
  };
};

TEST_P(Splitting, OperationsGoOnMeanwhile) {
  const auto [moves_up, at_home] = GetParam();
  for (const Op op : ops) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} before step {}", name_of(op), at));
      Growing stage(moves_up, at_home);
      const std::uint64_t version = version_of(stage.helper, stage.key);
      Stepper a(*stage.store);
      Client b(*stage.store);
      a.look_at(stage.slots);
      std::string b_says;
      bool b_acted = false;
      const auto a_says = a.run(perform(&a.client(), Op::put, stage.other, "other", 0), at, [&] {
        b_acted = true;
        b_says = b.run(perform(&b, op, stage.key, "from b", version));
      });
      EXPECT_EQ(*a_says, "ok");
      if (!b_acted) break;
      std::optional<std::string> model = "old";
      EXPECT_EQ(b_says, perform(model, op, "from b"));
      EXPECT_EQ(answer(stage.helper.get(stage.key)), model.value_or("not_found"));
      expect_sound(b, stage.others + (model ? 2 : 1));
      EXPECT_EQ(answer(stage.helper.get(stage.key)), model.value_or("not_found"));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Splitting, ADeadSplitterLeavesTheKeyUsable) {
  const auto [moves_up, at_home] = GetParam();
  for (const bool collected_first : {false, true}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("dies before step {}{}", at, collected_first ? ", collected" : ""));
      const Growing stage(moves_up, at_home);
      Stepper a(*stage.store);
      a.look_at(stage.slots);
      const auto said = a.run(perform(&a.client(), Op::put, stage.other, "other", 0), at, [] {}, true);
      if (said) break;
      Client b(*stage.store);
      if (collected_first) ASSERT_TRUE(b.collect().has_value());
      EXPECT_EQ(answer(b.get(stage.key)), "old");
      EXPECT_EQ(b.count().value(), stage.others + 1);
      EXPECT_EQ(b.walk().value().size(), stage.others + 1);
      EXPECT_TRUE(b.put(stage.key, padded("new")).has_value());
      EXPECT_EQ(answer(b.get(stage.key)), "new");
      // Each writer helps a little, and that ends the growth.
      for (int i = 0; i < 300; ++i) ASSERT_TRUE(b.put(stage.other, padded("other")).has_value());
      EXPECT_FALSE(fake::directory_of(*stage.store).growing);
      expect_sound(b, stage.others + 2);
      EXPECT_EQ(answer(b.get(stage.key)), "new");
      if (testing::Test::HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Splitting, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return fmt::format("{}{}", std::get<0>(info.param) ? "MovesUp" : "Stays",
                                              std::get<1>(info.param) ? "AtHome" : "AtAlternate");
                         });

std::string case_name(const testing::TestParamInfo<Case>& info) {
  constexpr std::array names = {"AllFree", "HomeTaken", "OneAlternateFree", "Full", "FullAndCrowded"};
  return fmt::format("{}{}{}", names[static_cast<std::size_t>(info.param.scene)],
                     info.param.present ? "Present" : "Absent", info.param.growing ? "Growing" : "");
}
INSTANTIATE_TEST_SUITE_P(Scenes, Interleaved, testing::ValuesIn(all_cases()), case_name);

// ---- moves
// ---------------------------------------------------------------------------------------------------------

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
        source.with_tag(2).with_type(SlotType::placed).with_ref(at.ref_of(0)).with_level(empty.level());
    const SlotWord marked = source.with_tag(2).with_type(SlotType::moved).with_ref(at.ref_of(2));
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
  for (int every = 1; every <= 3; ++every) {
    const auto store = make_store();
    Client mover(*store);
    ASSERT_TRUE(mover.put("k", "value").has_value());
    Stepper reader(*store);
    for (int at = 0; at < 8; ++at) {
      const auto got = reader.run(Client::get_task(&reader.client(), "k"), at, [&] {
        const Locations where = locations(mover, "k");
        for (int i = 0; i < every; ++i) {
          const bool home = slot(*store, where.slot[0]).is(SlotType::committed);
          const SlotNumber from = where.slot[home ? 0 : 1];
          const auto moved =
              mover.run(mover.table().move(slot(*store, from).item(), from, where.slot[home ? 1 : 0]));
          ASSERT_TRUE(moved.has_value() && *moved);
        }
      });
      EXPECT_EQ(answer(*got), "value");
    }
  }
}

TEST(Move, AnItemWhoseTagIsUsedUpStaysButCanBeUpdated) {
  const auto store = make_store();
  Client a(*store);
  ASSERT_TRUE(a.put("k", "value").has_value());
  const Locations at = locations(a, "k");
  int moves = 0;
  for (unsigned from = 0; moves < 100; from = 1 - from, ++moves) {
    const auto moved =
        a.run(a.table().move(slot(*store, at.slot[from]).item(), at.slot[from], at.slot[1 - from]));
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

// ---- pending inserts
// -----------------------------------------------------------------------------------------------

// Receive: pending words of one key in both alternates, left by clients that died. Expect: nothing is found
// until somebody writes; then what is settled is settled for everybody.
TEST(Pending, TwoLeftByTheDeadAreSettled) {
  for (const Scene scene : {Scene::all_free, Scene::home_taken}) {
    for (const Op op : {Op::put, Op::insert, Op::remove, Op::replace}) {
      SCOPED_TRACE(fmt::format("scene {} {}", static_cast<int>(scene), name_of(op)));
      Stage stage(scene, false, false);
      Client dead(*stage.store);
      const Locations where = locations(dead, stage.key);
      std::array<SlotWord, 2> pending;
      for (SlotWord& word : pending) {
        ASSERT_TRUE(dead.put(stage.key, padded("in doubt")).has_value());
        for (unsigned j = 0; j < 3; ++j) {
          const SlotWord there = slot(*stage.store, where.slot[j]);
          if (!there.is(SlotType::committed) || j != (scene == Scene::all_free ? 0 : 1)) continue;
          word = there.with_type(SlotType::pending);
          fake::set_slot(*stage.store, where.slot[j],
                         SlotWord::empty(dead.session().next_nonce(), there.level()));
        }
      }
      dead.die();
      fake::set_slot(*stage.store, where.slot[1], pending[0]);
      fake::set_slot(*stage.store, where.slot[2], pending[1]);
      Client c(*stage.store);
      EXPECT_EQ(answer(c.get(stage.key)), "not_found");
      const std::string said = c.run(perform(&c, op, stage.key, "from c", 1));
      // In doubt: whichever way it is settled, what follows agrees with it.
      const std::string found = answer(stage.helper.get(stage.key));
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
    Stage stage(Scene::home_taken, false, false);
    Stepper a(*stage.store, {.timeout_ns = 3'600 * base::second_ns});
    bool reached = false;
    const auto said = a.run(perform(&a.client(), Op::put, stage.key, "value", 0), at, [&] {
      reached = true;
      const Locations at_now = locations(stage.helper, stage.key);
      for (unsigned j = 0; j < at_now.count; ++j) {
        const SlotWord there = slot(*stage.store, at_now.slot[j]);
        if (!there.is(SlotType::pending)) continue;
        fake::set_slot(*stage.store, at_now.slot[j], there.with_type(SlotType::aborted));
        ++aborted;
      }
      stage.store->advance(memory::Session::act_window_ns + base::second_ns);
      stage.helper.session().next_write_time();
    });
    if (!reached) break;
    EXPECT_EQ(*said, "ok");
    EXPECT_EQ(answer(stage.helper.get(stage.key)), "value");
    expect_sound(stage.helper, 2);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(aborted, 2);
}

// ---- threads
// -------------------------------------------------------------------------------------------------------

// Several threads put, get, remove and walk the same few keys; a value tells its key, so that foreign bytes
// are seen.
TEST(Threads, SeeOnlyWhatWasPutUnderTheKey) {
  const auto store = make_store({.expiry_ns = 50 * base::millisecond_ns, .hash_seed = 7});
  const auto work = [&store](std::uint64_t seed) {
    Client client(*store, {.timeout_ns = 3600 * base::second_ns});
    base::Random random(seed);
    for (int i = 0; i < 3'000; ++i) {
      const std::string key = fmt::format("key{}", random.below(40));
      switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {
          std::string value = key + ":";
          value.resize(value.size() + random.below(300), 'x');
          const auto put = client.put(key, value);
          ASSERT_TRUE(put.has_value()) << put.error().message();
          break;
        }
        case 3: {
          const auto removed = client.remove(key);
          if (!removed) ASSERT_EQ(removed.error().code, Errc::not_found) << removed.error().message();
          break;
        }
        case 4:
          if (random.below(100) == 0) {
            const auto walked = client.walk();
            ASSERT_TRUE(walked.has_value());
            for (const auto& [k, value] : *walked) ASSERT_TRUE(value.starts_with(k + ":")) << k;
          }
          break;
        default: {
          const auto got = client.get(key);
          if (got) {
            ASSERT_TRUE(got->starts_with(key + ":")) << key << " " << *got;
          } else {
            ASSERT_EQ(got.error().code, Errc::not_found) << got.error().message();
          }
        }
      }
      store->advance(base::millisecond_ns);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  Client last(*store);
  expect_sound(last, last.count().value());
}

}  // namespace
}  // namespace loch::hash
