// The store's latest time (docs/memory.md, "Reuse"), where it is ahead of the clock here: a bit of it was
// flipped, or a process has another clock. Expect: no call takes longer than it may.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include <loch/loch.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/testing/damaged_store.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/testing/test_table.h"
#include "memory/layout.h"

namespace loch {
namespace {

constexpr fabric::Address latest_time{memory::control_region, memory::latest_offset};

using LatestTime = fake::DamagedStore;

// Receive: one that is ahead by some seconds, and by all there is. Expect: all calls answer as ever, at once.
TEST_F(LatestTime, IsAheadOfTheClock) {
  for (const bool by_all : {false, true}) {
    SCOPED_TRACE(by_all);
    ASSERT_TRUE(store_->put("key", "value").has_value());
    write_at(latest_time, by_all ? ~base::Nanos{0} : base::Clock().now() + 10 * base::second_ns);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(store_->get("key").value_or("none"), "value");
    std::string into(5, '\0');
    EXPECT_TRUE(store_->get("key", into).has_value());
    EXPECT_EQ(into, "value");
    EXPECT_EQ(store_->read("key")->value, "value");
    EXPECT_EQ(store_->view("key")->value(), "value");
    EXPECT_TRUE(store_->exists("key").value_or(false));
    EXPECT_FALSE(store_->exists("none").value_or(true));
    std::array<Lookup, 1> lookups{{{.key = "key", .value = {}}}};
    store_->multi_get(lookups);
    EXPECT_EQ(lookups[0].value, "value");
    int visited = 0;
    const auto walked = store_->for_each([&](const Entry&) {
      ++visited;
      return true;
    });
    EXPECT_TRUE(walked.has_value());
    EXPECT_EQ(visited, 1);
    EXPECT_TRUE(store_->put("key", "another").has_value());
    EXPECT_EQ(store_->get("key").value_or("none"), "another");
    EXPECT_TRUE(store_->remove("key").has_value());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

// Receive: one that, whenever the index is looked at, has run further ahead than a session may act. Expect:
// what reads says so at its deadline.
TEST(LatestTimeThatRunsAway, EndsWhatReadsAtItsDeadline) {
  constexpr base::Nanos timeout_ns = 50 * base::millisecond_ns;
  const auto store = hash::fake::make_store();
  hash::fake::Client near(*store);
  ASSERT_TRUE(near.put("key", "value").has_value());
  int looks_left = 0;  // else a call that goes on for ever would
  const auto run_away = [&](const fabric::Operation& one) {
    if (one.at.region != memory::index_region || looks_left-- <= 0) return;
    const base::Nanos before = fabric::load_word(store->at(latest_time));
    fabric::store_word(store->at(latest_time), std::max(before, store->now()) + 2 * base::second_ns);
    store->advance(base::millisecond_ns);
  };
  const auto opened = client::Client::open(
      memory::StoreMemory::attach(
          std::make_shared<fabric::fake::PostingFabric>(
              store,
              fabric::fake::PostingOptions{
                  .mapped = [](fabric::RegionId region) { return region != memory::index_region; },
                  .before = run_away}))
          .value(),
      {.timeout_ns = timeout_ns});
  ASSERT_TRUE(opened.has_value());
  client::Client& client = **opened;
  const auto expect_timed_out = [&](const char* call, const auto& ask) {
    SCOPED_TRACE(call);
    looks_left = 1'000;
    const base::Nanos start = store->now();
    const auto answer = ask();
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Errc::timed_out) << answer.error().message();
    EXPECT_STREQ(answer.error().operation, call);
    EXPECT_GE(store->now() - start, timeout_ns);
    EXPECT_LE(store->now() - start, 2 * timeout_ns);
    looks_left = 0;
  };
  std::string into;
  const std::function<bool(const Entry&)> visit = [](const Entry&) { return true; };
  expect_timed_out("get", [&] { return client.run(client.get("key", &into)); });
  expect_timed_out("read", [&] { return client.run(client.read("key")); });
  expect_timed_out("view", [&] { return client.run(client.find("key")); });
  expect_timed_out("exists", [&] { return client.run(client.exists("key")); });
  expect_timed_out("walk", [&] { return client.run(client.for_each(&visit)); });
  EXPECT_TRUE(client.run(client.get("key", &into)).has_value());
  EXPECT_EQ(into, "value");
}

}  // namespace
}  // namespace loch
