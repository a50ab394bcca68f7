// The part of Allocator that looks at the items of blocks: it finds what others left and what dead clients
// did, and frees blocks.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {
namespace {

// Items that are as far apart as that are looked at one by one, and what lies between is not read.
constexpr std::uint64_t apart_from_bytes = 4096;

}  // namespace

coro::Task<Result<void>> Allocator::look_at_items(BlockNumber block, LeaseWord lease,
                                                  std::vector<ItemWords>* into) {
  into->clear();
  const std::uint32_t count = items_of(lease);
  if (count == 0) co_return Result<void>{};
  const std::uint64_t stride =
      lease.state == BlockState::large_head ? block_bytes : class_bytes[lease.size_class];
  if (stride >= apart_from_bytes) co_return co_await look_at_headers(block, stride, count, into);
  const std::uint64_t length = (count - 1) * stride + sizeof(ItemHeader);
  const auto bytes = co_await endpoint_.fetch(block_address(block), length);
  if (!bytes) co_return std::unexpected(bytes.error());
  into->reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* item = bytes->data() + i * stride;
    into->push_back({.state = ItemState::decode(fabric::load_word(item)),
                     .written_at_ns = fabric::load_word(item + offsetof(ItemHeader, written_at_ns))});
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Allocator::look_at_headers(BlockNumber block, std::uint64_t stride,
                                                    std::uint32_t count, std::vector<ItemWords>* into) {
  std::vector<ItemHeader> headers(count);
  std::vector<fabric::Operation> reading;
  reading.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i)
    reading.push_back(
        fabric::Operation::read(block_address(block) + i * stride, &headers[i], sizeof(ItemHeader)));
  if (auto read = co_await endpoint_.perform(reading); !read) co_return read;
  for (const ItemHeader& header : headers)
    into->push_back({.state = ItemState::decode(header.state), .written_at_ns = header.written_at_ns});
  co_return Result<void>{};
}

// Sweeps blocks of `size_class` in which others left items, until some is found; true if it was. What still
// rests there will have rested at a later tick of the clock, so nothing is looked for twice in one.
coro::Task<Result<bool>> Allocator::find_released(std::uint8_t size_class) {
  if (searched_released_at_[size_class] == session_.now()) co_return false;
  constexpr int blocks_swept_max = 8;
  int blocks_swept = 0;
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  DescriptorGroup group;
  for (std::size_t step = 0; step < count && blocks_swept < blocks_swept_max; ++step) {
    if (next_released_ >= count) next_released_ = 0;
    const BlockNumber block = list[next_released_++];
    if (auto read = co_await read_descriptors(&list, block, &group); !read)
      co_return std::unexpected(std::move(read.error()));
    if (!group.has_released(block, size_class)) continue;
    ++blocks_swept;
    // To free a block takes its items one by one, which is far for a remote session that waits for one of
    // them.
    auto swept = co_await sweep_block(block, group.lease(block),
                                      session_.remote() ? Sweep::takes_notes : Sweep::frees);
    if (!swept) co_return std::unexpected(std::move(swept.error()));
    if (*swept != Swept::nothing) co_return true;
  }
  searched_released_at_[size_class] = session_.now();
  co_return false;
}

