#include "hash/table.h"

#include <cstddef>

#include "fabric/words.h"
#include "hash/slot_group.h"

namespace loch::hash {

Table::Table(memory::Attachment& attachment, std::uint32_t shard, const TableOptions& options)
    : shard_(attachment, shard, options),
      reader_(shard_),
      writer_(shard_),
      put_together_(shard_, writer_),
      slot_repair_(shard_),
      evacuation_(shard_, slot_repair_),
      works_here_(!shard_.home.remote() && attachment.nodes().size() == 1),
      here_(shard_.endpoint, shard_.slots.place().slots, shard_.slots.directory_word(),
            shard_.slots.candidates()) {}

void Table::initialize(std::byte* root, const fabric::Mapping& index, Directory first,
                       std::uint64_t time_ahead_ns) {
  constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);
  const SlotNumber slots = first.slots();
  // Nonces of client 0, who is nobody: no session gives them out. Beyond them, what is unborn.
  for (std::uint64_t slot = 0; slot < index.length_bytes / word_bytes; ++slot) {
    const std::uint64_t word = slot < slots ? SlotWord::empty(slot << 12, first.level).raw : 0;
    fabric::store_word(index.base + slot * word_bytes, word);
  }
  static_assert(offsetof(IndexRoot, directory) == 0);
  for (std::size_t at = word_bytes; at < sizeof(IndexRoot); at += word_bytes)
    fabric::store_word(root + at, 0);
  fabric::store_word(root + offsetof(IndexRoot, time_ahead_ns), time_ahead_ns);
  const ChunkCursor past_all{.level = first.level, .chunk = first.chunks()};
  fabric::store_word(root + offsetof(IndexRoot, homing_cursor), past_all.encode());
  fabric::store_word(root, first.encode());
}

coro::Task<Result<void>> Table::open() {
  if (auto opened = co_await shard_.slots.open(); !opened) co_return opened;
  co_return co_await shard_.homing.open();
}

coro::Task<Result<std::uint64_t>> Table::count() {
  Slots& slots = shard_.slots;
  const Stay stay(shard_.attachment);
  const auto now = co_await slots.read_time();
  if (!now) co_return std::unexpected(now.error());
  std::uint64_t total = 0;
  const auto directory = co_await slots.read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const SlotNumber end = directory->slots();
  constexpr SlotNumber ahead = 32;
  SlotGroup group(slots, shard_.items);
  for (SlotNumber slot = 0; slot < end; ++slot) {
    slots.fetch_header(slot + ahead);
    if (!group.has(slot)) {
      if (auto read = co_await group.read_with_headers(slot, end); !read)
        co_return std::unexpected(std::move(read.error()));
    }
    const SlotWord word = group.word(slot);
    // An item that is being moved is counted at its destination.
    if (!word.is(SlotType::committed) && !word.is(SlotType::placed)) continue;
    auto header = co_await group.header_of(slot);
    if (!header && header.error().code != Errc::corrupt) co_return std::unexpected(std::move(header.error()));
    if (!header) {
      const auto there = co_await slots.read(slot);
      if (!there) co_return std::unexpected(there.error());
      if (word.is(SlotType::committed) && *there == word.raw) slots.home().count(Counter::corrupt_items);
      continue;
    }
    if (has_expired(header->expires_at_ns, *now)) continue;
    if (word.is(SlotType::placed)) {
      Collect seen;
      if (auto looked = co_await slots.collect(header->key_hash, &seen); !looked) {
        if (looked.error().code == Errc::corrupt) continue;
        co_return std::unexpected(std::move(looked.error()));
      }
      bool paired = false;
      for (unsigned j = 0; j < seen.at.count; ++j) {
        const int destination = paired_destination(seen, j);
        paired = paired || (destination >= 0 && seen.at.slot[static_cast<unsigned>(destination)] == slot);
      }
      if (!paired) continue;
    }
    ++total;
  }
  co_return total;
}

}  // namespace loch::hash
