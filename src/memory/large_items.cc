// The part of Allocator that deals with large items, which are runs of whole blocks.
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {

// An item of `block_total` blocks. Its head is leased first and becomes a head last, so that a client that
// dies in between leaves blocks that settle_blocks recognizes.
coro::Task<Result<ItemRef>> Allocator::allocate_large(std::uint64_t block_total) {
  session_.count(Counter::large_allocated);
  // One operation at a time; otherwise each that finds nothing would add memory of its own.
  const auto turn = co_await getting_blocks_.lock();
  std::optional<std::size_t> swept;
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
  co_return others_took_it();
}

// All at once; says of each whether it was done.
coro::Task<Result<void>> Allocator::change_leases(std::span<LeaseChange> changes) {
  std::vector<fabric::Operation> operations;
  operations.reserve(changes.size());
  for (const LeaseChange& each : changes)
    operations.push_back(
        fabric::Operation::compare_swap(lease_address(each.block), each.from.encode(), each.to.encode()));
  auto done = co_await endpoint_.perform(operations);
  for (std::size_t i = 0; done && i < changes.size(); ++i)
    changes[i].won = operations[i].result == changes[i].from.encode();
  co_return done;
}

// Of blocks in a row; of fewer, if there are not so many.
coro::Task<Result<std::vector<LeaseWord>>> Allocator::leases_from(BlockNumber first, std::uint64_t count) {
  // Others may have added blocks since this session asked which there are.
  if (known_blocks_.following(first) < count) {
    if (const auto all = blocks(); !all) co_return std::unexpected(all.error());
  }
  std::vector<BlockDescriptor> descriptors(std::min<std::uint64_t>(count, known_blocks_.following(first)));
  std::vector<LeaseWord> leases;
  if (descriptors.empty()) co_return leases;
  auto reading = fabric::Operation::read(lease_address(first), descriptors.data(),
                                         descriptors.size() * sizeof(BlockDescriptor));
  if (auto read = co_await endpoint_.perform({&reading, 1}); !read)
    co_return std::unexpected(std::move(read.error()));
  for (const BlockDescriptor& each : descriptors) leases.push_back(LeaseWord::decode(each.lease));
  co_return leases;
}

coro::Task<Result<bool>> Allocator::lease_run(BlockNumber first, std::uint64_t count) {
  const auto leases = co_await leases_from(first, count);
  if (!leases) co_return std::unexpected(leases.error());
  std::vector<LeaseChange> run;
  for (const LeaseWord& free : *leases) {
    const auto i = static_cast<std::uint8_t>(run.size());
    const BlockState state = i == 0 ? BlockState::leased : BlockState::large_part;
    run.push_back(
        {.block = first + i, .from = free, .to = free.next(state, large_class, session_.client(), i)});
    if (free.state != BlockState::free) co_return false;
  }
  if (run.size() != count) co_return false;
  // The head alone: of several that want the same run, the others give way to who got that.
  const auto head = std::span(run).first(1);
  const auto parts = std::span(run).subspan(1);
  if (auto done = co_await change_leases(head); !done) co_return std::unexpected(std::move(done.error()));
  if (!head[0].won) co_return false;
  if (auto done = co_await change_leases(parts); !done) co_return std::unexpected(std::move(done.error()));
  LOCH_FAULT_POINT("alloc.large_leased");
  if (!std::ranges::all_of(parts, &LeaseChange::won)) {
    std::vector<LeaseChange> back;
    for (const LeaseChange& each : run) {
      if (each.won) back.push_back({each.block, each.to, each.to.next(BlockState::free, 0, 0)});
    }
    if (auto done = co_await change_leases(back); !done) co_return std::unexpected(std::move(done.error()));
    co_await endpoint_.fetch_add(frees_address_, 1);
    co_return false;
  }
  const std::uint64_t claimed = ItemState::claimed(session_.client(), session_.now()).encode();
  const std::uint64_t none_left = 0;
  std::array writes{fabric::Operation::write(block_address(first), &claimed, sizeof claimed),
                    fabric::Operation::write(released_address(first), &none_left, sizeof none_left)};
  if (auto done = co_await endpoint_.perform(writes); !done)
    co_return std::unexpected(std::move(done.error()));
  const LeaseWord leased = head[0].to;
  co_return co_await change_lease(
      first, leased,
      leased.next(BlockState::large_head, large_class, session_.client(), static_cast<std::uint8_t>(count)));
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
             !co_await claim({item, state.encode()})) {
    co_return false;
  }
  if (auto done = co_await free_large(head, word); !done) co_return std::unexpected(std::move(done.error()));
  co_return true;
}

// The parts first: while the head stands, nobody takes it for anything but this item's.
coro::Task<Result<void>> Allocator::free_large(BlockNumber head, LeaseWord word) {
  const auto leases = co_await leases_from(head, word.block_count);
  if (!leases) co_return std::unexpected(leases.error());
  std::vector<LeaseChange> parts;
  for (std::size_t i = 1; i < leases->size(); ++i) {
    const LeaseWord& part = (*leases)[i];
    // Else it was freed already by a client that died half way.
    if (is_part(part, i, word))
      parts.push_back({static_cast<BlockNumber>(head + i), part, part.next(BlockState::free, 0, 0)});
  }
  if (auto done = co_await change_leases(parts); !done) co_return done;
  LOCH_FAULT_POINT("free_large.after_parts");
  session_.count(Counter::blocks_freed, word.block_count);
  if (auto freed = co_await free_block(head, word); !freed)
    co_return std::unexpected(std::move(freed.error()));
  co_return Result<void>{};
}

}  // namespace loch::memory
