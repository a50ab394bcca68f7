// Iteration over all items. Items do not move, so the blocks are walked, and the index is asked about each
// item.
//
// A walk pins the memory that is unlinked from `pinned` on, and begins at `start`, when the items that were
// linked at `began` count as written before. A key that is there throughout had some item x at `began`,
// which can be read when the walk comes to it. If x is the key's item still, it is visited. Else the key has
// another item by now, y:
//   y was written since `start`       y is visited at once, for it may lie behind the walk
//   y was written before, and is      the walk comes to y as it did to x
//   ahead of the walk
//   y was written before, behind the  y was linked since the walk passed it, and is visited at once
//   walk, and was not visited
// so a key is visited at least once even if each new item lands in a block that the walk has passed. The item
// of an unchanged key was written before `start`, and no item is visited twice, so that key is visited
// exactly once.
#include "hash/table.h"

namespace loch::hash {

using memory::BlockNumber;
using memory::ItemKind;
using memory::ItemRef;

coro::Task<Result<void>> Table::for_each(const Visit* visit) {
  if (auto fresh = co_await keep_fresh(); !fresh) co_return fresh;
  const base::Nanos pinned = session_.pin();
  struct Unpin {
    memory::Session& session;
    base::Nanos start;
    ~Unpin() { session.unpin(start); }
  };
  const Unpin unpin{session_, pinned};
  const auto began = co_await session_.control().read_time();
  if (!began) co_return std::unexpected(began.error());
  base::Nanos start = *began;
  constexpr base::Nanos lead = memory::Session::write_lead_max_ns;
  const base::Nanos deadline = endpoint_.now() + lead + options_.timeout_ns;
  while (start <= *began + lead) {
    // Here the time is over after one wait; elsewhere it is if the store's host goes on telling it.
    if (endpoint_.now() > deadline)
      co_return fail(Errc::timed_out, "walk",
                     "the store's time stands still; see whether the host of the store is alive");
    co_await endpoint_.sleep_until(endpoint_.now() + lead + 1);
    const auto now = co_await session_.control().read_time();
    if (!now) co_return std::unexpected(now.error());
    start = *now;
  }

  std::vector<bool> visited;  // by unit_number
  std::vector<memory::Allocator::ItemWords> items;
  const BlockNumber blocks = allocator_.block_count();
  for (BlockNumber block = 1; block < blocks; ++block) {
    if (memory::holds_descriptors(block)) continue;
    auto lease = co_await allocator_.lease_of(block);
    if (!lease) co_return std::unexpected(std::move(lease.error()));
    if (auto looked = co_await allocator_.look_at_items(block, *lease, &items); !looked) co_return looked;
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      const auto& [state, written_at_ns] = items[i];
      const bool written_before = written_at_ns < start;
      const bool unlinked_since = state.kind == ItemKind::retired && state.value >= pinned && written_before;
      if (state.kind != ItemKind::in_use && !unlinked_since) continue;
      const ItemRef ref = memory::item_of(block, *lease, i);
      struct During {
        memory::Session& session;
        base::Nanos began = session.begin_operation();
        ~During() { session.end_operation(began); }
      };
      const During during{session_};
      auto found = co_await fetch_item(ref);
      if (!found && found.error().code != Errc::corrupt) co_return std::unexpected(std::move(found.error()));
      if (!found) continue;  // damaged, or not written yet; `check` tells which
      Result<Found> current;
      do {
        current = co_await get(Key{.bytes = found->view.key(), .hash = found->view.key_hash()});
      } while (!session_.may_act());
      if (!current) {
        const Errc code = current.error().code;
        if (code == Errc::not_found || code == Errc::corrupt) continue;
        co_return std::unexpected(std::move(current.error()));
      }
      const ItemRef y = current->view.ref();
      const bool comes_later = current->view.written_at_ns() < start && block_of(y) < blocks &&
                               memory::unit_number(y) > memory::unit_number(ref);
      if (y != ref && (!written_before || comes_later)) continue;
      const std::size_t bit = memory::unit_number(y);
      if (bit >= visited.size()) visited.resize(bit + bit / 2 + 1);
      if (visited[bit]) continue;
      visited[bit] = true;
      if (!(*visit)(current->view)) co_return Result<void>{};
    }
  }
  co_return Result<void>{};
}

coro::Task<Result<std::uint64_t>> Table::count() {
  const auto now = co_await session_.control().read_time();
  if (!now) co_return std::unexpected(now.error());
  std::uint64_t total = 0;
  const auto directory = co_await read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const Directory d = *directory;
  const SlotNumber slots = d.rows() * candidates_ * (d.growing ? 2 : 1);
  constexpr SlotNumber ahead = 32;
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    if (const std::byte* soon = endpoint_.mapped(slot_address(slot + ahead), sizeof(std::uint64_t));
        soon != nullptr) {
      const SlotWord word{fabric::load_word(soon)};
      const std::byte* item = word.is(SlotType::committed)
                                  ? endpoint_.mapped(word.item().address(), sizeof(memory::ItemHeader))
                                  : nullptr;
      if (item != nullptr) __builtin_prefetch(item);
    }
    auto read = co_await read_slot(slot);
    if (!read) co_return std::unexpected(std::move(read.error()));
    const SlotWord word{*read};
    // An item that is being moved is counted at its destination.
    if (!word.is(SlotType::committed) && !word.is(SlotType::placed)) continue;
    auto header = co_await read_header(word.item());
    if (!header && header.error().code != Errc::corrupt) co_return std::unexpected(std::move(header.error()));
    if (!header) continue;
    if (expired(header->expires_at_ns, *now)) continue;
    if (word.is(SlotType::placed)) {
      Collect seen;
      if (auto looked = co_await collect_words(header->key_hash, &seen); !looked) {
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
