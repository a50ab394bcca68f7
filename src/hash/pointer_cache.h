// PointerCache: where the items of keys that a remote session used lately are, and the slots that name them,
// so that it can ask for an item and its slot at once; and copies of some of these items, so that it can ask
// for the slot alone (Nessie, 4.1.3 and 4.3.1). Whoever uses a pointer makes sure that the slot still names
// the item. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "fabric/endpoint.h"
#include "hash/index.h"
#include "hash/slot.h"

namespace loch::hash {

class PointerCache {
 public:
  static constexpr std::size_t key_bytes_max = 64;
  using Copy = std::shared_ptr<const std::byte[]>;

  // Of one for all of a store: 2.3 MiB, when all are in use.
  static constexpr std::size_t places_usual = 4'096;

  // `copies_bytes_max`: of all copies together. `places`: a power of two, places_usual at most; each is for
  // four keys.
  explicit PointerCache(std::size_t copies_bytes_max, std::size_t places = places_usual)
      : place_mask_(places - 1), copies_bytes_max_(copies_bytes_max) {
    LOCH_CHECK(std::has_single_bit(places));
    LOCH_CHECK(places <= places_usual);
  }
  ~PointerCache() {
    for (PlaceNumber number = 0; number < places_made_; ++number) std::destroy_at(&place_of(number));
  }
  PointerCache(const PointerCache&) = delete;
  PointerCache& operator=(const PointerCache&) = delete;

  // The slot was seen to hold the word, which is committed and names an item of the key, by an operation that
  // began at `seen_at`, by the clock of the item's node. If the session with that node has kept what there
  // was since (memory::Session::kept_since), the item's memory has not been reused: what names it is the
  // key's still, and a copy of it is what it is.
  struct Pointer {
    SlotWord word{};
    SlotNumber slot = 0;
    base::Nanos seen_at = 0;
    std::uint64_t length_bytes = 0;  // of the item
    bool is_mortal = false;          // which has a time to live
    Copy copy{};                     // of it; null: there is none

    [[nodiscard]] memory::ItemRef item() const { return word.item(); }
  };

  [[nodiscard]] std::optional<Pointer> find(std::string_view key, std::uint64_t key_hash) const {
    if (numbers_.empty() || numbers_[key_hash & place_mask_] == none) return std::nullopt;
    const Place& place = place_of(numbers_[key_hash & place_mask_]);
    const std::size_t i = place.index_of(key, key_hash);
    if (i == entries_in_place) return std::nullopt;
    const Entry& entry = place.entry[i];
    return Pointer{.word = entry.word,
                   .slot = entry.slot,
                   .seen_at = place.seen_at[i],
                   .length_bytes = entry.length_bytes,
                   .is_mortal = entry.is_mortal,
                   .copy = entry.copy};
  }

  // Whether a copy of so many bytes may be noted: none that makes room of many others.
  [[nodiscard]] bool keeps_copy_of(std::size_t length_bytes) const {
    return length_bytes <= copies_bytes_max_ / 16;
  }

  // In place of what was noted of the key. Of the keys that share its place, the one that was seen longest
  // ago is forgotten. A copy is one that keeps_copy_of; others make room for it, whichever they are.
  void note(std::string_view key, std::uint64_t key_hash, const Pointer& pointer) {
    if (key.size() > key_bytes_max) return;
    Place& place = place_to_note(key_hash);
    std::size_t i = place.index_of(key, key_hash);
    const bool is_new = i == entries_in_place;
    if (is_new) i = static_cast<std::size_t>(std::ranges::min_element(place.seen_at) - place.seen_at.begin());
    Entry& entry = place.entry[i];
    if (is_new) {
      place.key_hash[i] = key_hash;
      entry.key_length = static_cast<std::uint8_t>(key.size());
      key.copy(entry.key.data(), entry.key.size());
    }
    if (entry.copy != pointer.copy) {
      drop_copy(entry);
      if (pointer.copy != nullptr) make_room_for(pointer.length_bytes);
      entry.copy = pointer.copy;
    }
    place.seen_at[i] = pointer.seen_at;
    entry.word = pointer.word;
    entry.slot = pointer.slot;
    entry.length_bytes = pointer.length_bytes;
    entry.is_mortal = pointer.is_mortal;
  }

