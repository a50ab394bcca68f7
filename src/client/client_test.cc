// What of the calls no program can see: what they count, and what they hold on to.
#include "client/client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>

#include "fabric/testing/posting_fabric.h"
#include "hash/testing/test_table.h"

namespace loch::client {
namespace {

using hash::fake::make_store;
using hash::fake::MemoryStore;

// A client that maps all but the index, and tells of each operation on that, before it is done.
class OfIndex : public testing::Test {
 protected:
  std::unique_ptr<Client> open() {
    const auto tell = [this](const fabric::Operation& one) {
      if (one.at.region == memory::index_region && meanwhile_) meanwhile_();
    };
    auto fabric = std::make_shared<fabric::fake::PostingFabric>(
        store_, fabric::fake::PostingOptions{
                    .mapped = [](fabric::RegionId region) { return region != memory::index_region; },
                    .before = tell});
    return Client::open(memory::StoreMemory::attach(std::move(fabric)).value(), {}).value();
  }
  [[nodiscard]] std::uint64_t counted(Counter counter) const {
    return client_->attachment().stats()[counter];
  }

  std::function<void()> meanwhile_;
  std::shared_ptr<MemoryStore> store_ = make_store();
  hash::fake::Client near_{*store_};
  std::unique_ptr<Client> client_ = open();
};

// Receive: an item whose time ends while it is read. Expect: what is left of it is no 0, which to a put means
// that it has no end.
TEST_F(OfIndex, ATimeToLiveThatIsReadIsNoneThatLastsForEver) {
  constexpr base::Nanos lives_ns = 100 * base::millisecond_ns;
  int steps_before = 0;
  meanwhile_ = [&] {
    if (steps_before-- == 0) store_->advance(2 * lives_ns);
  };
  ASSERT_TRUE(near_.put("k", "v", store_->now() + lives_ns).has_value());
  steps_before = 0;
  const auto item = client_->run(client_->read("k"));
  ASSERT_TRUE(item.has_value()) << item.error().message();
  EXPECT_EQ(item->time_to_live, std::chrono::milliseconds(1));
  int visited = 0;
  const std::function<bool(const Entry&)> visit = [&](const Entry& entry) {
    EXPECT_GE(entry.time_to_live, std::chrono::milliseconds(1));
    visited += entry.time_to_live == std::chrono::milliseconds(1) ? 1 : 0;
    return true;
  };
  constexpr int steps_max = 10;  // of a walk over one item
  for (int at = 0; at < steps_max; ++at) {
    ASSERT_TRUE(near_.put("k", "v", store_->now() + lives_ns).has_value());
    steps_before = at;
    ASSERT_TRUE(client_->run(client_->for_each(&visit)).has_value());
  }
  EXPECT_GT(visited, 0) << "between the look at it and the visit";
}

// Receive: reads of a damaged value, and a remove of another version. Expect: none is a miss; what is not
// there is one.
TEST_F(OfIndex, WhatFailsIsNoMiss) {
  ASSERT_TRUE(near_.put("damaged", "value").has_value());
  const hash::SlotNumber slot = hash::fake::locations(near_, "damaged").slot[0];
  const memory::ItemRef item = hash::fake::slot(*store_, slot).item();
  *store_->at(item.address() + hash::item_bytes(std::string_view("damaged").size(), 0)) ^= std::byte{1};
  std::string into;
  EXPECT_EQ(client_->run(client_->get("damaged", &into)).error().code, Errc::corrupt);
  EXPECT_EQ(client_->run(client_->read("damaged")).error().code, Errc::corrupt);
  EXPECT_EQ(client_->run(client_->find("damaged")).error().code, Errc::corrupt);
  std::array<Lookup, 1> lookups;
  lookups[0].key = "damaged";
  client_->run(client_->multi_get(lookups));
  EXPECT_EQ(lookups[0].result.error().code, Errc::corrupt);
  EXPECT_EQ(client_->run(client_->remove("damaged", 1)).error().code, Errc::changed);
  EXPECT_EQ(counted(Counter::get_miss), 0U);
  EXPECT_EQ(counted(Counter::get_hit), 0U);
  EXPECT_EQ(counted(Counter::remove_miss), 0U);
  EXPECT_EQ(client_->run(client_->get("absent", &into)).error().code, Errc::not_found);
  EXPECT_EQ(client_->run(client_->read("absent")).error().code, Errc::not_found);
  EXPECT_EQ(client_->run(client_->find("absent")).error().code, Errc::not_found);
  lookups[0].key = "absent";
  client_->run(client_->multi_get(lookups));
  EXPECT_EQ(client_->run(client_->remove("absent")).error().code, Errc::not_found);
  EXPECT_EQ(counted(Counter::get_miss), 4U);
  EXPECT_EQ(counted(Counter::remove_miss), 1U);
  // Its head is whole.
  EXPECT_TRUE(client_->run(client_->exists("damaged")).value_or(false));
  EXPECT_EQ(counted(Counter::exists), 1U);
}

// Receive: time that passes with each look at the index. Expect: who looks at all of it is at no time in an
// operation that began long ago, and on account of which memory that was unlinked since could not be used.
TEST_F(OfIndex, CountAndCheckAreManyOperations) {
  constexpr int items = 20;
  for (int i = 0; i < items; ++i) ASSERT_TRUE(near_.put(fmt::format("k{}", i), "v").has_value());
  std::uint64_t looks = 0;
  base::Nanos oldest_ns = 0;
  meanwhile_ = [&] {
    ++looks;
    store_->advance(base::millisecond_ns);
    const base::Nanos began = client_->attachment().nodes().front().session->oldest_operation();
    if (began != 0) oldest_ns = std::max(oldest_ns, store_->now() - began);
  };
  EXPECT_EQ(client_->run(client_->count()).value_or(0), items);
  const auto report = client_->run(client_->check());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items, items);
  EXPECT_TRUE(report->findings.empty()) << report->findings.front();
  EXPECT_GT(looks, 500U);
  EXPECT_GT(oldest_ns, 0U) << "it is in one";
  EXPECT_LE(oldest_ns, 20 * base::millisecond_ns);
}

// Receive: a full store in which everything is in use, and which takes longer to sweep than a call has.
// Expect: each put ends in time, and goes on with the sweep where the one before has left it.
TEST(FullStore, APutEndsInTimeHoweverLongASweepTakes) {
  const auto store = make_store({.hash_seed = 42}, {.free_bytes = 60 * memory::block_bytes});
  hash::fake::Client near(*store);
  const std::string value(400'000, 'v');
  for (int i = 0; near.put(fmt::format("key{}", i), value).has_value(); ++i) ASSERT_LT(i, 1'000);
  std::map<std::uint64_t, int> sweeps;  // by where the block's descriptor is
  const auto take_time = [&](const fabric::Operation& one) {
    store->advance(base::millisecond_ns);
    const bool is_change =
        one.kind == fabric::Operation::Kind::compare_swap && one.at.offset_bytes < memory::block_bytes;
    if (is_change && memory::LeaseWord::decode(one.operand).state == memory::BlockState::swept)
      ++sweeps[one.at.offset_bytes];
  };
  constexpr base::Nanos timeout = 100 * base::millisecond_ns;
  const auto client =
      Client::open(
          memory::StoreMemory::attach(
              std::make_shared<fabric::fake::PostingFabric>(
                  store,
                  fabric::fake::PostingOptions{
                      .mapped = [](fabric::RegionId region) { return region < memory::first_data_region; },
                      .before = take_time}))
              .value(),
          {.timeout_ns = timeout})
          .value();
  const std::size_t blocks = client->attachment().nodes().front().allocator->blocks()->size();
  int puts = 0;
  for (; sweeps.size() < blocks && puts < 100; ++puts) {
    const std::size_t before = sweeps.size();
    const base::Nanos start = store->now();
    const auto put = client->run(client->put({.key = "another", .value = "value"}));
    ASSERT_FALSE(put.has_value());
    EXPECT_EQ(put.error().code, Errc::no_space) << put.error().message();
    EXPECT_LE(store->now() - start, 2 * timeout);
    EXPECT_GT(sweeps.size(), before);
  }
  EXPECT_GT(puts, 2);
  EXPECT_LT(puts, 16) << "each tries several times";
  EXPECT_TRUE(std::ranges::all_of(sweeps, [](const auto& block) { return block.second == 1; }));
}

}  // namespace
}  // namespace loch::client
