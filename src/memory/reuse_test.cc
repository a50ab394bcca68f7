// The rules of reuse (docs/memory.md, "Reuse"), in simulated time.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/testing/memory_store.h"
#include "memory/allocator.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fabric::fake::MemoryStore;
using fake::expiry_ns;
using fake::geometry;
using fake::make_item;
using fake::make_memory;
using fake::Process;
using fake::retire;

// Allocates until `wanted` comes back, at most `tries` times; the number of tries, or 0.
int tries_until(Process& process, ItemRef wanted, std::uint64_t bytes, int tries) {
  for (int i = 1; i <= tries; ++i) {
    const auto item = process.allocate(bytes);
    EXPECT_TRUE(item.has_value());
    if (*item == wanted) return i;
  }
  return 0;
}

// An item of 100 bytes whose note was dropped while it was held: a sweep finds it again.
void expect_back(MemoryStore& store, Process& process, ItemRef item) {
  ASSERT_TRUE(process.run(process.allocator->sweep_all()).has_value());
  store.advance(expiry_ns);
  const auto blocks = process.allocator->blocks().value().size();
  while (tries_until(process, item, 100, 1) == 0) {
    ASSERT_LE(process.allocator->blocks().value().size(), blocks + 2) << "the item never came back";
  }
}

// An item that is retired now comes back when it has rested for that long, and not before.
void expect_rest(MemoryStore& store, Process& process, base::Nanos rest_ns) {
  const ItemRef item = make_item(store, process, 100);
  retire(process, item);
  store.advance(rest_ns - 1);
  EXPECT_NE(process.allocate(100).value(), item);
  store.advance(1);
  EXPECT_EQ(process.allocate(100).value(), item);
}

TEST(Reuse, ARetiredItemComesBackAfterTheExpiryAndNotBefore) {
  const auto store = make_memory(geometry);
  Process a(*store);
  expect_rest(*store, a, expiry_ns);
}

// ---- barriers

std::shared_ptr<fabric::fake::MemoryFabric> with_barriers(MemoryStore& store, bool works = true) {
  auto fabric = store.attach();
  fabric->take_part_in_barriers(works);
  return fabric;
}

TEST(Reuse, WhereAllTakePartInBarriersAnItemComesBackWithTheNextTick) {
  const auto store = make_memory(geometry);
  Process a(with_barriers(*store));
  const Process other(with_barriers(*store));
  expect_rest(*store, a, 1);
}

// Receive: a session that takes no part in barriers, or that another host has. Expect: what is unlinked rests
// for an expiry while it is there, and no longer than that.
TEST(Reuse, OneThatTakesNoPartInBarriersHasTheOthersWait) {
  const auto store = make_memory(geometry);
  for (const bool is_elsewhere : {false, true}) {
    SCOPED_TRACE(is_elsewhere);
    Process a(with_barriers(*store));
    auto without = is_elsewhere ? fake::elsewhere(*store) : store->attach();
    std::optional<Process> other(without);
    const ItemRef item = make_item(*store, a, 100);
    retire(a, item);
    store->advance(expiry_ns - 1);
    EXPECT_NE(a.allocate(100).value(), item);
    const std::uint16_t client = other->session->client();
    store->kill(client);  // and leaves what it said
    store->advance(1);
    EXPECT_EQ(a.allocate(100).value(), item);
    const ItemRef next = make_item(*store, a, 100);
    retire(a, next);
    store->advance(1);
    EXPECT_EQ(a.allocate(100).value(), next) << "nobody waits for the dead";
  }
}

TEST(Reuse, WithoutABarrierWhatIsUnlinkedRestsForAnExpiry) {
  const auto store = make_memory(geometry);
  Process a(with_barriers(*store, false));
  expect_rest(*store, a, expiry_ns);
}