  // That the slot has nothing of the key any more.
  void forget(std::string_view key, std::uint64_t key_hash, SlotNumber slot) {
    if (numbers_.empty() || numbers_[key_hash & place_mask_] == none) return;
    Place& place = place_of(numbers_[key_hash & place_mask_]);
    const std::size_t i = place.index_of(key, key_hash);
    if (i == entries_in_place || place.entry[i].slot != slot) return;
    drop_copy(place.entry[i]);
    place.entry[i].key_length = 0;
    place.seen_at[i] = 0;
  }

  [[nodiscard]] std::size_t copies_bytes() const { return copies_bytes_; }

 private:
  static constexpr std::size_t places_in_chunk = 8;
  static constexpr std::size_t entries_in_place = 4;
  using PlaceNumber = std::uint16_t;  // in the order in which they are made
  static constexpr PlaceNumber none = places_usual;
  // Of a short key, one line.
  struct alignas(fabric::cache_line_bytes) Entry {
    SlotWord word{};
    SlotNumber slot = 0;
    std::uint64_t length_bytes = 0;
    Copy copy;
    bool is_mortal = false;
    std::uint8_t key_length = 0;  // no key is empty, so an entry that is not used is none's
    std::array<char, key_bytes_max> key;

    [[nodiscard]] bool is_of(std::string_view other) const {
      return std::string_view(key.data(), key_length) == other;
    }
  };
  // What tells whose the entries are, and which is the oldest, is one line of the processor's cache.
  struct alignas(fabric::cache_line_bytes) Place {
    std::array<std::uint64_t, entries_in_place> key_hash{};
    std::array<base::Nanos, entries_in_place> seen_at{};
    std::array<Entry, entries_in_place> entry{};
    static_assert(sizeof key_hash + sizeof seen_at == fabric::cache_line_bytes);

    // `entries_in_place`: none's.
    [[nodiscard]] std::size_t index_of(std::string_view key, std::uint64_t hash) const {
      std::size_t i = 0;
      while (i < entries_in_place && !(key_hash[i] == hash && entry[i].is_of(key))) ++i;
      return i;
    }
  };

  // Memory for places.
  struct alignas(Place) Chunk {
    std::array<std::byte, places_in_chunk * sizeof(Place)> bytes;
  };

  [[nodiscard]] Place& place_of(PlaceNumber number) const {
    std::byte* const at = &chunks_[number / places_in_chunk]->bytes[number % places_in_chunk * sizeof(Place)];
    return *std::launder(reinterpret_cast<Place*>(at));
  }
  Place& place_to_note(std::uint64_t key_hash) {
    if (numbers_.empty()) numbers_.assign(place_mask_ + 1, none);
    PlaceNumber& number = numbers_[key_hash & place_mask_];
    if (number != none) return place_of(number);
    const std::size_t in_chunk = places_made_ % places_in_chunk;
    if (in_chunk == 0) chunks_.push_back(std::make_unique_for_overwrite<Chunk>());
    number = places_made_++;
    return *::new (&chunks_.back()->bytes[in_chunk * sizeof(Place)]) Place;
  }

  void drop_copy(Entry& entry) {
    if (entry.copy == nullptr) return;
    copies_bytes_ -= entry.length_bytes;
    entry.copy = nullptr;
  }
  // Counts what is to be copied. The places have their turn to let go of theirs.
  void make_room_for(std::size_t length_bytes) {
    copies_bytes_ += length_bytes;
    while (copies_bytes_ > copies_bytes_max_) {
      next_to_let_go_ = (next_to_let_go_ + 1) % places_made_;
      for (Entry& entry : place_of(next_to_let_go_).entry) drop_copy(entry);
    }
  }

  // Places are made when they are first needed, in memory for a few: many sessions use few keys, and those of
  // this host none.
  std::vector<PlaceNumber> numbers_;  // of all places, once there is one
  std::vector<std::unique_ptr<Chunk>> chunks_;
  PlaceNumber places_made_ = 0;
  const std::size_t place_mask_;
  const std::size_t copies_bytes_max_;
  std::size_t copies_bytes_ = 0;
  PlaceNumber next_to_let_go_ = 0;
};

}  // namespace loch::hash
