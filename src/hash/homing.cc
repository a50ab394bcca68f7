#include "hash/homing.h"

#include <algorithm>
#include <span>
#include <vector>

#include "coro/scope.h"
#include "hash/slot_group.h"

namespace loch::hash {
namespace {

// That one operation looks at, of a session of another host: as long as for one of them.
constexpr std::uint64_t chunks_if_remote = 4;

}  // namespace

coro::Task<Result<void>> Homing::open() {
  if (!begins_ || !is_due()) co_return Result<void>{};
  const auto cursor = co_await endpoint_.read_word(slots_.place().homing_cursor());
  if (!cursor) co_return std::unexpected(cursor.error());
  learn(ChunkCursor::decode(*cursor));
  co_return Result<void>{};
}

void Homing::learn(ChunkCursor cursor) {
  const Directory d = slots_.directory();
  if (cursor.level > d.level || (cursor.level == d.level && cursor.chunk >= d.chunks()))
    done_level_ = d.level;
}

// The first of them, as others have not taken it; none, if there are none, or this is not the time.
coro::Task<Result<std::optional<std::uint64_t>>> Homing::take_chunks(Directory d, std::uint64_t count) {
  const fabric::Address at = slots_.place().homing_cursor();
  const auto before = co_await endpoint_.fetch_add(at, count);
  if (!before) co_return std::unexpected(before.error());
  const ChunkCursor cursor = ChunkCursor::decode(*before);
  if (cursor.level < d.level) {
    // Nobody has begun at this level.
    if (!begins_) co_return std::nullopt;
    const std::uint64_t added = *before + count;
    const auto swapped =
        co_await endpoint_.compare_swap(at, added, ChunkCursor{.level = d.level, .chunk = count}.encode());
    if (!swapped) co_return std::unexpected(swapped.error());
    co_return *swapped == added ? std::optional<std::uint64_t>(0) : std::nullopt;
  }
  if (cursor.level == d.level && cursor.chunk < d.chunks()) co_return cursor.chunk;
  learn(cursor);
  co_return std::nullopt;
}

coro::Task<Result<void>> Homing::help() {
  const Directory d = slots_.directory();
  const std::uint64_t chunks = begins_ ? chunks_if_remote : 1;
  const auto first = co_await take_chunks(d, chunks);
  if (!first) co_return std::unexpected(first.error());
  if (!*first) co_return Result<void>{};
  const SlotNumber begin = **first * chunk_slots;
  co_return co_await bring_home_from(begin, std::min(begin + chunks * chunk_slots, d.slots()), d);
}

coro::Task<Result<void>> Homing::bring_home_from(SlotNumber begin, SlotNumber end, Directory d) {
  for (SlotNumber slot = begin; slot < end; ++slot) slots_.fetch_header(slot);
  const unsigned candidates = slots_.candidates();
  SlotGroup group(slots_, items_, end - begin);
  for (SlotNumber next = begin; next < end; next += group.size()) {
    if (auto read = co_await group.read_with_headers(next, end); !read) co_return read;
    std::vector<coro::Task<void>> moving;
    for (SlotNumber slot = next; group.has(slot); ++slot) {
      const SlotWord word = group.word(slot);
      if (!word.is(SlotType::committed) || word.tag() + 2 > tag_max || items_.is_unknown(word.item()))
        continue;
      const auto header = co_await group.header_of(slot);
      if (!header || word.filter() != filter_of(header->key_hash)) continue;
      if (slot_of_candidate(header->key_hash, d, candidates - 1, candidates) == slot)
        moving.push_back(bring_home(word.item(), header->key_hash, slot));
    }
    co_await coro::run_together(&endpoint_.queue(), std::span(moving));
  }
  co_return Result<void>{};
}

// If there is room, and nobody else changes its key. Whatever is wrong with it is not for this to say.
coro::Task<void> Homing::bring_home(memory::ItemRef item, std::uint64_t key_hash, SlotNumber from) {
  Collect seen;
  if (auto read = co_await slots_.collect(key_hash, &seen); !read) co_return;
  for (unsigned i = 0; i + 1 < seen.at.candidates; ++i) {
    const unsigned j = open_location(seen, i);
    if (!seen.word[j].is(SlotType::empty)) continue;
    co_await resolver_.move(item, key_hash, from, seen.at.slot[j]);
    co_return;
  }
}

}  // namespace loch::hash