TEST(Reuse, ABarrierDoesNotOverruleAnOperationAGlanceOrAView) {
  const auto store = make_memory(geometry);
  Process a(with_barriers(*store));
  Process other(with_barriers(*store));
  std::vector<ItemRef> items;
  for (int i = 0; i < 3; ++i) items.push_back(make_item(*store, a, 100));
  Session& reader = *other.session;
  ASSERT_TRUE(reader.begin_glance());
  store->advance(base::millisecond_ns);
  retire(a, items[0]);
  store->advance(base::millisecond_ns);
  EXPECT_EQ(tries_until(a, items[0], 100, 20), 0);
  reader.end_glance(false);
  const base::Nanos began = reader.begin_operation();
  retire(a, items[1]);
  store->advance(10 * base::millisecond_ns);
  EXPECT_EQ(a.allocate(100).value(), items[0]) << "unlinked before it began";
  EXPECT_EQ(tries_until(a, items[1], 100, 20), 0);
  const base::Nanos pinned = reader.pin();
  reader.end_operation(began);
  retire(a, items[2]);
  store->advance(10 * base::millisecond_ns);
  EXPECT_EQ(a.allocate(100).value(), items[1]);
  EXPECT_EQ(tries_until(a, items[2], 100, 20), 0);
  reader.unpin(pinned);
  store->advance(1);
  EXPECT_EQ(a.allocate(100).value(), items[2]);
}

TEST(Reuse, AnOperationThatBeganBeforeTheUnlinkHoldsTheMemory) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process stuck(*store);
  const ItemRef item = make_item(*store, a, 100);
  const base::Nanos began = stuck.session->begin_operation();
  store->advance(base::millisecond_ns);
  retire(a, item);
  store->advance(10 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 50), 0);
  stuck.session->end_operation(began);
  store->advance(base::millisecond_ns);
  expect_back(*store, a, item);
}

TEST(Reuse, AnItemWrittenTooLateForTheStuckOperationIsFree) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process stuck(*store);
  stuck.session->begin_operation();
  store->advance(Session::act_window_ns + base::second_ns);
  const ItemRef item = make_item(*store, a, 100);
  retire(a, item);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(a.allocate(100).value(), item);
}

// Receive: a session whose operation was stopped; then others write. Expect: what it reads then does not
// count until it has looked again, and from then on what it sees is held.
TEST(Reuse, WhoeverWasStoppedLooksAgainBeforeItActs) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process stuck(*store);
  const base::Nanos began = stuck.session->begin_operation();
  const std::uint64_t lapses = stuck.session->lapses();
  EXPECT_FALSE(stuck.session->has_lapsed_since(lapses));
  store->advance(Session::act_window_ns + base::second_ns);
  EXPECT_FALSE(stuck.session->has_lapsed_since(lapses)) << "nobody wrote or looked meanwhile";
  const ItemRef item = make_item(*store, a, 100);
  a.session->next_write_time();
  EXPECT_TRUE(stuck.session->has_lapsed_since(lapses));
  EXPECT_FALSE(stuck.session->has_lapsed_since(stuck.session->lapses())) << "it has said that it acts on";
  EXPECT_TRUE(stuck.session->has_lapsed_since(lapses)) << "what was read before counts as little as ever";
  retire(a, item);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 20), 0);
  stuck.session->end_operation(began);
}

// Receive: the same, and while the operation reads, another one of the session begins, or a view. Expect: the
// first one looks again all the same.
TEST(Reuse, WhoeverWasStoppedIsNotExcusedByAnotherOperation) {
  for (const bool by_view : {false, true}) {
    SCOPED_TRACE(by_view);
    const auto store = make_memory(geometry);
    Process a(*store);
    Process stuck(*store);
    Session& session = *stuck.session;
    const base::Nanos began = session.begin_operation();
    const std::uint64_t lapses = session.lapses();
    store->advance(Session::act_window_ns + base::second_ns);
    a.session->next_write_time();
    const base::Nanos another = by_view ? session.pin() : session.begin_operation();
    EXPECT_FALSE(session.has_lapsed_since(session.lapses()));
    EXPECT_TRUE(session.has_lapsed_since(lapses));
    if (by_view)
      session.unpin(another);
    else
      session.end_operation(another);
    session.end_operation(began);
  }
}

