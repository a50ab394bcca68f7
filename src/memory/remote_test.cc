// Sessions that do not map the control region (docs/memory.md, "Remote sessions").
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "coro/scope.h"
#include "fabric/testing/memory_store.h"
#include "memory/allocator.h"
#include "memory/testing/store_readers.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fabric::fake::MemoryStore;
using fake::elsewhere;
using fake::expiry_ns;
using fake::geometry;
using fake::make_item;
using fake::make_memory;
using fake::Process;
using fake::retire;
using fake::tell_time;

class Remote : public testing::Test {
 protected:
  Remote() { tell_time(*store_); }

  void pass(base::Nanos time_ns) {
    store_->advance(time_ns);
    tell_time(*store_);
  }
  static void refresh(Process& process) { ASSERT_TRUE(process.run(process.session->refresh()).has_value()); }
  ClientEntry& entry(const Process& process) {
    return reinterpret_cast<ClientEntry*>(
        store_->at({control_region, registry_offset}))[process.session->client()];
  }

  std::shared_ptr<MemoryStore> store_ = make_memory(geometry);
};

TEST_F(Remote, GoesByTheTimeOfItsCopy) {
  Process far(elsewhere(*store_));
  ASSERT_TRUE(far.session->remote());
  EXPECT_LE(far.session->now(), store_->now());
  const base::Nanos before = far.session->now();
  pass(base::second_ns);
  EXPECT_EQ(far.session->now(), before);
  EXPECT_TRUE(far.session->refresh_due());
  refresh(far);
  EXPECT_GT(far.session->now(), before);
  EXPECT_FALSE(far.session->refresh_due());
}

// Receive: a refresh, where there are all sessions that there may be. Expect: of each, what others go by is
// read, and nothing else.
TEST_F(Remote, ReadsOfTheOthersWhatItGoesBy) {
  std::uint64_t bytes = 0;
  Process far(std::make_shared<fabric::fake::PostingFabric>(
      store_, fabric::fake::PostingOptions{.before = [&](const fabric::Operation& one) {
        if (one.kind == fabric::Operation::Kind::read) bytes += one.length_bytes;
      }}));
  fabric::store_word(store_->at({control_region, clients_end_offset}), client_count_max);
  refresh(far);  // and reads anew, as there are more of them
  bytes = 0;
  refresh(far);
  EXPECT_LE(bytes, registry_offset + std::uint64_t{client_count_max} * 128 + 2 * sizeof(std::uint64_t));
}

// Receive: what another session has counted since the last refresh, and one that has gone. Expect: both
// count.
TEST_F(Remote, CountsWhatAllHaveCounted) {
  Process far(elsewhere(*store_));
  far.session->count(Counter::get_hit, 1);
  {
    Process near(*store_);
    near.session->count(Counter::get_hit, 10);
    EXPECT_EQ(far.run(far.session->totals()).value()[Counter::get_hit], 1U) << "it is not known of";
    refresh(far);
    EXPECT_EQ(far.run(far.session->totals()).value()[Counter::get_hit], 11U);
    near.session->count(Counter::get_hit, 100);
    EXPECT_EQ(far.run(far.session->totals()).value()[Counter::get_hit], 111U);
  }
  EXPECT_EQ(far.run(far.session->totals()).value()[Counter::get_hit], 111U);
}

// What it says in the registry holds for all operations that it may begin before it says so anew.
TEST_F(Remote, HoldsWhatItMayHaveSeenUntilItRefreshes) {
  Process near(*store_);
  Process far(elsewhere(*store_));
  const ItemRef item = make_item(*store_, near, 100);
  pass(base::millisecond_ns);
  retire(near, item);
  pass(10 * expiry_ns);
  for (int i = 0; i < 50; ++i) ASSERT_NE(near.allocate(100).value(), item);
  refresh(far);
  pass(2 * expiry_ns);
  // Its note was dropped; it is found when another block is needed.
  const auto blocks = near.allocator->blocks().value().size();
  while (near.allocate(100).value() != item)
    ASSERT_LE(near.allocator->blocks().value().size(), blocks + 2) << "the item never came back";
}

