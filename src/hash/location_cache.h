// LocationCache: where keys' items were when somebody of this process saw them last, however long ago: the
// slot and the word in it. Shared by the sessions of an open store, 16 B a key. No more than hints: whoever
// uses one reads the slot, and after that the item, and goes by what he sees. Any thread.
//
// It begins small, so that who uses few keys touches few pages, and each of them once: what has no place any
// more goes to a tier that is sixteen times as large, and so on.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/endpoint.h"
#include "hash/index.h"
#include "hash/slot.h"

namespace loch::hash {

class LocationCache {
  struct Entry;

 public:
  static constexpr std::uint64_t length_bytes_max = 0xffff;

  struct Location {
    SlotWord word{};
    SlotNumber slot = 0;
    std::uint64_t length_bytes = 0;  // of the item
    bool is_mortal = false;          // which has a time to live
  };

  static constexpr std::size_t first_tier_bytes = std::size_t{64} << 10;

  // At most so many bytes, of which the pages are taken that are used; with less than a line it keeps
  // nothing.
  explicit LocationCache(std::size_t bytes);
  ~LocationCache();
  LocationCache(const LocationCache&) = delete;
  LocationCache& operator=(const LocationCache&) = delete;

  // Where a key is noted, or may be, for who looks for it, finds it elsewhere, and notes that.
  class Spot {
    friend LocationCache;
    Entry* entry_ = nullptr;
  };

  // `spot`, if wanted: for a `note` of the same key.
  [[nodiscard]] std::optional<Location> find(std::uint64_t key_hash, Spot* spot = nullptr) const {
    Set* const all = sets();
    if (all == nullptr) return std::nullopt;
    const auto [entry, free] = seek(all, key_hash);
    if (spot != nullptr) spot->entry_ = entry != nullptr ? entry : free;
    if (entry == nullptr) return std::nullopt;
    const std::uint64_t rest = entry->rest.load(std::memory_order_relaxed);
    return Location{.word = {entry->word.load(std::memory_order_relaxed)},
                    .slot = rest >> slot_at,
                    .length_bytes = rest >> length_at & length_bytes_max,
                    .is_mortal = (rest >> mortal_at & 1) != 0};
  }
  // One that is longer than length_bytes_max is not noted.
  void note(std::uint64_t key_hash, const Location& location) { note(key_hash, location, Spot{}); }
  void note(std::uint64_t key_hash, const Location& location, Spot spot);
  // That the key is in the slot, if that is what is known of it.
  void forget(std::uint64_t key_hash, SlotNumber slot);
  // Asks for what `find` looks at first.
  void fetch(std::uint64_t key_hash) const {
    const Set* all = sets();
    if (all == nullptr) return;
    for (const Tier& tier : tiers_in_use()) __builtin_prefetch(all + tier.first_of(key_hash));
  }

 private:
  // The two words of an entry may be of two keys, if two threads wrote them at once.
  struct Entry {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> rest;  // bits of the key's hash, mortal 1, length 16, slot 33
  };
  static constexpr unsigned check_bits = 14;
  static constexpr unsigned mortal_at = check_bits;
  static constexpr unsigned length_at = mortal_at + 1;
  static constexpr unsigned slot_at = length_at + 16;
  static constexpr SlotNumber slot_max = fabric::region_bytes_max / sizeof(std::uint64_t) - 1;
  static_assert(slot_max >> (64 - slot_at) == 0);
  // Nobody's: never used, or forgotten. No item has a length of 0.
  static constexpr std::uint64_t unused = 0;
  static constexpr std::uint64_t forgotten = std::uint64_t{1} << mortal_at;
  static constexpr std::size_t entries_in_set = 4;
  struct alignas(fabric::cache_line_bytes) Set {
    std::array<Entry, entries_in_set> entry;
  };
  static_assert(sizeof(Set) == fabric::cache_line_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

  static constexpr std::uint64_t sets_in_page = 4096 / sizeof(Set);
  // Of the sets, those from `begin` on. A key is in one of two of them, so that few have no place before
  // nearly all are full; and both are in one page.
  struct Tier {
    std::uint64_t begin = 0;
    std::uint64_t count = 0;

    [[nodiscard]] std::uint64_t first_of(std::uint64_t key_hash) const {
      return begin + share_of(key_hash, count);
    }
    [[nodiscard]] std::uint64_t second_of(std::uint64_t key_hash) const {
      const std::uint64_t page = share_of(key_hash, count) / sets_in_page * sets_in_page;
      return begin + page + share_of(key_hash >> 18, std::min(sets_in_page, count - page));
    }

   private:
    // By the upper of 32 bits.
    static std::uint64_t share_of(std::uint64_t bits, std::uint64_t of) {
      return (bits & 0xffff'ffff) * of >> 32;
    }
  };
  static constexpr std::size_t tiers_max = 5;
  static constexpr std::size_t tier_growth = 16;

  static constexpr std::uint64_t check_of(std::uint64_t key_hash) { return key_hash >> (64 - check_bits); }
  static constexpr bool is_nobodys(std::uint64_t rest) { return rest <= forgotten; }
  static constexpr bool is_of(std::uint64_t rest, std::uint64_t key_hash) {
    return !is_nobodys(rest) && (rest & ((1U << check_bits) - 1)) == check_of(key_hash);
  }
  // acquire: pairs with the release that published zeroed memory.
  [[nodiscard]] Set* sets() const { return sets_.load(std::memory_order_acquire); }
  [[nodiscard]] std::span<const Tier> tiers_in_use() const {
    return std::span(tiers_).first(tiers_in_use_.load(std::memory_order_relaxed));
  }
  struct Sought {
    Entry* of_key = nullptr;  // null: there is none
    Entry* free = nullptr;    // the first that it may have, if it has none and there is one
  };
  // A key has the first entry that was free for it, so it is no further on than one that was never used.
  [[nodiscard]] Sought seek(Set* all, std::uint64_t key_hash) const {
    Sought sought;
    for (const Tier& tier : tiers_in_use()) {
      for (const std::uint64_t set : {tier.first_of(key_hash), tier.second_of(key_hash)}) {
        for (Entry& entry : all[set].entry) {
          const std::uint64_t rest = entry.rest.load(std::memory_order_relaxed);
          if (is_of(rest, key_hash)) return {.of_key = &entry};
          if (sought.free == nullptr && is_nobodys(rest)) sought.free = &entry;
          if (rest == unused) return sought;
        }
      }
    }
    return sought;
  }
  // Whether the key may be noted there still; others may have noted theirs meanwhile.
  static bool may_take(const Entry* entry, std::uint64_t key_hash) {
    if (entry == nullptr) return false;
    const std::uint64_t rest = entry->rest.load(std::memory_order_relaxed);
    return is_nobodys(rest) || is_of(rest, key_hash);
  }
  [[nodiscard]] Entry& entry_for(Set* all, std::uint64_t key_hash, SlotWord word);
  [[nodiscard]] std::size_t bytes() const { return tiers_.back().begin * sizeof(Set); }
  Set* make_sets();

  std::array<Tier, tiers_max + 1> tiers_{};  // those that there are not begin at the end, as the last does
  std::atomic<std::size_t> tiers_in_use_{1};
  std::atomic<Set*> sets_{nullptr};  // made when something is noted first
};

}  // namespace loch::hash
