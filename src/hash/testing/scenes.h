// For tests: how the slots around a key may be, operations on it and what they may answer, and that
// everything is accounted for in the end.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hash/testing/test_table.h"

namespace loch::hash::fake {

// After everything is done: each item, block and slot is accounted for, once what is half done was brought
// on.
void expect_sound(Client& client, std::uint64_t items);

// ---- where a key may stand

// Values are long, so that blocks hold few items and are soon looked through.
std::string padded(std::string_view value);

// The value that a get found without what it was padded with, or the name of the error.
std::string answer(const Result<std::string>& r);

// How the slots are around the key that a test is about.
enum class Scene { all_free, home_taken, one_alternate_free, full, full_and_crowded };
inline constexpr std::array scenes = {Scene::all_free, Scene::home_taken, Scene::one_alternate_free,
                                      Scene::full, Scene::full_and_crowded};

// In an index that is soon looked through and split: tests make thousands of them.
inline constexpr unsigned scene_level = 6;

struct Setting {
  std::shared_ptr<MemoryStore> store = make_store({.hash_seed = 42}, {}, scene_level);
  Client helper{*store};
  std::string key;
  std::map<std::string, std::string> others;

  Setting(Scene scene, bool present, bool growing);
  void expect_others(Client& client);
};

// ---- operations and what they may answer

enum class Op { get, put, insert, replace, remove, remove_version };
inline constexpr std::array ops = {Op::get, Op::put, Op::insert, Op::replace, Op::remove};
const char* name_of(Op op);

template <class T>
std::string answer(const Result<T>& r) {
  return r ? "ok" : std::string(name(r.error().code));
}

// One that writes writes `value`; a replace, and a remove of a version, expect `version`, that of the value
// "old".
coro::Task<std::string> perform(Client* client, Op op, std::string key, std::string value,
                                std::uint64_t version);

// The same on a model of one key.
std::string perform(std::optional<std::string>& state, Op op, const std::string& value);

}  // namespace loch::hash::fake
