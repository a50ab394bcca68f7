// KnownItems: what a remote session knows of where keys' items were lately: what it saw itself, and holds on
// to (PointerCache), and what all sessions of the process have seen (LocationCache).
//
// One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <loch/coro/task.h>

#include "base/planted.h"
#include "hash/items.h"
#include "hash/known.h"
#include "hash/location_cache.h"
#include "hash/pointer_cache.h"
#include "hash/slots.h"

namespace loch::hash {

class KnownItems final {
 public:
  // `cache_bytes`: for copies of items that are read often. `pointer_places`: as of PointerCache.
  // `locations`: of this session and others; null: none.
  KnownItems(Slots& slots, std::size_t cache_bytes, std::size_t pointer_places, LocationCache* locations)
      : attachment_(slots.attachment()),
        slots_(slots),
        home_(slots.home()),
        endpoint_(slots.endpoint()),
        locations_(locations),
        goes_by_locations_(locations != nullptr && home_.remote()),
        pointers_(cache_bytes, pointer_places) {}

  // ---- what is known
  // What a remote session knows of the key that may be asked for in a batch.
  [[nodiscard]] Known of(Key key) const;
  // Before that, of many: asks for the memory that it looks at.
  void fetch(Key key) const {
    if (goes_by_locations_) locations_->fetch(key.hash);
  }
  // What asks for it, as operations of one batch: the slot before the item (location_of); the item unless
  // there is a copy, and if it comes after, in a later batch, or `after_previous`; the time if it is mortal.
  [[nodiscard]] fabric::Operation slot_reading(Known& known) const {
    return fabric::Operation::read(slots_.place().slot(known.pointer.slot), &known.word.raw,
                                   sizeof known.word.raw);
  }
  [[nodiscard]] static fabric::Operation item_reading(const Known& known) {
    return fabric::Operation::read_settled(known.pointer.item().address(), known.item,
                                           known.pointer.length_bytes);
  }
  [[nodiscard]] fabric::Operation time_reading(base::Nanos* into) const {
    return home_.control().time_reading(into);
  }
  // Once that is read: the key's item, if that is what was read, and has time left.
  std::optional<ItemView> answer(const Known& known);
  // Asks for it, and has the value read to where it is wanted; for long ones. False if that is not what was
  // read; `into` was changed then.
  coro::Task<bool> read_value(Known* known, std::string* into);
  // Asks for it, and for no more of the item than tells that it is the key's, and has time left. False if
  // that is not what was read.
  coro::Task<bool> is_there(Known* known);
  // What a remote session remembers of where a key's item is.
  [[nodiscard]] std::optional<PointerCache::Pointer> pointer_of(Key key) const {
    if (!home_.remote()) return std::nullopt;
    auto found = pointers_.find(key.bytes, key.hash);
    if (found && !is_kept(*found)) found.reset();
    return found;
  }
  // Where the item was, however long ago, for who reads the slot first, and the item after that: what the
  // slot names then was not used again before this operation is over. So of an item that is on the slot's
  // node.
  [[nodiscard]] std::optional<PointerCache::Pointer> location_of(Key key,
                                                                 LocationCache::Spot* spot = nullptr) const {
    if (!goes_by_locations_) return std::nullopt;
    const auto found = locations_->find(key.hash, spot);
    if (!found || attachment_.find_node_of(found->word.item()) != attachment_.node(slots_.home_number()))
      return std::nullopt;
    return PointerCache::Pointer{.word = found->word,
                                 .slot = found->slot,
                                 .length_bytes = found->length_bytes,
                                 .is_mortal = found->is_mortal};
  }
  // By that, if the batch is done in its order.
  [[nodiscard]] std::optional<Expectation> expectation_of(Key key) const;

  // ---- what was seen
  void note_item(Key key, SlotWord word, SlotNumber slot, const ItemView& item, PointerCache::Copy copy = {},
                 LocationCache::Spot spot = {}) {
    note_pointer(key, word, slot, item.length_bytes() + tail_bytes(), item.expires_at_ns() != 0,
                 std::move(copy), spot);
  }
  void note_pointer(Key key, SlotWord word, SlotNumber slot, std::uint64_t length_bytes,
                    bool is_mortal = false, PointerCache::Copy copy = {}, LocationCache::Spot spot = {}) {
    if (!home_.remote()) return;
    note_lately(key, {.word = word,
                      .slot = slot,
                      .length_bytes = length_bytes,
                      .is_mortal = is_mortal,
                      .copy = std::move(copy)});
    if (!goes_by_locations_) return;
    locations_->note(
        key.hash, {.word = word, .slot = slot, .length_bytes = length_bytes, .is_mortal = is_mortal}, spot);
  }
  // That the slot has nothing of the key any more.
  void forget_item(Key key, SlotNumber slot) {
    pointers_.forget(key.bytes, key.hash, slot);
    if (goes_by_locations_) locations_->forget(key.hash, slot);
  }
  // What was read where a slot named an item by the word, if it is the key's, and has time left at `time`,
  // which was read during this operation (0: was not read). It is known from now on.
  std::optional<ItemView> item_of(Key key, SlotWord word, SlotNumber slot, const std::byte* bytes,
                                  std::uint64_t length, base::Nanos time);
  // Since the time was read, nothing of it can have run out that anybody else has seen run out.
  [[nodiscard]] bool has_time_left(base::Nanos expires_at_ns, base::Nanos time) const {
    if (base::planted(base::Planted::mortal_without_time) && time == 0) return true;
    return expires_at_ns == 0 || (time != 0 && !has_expired(expires_at_ns, time + slots_.time_ahead_ns()));
  }

 private:
  // As item_of, and nothing more is known for it.
  [[nodiscard]] std::optional<ItemView> view_of(Key key, SlotWord word, const std::byte* bytes,
                                                std::uint64_t length, base::Nanos time) const;
  // A copy of what is known already when it is read, since that is read often: made of its parts, one behind
  // the other. Null if none is to be kept.
  [[nodiscard]] PointerCache::Copy copy_of(const Known& known, std::span<const std::byte> first,
                                           std::string_view rest = {}) const;
  // Whether this session holds on to what it knows of the item.
  [[nodiscard]] bool is_kept(const PointerCache::Pointer& pointer) const {
    return pointer.seen_at >= attachment_.session_of(pointer.item()).kept_since() ||
           base::planted(base::Planted::pointer_of_any_age);
  }
  [[nodiscard]] bool counts_still(const PointerCache::Pointer& pointer) const;
  [[nodiscard]] bool has_been_let_go(const Known& known) const {
    return known.was_used_lately() && !counts_still(known.pointer);
  }
  // Of what others know, too: that this session has seen it now.
  void note_lately(Key key, PointerCache::Pointer pointer) {
    pointer.seen_at = attachment_.session_of(pointer.item()).oldest_operation();
    pointers_.note(key.bytes, key.hash, pointer);
  }

  memory::Attachment& attachment_;
  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  LocationCache* const locations_;
  const bool goes_by_locations_;
  PointerCache pointers_;
};

}  // namespace loch::hash
