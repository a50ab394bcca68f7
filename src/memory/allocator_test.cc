// Allocator, in simulated time. The model is a set of intervals: what is in use, and what rests.
#include "memory/allocator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <list>
#include <map>

#include "base/random.h"
#include "fabric/testing/memory_store.h"
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
using fake::write;

std::uint64_t bytes_of(ItemRef item, std::uint64_t asked) {
  return item.size_class == large_class ? blocks_of_large(asked) * block_bytes : class_bytes[item.size_class];
}

// ---- blocks

TEST(Blocks, WhatASessionLeavesWhenItClosesIsFoundByOthers) {
  const auto store = make_memory(geometry);
  ItemRef used;
  ItemRef spare;
  {
    Process a(*store);
    used = make_item(*store, a, 100);
    spare = a.allocate(100).value();
    a.discard(spare);
    retire(a, used);
  }
  store->advance(2 * expiry_ns);
  Process b(*store);
  ASSERT_TRUE(b.run(b.allocator->sweep_all()).has_value());
  const auto blocks = b.allocator->blocks().value().size();
  // All of the block has rested: it is free again, for any class.
  EXPECT_EQ(b.lease_of(block_of(used)).state, BlockState::free);
  const ItemRef other = make_item(*store, b, 1000);
  EXPECT_EQ(block_of(other), block_of(used));
  EXPECT_EQ(b.allocator->blocks().value().size(), blocks);
}

// Receive: a session ends with a block that it has begun to cut. Expect: the next one goes on where it ended.
TEST(Blocks, ABlockThatWasBegunIsGoneOnWith) {
  const auto store = make_memory(geometry);
  for (const bool posts : {false, true}) {
    SCOPED_TRACE(posts ? "posted" : "mapped");
    const auto join = [&] { return posts ? fake::posting_blocks(*store) : store->attach(); };
    ItemRef last;
    for (int session = 0; session < 5; ++session) {
      Process a(join());
      const ItemRef item = make_item(*store, a, 100'000);
      if (session != 0) EXPECT_EQ(item, item_in_block(block_of(last), last.size_class, session));
      last = item;
    }
    const LeaseWord lease = Process(*store).lease_of(block_of(last));
    EXPECT_EQ(lease.state, BlockState::open);
    EXPECT_EQ(lease.cut(), 5U);
    Process b(*store);
    for (std::uint32_t i = 0; i < 5; ++i) retire(b, item_in_block(block_of(last), last.size_class, i));
    store->advance(2 * expiry_ns);
    EXPECT_EQ(b.run(b.allocator->sweep_all()).value(), 1U);
    EXPECT_EQ(b.lease_of(block_of(last)).state, BlockState::free);
  }
}

TEST(Blocks, ABlockWithOneItemInUseKeepsItsClass) {
  const auto store = make_memory(geometry);
  Process a(*store);
  std::vector<ItemRef> items;
  const std::uint32_t in_block = items_in_block(size_class_of(1000));
  for (std::uint32_t i = 0; i < in_block; ++i) items.push_back(make_item(*store, a, 1000));
  const BlockNumber block = block_of(items[0]);
  ASSERT_EQ(a.lease_of(block).state, BlockState::full);
  for (std::size_t i = 1; i < items.size(); ++i) retire(a, items[i]);
  store->advance(2 * expiry_ns);
  ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
  EXPECT_EQ(a.lease_of(block).state, BlockState::full);
  retire(a, items[0]);
  store->advance(2 * expiry_ns);
  EXPECT_GE(a.run(a.allocator->sweep_all()).value(), 1U);
  EXPECT_EQ(a.lease_of(block).state, BlockState::free);
}

TEST(Blocks, ADeadClientsBlockIsSettled) {
  const auto store = make_memory(geometry);
  Process a(*store);
  Process dead(*store);
  const ItemRef linked = make_item(*store, dead, 100);
  const ItemRef unwritten = dead.allocate(100).value();
  const BlockNumber block = block_of(linked);
  ASSERT_EQ(a.lease_of(block).state, BlockState::leased);
  store->kill(dead.session->client());
  ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
  EXPECT_EQ(a.lease_of(block).state, BlockState::open);
  EXPECT_EQ(a.lease_of(block).cut(), 2U);
  EXPECT_EQ(ItemState::decode(fabric::load_word(store->at(linked.address()))).kind, ItemKind::in_use);
  // What the dead client never wrote comes back, what it wrote does not.
  bool back = false;
  for (std::uint32_t i = 0; i < items_in_block(linked.size_class) + 10; ++i) {
    const ItemRef item = a.allocate(100).value();
    EXPECT_NE(item, linked);
    back = back || item == unwritten;
  }
  EXPECT_TRUE(back);
  EXPECT_EQ(a.session->stats()[Counter::sessions_reaped], 1U);
}

TEST(Blocks, WhoeverTakesADeadClientsNumberKnowsIt) {
  const auto store = make_memory(geometry);
  std::list<Process> all;
  for (std::uint32_t i = 1; i < client_count_max; ++i) all.emplace_back(*store);
  EXPECT_FALSE(all.back().session->took_over());
  const auto memory = StoreMemory::attach(store->attach());
  const auto refused = Session::open(*memory);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::no_space);
  store->kill(17);
  const auto taken = Session::open(*memory);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ((*taken)->client(), 17);
  EXPECT_TRUE((*taken)->took_over());
}

