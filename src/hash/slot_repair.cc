#include "hash/slot_repair.h"

#include <algorithm>
#include <utility>

namespace loch::hash {

coro::Task<Result<bool>> SlotRepair::repair_slot(SlotNumber slot, SlotWord word, Collected* collected) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  if (items_.is_unknown(word.item())) co_return false;
  constexpr int steps_max = 8;
  Result<bool> goes_on = true;
  int steps = 0;
  while (*goes_on && steps < steps_max) {
    goes_on = co_await resolver_.resolve_item(word.item());
    // The item is on a host that is away, or a slot of its key is damaged: that of no other is the worse for
    // it.
    if (!goes_on && is_out_of_reach(goes_on.error())) co_return false;
    if (!goes_on) co_return goes_on;
    if (*goes_on) ++steps;
  }
  bool repairs = steps != 0;
  if (!*goes_on && (word.is(SlotType::placed) || word.is(SlotType::moved))) {
    // If it is there still, its item tells of no such move: the word means nothing.
    auto cleared =
        co_await slots_.swap(slot, word, cleared_word(word, slot, slots_.directory(), home_.next_nonce()));
    if (!cleared) co_return cleared;
    repairs = repairs || *cleared;
  }
  if (repairs) ++collected->slots_repaired;
  co_return !*goes_on;
}

// A slot that was seen to hold what no client writes there is empty from now on: so its keys can be put
// again. While the index grows that is for who splits it.
coro::Task<Result<void>> SlotRepair::mend_slot(SlotNumber slot, SlotWord word, Collected* collected) {
  const auto d = co_await slots_.read_directory();
  if (!d) co_return std::unexpected(d.error());
  if (d->growing) co_return Result<void>{};
  const auto mended = co_await slots_.swap(slot, word, SlotWord::empty(home_.next_nonce(), d->level));
  if (!mended) co_return std::unexpected(mended.error());
  if (*mended) ++collected->slots_repaired;
  co_return Result<void>{};
}

// Unlinks the item that a slot was seen to have committed, if its time to live is over, and the slot names it
// by right: of a damaged word the item may be another slot's, and is not to be retired.
coro::Task<Result<void>> SlotRepair::drop_if_expired(SlotNumber slot, const SlotGroup* group,
                                                     Collected* collected) {
  const SlotWord word = group->word(slot);
  const base::Nanos now = home_.now() + slots_.time_ahead_ns();
  const auto header = co_await group->header_of(slot);
  if (!header || !has_expired(header->expires_at_ns, now)) co_return Result<void>{};
  // What the header was read of with the group may be another item by now; and a word may point at anything
  // that looks like one, but for its sum, which is bound to the place.
  const auto head = co_await items_.fetch_intact_head(word.item());
  if (!head || !has_expired(head->view.expires_at_ns(), now)) co_return Result<void>{};
  const std::uint64_t hash = head->view.key_hash();
  const Locations at = Locations::of(hash, slots_.directory(), slots_.candidates());
  if (word.filter() != filter_of(hash) || at.index_of(slot) < 0) co_return Result<void>{};
  const auto gone = co_await slots_.swap(slot, word, SlotWord::empty(home_.next_nonce(), word.level()));
  if (!gone) co_return std::unexpected(gone.error());
  if (!*gone) co_return Result<void>{};
  co_await attachment_.allocator_of(word.item()).retire(word.item(), word.tag() != 0);
  ++collected->items_expired;
  co_return Result<void>{};
}

coro::Task<Result<bool>> SlotRepair::repair_slots(Collected* collected) {
  const Stay stay(attachment_);
  // Not by a copy: what the caller heard of may be in a half of the index that is younger.
  const auto directory = co_await slots_.read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const Directory d = *directory;
  const SlotNumber slots = d.slots();
  bool all_done = true;
  SlotGroup group(slots_, items_);
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    if (!group.has(slot)) {
      if (auto read = co_await group.read_with_headers(slot, slots); !read)
        co_return std::unexpected(std::move(read.error()));
    }
    const SlotWord word = group.word(slot);
    if (word.is_unwritten() && !d.growing) {
      if (auto mended = co_await mend_slot(slot, word, collected); !mended)
        co_return std::unexpected(std::move(mended.error()));
    }
    if (!word.names_item()) continue;
    if (word.is(SlotType::committed)) {
      if (auto dropped = co_await drop_if_expired(slot, &group, collected); !dropped)
        co_return std::unexpected(std::move(dropped.error()));
      continue;
    }
    const auto done = co_await repair_slot(slot, word, collected);
    if (!done) co_return done;
    all_done = all_done && *done;
  }
  co_return all_done;
}

coro::Task<Result<std::optional<SlotNumber>>> SlotRepair::drop_expired(SlotNumber first, SlotNumber count,
                                                                       base::Nanos until,
                                                                       Collected* collected) {
  const Stay stay(attachment_);
  const auto directory = co_await slots_.read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const SlotNumber slots = directory->slots();
  // While it grows, a slot's words are for who splits it.
  if (directory->growing || first >= slots) co_return std::nullopt;
  const SlotNumber end = std::min(slots, first + count);
  SlotGroup group(slots_, items_);
  for (SlotNumber slot = first; slot < end; ++slot) {
    if (!group.has(slot)) {
      if (endpoint_.now() >= until) co_return slot;
      if (auto read = co_await group.read_with_headers(slot, end); !read)
        co_return std::unexpected(std::move(read.error()));
    }
    if (!group.word(slot).is(SlotType::committed)) continue;
    if (auto dropped = co_await drop_if_expired(slot, &group, collected); !dropped)
      co_return std::unexpected(std::move(dropped.error()));
  }
  co_return end < slots ? std::optional(end) : std::nullopt;
}

}  // namespace loch::hash
