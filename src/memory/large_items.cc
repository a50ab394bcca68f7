// The part of Allocator that deals with large items, which are runs of whole blocks.
#include <array>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {

// An item of `block_total` blocks. Its head is leased first and becomes a head last, so that a client that
// dies in between leaves blocks that settle_blocks recognizes.
coro::Task<Result<ItemRef>> Allocator::allocate_large(std::uint64_t block_total) {
  session_.count(Counter::large_allocated);
  // Else all operations that find nothing add memory, each for itself.
  const auto turn = co_await getting_blocks_.lock();
  bool swept = false;
  constexpr int rounds_max = 64;
  for (int round = 0; round < rounds_max; ++round) {
    if (auto freed = co_await free_own_large(); !freed) co_return std::unexpected(std::move(freed.error()));
    const auto list = blocks();
    if (!list) co_return std::unexpected(list.error());
    std::vector<BlockNumber> left;  // heads of items that others left
    BlockNumber run = 0;
    BlockNumber before = 0;
    DescriptorGroup group;
    for (const BlockNumber block : *list) {
      if (auto read = co_await read_descriptors(&*list, block, &group); !read)
        co_return std::unexpected(std::move(read.error()));
      if (group.has_released(block, large_class)) left.push_back(block);
      if (std::exchange(before, block) + 1 != block) run = 0;
      run = group.lease(block).state == BlockState::free ? run + 1 : 0;
      if (run < block_total) continue;
      const BlockNumber first = block + 1 - run;
      auto leased = co_await lease_run(first, block_total);
      if (!leased) co_return std::unexpected(std::move(leased.error()));
      if (*leased) co_return large_item(first);
      run = 0;
    }
    auto freed = co_await free_left_large(&left);
    if (!freed) co_return std::unexpected(std::move(freed.error()));
    if (*freed) continue;
    if (auto more = co_await extend_or_sweep(block_total, &swept); !more)
      co_return std::unexpected(std::move(more.error()));
  }
  co_return fail(Errc::no_space, "allocate", "other clients take all the memory that is freed; try again");
}

coro::Task<Result<bool>> Allocator::lease_run(BlockNumber first, std::uint64_t count) {
  std::uint64_t taken = 0;
  for (; taken < count; ++taken) {
    const auto block = static_cast<BlockNumber>(first + taken);
    auto free = co_await lease_of(block);
    if (!free) co_return std::unexpected(std::move(free.error()));
    if (free->state != BlockState::free) break;
    const LeaseWord mine = taken == 0 ? free->next(BlockState::leased, large_class, session_.client())
                                      : free->next(BlockState::large_part, large_class, session_.client(),
                                                   static_cast<std::uint8_t>(taken));
    auto won = co_await change_lease(block, free->encode(), mine);
    if (!won) co_return won;
    if (!*won) break;
  }
  LOCH_FAULT_POINT("alloc.large_leased");
  if (taken == count) {
    const std::uint64_t claimed = ItemState::claimed(session_.client(), session_.now()).encode();
    const std::uint64_t none_left = 0;
    std::array writes{fabric::Operation::write(block_address(first), &claimed, sizeof claimed),
                      fabric::Operation::write(released_address(first), &none_left, sizeof none_left)};
    if (auto done = co_await endpoint_.perform(writes); !done)
      co_return std::unexpected(std::move(done.error()));
    auto leased = co_await lease_of(first);
    if (!leased) co_return std::unexpected(std::move(leased.error()));
    auto done = co_await change_lease(first, leased->encode(),
                                      leased->next(BlockState::large_head, large_class, session_.client(),
                                                   static_cast<std::uint8_t>(count)));
    co_return done;
  }
  for (std::uint64_t i = taken; i > 0; --i) {
    const auto block = static_cast<BlockNumber>(first + i - 1);
    auto mine = co_await lease_of(block);
    if (!mine) co_return std::unexpected(std::move(mine.error()));
    if (auto done = co_await change_lease(block, mine->encode(), mine->next(BlockState::free, 0, 0)); !done) {
      co_return done;
    }
  }
  if (taken != 0) co_await endpoint_.fetch_add(frees_address_, 1);
  co_return false;
}

// Frees the large items that this session unlinked and that have rested; true if there was one.
coro::Task<Result<bool>> Allocator::free_own_large() {
  bool freed = false;
  Note note;
  while (take_rested(large_class, note, session_.now())) {
    const BlockNumber head = block_of(note.item);
    auto word = co_await lease_of(head);
    if (!word) co_return std::unexpected(std::move(word.error()));
    if (word->state != BlockState::large_head || !co_await claim(note)) continue;
    if (auto done = co_await free_large(head, *word); !done)
      co_return std::unexpected(std::move(done.error()));
    freed = true;
  }
  co_return freed;
}

// Frees those large items that others left and that have rested; true if there was one.
coro::Task<Result<bool>> Allocator::free_left_large(const std::vector<BlockNumber>* heads) {
  bool freed = false;
  for (const BlockNumber head : *heads) {
    auto word = co_await lease_of(head);
    if (!word) co_return std::unexpected(std::move(word.error()));
    if (word->state != BlockState::large_head) continue;
    auto done = co_await free_rested_large(head, *word);
    if (!done) co_return done;
    freed = freed || *done;
  }
  co_return freed;
}

coro::Task<Result<bool>> Allocator::free_rested_large(BlockNumber head, LeaseWord word) {
  const ItemRef item = large_item(head);
  const auto word_of_state = co_await endpoint_.read_word(item.address());
  if (!word_of_state) co_return std::unexpected(word_of_state.error());
  const ItemState state = ItemState::decode(*word_of_state);
  if (state.kind == ItemKind::claimed && session_.is_gone(state.client(), state.since_at_latest())) {
    // A client died while it wrote or freed it.
    const std::uint64_t mine = ItemState::claimed(session_.client(), session_.now()).encode();
    auto before = co_await endpoint_.compare_swap(item.address(), state.encode(), mine);
    if (!before || *before != state.encode()) co_return false;
  } else if (state.kind != ItemKind::retired || !session_.rested(state.value) ||
             !co_await claim({item, state.value, state.moved})) {
    co_return false;
  }
  if (auto done = co_await free_large(head, word); !done) co_return std::unexpected(std::move(done.error()));
  co_return true;
}

// The parts first: while the head stands, nobody takes it for anything but this item's.
coro::Task<Result<void>> Allocator::free_large(BlockNumber head, LeaseWord word) {
  for (std::uint8_t i = 1; i < word.block_count; ++i) {
    const BlockNumber block = head + i;
    auto part = co_await lease_of(block);
    if (!part) co_return std::unexpected(std::move(part.error()));
    // Freed already by a client that died half way.
    if (part->state != BlockState::large_part || part->client != word.client || part->block_count != i)
      continue;
    if (auto done = co_await change_lease(block, part->encode(), part->next(BlockState::free, 0, 0)); !done) {
      co_return std::unexpected(std::move(done.error()));
    }
  }
  session_.count(Counter::blocks_freed, word.block_count);
  if (auto done = co_await change_lease(head, word.encode(), word.next(BlockState::free, 0, 0)); !done) {
    co_return std::unexpected(std::move(done.error()));
  }
  co_await endpoint_.fetch_add(frees_address_, 1);
  co_return Result<void>{};
}

}  // namespace loch::memory