// Receive: sessions that take a dead client's number while no other is free, and end. Expect: what that one
// left is known to be there until it has been settled.
TEST(Blocks, ADeadClientsNumberIsFreeOnceItsBlocksAreSettled) {
  const auto store = make_memory(geometry);
  Process dead(*store);
  const BlockNumber block = block_of(make_item(*store, dead, 100));
  std::list<Process> others;
  for (std::uint32_t i = 2; i < client_count_max; ++i) others.emplace_back(*store);
  store->kill(dead.session->client());
  for (const bool settles : {false, true}) {
    Process heir(*store);
    EXPECT_EQ(heir.session->client(), dead.session->client());
    EXPECT_TRUE(heir.session->took_over());
    EXPECT_EQ(heir.lease_of(block).state, BlockState::leased);
    if (settles) ASSERT_TRUE(heir.run(heir.allocator->settle_blocks(heir.session->client())).has_value());
  }
  Process last(*store);
  EXPECT_FALSE(last.session->took_over());
  EXPECT_EQ(last.lease_of(block).state, BlockState::open);
}

// Receive: a client that died while it cleared a block that had been used. Expect: the block is free again;
// what lay there, of which some looks like items that rest for ever, is none's.
TEST(Blocks, ABlockThatADeadClientWasClearingIsFree) {
  const auto store = make_memory(geometry);
  Process a(*store);
  const ItemRef large = make_item(*store, a, block_bytes);
  const BlockNumber block = block_of(large);
  const ItemState for_ever{.kind = ItemKind::retired, .value = ~std::uint64_t{0} >> 3};
  for (std::uint64_t at = sizeof(ItemHeader); at < block_bytes; at += sizeof(std::uint64_t))
    fabric::store_word(store->at(block_address(block) + at), for_ever.encode());
  retire(a, large);
  store->advance(2 * expiry_ns);
  ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
  ASSERT_EQ(a.lease_of(block).state, BlockState::free);
  fake::tell_time(*store);

  Process* dying = nullptr;
  const auto dies = [&](const fabric::Operation& operation) {
    const bool clears = operation.kind == fabric::Operation::Kind::write &&
                        operation.at == block_address(block) && operation.length_bytes == block_bytes;
    if (!clears || dying == nullptr) return;
    store->kill(std::exchange(dying, nullptr)->session->client());
    ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
    EXPECT_EQ(a.lease_of(block).state, BlockState::free);
  };
  Process dead(std::make_shared<fabric::fake::PostingFabric>(
      store, fabric::fake::PostingOptions{.mapped = {}, .before = dies, .held = {}}));
  dying = &dead;
  ItemRef last;
  for (int i = 0; i < 100 && dying != nullptr; ++i) last = dead.allocate(class_bytes.back()).value();
  EXPECT_EQ(dying, nullptr) << "it never took the block";
  EXPECT_FALSE(block_of(last) == block && a.lease_of(block).state == BlockState::free)
      << "not its own any more";
}

