// LocationCache: where keys' items were when somebody of this process saw them last, however long ago: the
// slot and the word in it. Shared by the sessions of an open store, 16 B a key. No more than hints: whoever
// uses one reads the slot, and after that the item, and goes by what he sees. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/endpoint.h"
#include "hash/index.h"
#include "hash/slot.h"

namespace loch::hash {

class LocationCache {
 public:
  static constexpr std::uint64_t length_bytes_max = 0xffff;

  struct Location {
    SlotWord word{};
    SlotNumber slot = 0;
    std::uint64_t length_bytes = 0;  // of the item
    bool is_mortal = false;          // which has a time to live
  };

  // At most so many bytes, of which the pages are taken that are used; with less than a line it keeps
  // nothing.
  explicit LocationCache(std::size_t bytes);
  ~LocationCache();
  LocationCache(const LocationCache&) = delete;
  LocationCache& operator=(const LocationCache&) = delete;

  [[nodiscard]] std::optional<Location> find(std::uint64_t key_hash) const {
    const Entry* entry = entry_of(sets(), key_hash);
    if (entry == nullptr) return std::nullopt;
    const std::uint64_t rest = entry->rest.load(std::memory_order_relaxed);
    return Location{.word = {entry->word.load(std::memory_order_relaxed)},
                    .slot = rest >> slot_at,
                    .length_bytes = rest >> length_at & length_bytes_max,
                    .is_mortal = (rest >> mortal_at & 1) != 0};
  }
  // One that is longer than length_bytes_max is not noted.
  void note(std::uint64_t key_hash, const Location& location);
  // Asks for what `find` looks at first.
  void fetch(std::uint64_t key_hash) const {
    if (const Set* all = sets(); all != nullptr) __builtin_prefetch(all + first_of(key_hash));
  }

 private:
  // The two words of an entry may be of two keys, if two threads wrote them at once.
  struct Entry {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> rest;  // bits of the key's hash, mortal 1, length 16, slot 33; 0: nobody's
  };
  static constexpr unsigned check_bits = 14;
  static constexpr unsigned mortal_at = check_bits;
  static constexpr unsigned length_at = mortal_at + 1;
  static constexpr unsigned slot_at = length_at + 16;
  static constexpr SlotNumber slot_max = fabric::region_bytes_max / sizeof(std::uint64_t) - 1;
  static_assert(slot_max >> (64 - slot_at) == 0);
  static constexpr std::size_t entries_in_set = 4;
  struct alignas(fabric::cache_line_bytes) Set {
    std::array<Entry, entries_in_set> entry;
  };
  static_assert(sizeof(Set) == fabric::cache_line_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

  static constexpr std::uint64_t check_of(std::uint64_t key_hash) { return key_hash >> (64 - check_bits); }
  static constexpr bool is_of(std::uint64_t rest, std::uint64_t key_hash) {
    return rest != 0 && (rest & ((1U << check_bits) - 1)) == check_of(key_hash);
  }
  // acquire: pairs with the release that published zeroed memory.
  [[nodiscard]] Set* sets() const { return sets_.load(std::memory_order_acquire); }
  // A key is in one of two sets, so that few are forgotten before all of them are nearly full.
  [[nodiscard]] std::uint64_t first_of(std::uint64_t key_hash) const { return key_hash & mask_; }
  [[nodiscard]] std::uint64_t second_of(std::uint64_t key_hash) const { return key_hash >> 26 & mask_; }
  [[nodiscard]] Entry* entry_of(Set* all, std::uint64_t key_hash) const {
    if (all == nullptr) return nullptr;
    for (const std::uint64_t set : {first_of(key_hash), second_of(key_hash)}) {
      for (Entry& entry : all[set].entry) {
        if (is_of(entry.rest.load(std::memory_order_relaxed), key_hash)) return &entry;
      }
    }
    return nullptr;
  }
  [[nodiscard]] Entry& entry_for(Set* all, std::uint64_t key_hash, SlotWord word) const;
  [[nodiscard]] std::size_t bytes() const { return (mask_ + 1) * sizeof(Set); }
  Set* make_sets();

  const std::uint64_t mask_;  // of the number of a set
  const bool keeps_nothing_;
  std::atomic<Set*> sets_{nullptr};  // made when something is noted first
};

}  // namespace loch::hash