// Takes notes of those items of a full or open block that have rested, or frees it if it is to and all have.
coro::Task<Result<Allocator::Swept>> Allocator::sweep_block(BlockNumber block, LeaseWord word, Sweep how) {
  const std::uint8_t size_class = word.size_class;
  if (size_class >= size_class_count) co_return Swept::nothing;  // no client writes such a descriptor
  const LeaseWord swept = word.next(BlockState::swept, size_class, session_.client());
  auto won = co_await change_lease(block, word, swept);
  if (!won) co_return std::unexpected(std::move(won.error()));
  if (!*won) co_return Swept::nothing;
  LOCH_FAULT_POINT("sweep.after_lease");
  if (auto cleared = co_await endpoint_.write_word(released_address(block), 0); !cleared) {
    co_return std::unexpected(std::move(cleared.error()));
  }
  std::vector<ItemWords> items;
  if (auto looked = co_await look_at_items(block, word, &items); !looked)
    co_return std::unexpected(std::move(looked.error()));
  const bool open = word.state == BlockState::open;
  const auto cut = std::min(static_cast<std::uint32_t>(items.size()), open ? word.cut() : ~0U);
  std::vector<Note> rested;
  std::uint64_t resting = 0;  // still
  for (std::uint32_t i = 0; i < cut; ++i) {
    const auto& [state, written_at_ns] = items[i];
    if (state.kind != ItemKind::retired) continue;
    if (session_.reusable(state.value, written_at_ns)) {
      rested.push_back({item_in_block(block, size_class, i), state.encode()});
    } else {
      ++resting;
    }
  }
  std::size_t claimed = 0;
  if (how == Sweep::frees && rested.size() == cut) claimed = co_await claim_first(&rested);
  if (how == Sweep::frees && claimed == cut) {
    LOCH_FAULT_POINT("sweep.before_free");
    session_.count(Counter::blocks_freed);
    auto freed = co_await free_block(block, swept);
    if (!freed) co_return std::unexpected(std::move(freed.error()));
    co_return *freed ? Swept::block : Swept::nothing;
  }
  session_.count(Counter::items_reused, claimed);
  for (std::size_t i = 0; i < claimed; ++i) spares_[size_class].push_back(rested[i].item);
  auto& notes = notes_[size_class];
  for (std::size_t i = rested.size(); i > claimed; --i) notes.push_front(rested[i - 1]);
  // What still rests is counted again, so that a later sweep comes for it.
  if (resting != 0) co_await endpoint_.fetch_add(released_address(block), resting);
  const LeaseWord back =
      open ? swept.next_open(size_class, word.cut()) : swept.next(BlockState::full, size_class, 0);
  LOCH_FAULT_POINT("sweep.before_return");
  auto returned = co_await change_lease(block, swept, back);
  if (!returned) co_return std::unexpected(std::move(returned.error()));
  // Whoever looked meanwhile did not see it.
  if (open) co_await endpoint_.fetch_add(frees_address_, 1);
  co_return rested.empty() ? Swept::nothing : Swept::items;
}

// Claims items, many beside each other, until one can not be had. Those that it got come first; how many.
coro::Task<std::size_t> Allocator::claim_first(std::vector<Note>* notes) {
  constexpr std::size_t at_once_max = 256;
  std::size_t got = 0;
  for (std::size_t from = 0; from == got && from < notes->size(); from += at_once_max) {
    const auto group = std::span(*notes).subspan(from, std::min(at_once_max, notes->size() - from));
    got += co_await claim_all(group, fabric::Urgency::awaited);
  }
  co_return got;
}

// Of all sessions whose numbers nobody has taken since.
coro::Task<Result<void>> Allocator::settle_the_dead() {
  for (std::uint16_t last = 0;;) {
    const auto dead = co_await session_.take_dead(last);
    if (!dead) co_return std::unexpected(dead.error());
    if (*dead == 0) co_return Result<void>{};
    last = *dead;
    session_.count(Counter::sessions_reaped);
    if (auto settled = co_await settle_blocks(last); !settled) {
      session_.leave_dead(last);
      co_return settled;
    }
    LOCH_FAULT_POINT("settle.before_bury");
    if (auto buried = co_await session_.bury(last); !buried) co_return buried;
  }
}