TEST_F(Remote, AnOperationThatGoesOnHoldsOnThroughARefresh) {
  Process near(*store_);
  Process far(elsewhere(*store_));
  const base::Nanos began = far.session->begin_operation();
  pass(base::millisecond_ns);
  const ItemRef item = make_item(*store_, near, 100);
  retire(near, item);
  pass(2 * expiry_ns);
  refresh(far);
  pass(2 * expiry_ns);
  for (int i = 0; i < 50; ++i) ASSERT_NE(near.allocate(100).value(), item);
  far.session->end_operation(began);
}

// A time of unlinking must not be older than the start of an operation that may have seen the item, however
// old the copy is that the unlinker goes by.
TEST_F(Remote, RetiresAtATimeThatNoOperationBeganAfter) {
  Process near(*store_);
  Process far(elsewhere(*store_));
  const ItemRef item = make_item(*store_, far, 100);
  store_->advance(base::second_ns / 10);  // and nobody tells
  const base::Nanos began = near.session->begin_operation();
  retire(far, item);
  const ItemState state = ItemState::decode(fabric::load_word(store_->at(item.address())));
  EXPECT_EQ(state.kind, ItemKind::retired);
  EXPECT_GE(state.value, began);
  near.session->end_operation(began);
}

TEST_F(Remote, WhatItCanNotKnowYetMayBe) {
  Process far(elsewhere(*store_));
  const std::uint16_t nobody_yet = 7;
  EXPECT_TRUE(far.session->is_gone(nobody_yet, far.session->now() - 1));
  EXPECT_FALSE(far.session->is_gone(nobody_yet, far.session->now())) << "it may have come since";
  EXPECT_FALSE(far.session->may_still_run(nobody_yet, far.session->now() - 1));
  EXPECT_TRUE(far.session->may_still_run(nobody_yet, far.session->now()));
}

TEST_F(Remote, WhatItKeepsIsSafeFromItself) {
  Process far(elsewhere(*store_));
  const base::Nanos seen_at = far.session->now();
  const ItemRef item = make_item(*store_, far, 100);
  retire(far, item);
  pass(2 * expiry_ns);
  ASSERT_LE(far.session->kept_since(), seen_at);
  EXPECT_NE(far.allocate(100).value(), item) << "it has not said that it is past what it saw";
  far.run(far.allocator->close());  // what it claims for later is an operation, too
  refresh(far);
  EXPECT_GT(far.session->kept_since(), seen_at);
}

TEST_F(Remote, LeavesItsCountsAndNothingElse) {
  std::uint16_t number = 0;
  {
    Process far(elsewhere(*store_));
    number = far.session->client();
    far.session->count(Counter::get_hit, 5);
    refresh(far);
    far.session->count(Counter::get_hit, 2);
    EXPECT_EQ(entry(far).open, 1U);
    EXPECT_NE(entry(far).op_start_ns, 0U);
  }
  Process near(*store_);
  EXPECT_EQ(near.session->client(), number) << "its number is free";
  EXPECT_EQ(near.run(near.session->totals()).value()[Counter::get_hit], 7U);
  EXPECT_EQ(entry(near).unfinished_moves, 0U);
  EXPECT_FALSE(near.session->took_over());
}

// Nobody knows whether a remote session that died had begun a move.
TEST_F(Remote, LeavesMovesInDoubtWhenItDies) {
  Process near(*store_);
  {
    Process far(elsewhere(*store_));
    store_->kill(far.session->client());
    EXPECT_EQ(near.run(near.session->take_dead(0)).value(), far.session->client());
    ASSERT_TRUE(near.run(near.session->bury(far.session->client())).has_value());
  }
  EXPECT_EQ(near.run(near.session->unfinished_moves_of_the_gone()).value(), 1U);
}

