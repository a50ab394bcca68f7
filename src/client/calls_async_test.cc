// Async: the awaitable form of the calls (testing/calls.h).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <loch/async.h>

#include "client/testing/calls.h"

namespace loch::calls {
namespace {

coro::Task<std::string> every_call(Async* async) {
  auto& store = *async;
  auto put = co_await store.put("k", "one");
  if (!put) co_return "put";
  if ((co_await store.get("k")).value_or("") != "one") co_return "get";
  auto item = co_await store.read("k");
  if (!item || item->value != "one" || item->version != *put) co_return "read";
  auto replaced = co_await store.replace("k", "two", item->version);
  if (!replaced) co_return "replace";
  auto changed = co_await store.replace("k", "three", item->version);
  if (changed || changed.error().code != Errc::changed) co_return "replace of another version";
  auto inserted = co_await store.insert("k", "four");
  if (inserted || inserted.error().code != Errc::exists) co_return "insert";
  if (!(co_await store.exists("k")).value_or(false)) co_return "exists";
  auto other = co_await store.remove("k", item->version);
  if (other || other.error().code != Errc::changed) co_return "remove of another version";
  if (!(co_await store.remove("k", *replaced))) co_return "remove of a version";
  auto again = co_await store.insert("k", "five");
  if (!again || (co_await store.read("k")).value_or(Item()).version != *again)
    co_return "version of an insert";
  auto updated = co_await store.update("k", [](auto value) { return std::string(*value) + " and six"; });
  if (!updated || (co_await store.get("k")).value_or("") != "five and six") co_return "update";
  auto touched = co_await store.touch("k", {.time_to_live = std::chrono::hours(1)});
  if (!touched || !(co_await store.read("k")).value_or(Item()).time_to_live) co_return "touch";
  auto refused = co_await store.touch("k", {.time_to_live = std::chrono::milliseconds(0)});
  if (refused || refused.error().code != Errc::invalid_argument) co_return "touch for no time";
  if (!(co_await store.remove("k"))) co_return "remove";
  if ((co_await store.exists("k")).value_or(true)) co_return "exists after remove";
  auto missing = co_await store.get("k");
  if (missing || missing.error().code != Errc::not_found) co_return "get after remove";
  co_return "done";
}

TEST_P(AsyncCalls, EveryCall) { EXPECT_EQ(async_->run(every_call(&*async_)), "done"); }

// Puts, gets and removes them; how many of that went well.
coro::Task<std::size_t> many(Async* async, std::vector<std::string>* keys) {
  std::vector<Assignment> assignments;
  for (const std::string& key : *keys) assignments.push_back({.key = key, .value = key});
  co_await async->multi_put(assignments);
  std::vector<Lookup> lookups;
  for (const std::string& key : *keys) lookups.push_back({.key = key, .value = {}});
  co_await async->multi_get(lookups);
  std::size_t right = 0;
  for (const Lookup& lookup : lookups)
    right += lookup.result.has_value() && lookup.value == lookup.key ? 1 : 0;
  std::vector<Removal> removals;
  for (const std::string& key : *keys) removals.push_back({.key = key});
  co_await async->multi_remove(removals);
  for (const Removal& removal : removals) right += removal.result.has_value() ? 1 : 0;
  co_return right;
}

TEST_P(AsyncCalls, ManyAtOnce) {
  std::vector<std::string> keys(few(5'000));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = fmt::format("key{}", i);
  EXPECT_EQ(async_->run(many(&*async_, &keys)), 2 * keys.size());
  EXPECT_EQ(store_->count().value(), 0U);
}

TEST_P(AsyncCalls, SeesWhatTheBlockingFormWrites) {
  ASSERT_TRUE(store_->put("k", "blocking").has_value());
  EXPECT_EQ(async_->run(async_->get("k")).value(), "blocking");
  ASSERT_TRUE(async_->run(async_->put("k", "async")).has_value());
  EXPECT_EQ(store_->get("k").value(), "async");
}

// Two calls of one session under way, run in turns.
TEST_P(AsyncCalls, CallsUnderWayTogether) {
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (std::size_t i = 0; i < few(2'000); ++i) {
    first.push_back(fmt::format("first{}", i));
    second.push_back(fmt::format("second{}", i));
  }
  auto one = many(&*async_, &first);
  auto two = many(&*async_, &second);
  one.start();
  two.start();
  while (!one.done() || !two.done()) async_->step();
  EXPECT_EQ(one.take(), 2 * first.size());
  EXPECT_EQ(two.take(), 2 * second.size());
  // A session elsewhere may say only when it ends that the last removals are over.
  async_.reset();
  store_.reset();
  ASSERT_NO_FATAL_FAILURE(open(&store_));
  EXPECT_EQ(store_->check()->items_unaccounted, 0U);
}

TEST_P(AsyncCalls, IsASessionOfItsOwn) {
  EXPECT_EQ(store_->info()->clients, 2U);
  auto another = Async::open(*store_);
  ASSERT_TRUE(another.has_value());
  EXPECT_EQ(store_->info()->clients, 3U);
  Async moved = std::move(*another);
  EXPECT_TRUE(moved.run(moved.put("k", "v")).has_value());
}

TEST_P(AsyncCalls, CountsInTheStoresStats) {
  const Stats before = store_->stats();
  EXPECT_EQ(async_->run(every_call(&*async_)), "done");
  const Stats during = store_->stats();
  EXPECT_GT(during[Counter::get_hit], before[Counter::get_hit]);
  async_.reset();
  EXPECT_EQ(store_->stats()[Counter::get_hit], during[Counter::get_hit]) << "nothing is forgotten";
}

TEST_P(AsyncCalls, KeepsTheStoreOpen) {
  ASSERT_TRUE(store_->put("k", "v").has_value());
  store_.reset();
  EXPECT_EQ(async_->run(async_->get("k")).value(), "v");
}

}  // namespace
}  // namespace loch::calls