// Receive: a latest time that is ahead of a session's clock, by some seconds and by all there is. Expect: it
// may act when it has looked again, and what it sees is held; but a glance would count from that time, and
// gives nothing out.
TEST(Reuse, ALatestTimeAheadOfTheClockHoldsNobodyUp) {
  for (const bool by_all : {false, true}) {
    SCOPED_TRACE(by_all);
    const auto store = make_memory(geometry);
    Process a(*store);
    Process other(*store);
    const ItemRef item = make_item(*store, a, 100);
    const base::Nanos ahead = by_all ? ~base::Nanos{0} : store->now() + 10 * base::second_ns;
    fabric::store_word(store->at({control_region, latest_offset}), ahead);
    Session& reader = *other.session;
    const base::Nanos began = reader.begin_operation();
    EXPECT_TRUE(reader.has_lapsed_since(reader.lapses()));
    EXPECT_FALSE(reader.has_lapsed_since(reader.lapses()));
    store->advance(base::millisecond_ns);
    retire(a, item);
    store->advance(2 * expiry_ns);
    EXPECT_EQ(tries_until(a, item, 100, 20), 0);
    reader.end_operation(began);
    ASSERT_TRUE(reader.begin_glance());
    EXPECT_FALSE(reader.end_glance(true));
    store->advance(base::millisecond_ns);
    EXPECT_NE(tries_until(a, item, 100, 20), 0);
  }
}

// A short read, which counts from the time that others told.
TEST(Reuse, AGlanceHoldsTheMemoryToo) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process reader(*store);
  ASSERT_TRUE(reader.session->begin_glance());
  reader.session->end_glance(false);
  store->advance(base::millisecond_ns);
  const ItemRef item = make_item(*store, a, 100);
  ASSERT_TRUE(reader.session->begin_glance());
  store->advance(base::millisecond_ns);
  retire(a, item);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 20), 0);
  reader.session->end_glance(false);
  // After the others' looks it counts from a time after the unlink.
  reader.session->end_operation(reader.session->begin_operation());
  EXPECT_TRUE(reader.session->begin_glance());
  expect_back(*store, a, item);
  reader.session->end_glance(false);
}

TEST(Reuse, AGlanceIsRefusedWhileAnotherOperationRuns) {
  const auto store = make_memory(geometry);
  Process reader(*store);
  const base::Nanos began = reader.session->begin_operation();
  EXPECT_FALSE(reader.session->begin_glance());
  reader.session->end_operation(began);
  EXPECT_TRUE(reader.session->begin_glance());
  EXPECT_TRUE(reader.session->end_glance(true));
  EXPECT_EQ(reader.session->stats()[Counter::get_hit], 1U);
}

// Receive: a glance, and before or during it others act beyond the reader's limit. Expect: it gives nothing
// out, until an operation has said that the session acts on.
TEST(Reuse, AGlanceGivesNothingOutBeyondTheLimit) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process reader(*store);
  for (const bool before : {true, false}) {
    if (before) {
      store->advance(Session::act_window_ns + base::second_ns);
      a.session->next_write_time();
    }
    ASSERT_TRUE(reader.session->begin_glance());
    if (!before) {
      store->advance(Session::act_window_ns + base::second_ns);
      a.session->next_write_time();
    }
    EXPECT_FALSE(reader.session->end_glance(true)) << before;
    reader.session->end_operation(reader.session->begin_operation());
    ASSERT_TRUE(reader.session->begin_glance());
    EXPECT_FALSE(reader.session->end_glance(false)) << "nothing was found";
    ASSERT_TRUE(reader.session->begin_glance());
    EXPECT_TRUE(reader.session->end_glance(true)) << before;
  }
  EXPECT_EQ(reader.session->stats()[Counter::get_hit], 2U);
}

TEST(Reuse, AnOperationThatBeganAfterTheUnlinkHoldsNothing) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process late(*store);
  const ItemRef item = make_item(*store, a, 100);
  retire(a, item);
  store->advance(1);
  late.session->begin_operation();
  store->advance(expiry_ns);
  EXPECT_EQ(a.allocate(100).value(), item);
}

TEST(Reuse, AViewHoldsTheMemoryUntilItEnds) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process viewer(*store);
  const ItemRef item = make_item(*store, a, 100);
  const base::Nanos pinned = viewer.session->pin();
  retire(a, item);
  store->advance(5 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 20), 0);
  viewer.session->unpin(pinned);
}

