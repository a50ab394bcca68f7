#include "hash/testing/scenes.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace loch::hash::fake {

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

std::string padded(std::string_view value) {
  std::string text(value);
  text.resize(30'000, '\0');
  return text;
}

std::string answer(const Result<std::string>& r) {
  return r ? r->substr(0, r->find('\0')) : std::string(name(r.error().code));
}

Setting::Setting(Scene scene, bool present, bool growing) {
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

void Setting::expect_others(Client& client) {
  for (const auto& [k, value] : others) {
    const auto got = client.get(k);
    ASSERT_TRUE(got.has_value()) << k << ": " << got.error().message();
    EXPECT_EQ(answer(got), value);
  }
}

const char* name_of(Op op) {
  constexpr std::array names = {"get", "put", "insert", "replace", "remove", "remove of a version"};
  return names[static_cast<std::size_t>(op)];
}

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
    case Op::remove_version:
      co_return answer(co_await Client::remove_task(client, key, version));
  }
  co_return "";
}

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
    case Op::remove_version:
      if (!state) return "not_found";
      if (*state != "old") return "changed";
      state.reset();
      return "ok";
  }
  return "";
}

}  // namespace loch::hash::fake