coro::Task<Result<std::uint64_t>> Allocator::sweep_all() {
  std::uint64_t freed = 0;
  if (session_.remote()) {
    if (auto fresh = co_await session_.refresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  }
  if (auto settled = co_await settle_the_dead(); !settled)
    co_return std::unexpected(std::move(settled.error()));
  const auto list = blocks();
  if (!list) co_return std::unexpected(list.error());
  for (const BlockNumber block : *list) {
    const auto is_freed = co_await sweep_one(block);
    if (!is_freed) co_return std::unexpected(is_freed.error());
    freed += *is_freed ? 1 : 0;
  }
  searched_ = {};  // whoever freed a block may have died before it counted that
  co_return freed;
}

// The next blocks, from where the last such sweep ended, until then, or until all have been looked at that
// were not yet in vain (swept_in_vain_); one at least. How many.
coro::Task<Result<std::size_t>> Allocator::sweep_on(base::Nanos until) {
  if (session_.remote()) {
    if (auto fresh = co_await session_.refresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  }
  if (swept_in_vain_ == 0) {
    if (auto settled = co_await settle_the_dead(); !settled)
      co_return std::unexpected(std::move(settled.error()));
  }
  const auto list = blocks();
  if (!list) co_return std::unexpected(list.error());
  const std::size_t count = list->size();
  std::size_t looked_at = 0;
  for (; swept_in_vain_ + looked_at < count; ++looked_at) {
    if (looked_at != 0 && endpoint_.now() >= until) break;
    if (next_swept_ >= count) next_swept_ = 0;
    if (auto swept = co_await sweep_one((*list)[next_swept_++]); !swept)
      co_return std::unexpected(std::move(swept.error()));
  }
  searched_ = {};  // as above
  blocks_swept_ += looked_at;
  co_return looked_at;
}

// Whether it was freed.
coro::Task<Result<bool>> Allocator::sweep_one(BlockNumber block) {
  if (session_.refresh_due()) {
    if (auto fresh = co_await session_.refresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  }
  const auto word = co_await lease_of(block);
  if (!word) co_return std::unexpected(word.error());
  if (word->state == BlockState::large_head) co_return co_await free_rested_large(block, *word);
  if (word->state != BlockState::full && word->state != BlockState::open) co_return false;
  const auto swept = co_await sweep_block(block, *word, Sweep::frees);
  if (!swept) co_return std::unexpected(swept.error());
  co_return *swept == Swept::block;
}

coro::Task<Result<void>> Allocator::settle_blocks(std::uint16_t dead) {
  const auto list = blocks();
  if (!list) co_return std::unexpected(list.error());
  BlockNumber head = 0;  // of the last large item there was
  LeaseWord of_head;
  DescriptorGroup group;
  for (const BlockNumber block : *list) {
    if (auto read = co_await read_descriptors(&*list, block, &group); !read) co_return read;
    const LeaseWord word = group.lease(block);
    if (word.state == BlockState::large_head) {
      head = block;
      of_head = word;
    }
    if (word.client != dead) continue;
    // Else it is freed with its head. One may stand there that lost its parts to others (free_large).
    if (word.state == BlockState::large_part && !is_part(word, block - head, of_head)) {
      if (auto freed = co_await free_block(block, word); !freed)
        co_return std::unexpected(std::move(freed.error()));
    }
    if (word.state == BlockState::leased || word.state == BlockState::swept) {
      if (auto done = co_await settle_block(block, word, dead); !done) co_return done;
    }
  }
  if (dead == session_.client()) session_.has_settled();
  co_return Result<void>{};
}

// A block that a dead client was cutting or sweeping: what it never wrote has nobody.
coro::Task<Result<void>> Allocator::settle_block(BlockNumber block, LeaseWord word, std::uint16_t dead) {
  if (word.size_class == large_class) {
    if (auto freed = co_await free_block(block, word); !freed)
      co_return std::unexpected(std::move(freed.error()));
    co_return Result<void>{};
  }
  std::vector<ItemWords> items;
  if (auto looked = co_await look_at_items(block, word, &items); !looked) co_return looked;
  // What was cut last says whose it is, or its owner died before that: then it is as good as uncut.
  auto cut = static_cast<std::uint32_t>(items.size());
  while (cut > 0 && items[cut - 1].state.kind == ItemKind::fresh) --cut;
  std::vector<Unlinked> unwritten;
  for (std::uint32_t i = 0; i < cut; ++i) {
    const ItemState state = items[i].state;
    const bool never_written =
        state.kind == ItemKind::fresh || (state.kind == ItemKind::claimed && state.client() == dead);
    if (never_written) unwritten.push_back({.item = item_in_block(block, word.size_class, i)});
  }
  if (auto left = co_await mark_retired(unwritten, long_ago, fabric::Urgency::awaited); !left) co_return left;
  co_await endpoint_.fetch_add(released_address(block), unwritten.size() + 1);
  const LeaseWord after = cut < items.size() ? word.next_open(word.size_class, cut)
                                             : word.next(BlockState::full, word.size_class, 0);
  LOCH_FAULT_POINT("settle.before_return");
  auto settled = co_await change_lease(block, word, after);
  if (!settled) co_return std::unexpected(std::move(settled.error()));
  co_await endpoint_.fetch_add(frees_address_, 1);
  co_return Result<void>{};
}

}  // namespace loch::memory