TEST_F(Remote, TakesTheNumberOfADeadClientAndGoesOnWithItsNonces) {
  std::uint64_t last = 0;
  auto first = std::make_unique<Process>(elsewhere(*store_));
  for (int i = 0; i < 100; ++i) last = first->session->next_nonce();
  const std::uint16_t number = first->session->client();
  store_->kill(number);
  // All numbers that nobody ever had are free: it is taken for its own sake.
  Process reaper(elsewhere(*store_, 2));
  ASSERT_EQ(reaper.run(reaper.session->take_dead(0)).value(), number);
  ASSERT_TRUE(reaper.run(reaper.session->bury(number)).has_value());
  Process second(elsewhere(*store_, 3));
  ASSERT_EQ(second.session->client(), number);
  EXPECT_GT(second.session->next_nonce(), last);
}

coro::Task<bool> allocate_at_once(Process* process, std::size_t count, std::uint64_t bytes) {
  std::vector<coro::Task<Result<ItemRef>>> tasks;
  for (std::size_t i = 0; i < count; ++i) tasks.push_back(process->allocator->allocate(bytes));
  co_await coro::run_together(&process->session->endpoint().queue(), std::span(tasks));
  bool all = true;
  for (auto& task : tasks) all = all && task.take().has_value();
  co_return all;
}

// Receive: many operations that all find no memory. Expect: one of them adds some, and it is enough for all.
TEST_F(Remote, OperationsThatRunOutOfMemoryTogetherAddItOnce) {
  Process far(elsewhere(*store_));
  ASSERT_TRUE(far.run(allocate_at_once(&far, 64, 100)));
  EXPECT_LE(far.allocator->blocks().value().size(), 2U);
  // Of items that take whole blocks, no more are added than are wanted, but for what one extension is rounded
  // to.
  const std::size_t before = far.allocator->blocks().value().size();
  ASSERT_TRUE(far.run(allocate_at_once(&far, 16, 2 * block_bytes)));
  EXPECT_LE(far.allocator->blocks().value().size(), before + std::size_t{16} * 3 + 16);
}

// Receive: a session that looks for a free block, and for some in a row, in a store of hundreds that are all
// used. Expect: it takes no round trip for each of them.
TEST_F(Remote, LooksAtManyBlocksAtOnce) {
  Process near(*store_);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(near.allocate(block_bytes / 2 + 1).has_value());
  std::uint64_t round_trips = 0;
  Process far(std::make_shared<fabric::fake::PostingFabric>(
      store_, fabric::fake::PostingOptions{
                  .seed = 3, .mapped = {}, .before = {}, .round_trips = &round_trips, .held = {}}));
  for (const std::uint64_t bytes : {std::uint64_t{100}, 3 * block_bytes}) {
    const std::uint64_t before = round_trips;
    ASSERT_TRUE(far.allocate(bytes).has_value());
    EXPECT_LE(round_trips - before, 30U) << bytes << " bytes";
  }
}

// Receive: a block of long items. Expect: no more is read of it than what says whose they are.
TEST_F(Remote, LongItemsAreLookedAtWithoutTheirValues) {
  Process near(*store_);
  std::uint64_t bytes = 0;
  Process far(std::make_shared<fabric::fake::PostingFabric>(
      store_,
      fabric::fake::PostingOptions{.seed = 3,
                                   .mapped = {},
                                   .before = [&](const fabric::Operation& one) { bytes += one.length_bytes; },
                                   .held = {}}));
  const ItemRef item = near.allocate(block_bytes / 10).value();
  const BlockNumber block = block_of(item);
  const LeaseWord lease = far.run(far.allocator->lease_of(block)).value();
  std::vector<Allocator::ItemWords> items;
  const std::uint64_t before = bytes;
  ASSERT_TRUE(far.run(far.allocator->look_at_items(block, lease, &items)).has_value());
  EXPECT_GE(items.size(), 5U);
  EXPECT_EQ(bytes - before, items.size() * sizeof(ItemHeader));
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    const std::uint64_t state = fabric::load_word(store_->at(item_of(block, lease, i).address()));
    EXPECT_EQ(items[i].state.encode(), state) << i;
  }
}