TEST(Blocks, NoncesGoOnAfterADeath) {
  const auto store = make_memory(geometry);
  Process dead(*store);
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) last = dead.session->next_nonce();
  const auto number = dead.session->client();
  store->kill(number);
  Process reaper(*store);
  ASSERT_EQ(reaper.run(reaper.session->take_dead(0)).value(), number);
  ASSERT_TRUE(reaper.run(reaper.session->bury(number)).has_value());
  Process heir(*store);
  ASSERT_EQ(heir.session->client(), number);
  EXPECT_GT(heir.session->next_nonce(), last);
}

// Receive: a session that has unlinked many items, and needs none for long. Expect: all of them are left to
// others, a part with each item that it unlinks.
TEST(Blocks, ManyOldNotesAreLeftToOthers) {
  const auto store = make_memory(geometry);
  Process a(*store);
  constexpr std::size_t count = 10'000;
  std::vector<ItemRef> items;
  for (std::size_t i = 0; i < count + 3; ++i) items.push_back(make_item(*store, a, 64));
  for (std::size_t i = 0; i < count; ++i) retire(a, items[i]);
  store->advance(20 * expiry_ns);
  for (std::size_t i = count; i < items.size(); ++i) retire(a, items[i]);
  std::uint64_t released = 0;
  for (const BlockNumber block : a.allocator->blocks().value())
    released += fabric::load_word(store->at(released_address(block)));
  EXPECT_EQ(released, count);
}

