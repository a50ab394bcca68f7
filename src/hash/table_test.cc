// Table: pairs of operations interleaved at every step, deaths at every step, splits.
#include "hash/table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/testing/posting_fabric.h"
#include "hash/testing/scenes.h"

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
using fake::ops;
using fake::padded;
using fake::perform;
using fake::Place;
using fake::Scene;
using fake::scenes;
using fake::Setting;
using fake::Stepper;

struct Case {
  Scene scene;
  bool present;
  bool growing;
  Place place = Place::here;
};
std::vector<Case> cases_of(Place place, std::span<const Scene> of = scenes) {
  std::vector<Case> cases;
  for (const Scene scene : of) {
    for (const bool present : {false, true}) {
      for (const bool growing : {false, true})
        cases.push_back({.scene = scene, .present = present, .growing = growing, .place = place});
    }
  }
  return cases;
}
class Interleaved : public testing::TestWithParam<Case> {};
class Late : public testing::TestWithParam<Case> {};
class Dying : public testing::TestWithParam<Case> {};

std::uint64_t version_of(Client& client, const std::string& key) {
  const base::Nanos start = client.session().begin_operation();
  const auto found = client.run(client.table().get(client.key_of(key)));
  client.session().end_operation(start);
  return found ? found->view.version() : 0;
}