// However many steps an operation has: it asks before each whether to refresh.
TEST_F(Remote, NeverRunsOutOfNonces) {
  Process far(elsewhere(*store_));
  constexpr std::uint64_t wanted = std::uint64_t{1} << 25;  // more than are reserved at once
  std::uint64_t last = 0;
  bool rises = true;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    if (far.session->refresh_due()) refresh(far);
    const std::uint64_t nonce = far.session->next_nonce();
    rises = rises && nonce > last;
    last = nonce;
  }
  EXPECT_TRUE(rises);
}

// Receive: items that this session unlinked, and that rest because of what it said itself: an operation ran
// when it said so. Expect: it keeps its notes of them until they have rested, and then uses them again.
TEST_F(Remote, KeepsItsNotesOfWhatRestsBecauseOfItself) {
  Process far(elsewhere(*store_));
  const base::Nanos began = far.session->begin_operation();
  pass(base::millisecond_ns);
  std::vector<ItemRef> items;
  for (int i = 0; i < 300; ++i) items.push_back(make_item(*store_, far, 100));
  for (const ItemRef& item : items) retire(far, item);
  pass(2 * expiry_ns);
  refresh(far);
  const auto uses_one_again = [&] {
    return std::ranges::find(items, far.allocate(100).value()) != items.end();
  };
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(uses_one_again());
  far.session->end_operation(began);
  for (int i = 0; i < 2; ++i) {
    pass(expiry_ns / 2);
    refresh(far);
    uses_one_again();  // what it claims for later is an operation, too, and goes on now
  }
  int used_again = 0;
  // Those that were claimed before come first.
  for (int i = 0; i < 1'000; ++i) used_again += uses_one_again() ? 1 : 0;
  EXPECT_GT(used_again, 290);
}

// Receive: others that all hold on to what was there, as remote sessions always do. Expect: one question
// about who is there, and one more for each that is gone and said that it held on for longer.
TEST_F(Remote, AsksWhoIsThereOnlyUntilNobodyElseMatters) {
  std::vector<std::unique_ptr<Process>> others;
  for (std::uint64_t i = 0; i < 20; ++i) {
    others.push_back(std::make_unique<Process>(elsewhere(*store_, i + 1)));
    pass(10 * base::millisecond_ns);
  }
  std::uint64_t asked = 0;
  Process far(std::make_shared<fabric::fake::PostingFabric>(
      store_, fabric::fake::PostingOptions{.seed = 21, .presence_asked = &asked}));
  for (std::uint64_t gone = 0; gone < 3; ++gone) {
    pass(2 * expiry_ns);
    refresh(far);
    asked = 0;
    const base::Nanos held_since = entry(*others[gone]).pin_start_ns;
    EXPECT_FALSE(far.session->rested(held_since));
    EXPECT_TRUE(far.session->rested(held_since - 1));
    EXPECT_EQ(asked, gone + 1);
    store_->kill(others[gone]->session->client());
  }
}

// What may be used again by the words of all others, each asked whether it is there.
class Others {
 public:
  Others(MemoryStore& store, base::Nanos horizon) : horizon_(horizon) {
    const auto fabric = store.attach();
    const auto* entries = reinterpret_cast<const ClientEntry*>(store.at({control_region, registry_offset}));
    for (std::uint32_t client = 1; client < client_count_max; ++client) {
      const ClientEntry& each = entries[client];
      for (const base::Nanos start : {each.op_start_ns, each.pin_start_ns}) {
        if (each.open != 0 && start != 0 && start <= horizon && fabric->present(client))
          hold(start, each.act_until_ns);
      }
    }
  }
  void hold(base::Nanos from, base::Nanos until) {
    from_ = std::min(from_, from);
    until_ = std::max(until_, until);
  }
  [[nodiscard]] bool let_reuse(base::Nanos unlinked, base::Nanos written) const {
    return unlinked <= horizon_ && (unlinked < from_ || written > until_);
  }

 private:
  static constexpr base::Nanos for_ever = std::numeric_limits<base::Nanos>::max();
  const base::Nanos horizon_;
  base::Nanos from_ = for_ever;
  base::Nanos until_ = 0;
};

// Receive: sessions here and elsewhere, in the midst of something or not, some of them dead. Expect: what
// may be used again is what it would be if each of them were asked for.
TEST_F(Remote, WhatRestsIsTheSameAsIfAllWereAskedFor) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    base::Random random(seed);
    std::vector<std::unique_ptr<Process>> processes;
    std::vector<base::Nanos> times{store_->now()};
    for (int i = 0; i < 12; ++i) {
      const bool is_near = random.below(2) == 0;
      auto& one = *processes.emplace_back(is_near ? std::make_unique<Process>(*store_)
                                                  : std::make_unique<Process>(elsewhere(*store_, seed)));
      if (random.below(2) == 0) one.session->begin_operation();
      if (random.below(3) == 0) store_->kill(one.session->client());
      pass(random.below(600) * base::millisecond_ns);
      times.push_back(store_->now());
    }
    Process near(*store_);
    Process far(elsewhere(*store_, 1'000 + seed));
    pass(random.below(3) * expiry_ns);
    refresh(far);
    const Others around_near(*store_, near.session->now() - expiry_ns);
    const base::Nanos far_horizon = far.session->now() - expiry_ns;
    Others around_far(*store_, far_horizon);
    if (far.session->kept_since() <= far_horizon)
      around_far.hold(far.session->kept_since(), std::numeric_limits<base::Nanos>::max());
    for (const base::Nanos unlinked : times) {
      for (const base::Nanos written : times) {
        for (const base::Nanos before_ns : {0, 1}) {
          EXPECT_EQ(near.session->reusable(unlinked - before_ns, written),
                    around_near.let_reuse(unlinked - before_ns, written));
          EXPECT_EQ(far.session->reusable(unlinked - before_ns, written),
                    around_far.let_reuse(unlinked - before_ns, written));
        }
      }
    }
  }
}

// ---- those that may only read

class Readers : public Remote {
 protected:
  // Whatever it posts that it may not has a bad address, so all that succeeds here is what it may.
  std::shared_ptr<fabric::Fabric> to_read(Atomics atomics = Atomics::processor) {
    auto fabric =
        std::make_shared<fabric::fake::PostingFabric>(store_, fabric::fake::PostingOptions{.seed = ++seed_});
    fabric->only_read(fake::readers_of(RegionMap::of_one_host(), atomics));
    return fabric;
  }
  std::uint64_t seed_ = 1;
};

TEST_F(Readers, AreThereForTheOthersWhileTheyAreOpen) {
  Process near(*store_);
  std::uint16_t number = 0;
  {
    Process reader(to_read());
    number = reader.session->client();
    EXPECT_TRUE(reader.session->reads_only());
    EXPECT_NE(number, near.session->client());
    EXPECT_EQ(near.session->living(), 2U);
    EXPECT_NE(entry(reader).op_start_ns, 0U);
    EXPECT_TRUE(near.session->may_still_run(number, near.session->now()));
    reader.session->count(Counter::get_hit, 3);
    refresh(reader);
    EXPECT_EQ(near.run(near.session->totals()).value()[Counter::get_hit], 3U);
    reader.session->count(Counter::get_hit, 2);
  }
  EXPECT_EQ(near.session->living(), 1U);
  EXPECT_EQ(near.run(near.session->totals()).value()[Counter::get_hit], 5U);
  EXPECT_EQ(near.run(near.session->unfinished_moves_of_the_gone()).value(), 0U) << "it moved nothing";
  Process next(to_read());
  EXPECT_EQ(next.session->client(), number);
  EXPECT_EQ(next.session->stats()[Counter::get_hit], 0U) << "what others counted is not its own";
  EXPECT_FALSE(next.session->took_over());
}

TEST_F(Readers, HoldWhatTheyMayHaveSeen) {
  Process near(*store_);
  Process reader(to_read());
  const base::Nanos began = reader.session->begin_operation();
  pass(base::millisecond_ns);
  const ItemRef item = make_item(*store_, near, 100);
  retire(near, item);
  pass(2 * expiry_ns);
  refresh(reader);
  pass(2 * expiry_ns);
  for (int i = 0; i < 50; ++i) ASSERT_NE(near.allocate(100).value(), item);
  reader.session->end_operation(began);
  refresh(reader);
  pass(2 * expiry_ns);
  const auto blocks = near.allocator->blocks().value().size();
  while (near.allocate(100).value() != item)
    ASSERT_LE(near.allocator->blocks().value().size(), blocks + 2) << "the item never came back";
}

TEST_F(Readers, HoldWhatTheyHavePinned) {
  Process near(*store_);
  const ItemRef item = make_item(*store_, near, 100);
  Process reader(to_read());
  const base::Nanos pin = reader.session->pin();
  pass(base::millisecond_ns);
  retire(near, item);
  for (int i = 0; i < 3; ++i) {
    pass(2 * expiry_ns);
    refresh(reader);
  }
  for (int i = 0; i < 50; ++i) ASSERT_NE(near.allocate(100).value(), item);
  reader.session->unpin(pin);
}

// What one that died has left, memory and moves, a reader can not settle.
TEST_F(Readers, LeaveTheNumbersOfTheDeadToOthers) {
  Process near(*store_);
  Process writer(*store_);
  const std::uint16_t number = writer.session->client();
  const std::uint64_t nonce = writer.session->next_nonce();
  store_->kill(number);
  Process reader(to_read());
  EXPECT_NE(reader.session->client(), number);
  ASSERT_TRUE(near.run(near.session->take_dead(0)).value() == number);
  ASSERT_TRUE(near.run(near.session->bury(number)).has_value());
  Process after(to_read());
  EXPECT_EQ(after.session->client(), number);
  EXPECT_GE(entry(after).next_nonce, nonce >> 12) << "its nonces are not given out again";
}

// One that dies itself leaves nothing, so that whoever only reads may take its number, too.
TEST_F(Readers, ThatDiedAreFollowedByOthers) {
  Process near(*store_);
  Process first(to_read());
  const std::uint16_t number = first.session->client();
  first.session->count(Counter::get_hit, 3);
  refresh(first);
  store_->kill(number);
  // There is no other number for those that read.
  auto* registry = reinterpret_cast<ClientEntry*>(store_->at({control_region, registry_offset}));
  for (std::uint32_t other = 1; other < client_count_max; ++other) {
    if (other == number) continue;
    registry[other].process = 1;
    registry[other].open = 1;
  }
  {
    Process next(to_read());
    EXPECT_EQ(next.session->client(), number);
    EXPECT_EQ(next.session->stats()[Counter::get_hit], 0U);
    next.session->count(Counter::get_hit, 1);
    store_->kill(number);
  }
  // One that writes settles it like others.
  EXPECT_EQ(near.run(near.session->take_dead(static_cast<std::uint16_t>(number - 1))).value(), number);
  ASSERT_TRUE(near.run(near.session->bury(number)).has_value());
  EXPECT_EQ(near.run(near.session->totals()).value()[Counter::get_hit], 4U);
}

TEST_F(Readers, OfAStoreThatADeviceChangesAreAsManyAsWereProvidedFor) {
  EXPECT_FALSE(Session::open(StoreMemory::attach(to_read(Atomics::device)).value()).has_value())
      << "nobody provided for any";
  fabric::store_word(store_->at({control_region, clients_end_offset}), device_readers_end);
  std::vector<std::unique_ptr<Process>> readers;
  for (std::uint32_t number = 1; number < device_readers_end; ++number) {
    readers.push_back(std::make_unique<Process>(to_read(Atomics::device)));
    ASSERT_EQ(readers.back()->session->client(), number);
  }
  const auto more = Session::open(StoreMemory::attach(to_read(Atomics::device)).value());
  EXPECT_EQ(more.error().code, Errc::no_space);
  readers.pop_back();
  EXPECT_TRUE(Session::open(StoreMemory::attach(to_read(Atomics::device)).value()).has_value());
}

}  // namespace
}  // namespace loch::memory