TEST(Reuse, TheDeadHoldNothing) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process dead(*store);
  const ItemRef item = make_item(*store, a, 100);
  dead.session->begin_operation();
  retire(a, item);
  store->kill(dead.session->client());
  store->advance(2 * expiry_ns);
  EXPECT_EQ(a.allocate(100).value(), item);
}

TEST(Reuse, OverlappingOperationsCountFromTheOldest) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process b(*store);
  const base::Nanos first = b.session->begin_operation();
  store->advance(base::millisecond_ns);
  const ItemRef item = make_item(*store, a, 100);
  const base::Nanos second = b.session->begin_operation();
  const base::Nanos third = b.session->begin_operation();
  b.session->end_operation(first);
  retire(a, item);
  b.session->end_operation(second);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 10), 0) << "the third still runs";
  b.session->end_operation(third);
}

// Receive: a session that reads now and then, stopped in the midst of a read. Expect: what it may be looking
// at is not reused, however long ago its reads before were.
TEST(Reuse, AReadHoldsTheMemoryHoweverRareReadsAre) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process reader(*store);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    reader.session->end_operation(reader.session->begin_operation());
    store->advance(3'600 * base::second_ns);
    const ItemRef item = make_item(*store, a, 100);
    store->advance(base::second_ns);
    const base::Nanos began = reader.session->begin_operation();
    store->advance(base::millisecond_ns);
    retire(a, item);
    store->advance(2 * expiry_ns);
    EXPECT_EQ(tries_until(a, item, 100, 10), 0);
    reader.session->end_operation(began);
  }
}

// Receive: a client number below the others' is held by a process that stopped before it opened its entry.
// Expect: the operations of the numbers above still hold memory.
TEST(Reuse, AGapInTheRegistryHidesNobody) {
  const auto store = make_memory(geometry);
  const auto half_open = store->attach();
  ASSERT_TRUE(half_open->claim_presence(1).value());
  Process a(*store);
  Process stuck(*store);
  ASSERT_EQ(a.session->client(), 2);
  const ItemRef item = make_item(*store, a, 100);
  stuck.session->begin_operation();
  retire(a, item);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 10), 0);
}

TEST(Reuse, AMovedItemIsClearedFirst) {
  const auto store = make_memory(geometry);
  Process a(*store);
  const ItemRef item = make_item(*store, a, 100);
  a.session->begin_move();
  a.reuse_allowed = false;
  retire(a, item, true);
  store->advance(2 * expiry_ns);
  EXPECT_EQ(tries_until(a, item, 100, 10), 0);
  EXPECT_GT(a.guarded, 0);
  a.reuse_allowed = true;
  EXPECT_EQ(tries_until(a, item, 100, 10), 0) << "it is left for later";
  store->advance(2 * expiry_ns);
  EXPECT_EQ(a.allocate(100).value(), item);
}

// Receive: two repairs of all slots at a time, after the death of a client with an unfinished move. Expect:
// what the next one leaves counts all the same.
TEST(Reuse, MovesThatAreSettledTwiceAreSettledOnce) {
  const auto store = make_memory(geometry);
  Process first(*store);
  Process second(*store);
  const auto die_moving = [&] {
    Process dead(*store);
    dead.session->begin_move();
    store->kill(dead.session->client());
    EXPECT_EQ(first.run(first.session->take_dead(0)).value(), dead.session->client());
    ASSERT_TRUE(first.run(first.session->bury(dead.session->client())).has_value());
  };
  const auto moves_linger = [&] {
    store->advance(base::second_ns);
    static_cast<void>(first.session->reusable(store->now(), 0));
    return first.session->moves_may_linger();
  };
  die_moving();
  EXPECT_TRUE(moves_linger());
  const auto seen = first.run(first.session->unfinished_moves_of_the_gone()).value();
  for (Process* each : {&first, &second})
    ASSERT_TRUE(each->run(each->session->forget_unfinished_moves(seen)).has_value());
  EXPECT_FALSE(moves_linger());
  die_moving();
  EXPECT_TRUE(moves_linger());
}

}  // namespace
}  // namespace loch::memory
