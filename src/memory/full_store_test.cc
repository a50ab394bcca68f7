// Allocator, when there is no space, in simulated time.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <vector>

#include "memory/allocator.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fabric::fake::MemoryStore;
using fake::expiry_ns;
using fake::geometry;
using fake::make_memory;
using fake::Process;
using fake::retire;
using fake::write;

TEST(NoSpace, IsAnErrorThatLeavesEverythingUsable) {
  auto limited = geometry;
  limited.max_bytes = 6 * block_bytes;
  const auto store = make_memory(limited);
  Process a(*store);
  std::vector<ItemRef> items;
  for (;;) {
    const auto item = a.allocate(100'000);
    if (!item) {
      EXPECT_EQ(item.error().code, Errc::no_space);
      EXPECT_NE(item.error().detail.find("max_bytes"), std::string::npos) << item.error().detail;
      break;
    }
    write(*store, a, *item);
    items.push_back(*item);
    ASSERT_LT(items.size(), 100U);
  }
  EXPECT_GT(items.size(), 40U);
  EXPECT_FALSE(a.allocate(64).has_value()) << "every block is taken";
  for (const ItemRef& item : items) retire(a, item);
  EXPECT_FALSE(a.allocate(64).has_value()) << "they rest";
  store->advance(2 * expiry_ns);
  EXPECT_TRUE(a.allocate(64).has_value());
  EXPECT_TRUE(a.allocate(2 * block_bytes).has_value());
}

TEST(NoSpace, OfTheFileSystemToo) {
  const auto store = make_memory(geometry, {.free_bytes = 10 * block_bytes});
  Process a(*store);
  int got = 0;
  for (; got < 100 && a.allocate(block_bytes).has_value(); ++got) {
  }
  EXPECT_GT(got, 3);
  EXPECT_LT(got, 12);
  const std::uint64_t added = a.session->stats()[Counter::segments_added];
  EXPECT_FALSE(a.allocate(block_bytes).has_value());
  EXPECT_EQ(a.session->stats()[Counter::segments_added], added) << "there is no room for more";
  store->set_free_bytes(100 * block_bytes);
  EXPECT_TRUE(a.allocate(block_bytes).has_value());
}

// Until there is no space; the last of the items.
ItemRef fill(MemoryStore& store, Process& by) {
  ItemRef last;
  for (auto item = by.allocate(400'000); item; item = by.allocate(400'000)) {
    write(store, by, *item);
    last = *item;
  }
  return last;
}

// Receive: a full store, in which everything is in use. Expect: it is swept once an expiry, not for each
// allocation.
TEST(NoSpace, IsFoundBySweepingOnceAnExpiry) {
  const auto store = make_memory(geometry, {.free_bytes = 10 * block_bytes});
  Process a(*store);
  const ItemRef last = fill(*store, a);
  // Each sweep of a block changes its word.
  const std::uint64_t swept = a.lease_of(block_of(last)).encode();
  EXPECT_FALSE(a.allocate(400'000).has_value());
  EXPECT_FALSE(a.allocate(64).has_value());
  EXPECT_FALSE(a.allocate(2 * block_bytes).has_value());
  EXPECT_EQ(a.lease_of(block_of(last)).encode(), swept);
  store->advance(2 * expiry_ns);
  EXPECT_FALSE(a.allocate(64).has_value());
  EXPECT_NE(a.lease_of(block_of(last)).encode(), swept);
}

// Receive: a full store in which everything is in use, and which takes longer to sweep than a call has.
// Expect: each allocation sweeps a part of it, and the next one what follows; and none does for an expiry,
// once all of it was in vain.
TEST(NoSpace, IsFoundPartByPartWhereASweepTakesLong) {
  const auto store = make_memory(geometry, {.free_bytes = 200 * block_bytes});
  Process filler(*store);
  fill(*store, filler);
  std::map<std::uint64_t, int> sweeps;  // by where the block's descriptor is
  const auto take_time = [&](const fabric::Operation& one) {
    store->advance(base::millisecond_ns);
    const bool is_change = one.kind == fabric::Operation::Kind::compare_swap;
    if (is_change && LeaseWord::decode(one.operand).state == BlockState::swept) ++sweeps[one.at.offset_bytes];
  };
  Process a(std::make_shared<fabric::fake::PostingFabric>(
      store, fabric::fake::PostingOptions{.mapped = [](fabric::RegionId id) { return id == control_region; },
                                          .before = take_time}));
  constexpr base::Nanos timeout = 50 * base::millisecond_ns;
  a.session->endpoint().set_timeout(timeout);
  int allocations = 0;
  do {
    const base::Nanos start = store->now();
    const std::size_t before = sweeps.size();
    EXPECT_FALSE(a.allocate(64).has_value());
    EXPECT_LE(store->now() - start, timeout);
    EXPECT_GT(sweeps.size(), before);
  } while (a.allocator->sweeps_on() && ++allocations < 1'000);
  EXPECT_GT(allocations, 10);
  EXPECT_EQ(sweeps.size(), a.allocator->blocks()->size());
  EXPECT_TRUE(std::ranges::all_of(sweeps, [](const auto& block) { return block.second == 1; }));
  EXPECT_FALSE(a.allocate(64).has_value());
  EXPECT_TRUE(std::ranges::all_of(sweeps, [](const auto& block) { return block.second == 1; }));
}

// Receive: the same, and one block in which all has rested. Expect: an allocation that comes to it has its
// memory.
TEST(NoSpace, EndsWhereASweepThatTakesLongComesToRestedItems) {
  const auto store = make_memory(geometry, {.free_bytes = 50 * block_bytes});
  {
    Process filler(*store);
    const ItemRef last = fill(*store, filler);
    for (std::uint32_t i = 0; i < items_in_block(last.size_class); ++i)
      retire(filler, item_in_block(block_of(last), last.size_class, i));
  }
  store->advance(2 * expiry_ns);
  Process a(std::make_shared<fabric::fake::PostingFabric>(
      store, fabric::fake::PostingOptions{
                 .mapped = [](fabric::RegionId id) { return id == control_region; },
                 .before = [&](const fabric::Operation&) { store->advance(base::millisecond_ns); }}));
  a.session->endpoint().set_timeout(50 * base::millisecond_ns);
  auto item = a.allocate(64);  // of a class of which others have left nothing
  int more = 0;
  for (; !item && a.allocator->sweeps_on(); ++more) item = a.allocate(64);
  EXPECT_TRUE(item.has_value());
  EXPECT_GT(more, 10);
}

// Receive: a client died when it had freed a block, and before it counted that. Expect: whoever found nothing
// before finds the block.
TEST(NoSpace, EndsWhenABlockWasFreedAndNotCounted) {
  const auto store = make_memory(geometry, {.free_bytes = 10 * block_bytes});
  Process a(*store);
  const ItemRef last = fill(*store, a);
  const LeaseWord freed = a.lease_of(block_of(last)).next(BlockState::free, 0, 0);
  fabric::store_word(store->at(lease_address(block_of(last))), freed.encode());
  store->advance(2 * expiry_ns);
  const auto item = a.allocate(400'000);
  ASSERT_TRUE(item.has_value()) << item.error().message();
  EXPECT_EQ(block_of(*item), block_of(last));
}

}  // namespace
}  // namespace loch::memory
