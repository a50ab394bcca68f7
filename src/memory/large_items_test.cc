// Large items, in simulated time.
#include <gtest/gtest.h>

#include "memory/allocator.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fake::expiry_ns;
using fake::geometry;
using fake::make_item;
using fake::make_memory;
using fake::Process;
using fake::retire;

TEST(Large, RunsOfBlocksAreTakenAndGivenBack) {
  const auto store = make_memory(geometry);
  Process a(*store);
  const ItemRef large = make_item(*store, a, 3 * block_bytes + 1);
  EXPECT_EQ(large.size_class, large_class);
  const BlockNumber head = block_of(large);
  const LeaseWord word = a.lease_of(head);
  EXPECT_EQ(word.state, BlockState::large_head);
  EXPECT_EQ(word.block_count, 4);
  for (BlockNumber i = 1; i < 4; ++i) EXPECT_EQ(a.lease_of(head + i).state, BlockState::large_part);
  retire(a, large);
  store->advance(2 * expiry_ns);
  const ItemRef again = make_item(*store, a, 3 * block_bytes + 1);
  EXPECT_EQ(again, large);
  retire(a, again);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(a.run(a.allocator->sweep_all()).value(), 1U);
  for (BlockNumber i = 0; i < 4; ++i) EXPECT_EQ(a.lease_of(head + i).state, BlockState::free);
  EXPECT_EQ(block_of(make_item(*store, a, 64)) < head + 4, true);
}

// Receive: a session that unlinks a large item, and needs none any more. Expect: others have its memory.
TEST(Large, WhatOneSessionUnlinksOthersUse) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process b(*store);
  const ItemRef large = make_item(*store, a, 3 * block_bytes);
  const ItemRef small = make_item(*store, a, 64);
  retire(a, large);
  store->advance(2 * expiry_ns);
  retire(a, small);
  EXPECT_EQ(b.allocate(3 * block_bytes).value(), large);
}

// Receive: a session unlinks a large item of blocks that another one added, of which it has not asked yet.
// Expect: it gives back all of them.
TEST(Large, OneOfBlocksThatOthersAddedIsGivenBackWhole) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process b(*store);
  const std::uint64_t before = b.allocator->blocks().value().size();
  const std::uint64_t count = before + 3;
  const ItemRef large = make_item(*store, a, count * block_bytes);
  const ItemRef small = make_item(*store, a, 64);
  retire(b, large);
  store->advance(2 * expiry_ns);
  retire(b, small);
  for (BlockNumber i = 0; i < count; ++i)
    EXPECT_EQ(b.lease_of(block_of(large) + i).state, BlockState::free) << i;
}

TEST(Large, TheLargestValueFits) {
  const auto store = make_memory(geometry);
  Process a(*store);
  constexpr std::uint64_t bytes = sizeof(ItemHeader) + 4096 + (std::uint64_t{128} << 20);
  const ItemRef item = make_item(*store, a, bytes);
  const ItemRef next = make_item(*store, a, bytes);
  EXPECT_GE(next.address().offset_bytes, item.address().offset_bytes + blocks_of_large(bytes) * block_bytes);
}

TEST(Large, ADiscardedOneIsFreeAtOnce) {
  const auto store = make_memory(geometry);
  Process a(*store);
  const ItemRef item = a.allocate(2 * block_bytes).value();
  a.discard(item);
  EXPECT_EQ(a.allocate(2 * block_bytes).value(), item);
}

// Receive: sessions that each unlink a large item and end before it has rested. Expect: those that come after
// that use its memory.
TEST(Large, WhatASessionLeavesWhenItEndsOthersUse) {
  for (const bool posts : {false, true}) {
    SCOPED_TRACE(posts ? "posted" : "mapped");
    const auto store = make_memory(geometry);
    ItemRef first;
    for (int session = 0; session < 8; ++session) {
      fake::tell_time(*store);
      Process a(posts ? fake::elsewhere(*store) : store->attach());
      const ItemRef item = make_item(*store, a, 3 * block_bytes);
      if (session == 0) first = item;
      EXPECT_EQ(item, first) << session;
      EXPECT_EQ(fabric::load_word(store->at(released_address(block_of(item)))), 0U) << "it is not left yet";
      retire(a, item);
      a.run(a.allocator->close());
      store->advance(2 * expiry_ns);
    }
  }
}