// An operation of A, and before each of its steps in turn a whole operation of B on the same key, after which
// `pause_ns` passes and a third client writes something else. Expect: the answers, and the value at the end,
// are those of one order of the two.
void expect_one_came_first(const Case& of, base::Nanos pause_ns, std::span<const Op> firsts = ops,
                           std::span<const Op> seconds = ops) {
  const auto [scene, present, growing, place] = of;
  const TableOptions patient{.timeout_ns = 3'600 * base::second_ns};
  for (const Op first : firsts) {
    for (const Op second : seconds) {
      if (first == Op::get && second == Op::get) continue;
      for (int at = 0;; ++at) {
        SCOPED_TRACE(fmt::format("{} with {} before its step {}", name_of(first), name_of(second), at));
        Setting setting(scene, present, growing);
        const std::uint64_t version = version_of(setting.helper, setting.key);
        Stepper a(*setting.store, patient, place);
        if (present) a.learn_location(setting.key);
        Client b(*setting.store);
        std::string b_says;
        bool b_acted = false;
        const auto a_says = a.run(perform(&a.client(), first, setting.key, "from a", version), at, [&] {
          b_acted = true;
          b_says = b.run(perform(&b, second, setting.key, "from b", version));
          if (pause_ns == 0) return;
          setting.store->advance(pause_ns);
          setting.helper.session().next_write_time();
        });
        if (!b_acted) break;  // A has fewer steps
        std::string expected;
        bool right = false;
        const std::string final = answer(setting.helper.get(setting.key));
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
        setting.expect_others(b);
        expect_sound(b, setting.others.size() + (final == "not_found" ? 0 : 1));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(Interleaved, TwoOperationsActAsIfOneCameFirst) { expect_one_came_first(GetParam(), 0); }

TEST_P(Interleaved, ARemoveOfAVersionActsAsIfItCameFirstOrLast) {
  constexpr std::array remove = {Op::remove_version};
  constexpr std::array changes = {Op::put, Op::replace, Op::remove, Op::remove_version};
  expect_one_came_first(GetParam(), 0, remove, changes);
  expect_one_came_first(GetParam(), 0, changes, remove);
}

// Receive: a client that is stopped at any step for longer than it may act. Expect: it looks again.
TEST_P(Late, AClientThatComesTooLateActsAsIfItCameFirstOrLast) {
  expect_one_came_first(GetParam(), memory::Session::act_window_ns + base::second_ns);
}

// A dies before each of its steps. Expect: what it had not been told about is there whole or not at all, the
// key can be read and changed at once, and the memory is accounted for.
TEST_P(Dying, ADeathAtAnyStepHurtsNobody) {
  const auto [scene, present, growing, place] = GetParam();
  for (const Op op : ops) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} dies before its step {}", name_of(op), at));
      Setting setting(scene, present, growing);
      const std::uint64_t version = version_of(setting.helper, setting.key);
      Stepper a(*setting.store, {}, place);
      if (present) a.learn_location(setting.key);
      const auto said = a.run(perform(&a.client(), op, setting.key, "from a", version), at, [] {}, true);
      if (said) break;
      Client b(*setting.store);
      std::optional<std::string> before;
      if (present) before = "old";
      std::optional<std::string> after = before;
      perform(after, op, "from a");
      const std::string found = answer(b.get(setting.key));
      EXPECT_TRUE(found == before.value_or("not_found") || found == after.value_or("not_found")) << found;
      EXPECT_EQ(answer(b.get(setting.key)), found) << "read again";
      setting.expect_others(b);
      const auto put = b.put(setting.key, padded("from b"));
      EXPECT_TRUE(put.has_value()) << put.error().message();
      EXPECT_EQ(answer(setting.helper.get(setting.key)), "from b");
      EXPECT_TRUE(b.remove(setting.key).has_value());
      EXPECT_EQ(answer(setting.helper.get(setting.key)), "not_found");
      EXPECT_TRUE(b.insert(setting.key, padded("again")).has_value());
      expect_sound(b, setting.others.size() + 1);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A dies, and before anybody touches the key everything is collected. Expect: as if it had happened or not.
TEST_P(Dying, CollectingAfterADeathLeavesNothingHalfDone) {
  const auto [scene, present, growing, place] = GetParam();
  for (const Op op : {Op::put, Op::insert, Op::remove}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("{} dies before its step {}", name_of(op), at));
      Setting setting(scene, present, growing);
      Stepper a(*setting.store, {}, place);
      if (present) a.learn_location(setting.key);
      if (a.run(perform(&a.client(), op, setting.key, "from a", 0), at, [] {}, true)) break;
      Client b(*setting.store);
      std::optional<std::string> before;
      if (present) before = "old";
      std::optional<std::string> after = before;
      perform(after, op, "from a");
      ASSERT_TRUE(b.collect().has_value());
      const std::string found = answer(b.get(setting.key));
      EXPECT_TRUE(found == before.value_or("not_found") || found == after.value_or("not_found")) << found;
      setting.expect_others(b);
      expect_sound(b, setting.others.size() + (found == "not_found" ? 0 : 1));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// ---- splits

// A splits the rows of the key, which moves up or stays; before each step that touches the key's slots, B
// acts on the key. Expect: B's answer and what is there afterwards are those of B alone.
class Splitting : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  // Each setting is a store of its own with the key at its home, or at its first alternate.
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
        return at.slot[0] < 200 && at.slot[1] < 200 && ((home_row_mix(hash) & rows) != 0) == moves_up;
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
      Growing setting(moves_up, at_home);
      const std::uint64_t version = version_of(setting.helper, setting.key);
      Stepper a(*setting.store);
      Client b(*setting.store);
      a.look_at(setting.slots);
      std::string b_says;
      bool b_acted = false;
      const auto a_says = a.run(perform(&a.client(), Op::put, setting.other, "other", 0), at, [&] {
        b_acted = true;
        b_says = b.run(perform(&b, op, setting.key, "from b", version));
      });
      EXPECT_EQ(*a_says, "ok");
      if (!b_acted) break;
      std::optional<std::string> model = "old";
      EXPECT_EQ(b_says, perform(model, op, "from b"));
      EXPECT_EQ(answer(setting.helper.get(setting.key)), model.value_or("not_found"));
      expect_sound(b, setting.others + (model ? 2 : 1));
      EXPECT_EQ(answer(setting.helper.get(setting.key)), model.value_or("not_found"));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Splitting, ADeadSplitterLeavesTheKeyUsable) {
  const auto [moves_up, at_home] = GetParam();
  for (const bool collected_first : {false, true}) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("dies before step {}{}", at, collected_first ? ", collected" : ""));
      const Growing setting(moves_up, at_home);
      Stepper a(*setting.store);
      a.look_at(setting.slots);
      const auto said = a.run(perform(&a.client(), Op::put, setting.other, "other", 0), at, [] {}, true);
      if (said) break;
      Client b(*setting.store);
      if (collected_first) ASSERT_TRUE(b.collect().has_value());
      EXPECT_EQ(answer(b.get(setting.key)), "old");
      EXPECT_EQ(b.count().value(), setting.others + 1);
      EXPECT_EQ(b.walk().value().size(), setting.others + 1);
      EXPECT_TRUE(b.put(setting.key, padded("new")).has_value());
      EXPECT_EQ(answer(b.get(setting.key)), "new");
      // Each writer helps a little, and that ends the growth.
      for (int i = 0; i < 300; ++i) ASSERT_TRUE(b.put(setting.other, padded("other")).has_value());
      EXPECT_FALSE(fake::directory_of(*setting.store).growing);
      expect_sound(b, setting.others + 2);
      EXPECT_EQ(answer(b.get(setting.key)), "new");
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
INSTANTIATE_TEST_SUITE_P(Scenes, Interleaved, testing::ValuesIn(cases_of(Place::here)), case_name);
INSTANTIATE_TEST_SUITE_P(Far, Interleaved, testing::ValuesIn(cases_of(Place::elsewhere)), case_name);
// One that is elsewhere may act for as long as its session lives.
INSTANTIATE_TEST_SUITE_P(Scenes, Late, testing::ValuesIn(cases_of(Place::here)), case_name);
INSTANTIATE_TEST_SUITE_P(Scenes, Dying, testing::ValuesIn(cases_of(Place::here)), case_name);
// Where it makes room it does several things at once, which no test can leave half done.
INSTANTIATE_TEST_SUITE_P(Far, Dying,
                         testing::ValuesIn(cases_of(Place::elsewhere, std::span(scenes).first(3))),
                         case_name);

// Of an operation that goes on after its client was stopped.
constexpr TableOptions long_patience{.timeout_ns = 10 * base::second_ns};

// Receive: a client is stopped before it reads a key's slots, for longer than it may act, and meanwhile
// another item is put there; it is stopped again before it looks at that item, which is removed. Expect: the
// memory of that is not used for anything else, as it is where nobody looks.
TEST(Conditions, GoByMemoryThatIsNotUsedAgain) {
  const std::string key = "key";
  const auto store = make_store();
  Client other(*store);
  const SlotNumber home = locations(other, key).slot[0];
  const std::string another = find_key(other, "another", [&](const Locations& at, std::uint64_t hash) {
    return at.slot[0] == home && filter_of(hash) == other.key_of(key).filter();
  });
  std::optional<memory::ItemRef> item;
  const auto put_another = [&] {
    store->advance(memory::Session::act_window_ns + base::second_ns);
    EXPECT_TRUE(other.put(another, "value").has_value());
    item = fake::slot(*store, home).item();
  };
  const auto is_used_again_when_removed = [&] {
    EXPECT_TRUE(other.remove(another).has_value());
    store->advance(2 * memory::Geometry{}.expiry_ns);
    constexpr int tries = 8;
    for (int i = 0; i < tries; ++i) {
      const auto got = other.run(other.allocator().allocate(item_bytes(another.size(), sizeof "value")));
      if (got && *got == *item) return true;
    }
    return false;
  };
  put_another();
  EXPECT_TRUE(is_used_again_when_removed());

  bool was_removed = false;
  const auto stop = [&](const fabric::Operation& operation) {
    if (!item && operation.at.region == memory::index_region) {
      put_another();
    } else if (item && operation.at == item->address() && !std::exchange(was_removed, true)) {
      EXPECT_FALSE(is_used_again_when_removed());
    }
  };
  Client client(*store,
                std::make_shared<fabric::fake::PostingFabric>(
                    store,
                    fabric::fake::PostingOptions{
                        .mapped = [](fabric::RegionId region) { return region == memory::control_region; },
                        .before = stop}),
                long_patience);
  constexpr std::uint64_t version = 1;
  for (const Op op : {Op::insert, Op::replace, Op::remove_version}) {
    SCOPED_TRACE(name_of(op));
    item.reset();
    was_removed = false;
    EXPECT_EQ(client.run(perform(&client, op, key, "new", version)), op == Op::insert ? "ok" : "not_found");
    EXPECT_TRUE(was_removed);
    std::ignore = other.remove(key);
  }
}

// Receive: a get of a key that is not there is stopped in the midst of its second collect for longer than it
// may act. Expect: that collect does not count.
TEST(Get, TellsAMissByNothingThatItReadBeforeItWasStopped) {
  const auto store = make_store();
  Client other(*store);
  int reads = 0;
  Client client = fake::watched_client(
      *store,
      [&] {
        if (++reads != 4) return;
        store->advance(memory::Session::act_window_ns + base::second_ns);
        EXPECT_EQ(answer(other.get("another")), "not_found");
      },
      long_patience);
  EXPECT_EQ(answer(client.get("key")), "not_found");
  EXPECT_EQ(reads, 3 * 3) << "three collects of three slots";
}

}  // namespace
}  // namespace loch::hash
