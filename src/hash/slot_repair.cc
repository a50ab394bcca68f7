#include "hash/slot_repair.h"

#include <algorithm>
#include <utility>

namespace loch::hash {
namespace {

// Whether no client writes the word into a slot of an index that does not grow.
bool is_damage(SlotWord word, Directory d) { return word.is_unwritten() || !d.is_unsplit(word); }

}  // namespace

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

// What a slot is to hold in place of a damaged word: the word at this level, if its item is intact and
// belongs there; else nothing. No word, if that can not be told now.
coro::Task<Result<std::optional<SlotWord>>> SlotRepair::mended_word(SlotNumber slot, SlotWord word,
                                                                    Directory d) {
  const SlotWord empty = SlotWord::empty(home_.next_nonce(), d.level);
  if (!word.names_item()) co_return empty;
  if (items_.is_unknown(word.item())) co_return std::nullopt;
  const auto head = co_await items_.fetch_intact_head(word.item());
  if (!head && head.error().code == Errc::corrupt) co_return empty;
  if (!head && head.error().code == Errc::unavailable) co_return std::nullopt;
  if (!head) co_return std::unexpected(head.error());
  const std::uint64_t hash = head->view.key_hash();
  const Locations at = Locations::of(hash, d, slots_.candidates());
  const bool belongs = word.filter() == filter_of(hash) && at.index_of(slot) >= 0;
  co_return belongs ? word.with_level(d.level) : empty;
}

// Mends a slot that was seen to hold what no client writes there: so its keys can be put again. While the
// index grows that is for who splits it. What it holds now, as far as this has seen.
coro::Task<Result<SlotWord>> SlotRepair::mend_slot(SlotNumber slot, SlotWord word, Collected* collected) {
  const auto d = co_await slots_.read_directory();
  if (!d) co_return std::unexpected(d.error());
  // It may have grown since the word was read; then the word is not there any more, or all is well.
  if (d->growing || !is_damage(word, *d)) co_return word;
  const auto mended = co_await mended_word(slot, word, *d);
  if (!mended) co_return std::unexpected(mended.error());
  if (!*mended) co_return word;
  SlotWord before = word;
  if (d->is_split(word) && !word.is_unwritten()) {
    // A growth that has begun since takes it for split, and the upper slot may be in use: to open this one
    // again would be wrong then. So first it becomes a word that no key's operation passes by; if no growth
    // has begun by then, nobody uses the upper slot before this one is mended.
    before = word.with_type(SlotType::none);
    const auto set_apart = co_await slots_.swap(slot, word, before);
    if (!set_apart) co_return std::unexpected(set_apart.error());
    if (!*set_apart) co_return word;
    const auto now = co_await slots_.read_directory();
    if (!now || *now != *d) {
      if (auto back = co_await slots_.swap(slot, before, word); !back)
        co_return std::unexpected(std::move(back.error()));
      if (!now) co_return std::unexpected(now.error());
      co_return word;
    }
  }
  const auto won = co_await slots_.swap(slot, before, **mended);
  if (!won) co_return std::unexpected(won.error());
  if (!*won) co_return before;
  ++collected->slots_repaired;
  co_return **mended;
}

// Unlinks the item that a slot was seen to have committed, if its time to live is over, and the slot names it
// by right: of a damaged word the item may be another slot's, and is not to be retired.
coro::Task<Result<void>> SlotRepair::drop_if_expired(SlotNumber slot, const SlotGroup* group,
                                                     Collected* collected, base::Nanos* least_left) {
  const SlotWord word = group->word(slot);
  const base::Nanos now = home_.now() + slots_.time_ahead_ns();
  const auto header = co_await group->header_of(slot);
  if (!header || header->expires_at_ns == 0) co_return Result<void>{};
  if (!has_expired(header->expires_at_ns, now)) {
    if (least_left != nullptr) *least_left = std::min(*least_left, header->expires_at_ns - now);
    co_return Result<void>{};
  }
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

// Clears a slot that was seen to have committed an item which is so damaged that no key can be told to be
// its: else the keys that it may be of say corrupt for ever, since none of them is put over it, or removed.
// What is linked was written before, and stays as it is while this operation runs, so one look is enough. Its
// memory is not retired by this: of a damaged word it may be another's.
coro::Task<Result<void>> SlotRepair::clear_if_lost(SlotNumber slot, const SlotGroup* group,
                                                   Collected* collected) {
  const SlotWord word = group->word(slot);
  const auto header = co_await group->header_of(slot);
  if (header || header.error().code != Errc::corrupt) co_return Result<void>{};
  const auto head = co_await items_.fetch_head(word.item());
  if (!head && head.error().code != Errc::corrupt) co_return Result<void>{};
  if (head) {
    const Key key = Key::of(head->view.key(), home_.geometry().hash_seed);
    const Locations at = Locations::of(key.hash, slots_.directory(), slots_.candidates());
    if (word.filter() == key.filter() && at.index_of(slot) >= 0) co_return Result<void>{};
  }
  const auto cleared = co_await slots_.swap(slot, word, SlotWord::empty(home_.next_nonce(), word.level()));
  if (!cleared) co_return std::unexpected(cleared.error());
  if (*cleared) ++collected->slots_repaired;
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
    SlotWord word = group.word(slot);
    if (!d.growing && is_damage(word, d)) {
      const auto mended = co_await mend_slot(slot, word, collected);
      if (!mended) co_return std::unexpected(mended.error());
      word = *mended;
    }
    if (!word.names_item()) continue;
    if (word.is(SlotType::committed)) {
      if (auto dropped = co_await drop_if_expired(slot, &group, collected); !dropped)
        co_return std::unexpected(std::move(dropped.error()));
      if (auto cleared = co_await clear_if_lost(slot, &group, collected); !cleared)
        co_return std::unexpected(std::move(cleared.error()));
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
                                                                       Collected* collected,
                                                                       base::Nanos* least_left) {
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
    if (auto dropped = co_await drop_if_expired(slot, &group, collected, least_left); !dropped)
      co_return std::unexpected(std::move(dropped.error()));
  }
  co_return end < slots ? std::optional(end) : std::nullopt;
}

}  // namespace loch::hash
