// Async: the awaitable form of the calls.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <loch/async.h>

namespace loch {
namespace {

class AsyncTest : public testing::Test {
 protected:
  void SetUp() override {
    Options options;
    options.huge_pages = false;
    options.expiry = std::chrono::milliseconds(50);
    url_ = fmt::format("shm://test.{}.async.{}", ::getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name());
    auto opened = Store::open(url_, options);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    store_.emplace(std::move(*opened));
    auto async = Async::open(*store_);
    ASSERT_TRUE(async.has_value()) << async.error().message();
    async_.emplace(std::move(*async));
  }
  void TearDown() override {
    async_.reset();
    store_.reset();
    EXPECT_TRUE(Store::destroy(url_).has_value());
  }

  std::string url_;
  std::optional<Store> store_;
  std::optional<Async> async_;
};

coro::Task<std::string> every_call(Async* async) {
  auto& store = *async;
  if (!(co_await store.put("k", "one"))) co_return "put";
  if ((co_await store.get("k")).value_or("") != "one") co_return "get";
  auto item = co_await store.read("k");
  if (!item || item->value != "one") co_return "read";
  auto replaced = co_await store.replace("k", "two", item->version);
  if (!replaced) co_return "replace";
  auto changed = co_await store.replace("k", "three", item->version);
  if (changed || changed.error().code != Errc::changed) co_return "replace of another version";
  auto inserted = co_await store.insert("k", "four");
  if (inserted || inserted.error().code != Errc::exists) co_return "insert";
  if (!(co_await store.exists("k")).value_or(false)) co_return "exists";
  if (!(co_await store.remove("k"))) co_return "remove";
  if ((co_await store.exists("k")).value_or(true)) co_return "exists after remove";
  auto missing = co_await store.get("k");
  if (missing || missing.error().code != Errc::not_found) co_return "get after remove";
  co_return "done";
}

TEST_F(AsyncTest, EveryCall) { EXPECT_EQ(async_->run(every_call(&*async_)), "done"); }

coro::Task<int> many(Async* async, std::vector<std::string>* keys) {
  std::vector<Assignment> assignments;
  for (const std::string& key : *keys) assignments.push_back({.key = key, .value = key});
  co_await async->multi_put(assignments);
  std::vector<Lookup> lookups;
  for (const std::string& key : *keys) lookups.push_back({.key = key, .value = {}});
  co_await async->multi_get(lookups);
  int right = 0;
  for (const Lookup& lookup : lookups)
    right += lookup.result.has_value() && lookup.value == lookup.key ? 1 : 0;
  co_return right;
}

TEST_F(AsyncTest, ManyAtOnce) {
  std::vector<std::string> keys(5'000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = fmt::format("key{}", i);
  EXPECT_EQ(async_->run(many(&*async_, &keys)), 5'000);
  EXPECT_EQ(store_->count().value(), 5'000U);
}

TEST_F(AsyncTest, SeesWhatTheBlockingFormWrites) {
  ASSERT_TRUE(store_->put("k", "blocking").has_value());
  EXPECT_EQ(async_->run(async_->get("k")).value(), "blocking");
  ASSERT_TRUE(async_->run(async_->put("k", "async")).has_value());
  EXPECT_EQ(store_->get("k").value(), "async");
}

// Two calls of one session under way, run in turns.
TEST_F(AsyncTest, CallsUnderWayTogether) {
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (int i = 0; i < 2'000; ++i) {
    first.push_back(fmt::format("first{}", i));
    second.push_back(fmt::format("second{}", i));
  }
  auto one = many(&*async_, &first);
  auto two = many(&*async_, &second);
  one.start();
  two.start();
  while (!one.done() || !two.done()) async_->step();
  EXPECT_EQ(one.take(), 2'000);
  EXPECT_EQ(two.take(), 2'000);
  EXPECT_EQ(store_->check()->items_unaccounted, 0U);
}

TEST_F(AsyncTest, IsASessionOfItsOwn) {
  EXPECT_EQ(store_->info()->clients, 2U);
  auto another = Async::open(*store_);
  ASSERT_TRUE(another.has_value());
  EXPECT_EQ(store_->info()->clients, 3U);
  Async moved = std::move(*another);
  EXPECT_TRUE(moved.run(moved.put("k", "v")).has_value());
}

TEST_F(AsyncTest, CountsInTheStoresStats) {
  const Stats before = store_->stats();
  EXPECT_EQ(async_->run(every_call(&*async_)), "done");
  const Stats during = store_->stats();
  EXPECT_GT(during[Counter::get_hit], before[Counter::get_hit]);
  async_.reset();
  EXPECT_EQ(store_->stats()[Counter::get_hit], during[Counter::get_hit]) << "nothing is forgotten";
}

TEST_F(AsyncTest, KeepsTheStoreOpen) {
  ASSERT_TRUE(store_->put("k", "v").has_value());
  store_.reset();
  EXPECT_EQ(async_->run(async_->get("k")).value(), "v");
}

}  // namespace
}  // namespace loch
