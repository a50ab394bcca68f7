// The part of Allocator that deals with whole blocks: leasing, sweeping, freeing, and what dead clients left.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <span>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "memory/allocator.h"

namespace loch::memory {
namespace {

constexpr std::uint64_t extension_blocks_max = 32;

}  // namespace

Result<BlockList> Allocator::blocks() {
  for (const fabric::RegionId region : session_.regions().data) {
    const auto length = endpoint_.length_bytes(region);
    if (!length) return std::unexpected(length.error());
    if (*length == 0) break;
  }
  take_known_blocks();
  return known_blocks_;
}

void Allocator::take_known_blocks() {
  BlockList list;
  for (const fabric::RegionId region : session_.regions().data) {
    const std::uint64_t length = endpoint_.known_length_bytes(region);
    if (length == 0) break;
    list.add(region, length);
  }
  // Nobody has looked at what is new.
  if (list.size() > known_blocks_.size()) next_block_ = known_blocks_.size();
  known_blocks_ = list;
}

bool Allocator::exists(BlockNumber block) { return endpoint_.reaches(block_address(block), block_bytes); }

coro::Task<Result<LeaseWord>> Allocator::lease_of(BlockNumber block) {
  if (!exists(block)) co_return lease_of_nothing;
  const auto word = co_await endpoint_.read_word(lease_address(block));
  if (!word) co_return std::unexpected(word.error());
  co_return LeaseWord::decode(*word);
}

coro::Task<Result<void>> Allocator::read_descriptors(const BlockList* list, BlockNumber block,
                                                     DescriptorGroup* into) {
  if (into->has(block)) co_return Result<void>{};
  constexpr std::size_t most = 256;
  into->first_ = block;
  into->descriptors_.resize(session_.remote() ? std::min(most, list->following(block)) : 1);
  auto operation = fabric::Operation::read(lease_address(block), into->descriptors_.data(),
                                           into->descriptors_.size() * sizeof(BlockDescriptor));
  auto read = co_await endpoint_.perform({&operation, 1});
  if (!read) into->descriptors_.clear();
  co_return read;
}

LeaseWord Allocator::lease_here(BlockNumber block) {
  const std::byte* lease = endpoint_.mapped(lease_address(block), sizeof(std::uint64_t));
  const bool is_here = endpoint_.mapped(block_address(block), block_bytes) != nullptr;
  return lease == nullptr || !is_here ? lease_of_nothing : LeaseWord::decode(fabric::load_word(lease));
}

coro::Task<Result<bool>> Allocator::change_lease(BlockNumber block, std::uint64_t from, LeaseWord to) {
  auto before = co_await endpoint_.compare_swap(lease_address(block), from, to.encode());
  if (!before) co_return std::unexpected(std::move(before.error()));
  co_return *before == from;
}

coro::Task<Result<bool>> Allocator::find_block(std::uint8_t size_class) {
  auto leased = co_await lease_free_block(size_class);
  if (!leased || *leased) co_return leased;
  co_return co_await find_released(size_class);
}

// Leases a free block for `size_class`, or one of that class that is open; false if none is found.
coro::Task<Result<bool>> Allocator::lease_free_block(std::uint8_t size_class) {
  const auto frees = co_await endpoint_.read_word(frees_address_);
  if (!frees) co_return std::unexpected(frees.error());
  auto leased = co_await lease_known_block(size_class, *frees);
  if (!leased || *leased) co_return leased;
  // A remote session asks its host for that, and waits, so it does not before it has to.
  if (const auto now = blocks(); !now) co_return std::unexpected(now.error());
  co_return co_await lease_known_block(size_class, *frees);
}

// One of those that this session knows of. `frees`: how often any was freed before.
coro::Task<Result<bool>> Allocator::lease_known_block(std::uint8_t size_class, std::uint64_t frees) {
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  // Nothing was freed or added since a search found nothing: there is nothing to search.
  const Searched now{.frees = frees, .blocks = count};
  if (now == searched_[size_class]) co_return false;
  DescriptorGroup group;
  for (std::size_t step = 0; step < count; ++step, ++next_block_) {
    if (next_block_ >= count) next_block_ = 0;
    const BlockNumber block = list[next_block_];
    if (auto read = co_await read_descriptors(&list, block, &group); !read)
      co_return std::unexpected(std::move(read.error()));
    auto taken = co_await take_block(block, group.lease(block), size_class);
    if (taken && *taken) {
      searched_[size_class] = {};  // where one was, there may be more
      if (auto told = co_await extend_soon(size_class, frees); !told)
        co_return std::unexpected(std::move(told.error()));
    }
    if (!taken || *taken) co_return taken;
  }
  searched_[size_class] = full_ = now;
  co_return false;
}

// If it was seen to be free, or open for the class.
coro::Task<Result<bool>> Allocator::take_block(BlockNumber block, LeaseWord seen, std::uint8_t size_class) {
  const bool open = seen.state == BlockState::open && seen.size_class == size_class;
  if (seen.state != BlockState::free && !open) co_return false;
  const bool was_used = seen.generation != 0 && !open;
  // It has no items before these are cleared: if this client dies, nobody takes what lies there for some.
  LeaseWord leased = seen.next(BlockState::leased, was_used ? large_class : size_class, session_.client());
  auto won = co_await change_lease(block, seen.encode(), leased);
  if (!won || !*won) co_return won;
  session_.count(Counter::blocks_leased);
  LOCH_FAULT_POINT("alloc.block_leased");
  if (was_used) {
    if (auto cleared = co_await clear_items(block, size_class); !cleared)
      co_return std::unexpected(std::move(cleared.error()));
    const LeaseWord cut = leased.next(BlockState::leased, size_class, session_.client());
    won = co_await change_lease(block, std::exchange(leased, cut).encode(), cut);
    if (!won || !*won) co_return won;
  }
  carvings_[size_class] = std::make_shared<Carving>(Carving{
      .block = block, .next = open ? seen.cut() : 0, .count = items_in_block(size_class), .lease = leased});
  co_return true;
}

// What an earlier use of a block left must not look like items: notes of it may still be around. Nor has
// anybody left some there.
coro::Task<Result<void>> Allocator::clear_items(BlockNumber block, std::uint8_t size_class) {
  if (endpoint_.mapped(block_address(block), block_bytes) == nullptr) {
    static const std::vector<std::byte> zeros(block_bytes);
    std::array clearing{
        fabric::Operation::write(block_address(block), zeros.data(), zeros.size()),
        fabric::Operation::write(released_address(block), zeros.data(), sizeof(std::uint64_t))};
    co_return co_await endpoint_.perform(clearing);
  }
  for (std::uint32_t i = 0; i < items_in_block(size_class); ++i) {
    auto cleared = co_await endpoint_.write_word(item_in_block(block, size_class, i).address(), 0);
    if (!cleared) co_return cleared;
  }
  co_return co_await endpoint_.write_word(released_address(block), 0);
}

coro::Task<Result<void>> Allocator::look_at_items(BlockNumber block, LeaseWord lease,
                                                  std::vector<ItemWords>* into) {
  into->clear();
  const std::uint32_t count = items_of(lease);
  if (count == 0) co_return Result<void>{};
  const std::uint64_t stride =
      lease.state == BlockState::large_head ? block_bytes : class_bytes[lease.size_class];
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

template <class LengthOf>
Result<std::uint64_t> Allocator::sum_used(LengthOf length_of) {
  std::uint64_t bytes = 0;
  for (const RegionMap::Shard& shard : session_.memory().region_map().shards) {
    if (shard.home != session_.node()) continue;
    const Result<std::uint64_t> length = length_of(shard.index);
    if (!length) return length;
    bytes += *length;
  }
  for (const fabric::RegionId region : session_.regions().data) {
    const Result<std::uint64_t> length = length_of(region);
    if (!length) return length;
    if (*length == 0) break;
    bytes += *length;
  }
  return bytes;
}

Result<std::uint64_t> Allocator::bytes_used() {
  return sum_used([this](fabric::RegionId region) { return endpoint_.length_bytes(region); });
}

// At least `blocks_wanted` in one piece, at the end of the node's last data region or in another. Errors:
// no_space (the limit, of which `bytes_used` are used; the regions).
Result<Allocator::Extension> Allocator::next_extension(std::uint64_t blocks_wanted,
                                                       std::uint64_t bytes_used) const {
  fabric::RegionId id = 0;
  std::uint64_t length_blocks = 0;
  for (const fabric::RegionId region : session_.regions().data) {
    const std::uint64_t length = endpoint_.known_length_bytes(region);
    if (length == 0 && id != 0) break;
    id = region;
    length_blocks = std::max<std::uint64_t>(length / block_bytes, 1);  // its descriptors
  }
  if (length_blocks + blocks_wanted > blocks_in_region_max) {
    const auto next = std::ranges::upper_bound(session_.regions().data, id);
    if (next == session_.regions().data.end())
      return fail(Errc::no_space, "extend", "the node has all the regions that it can have");
    id = *next;
    length_blocks = 1;
  }
  std::uint64_t added = std::clamp(length_blocks / 8, std::uint64_t{1}, extension_blocks_max);
  added = std::min(std::max(added, blocks_wanted), blocks_in_region_max - length_blocks);
  const std::uint64_t limit = session_.geometry().max_bytes;
  if (limit != 0 && bytes_used + added * block_bytes > limit) {
    added = blocks_wanted;
    if (bytes_used + added * block_bytes > limit) {
      return fail(
          Errc::no_space, "extend",
          fmt::format("{} uses {} of the {} bytes that it was created for; remove items, or create it again "
                      "with a larger max_bytes",
                      session_.memory().fabric().location(), bytes_used, limit));
    }
  }
  return Extension{.region = id, .from_blocks = length_blocks, .to_blocks = length_blocks + added};
}

// Adds blocks. If others have added some of which this session knows nothing yet, it learns of those instead.
Result<void> Allocator::extend(std::uint64_t blocks_wanted) {
  const auto used = session_.geometry().max_bytes == 0 ? 0 : bytes_used();
  if (!used) return std::unexpected(used.error());
  const auto next = next_extension(blocks_wanted, *used);
  if (!next) return std::unexpected(next.error());
  const std::uint64_t least = next->from_blocks + blocks_wanted;
  // Another host adds most of it while this session works.
  constexpr std::uint64_t waited_for_blocks = 2;
  const std::uint64_t now =
      session_.remote() ? std::min(next->to_blocks, std::max(least, next->from_blocks + waited_for_blocks))
                        : next->to_blocks;
  auto extended = session_.memory().fabric().extend(next->region, now * block_bytes);
  if (!extended && least < now)
    extended = session_.memory().fabric().extend(next->region, least * block_bytes);
  else if (extended && now < next->to_blocks)
    endpoint_.port().extend_soon(next->region, next->to_blocks * block_bytes);
  if (extended) session_.count(Counter::segments_added);
  take_known_blocks();
  LOCH_FAULT_POINT("alloc.segment_added");
  return extended;
}

// The same for an allocation that finds none; if none can be added, it sweeps everything, once. What is
// unlinked after a sweep that gained nothing rests for an expiry, and so long others are spared.
coro::Task<Result<void>> Allocator::extend_or_sweep(std::uint64_t blocks_wanted, bool* swept) {
  auto extended = extend(blocks_wanted);
  if (extended) co_return extended;
  if (*swept) swept_in_vain_until_ = session_.now() + session_.geometry().expiry_ns;
  if (*swept || session_.now() < swept_in_vain_until_) co_return extended;
  *swept = true;
  if (auto done = co_await sweep_all(); !done) co_return std::unexpected(std::move(done.error()));
  co_return Result<void>{};
}

// Once half of what was added last is taken, and nothing was freed since then, has more added beforehand:
// whoever finds nothing waits for as long as a host takes to fill it. Not where others have left items of the
// class: those are to be used first (find_released), and are not looked for while there are free blocks.
coro::Task<Result<void>> Allocator::extend_soon(std::uint8_t size_class, std::uint64_t frees) {
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  const bool is_half_taken = count > full_.blocks && next_block_ >= (full_.blocks + count) / 2;
  if (!session_.remote() || frees != full_.frees || !is_half_taken || foreseen_blocks_ == count)
    co_return Result<void>{};
  foreseen_blocks_ = count;
  DescriptorGroup group;
  for (const BlockNumber block : list) {
    if (auto read = co_await read_descriptors(&list, block, &group); !read) co_return read;
    if (group.has_released(block, size_class)) co_return Result<void>{};
  }
  const auto used =
      sum_used([this](fabric::RegionId region) { return endpoint_.known_length_bytes(region); });
  if (const auto next = next_extension(1, used.value_or(0)))
    endpoint_.port().extend_soon(next->region, next->to_blocks * block_bytes);
  co_return Result<void>{};
}

// Sweeps blocks of `size_class` in which others left items, until some is found; true if it was. What still
// rests there will have rested at a later tick of the clock, so nothing is looked for twice in one.
coro::Task<Result<bool>> Allocator::find_released(std::uint8_t size_class) {
  if (searched_released_at_[size_class] == session_.now()) co_return false;
  constexpr int blocks_swept_max = 8;
  int swept = 0;
  const BlockList list = known_blocks_;
  const std::size_t count = list.size();
  DescriptorGroup group;
  for (std::size_t step = 0; step < count && swept < blocks_swept_max; ++step) {
    if (next_released_ >= count) next_released_ = 0;
    const BlockNumber block = list[next_released_++];
    if (auto read = co_await read_descriptors(&list, block, &group); !read)
      co_return std::unexpected(std::move(read.error()));
    if (!group.has_released(block, size_class)) continue;
    ++swept;
    // To free a block takes its items one by one, which is far for a remote session that waits for one of
    // them.
    auto got = co_await sweep_block(block, group.lease(block),
                                    session_.remote() ? Sweep::takes_notes : Sweep::frees);
    if (!got || *got) co_return got;
  }
  searched_released_at_[size_class] = session_.now();
  co_return false;
}

// Takes notes of those items of a full or open block that have rested, or frees it if it is to and all have.
// True if that gained anything.
coro::Task<Result<bool>> Allocator::sweep_block(BlockNumber block, LeaseWord word, Sweep how) {
  const std::uint8_t size_class = word.size_class;
  if (size_class >= size_class_count) co_return false;  // no client writes such a descriptor
  const LeaseWord swept = word.next(BlockState::swept, size_class, session_.client());
  auto won = co_await change_lease(block, word.encode(), swept);
  if (!won || !*won) co_return won;
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
      rested.push_back({item_in_block(block, size_class, i), state.value, state.moved});
    } else {
      ++resting;
    }
  }
  std::size_t claimed = 0;
  if (how == Sweep::frees && rested.size() == cut) claimed = co_await claim_first(&rested);
  if (how == Sweep::frees && claimed == cut) {
    session_.count(Counter::blocks_freed);
    auto freed = co_await change_lease(block, swept.encode(), swept.next(BlockState::free, 0, 0));
    if (!freed) co_return freed;
    co_await endpoint_.fetch_add(frees_address_, 1);
    co_return true;
  }
  session_.count(Counter::items_reused, claimed);
  for (std::size_t i = 0; i < claimed; ++i) spares_[size_class].push_back(rested[i].item);
  auto& notes = notes_[size_class];
  for (std::size_t i = rested.size(); i > claimed; --i) notes.push_front(rested[i - 1]);
  // What still rests is counted again, so that a later sweep comes for it.
  if (resting != 0) co_await endpoint_.fetch_add(released_address(block), resting);
  const LeaseWord back =
      open ? swept.next_open(size_class, word.cut()) : swept.next(BlockState::full, size_class, 0);
  auto returned = co_await change_lease(block, swept.encode(), back);
  if (!returned) co_return returned;
  // Whoever looked meanwhile did not see it.
  if (open) co_await endpoint_.fetch_add(frees_address_, 1);
  co_return !rested.empty();
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

coro::Task<Result<std::uint64_t>> Allocator::sweep_all() {
  std::uint64_t freed = 0;
  if (session_.remote()) {
    if (auto fresh = co_await session_.refresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  }
  for (std::uint16_t last = 0;;) {
    const auto dead = co_await session_.take_dead(last);
    if (!dead) co_return std::unexpected(dead.error());
    if (*dead == 0) break;
    last = *dead;
    session_.count(Counter::sessions_reaped);
    if (auto settled = co_await settle_blocks(last); !settled) {
      session_.leave_dead(last);
      co_return std::unexpected(std::move(settled.error()));
    }
    if (auto buried = co_await session_.bury(last); !buried)
      co_return std::unexpected(std::move(buried.error()));
  }
  const auto list = blocks();
  if (!list) co_return std::unexpected(list.error());
  for (const BlockNumber block : *list) {
    if (session_.refresh_due()) {
      if (auto fresh = co_await session_.refresh(); !fresh)
        co_return std::unexpected(std::move(fresh.error()));
    }
    auto word = co_await lease_of(block);
    if (!word) co_return std::unexpected(std::move(word.error()));
    Result<bool> swept = false;
    if (word->state == BlockState::full || word->state == BlockState::open)
      swept = co_await sweep_block(block, *word, Sweep::frees);
    if (word->state == BlockState::large_head) swept = co_await free_rested_large(block, *word);
    if (!swept) co_return std::unexpected(std::move(swept.error()));
    if (!*swept) continue;
    const auto after = co_await lease_of(block);
    if (after && after->state == BlockState::free) ++freed;
  }
  searched_ = {};  // whoever freed a block may have died before it counted that
  co_return freed;
}

coro::Task<Result<void>> Allocator::settle_blocks(std::uint16_t dead) {
  const auto list = blocks();
  if (!list) co_return std::unexpected(list.error());
  BlockNumber covered_until = 0;  // by a large item's head
  DescriptorGroup group;
  for (const BlockNumber block : *list) {
    if (auto read = co_await read_descriptors(&*list, block, &group); !read) co_return read;
    const LeaseWord word = group.lease(block);
    if (word.state == BlockState::large_head) covered_until = block + word.block_count;
    if (word.client != dead) continue;
    if (word.state == BlockState::large_part && block >= covered_until) {
      if (auto done = co_await change_lease(block, word.encode(), word.next(BlockState::free, 0, 0)); !done) {
        co_return std::unexpected(std::move(done.error()));
      }
      co_await endpoint_.fetch_add(frees_address_, 1);
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
    auto freed = co_await change_lease(block, word.encode(), word.next(BlockState::free, 0, 0));
    if (!freed) co_return std::unexpected(std::move(freed.error()));
    co_await endpoint_.fetch_add(frees_address_, 1);
    co_return Result<void>{};
  }
  std::vector<ItemWords> items;
  if (auto looked = co_await look_at_items(block, word, &items); !looked) co_return looked;
  // What was cut last says whose it is, or its owner died before that: then it is as good as uncut.
  auto cut = static_cast<std::uint32_t>(items.size());
  while (cut > 0 && items[cut - 1].state.kind == ItemKind::fresh) --cut;
  std::uint64_t left = 0;
  for (std::uint32_t i = 0; i < cut; ++i) {
    const ItemState state = items[i].state;
    const bool never_written =
        state.kind == ItemKind::fresh || (state.kind == ItemKind::claimed && state.client() == dead);
    if (!never_written) continue;
    ++left;
    if (auto done = co_await retire_at(item_in_block(block, word.size_class, i), 1, false); !done)
      co_return done;
  }
  co_await endpoint_.fetch_add(released_address(block), left + 1);
  const LeaseWord after = cut < items.size() ? word.next_open(word.size_class, cut)
                                             : word.next(BlockState::full, word.size_class, 0);
  auto settled = co_await change_lease(block, word.encode(), after);
  if (!settled) co_return std::unexpected(std::move(settled.error()));
  co_await endpoint_.fetch_add(frees_address_, 1);
  co_return Result<void>{};
}

}  // namespace loch::memory
