// For tests: how the slots around a key may be, operations on it and what they may answer, and that
// everything is accounted for in the end.
#pragma once

#include <array>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "hash/testing/test_table.h"

namespace loch::hash::fake {

// After everything is done: each item, block and slot is accounted for, once what is half done was brought
// on.
inline void expect_sound(Client& client, std::uint64_t items) {
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

// Values are long, so that blocks hold few items and are soon looked through.
inline std::string padded(std::string_view value) {
  std::string text(value);
  text.resize(30'000, '\0');
  return text;
}

// The value that a get found without what it was padded with, or the name of the error.
inline std::string answer(const Result<std::string>& r) {
  return r ? r->substr(0, r->find('\0')) : std::string(name(r.error().code));
}

// How the slots are around the key that a test is about.
enum class Scene { all_free, home_taken, one_alternate_free, full, full_and_crowded };
inline constexpr std::array scenes = {Scene::all_free, Scene::home_taken, Scene::one_alternate_free,
                                      Scene::full, Scene::full_and_crowded};

struct Setting {
  std::shared_ptr<MemoryStore> store = make_store();
  Client helper{*store};
  std::string key;
  std::map<std::string, std::string> others;

  Setting(Scene scene, bool present, bool growing) {
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

enum class Op { get, put, insert, replace, remove };
inline constexpr std::array ops = {Op::get, Op::put, Op::insert, Op::replace, Op::remove};
inline const char* name_of(Op op) {
  constexpr std::array names = {"get", "put", "insert", "replace", "remove"};
  return names[static_cast<std::size_t>(op)];
}

template <class T>
std::string answer(const Result<T>& r) {
  return r ? "ok" : std::string(name(r.error().code));
}

// One that writes writes `value`; a replace expects `version`, that of the value "old".
inline coro::Task<std::string> perform(Client* client, Op op, std::string key, std::string value,
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
inline std::string perform(std::optional<std::string>& state, Op op, const std::string& value) {
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

}  // namespace loch::hash::fake
