// Threads that use one store, and several: each has a client of its own while it lives.
#include <atomic>
#include <barrier>
#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "client/testing/store_test.h"

namespace loch {
namespace {

using ImplTest = fake::StoreTest;

// Threads with keys of their own, and one that all of them change. Expect: each sees what it wrote; of the
// shared one, a value that somebody wrote.
TEST_F(ImplTest, ThreadsShareAStore) {
  options_.mode = Options::Mode::attach;
  options_.timeout = std::chrono::minutes(1);
  auto patient = Store::open(url_, options_);
  ASSERT_TRUE(patient.has_value()) << patient.error().message();
  constexpr int threads_count = 4;
  constexpr int rounds = 2'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < threads_count; ++t) {
    threads.emplace_back([&, t] {
      std::string into;
      for (int i = 0; i < rounds; ++i) {
        const std::string key = fmt::format("{}.{}", t, i % 100);
        const std::string value = fmt::format("value {} of {}", i, t);
        const auto put = patient->put(key, value);
        ASSERT_TRUE(put.has_value()) << put.error().message();
        const auto got = patient->get(key, into);
        ASSERT_TRUE(got.has_value()) << got.error().message();
        ASSERT_EQ(into, value);
        const auto shared = patient->put("shared", value);
        ASSERT_TRUE(shared.has_value()) << shared.error().message();
        const auto seen = patient->get("shared", into);
        ASSERT_TRUE(seen.has_value()) << seen.error().message();
        ASSERT_TRUE(into.starts_with("value ")) << into;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(patient->count().value(), threads_count * 100U + 1);
}

// Thread-local, and older than what the library keeps of the thread: its destructor runs after that has gone.
struct LastCalls {
  static constexpr int calls = 20;
  std::vector<Store*> stores;
  std::string key;
  std::atomic<int>* right = nullptr;

  ~LastCalls() {
    for (Store* store : stores) {
      for (int i = 0; i < calls; ++i) *right += put_and_see(*store, fmt::format("{} {}", key, i));
    }
  }
  [[nodiscard]] bool put_and_see(Store& store, const std::string& value) const {
    std::vector<Assignment> assignments{{.key = key, .value = value}};
    store.multi_put(assignments);
    const auto view = store.view(key);
    return view && store.put(key, value + "!") && view->value() == value &&
           store.get(key).value_or("") == value + "!";
  }
};
thread_local LastCalls last_calls;

// Receive: calls of threads that end, after their clients have gone back, while other threads begin and take
// those. Expect: each gets what it put, and the stores are in order.
TEST_F(ImplTest, DestructorsOfAThreadThatEndsUseItsStores) {
  auto other = Store::open(url_ + ".other", options_);
  ASSERT_TRUE(other.has_value()) << other.error().message();
  constexpr int lines_count = 4;
  constexpr int threads_of_each = 10;
  std::atomic<int> right = 0;
  const auto one_after_the_other = [&](int line) {
    for (int i = 0; i < threads_of_each; ++i) {
      std::thread([&, line] {
        last_calls.stores = {&*store_, &*other};
        last_calls.key = fmt::format("line {}", line);
        last_calls.right = &right;
        EXPECT_TRUE(last_calls.put_and_see(*store_, "first"));
        EXPECT_TRUE(last_calls.put_and_see(*other, "first"));
      }).join();
    }
  };
  std::vector<std::thread> lines;
  for (int line = 0; line < lines_count; ++line) lines.emplace_back(one_after_the_other, line);
  for (std::thread& line : lines) line.join();
  EXPECT_EQ(right, lines_count * threads_of_each * 2 * LastCalls::calls);
  for (Store* store : {&*store_, &*other}) {
    const auto report = store->check();
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->items, 4U);
    EXPECT_EQ(report->items_unaccounted, 0U);
    EXPECT_LE(store->info()->clients, 2U * lines_count + 2);
  }
  EXPECT_TRUE(Store::destroy(url_ + ".other").has_value());
}

// Receive: the end of many threads that used the store together. Expect: most of their sessions are free for
// others then.
TEST_F(ImplTest, ThreadsThatEndLeaveSessionsForOthers) {
  constexpr int threads_count = 100;
  std::barrier all_have_one(threads_count);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < threads_count; ++thread) {
    threads.emplace_back([&] {
      EXPECT_TRUE(store_->put("k", "v").has_value());
      all_have_one.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(store_->info()->clients, threads_count / 2);
  EXPECT_GE(store_->stats()[Counter::put_insert] + store_->stats()[Counter::put_update],
            static_cast<std::uint64_t>(threads_count))
      << "what they counted is kept";
}

// Receive: threads that end one after the other, each with a View that lives longer than what the library
// keeps of the thread. Expect: their sessions end, too.
TEST_F(ImplTest, AViewThatOutlivesTheClientsOfItsThreadKeepsNoSession) {
  constexpr int threads_count = 50;
  ASSERT_TRUE(store_->put("k", "v").has_value());
  for (int thread = 0; thread < threads_count; ++thread) {
    std::thread([&] {
      thread_local View outliving;
      outliving = View();  // made before the first call
      auto view = store_->view("k");
      ASSERT_TRUE(view.has_value()) << view.error().message();
      outliving = std::move(*view);
      EXPECT_EQ(outliving.value(), "v");
    }).join();
  }
  EXPECT_LE(store_->info()->clients, 3U) << "of this thread, and the last one's";
  EXPECT_GE(store_->stats()[Counter::get_hit], static_cast<std::uint64_t>(threads_count));
}

TEST_F(ImplTest, SeveralStoresInOneThread) {
  auto same = Store::open(url_);
  ASSERT_TRUE(same.has_value()) << same.error().message();
  const Options other_options = options_;
  const std::string other_url = url_ + ".other";
  auto other = Store::open(other_url, other_options);
  ASSERT_TRUE(other.has_value());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(store_->put("k", fmt::format("{}", i)).has_value());
    EXPECT_EQ(same->get("k").value(), fmt::format("{}", i));
    EXPECT_EQ(other->get("k").error().code, Errc::not_found);
  }
  EXPECT_EQ(store_->info()->clients, 2U);
  Store moved = std::move(*same);
  EXPECT_TRUE(moved.get("k").has_value());
  EXPECT_TRUE(Store::destroy(other_url).has_value());
}

}  // namespace
}  // namespace loch