// Receive: items that other sessions have left, which a session finds when it has none. Expect: it counts
// each that it uses again.
TEST(Blocks, WhatOthersHaveLeftCountsAsReused) {
  const auto store = make_memory(geometry);
  Process keeper(*store);
  const std::uint32_t per_block = items_in_block(size_class_of(100'000));
  {
    Process a(*store);
    std::vector<ItemRef> items;
    for (std::uint32_t i = 0; i < per_block; ++i) items.push_back(make_item(*store, a, 100'000));
    for (std::uint32_t i = 1; i < per_block; ++i) retire(a, items[i]);
  }
  store->advance(2 * expiry_ns);
  const std::uint64_t carved = keeper.session->stats()[Counter::blocks_leased];
  for (std::uint32_t i = 1; i < per_block; ++i) ASSERT_TRUE(keeper.allocate(100'000).has_value());
  EXPECT_EQ(keeper.session->stats()[Counter::blocks_leased], carved);
  EXPECT_EQ(keeper.session->stats()[Counter::items_reused], per_block - 1);
}

// Receive: an ended session left a block of items that have rested, one of which may not be used again now.
// Expect: the others are used, and no block is leased.
TEST(Blocks, WhatIsLeftOfABlockThatCanNotBeFreedIsUsed) {
  const auto store = make_memory(geometry);
  const std::uint32_t per_block = items_in_block(size_class_of(100'000));
  {
    Process a(*store);
    a.session->begin_move();
    std::vector<ItemRef> items;
    for (std::uint32_t i = 0; i < per_block; ++i) items.push_back(make_item(*store, a, 100'000));
    for (const ItemRef& item : items) retire(a, item, item == items.back());
  }
  store->advance(2 * expiry_ns);
  Process b(*store);
  b.reuse_allowed = false;
  for (std::uint32_t i = 1; i < per_block; ++i) ASSERT_TRUE(b.allocate(100'000).has_value());
  EXPECT_EQ(b.session->stats()[Counter::blocks_leased], 0U);
  EXPECT_GT(b.guarded, 0);
}

// Receive: a session that finds no block for items of one class, and then needs some of another, of which a
// block is open. Expect: it goes on with that one.
TEST(Blocks, AnOpenBlockOfAnotherClassIsFound) {
  const auto store = make_memory(geometry);
  ItemRef begun;
  {
    Process a(*store);
    for (std::uint32_t i = 0; i < items_in_block(size_class_of(100'000)); ++i) {
      const ItemRef item = make_item(*store, a, 100'000);
      if (i != 0) retire(a, item);
    }
    begun = make_item(*store, a, 1000);
  }
  store->advance(2 * expiry_ns);
  Process b(*store);
  ASSERT_TRUE(b.allocate(100'000).has_value());
  EXPECT_EQ(b.allocate(1000).value(), item_in_block(block_of(begun), begun.size_class, 1));
  EXPECT_EQ(b.session->stats()[Counter::segments_added], 0U);
}

// Receive: a session that finds nothing that others have left of one class, and at the same time needs items
// of another. Expect: it looks for these, too.
TEST(Blocks, WhatOthersHaveLeftIsLookedForByClass) {
  const auto store = make_memory(geometry);
  {
    Process a(*store);
    for (std::uint32_t i = 0; i < items_in_block(size_class_of(100'000)); ++i) {
      const ItemRef item = make_item(*store, a, 100'000);
      if (i != 0) retire(a, item);
    }
  }
  store->advance(2 * expiry_ns);
  Process b(*store);
  ASSERT_TRUE(b.allocate(400'000).has_value());
  ASSERT_TRUE(b.allocate(100'000).has_value());
  EXPECT_EQ(b.session->stats()[Counter::segments_added], 1U);
}

// Receive: others added blocks, and this session looked at the store meanwhile (as `info` does).
// Expect: it uses the free blocks before it asks for more.
TEST(Blocks, FreeBlocksThatOthersAddedAreFound) {
  const auto store = make_memory(geometry, {.free_bytes = 8 * block_bytes});
  Process a(*store);
  while (a.allocate(400'000).has_value()) {
  }
  store->set_free_bytes(10 * block_bytes);
  const std::uint64_t blocks = a.allocator->blocks().value().size() + 10;
  ASSERT_TRUE(store->attach()->extend(first_data_region, (1 + blocks) * block_bytes).has_value());
  ASSERT_EQ(a.allocator->blocks().value().size(), blocks);
  const auto item = a.allocate(100'000);
  EXPECT_TRUE(item.has_value()) << item.error().message();
}

// ---- regions

// Receive: a region with few blocks left, which ends within one. Expect: a run that does not fit there goes
// to the next region, and nothing to places that do not exist.
TEST(Regions, TheNextOneIsUsedWhenALargeRunDoesNotFit) {
  const auto store = make_memory(geometry, {.region_bytes = fabric::region_bytes_max});
  Process a(*store);
  constexpr BlockNumber blocks = blocks_in_region_max - 4;
  ASSERT_TRUE(store->attach()->extend(first_data_region, blocks * block_bytes + block_bytes / 2).has_value());
  const LeaseWord taken = LeaseWord{}.next(BlockState::full, 0, 0);
  for (BlockNumber block = 1; block < blocks; ++block)
    fabric::store_word(store->at(lease_address(block)), taken.encode());
  const auto large = a.allocate(10 * block_bytes);
  ASSERT_TRUE(large.has_value()) << large.error().message();
  EXPECT_EQ(large->region, first_data_region + 1);
  EXPECT_EQ(a.lease_of(blocks).state, BlockState::large_part) << "it does not exist";
  for (int i = 0; i < 100; ++i) {
    const auto item = a.allocate(400'000);
    ASSERT_TRUE(item.has_value()) << item.error().message();
    EXPECT_LE(item->address().offset_bytes + 400'000, store->length_bytes(item->region));
  }
}

// Receive: a session on another host fills its memory, and then blocks that others freed. Expect: from the
// first extension on there is always a block left for the next one, and no more is added while some are free.
TEST(Regions, MoreIsAddedBeforeTheLastBlockIsTaken) {
  const auto store = make_memory(geometry);
  fake::tell_time(*store);
  Process a(fake::elsewhere(*store));
  const std::uint64_t bytes = class_bytes.back();
  std::vector<ItemRef> items;
  for (int i = 0; i < 60; ++i) {
    items.push_back(a.allocate(bytes).value());
    write(*store, a, items.back());
    const std::uint64_t block_end =
        items.back().address().offset_bytes / block_bytes * block_bytes + block_bytes;
    if (i >= 4) EXPECT_GE(store->length_bytes(items.back().region), block_end + block_bytes) << i;
  }
  const std::uint64_t length = store->length_bytes(first_data_region);
  for (const ItemRef& item : items) retire(a, item);
  store->advance(2 * expiry_ns);
  fake::tell_time(*store);
  ASSERT_TRUE(a.run(a.allocator->sweep_all()).has_value());
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(a.allocate(bytes).has_value());
  EXPECT_EQ(store->length_bytes(first_data_region), length);
}

// Receive: sessions on another host that each unlink what they have put, and end. Expect: the next one uses
// that memory, and no more is added beforehand.
TEST(Regions, WhatOthersHaveLeftIsUsedBeforeMoreIsAdded) {
  const auto store = make_memory(geometry);
  std::uint64_t length = 0;
  for (int session = 0; session < 8; ++session) {
    fake::tell_time(*store);
    Process a(fake::elsewhere(*store));
    std::vector<ItemRef> items;
    for (int i = 0; i < 60; ++i) {
      store->advance(20 * base::millisecond_ns);
      fake::tell_time(*store);
      items.push_back(a.allocate(class_bytes.back()).value());
      write(*store, a, items.back());
    }
    for (const ItemRef& item : items) retire(a, item);
    a.run(a.allocator->close());
    store->advance(2 * expiry_ns);
    if (session == 1) length = store->length_bytes(first_data_region);
  }
  EXPECT_EQ(store->length_bytes(first_data_region), length);
}

// ---- hostile memory

TEST(Damage, AnyDescriptorsAreSurvived) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto store = make_memory(geometry);
    Process a(*store);
    Process dead(*store);
    for (int i = 0; i < 3; ++i) make_item(*store, a, 400'000);
    make_item(*store, dead, 3 * block_bytes);
    store->kill(dead.session->client());
    const BlockList blocks = a.allocator->blocks().value();
    for (const BlockNumber block : blocks) {
      // Some of the words make sense in part.
      std::uint64_t word = random.next();
      if (random.below(2) == 0) {
        word = LeaseWord{.state = static_cast<BlockState>(random.below(8)),
                         .size_class = static_cast<std::uint8_t>(random.below(32)),
                         .client = static_cast<std::uint16_t>(random.below(4)),
                         .block_count = static_cast<std::uint8_t>(random.below(256)),
                         .generation = 7}
                   .encode();
      }
      fabric::store_word(store->at(lease_address(block)), word);
      fabric::store_word(store->at(released_address(block)), random.below(3));
    }
    store->advance(2 * expiry_ns);
    [[maybe_unused]] const auto swept = a.run(a.allocator->sweep_all());
    [[maybe_unused]] const auto small = a.allocate(64);
    [[maybe_unused]] const auto large = a.allocate(2 * block_bytes);
  }
}

// ---- the model

class Intervals {
 public:
  explicit Intervals(MemoryStore& store) : store_(store) {}

  // Nothing that is in use or rests is given out.
  void allocated(ItemRef item, std::uint64_t asked) {
    const std::uint64_t begin = key_of(item);
    const std::uint64_t end = begin + bytes_of(item, asked);
    ASSERT_GE(bytes_of(item, asked), asked);
    ASSERT_NE(block_of(item) % blocks_in_region_max, 0U) << "among descriptors";
    auto it = taken_.lower_bound(begin);
    if (it != taken_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != taken_.end() && it->first < end) {
      ASSERT_NE(it->second.free_from, 0U) << "in use: " << it->first << " .. " << it->second.end;
      ASSERT_LE(it->second.free_from, store_.now()) << "rests: " << it->first;
      it = taken_.erase(it);
    }
    taken_[begin] = {end, 0};
  }
  void retired(ItemRef item) { taken_[key_of(item)].free_from = store_.now() + expiry_ns; }
  void forgotten(ItemRef item) { taken_.erase(key_of(item)); }

 private:
  struct Taken {
    std::uint64_t end = 0;
    base::Nanos free_from = 0;  // 0: in use
  };
  static std::uint64_t key_of(ItemRef item) {
    return std::uint64_t{item.region} * fabric::region_bytes_max + item.address().offset_bytes;
  }
  MemoryStore& store_;
  std::map<std::uint64_t, Taken> taken_;
};

std::uint64_t random_bytes(base::Random& random) {
  switch (random.below(12)) {
    case 0:
      return 1 + random.below(4 * block_bytes);
    case 1:
    case 2:
      return 1 + random.below(block_bytes / 2);
    default:
      return 1 + random.below(random.below(2) == 0 ? 100 : 5000);
  }
}

class Model : public testing::TestWithParam<bool> {};

TEST_P(Model, AllocationsNeverOverlapAndNothingIsLost) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  const auto store = make_memory(geometry, {.free_bytes = 400 * block_bytes});
  const auto join = [&] {
    return GetParam() ? fake::posting_blocks(*store, random.next()) : store->attach();
  };
  Intervals model(*store);
  struct Owned {
    ItemRef item;
    std::uint64_t bytes = 0;
  };
  std::list<Process> processes;
  std::list<Process> graves;  // the dead clear up nothing; their objects go when all is over
  std::vector<Owned> linked;  // belongs to the index: anybody may retire it
  for (int i = 0; i < 3; ++i) processes.emplace_back(join());
  int refused = 0;
  const int steps = GetParam() ? 1'000 : 8'000;
  for (int step = 0; step < steps; ++step) {
    auto chosen = std::next(processes.begin(), static_cast<long>(random.below(processes.size())));
    Process& process = *chosen;
    const std::uint64_t dice = random.below(1000);
    if (dice < 480) {
      const std::uint64_t bytes = random_bytes(random);
      const auto item = process.allocate(bytes);
      if (!item) {
        ASSERT_EQ(item.error().code, Errc::no_space);
        ++refused;
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(model.allocated(*item, bytes));
      if (random.below(20) == 0) {
        process.discard(*item);
        model.forgotten(*item);
      } else {
        write(*store, process, *item);
        linked.push_back({*item, bytes});
      }
    } else if (dice < 980 && !linked.empty()) {
      std::swap(linked[random.below(linked.size())], linked.back());
      retire(process, linked.back().item, random.below(4) == 0);
      model.retired(linked.back().item);
      linked.pop_back();
    } else if (dice < 985) {
      const auto next = std::next(chosen);
      if (random.below(2) == 0) {
        store->kill(process.session->client());
        graves.splice(graves.end(), processes, chosen, next);
      } else {
        processes.erase(chosen);
      }
      processes.emplace_back(join());
    } else if (dice < 988) {
      ASSERT_TRUE(process.run(process.allocator->sweep_all()).has_value());
    }
    if (random.below(4) == 0) store->advance(random.below(60) * base::millisecond_ns);
  }
  // When all is unlinked and has rested, all blocks are free.
  Process last(join());
  for (const Owned& owned : linked) retire(last, owned.item);
  while (!processes.empty()) {
    store->kill(processes.front().session->client());
    graves.splice(graves.end(), processes, processes.begin());
  }
  store->advance(2 * expiry_ns);
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(last.run(last.allocator->sweep_all()).has_value());
  // But what a dead client had claimed for later stays with its block until the store above collects it.
  const BlockList list = last.allocator->blocks().value();
  for (const BlockNumber block : list) {
    const LeaseWord lease = last.lease_of(block);
    if (lease.state == BlockState::free) continue;
    std::vector<Allocator::ItemWords> items;
    ASSERT_TRUE(last.run(last.allocator->look_at_items(block, lease, &items)).has_value());
    const bool is_kept = std::ranges::any_of(items, [&](const Allocator::ItemWords& each) {
      return each.state.kind == ItemKind::claimed &&
             last.session->is_gone(each.state.client(), each.state.since_at_latest());
    });
    EXPECT_TRUE(is_kept) << "block " << block << " in state " << static_cast<int>(lease.state) << "; "
                         << refused << " refusals";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Model, testing::Bool(),
                         [](const auto& info) { return info.param ? "Posted" : "Mapped"; });

}  // namespace
}  // namespace loch::memory