// Receive: a session on another host makes the largest item, and another one of its memory. Expect: it takes
// no round trip for each block.
TEST(Large, OnesOnAnotherHostTakeFewRoundTrips) {
  const auto store = make_memory(geometry);
  fake::tell_time(*store);
  std::uint64_t round_trips = 0;
  Process far(std::make_shared<fabric::fake::PostingFabric>(
      store, fabric::fake::PostingOptions{
                 .seed = 3, .mapped = {}, .before = {}, .round_trips = &round_trips, .held = {}}));
  ItemRef first;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t before = round_trips;
    const ItemRef item = far.allocate(std::uint64_t{128} << 20).value();
    EXPECT_LE(round_trips - before, 30U) << i;
    if (i == 0) first = item;
    EXPECT_EQ(item, first);
    retire(far, item);
    store->advance(2 * expiry_ns);
    fake::tell_time(*store);
    ASSERT_TRUE(far.run(far.session->refresh()).has_value());
  }
}

// Receive: a large item whose note was dropped while an operation that had been stopped held it. Expect: it
// is found once that has ended.
TEST(Large, OneThatWasHeldIsFoundLater) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process stuck(*store);
  const ItemRef item = make_item(*store, a, 3 * block_bytes);
  const base::Nanos began = stuck.session->begin_operation();
  store->advance(base::millisecond_ns);
  retire(a, item);
  store->advance(10 * expiry_ns);
  EXPECT_NE(a.allocate(3 * block_bytes).value(), item);
  stuck.session->end_operation(began);
  store->advance(base::millisecond_ns);
  EXPECT_EQ(a.allocate(3 * block_bytes).value(), item);
}

// Receive: a large item is given back while another operation of the session frees what it may. Expect: it is
// not forgotten.
TEST(Large, OneThatIsBeingDiscardedIsNotForgotten) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto store = make_memory(geometry);
    Process a(fake::posting_blocks(*store, seed));
    const ItemRef item = a.allocate(2 * block_bytes).value();
    auto discarding = a.allocator->discard(item);
    discarding.start();
    const ItemRef other = a.allocate(2 * block_bytes).value();
    while (!discarding.done()) a.session->endpoint().step();
    ASSERT_TRUE(discarding.take().has_value());
    EXPECT_TRUE(other == item || a.allocate(2 * block_bytes).value() == item);
  }
}

// Receive: a client died at each step of taking or freeing a run; and another one after it, as it took some
// of the same blocks. Expect: all of them are free after a sweep.
TEST(Large, WhatTheDeadLeftOfARunIsFreed) {
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    const auto store = make_memory(geometry);
    Process a(*store);
    Process dead(*store);
    Process next(*store);
    const ItemRef item = dead.allocate(3 * block_bytes).value();
    const BlockNumber head = block_of(item);
    const auto set_as = [&](Process& who, BlockNumber block, BlockState state, std::uint8_t count) {
      const LeaseWord now = a.lease_of(block);
      fabric::store_word(store->at(lease_address(block)),
                         now.next(state, large_class, who.session->client(), count).encode());
    };
    const auto set = [&](BlockNumber block, BlockState state, std::uint8_t count) {
      set_as(dead, block, state, count);
    };
    if (step == 0) set(head, BlockState::leased, 0);  // while taking: the head is not one yet
    if (step == 1) {                                  // while taking: half of them
      set(head, BlockState::leased, 0);
      set(head + 2, BlockState::free, 0);
    }
    if (step == 2) set(head + 1, BlockState::free, 0);  // while freeing: a part is free, the head claimed
    // step 3: the item was claimed and never written
    if (step == 4) {  // while freeing: all parts are free; then while taking these, before they had a head
      set_as(next, head + 1, BlockState::leased, 0);
      set_as(next, head + 2, BlockState::large_part, 1);
    }
    store->kill(dead.session->client());
    store->kill(next.session->client());
    store->advance(10 * expiry_ns);
    ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
    ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
    for (BlockNumber i = 0; i < 3; ++i) EXPECT_EQ(a.lease_of(head + i).state, BlockState::free) << i;
  }
}

}  // namespace
}  // namespace loch::memory
