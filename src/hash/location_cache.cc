#include "hash/location_cache.h"

#include <algorithm>
#include <sys/mman.h>

#include "base/random.h"

namespace loch::hash {

LocationCache::LocationCache(std::size_t bytes) {
  std::uint64_t left = bytes / sizeof(Set);
  std::uint64_t count = first_tier_bytes / sizeof(Set);
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < tiers_max; ++i) {
    const bool is_last = i + 1 == tiers_max;
    tiers_[i] = {.begin = begin, .count = is_last ? left : std::min(count, left)};
    begin += tiers_[i].count;
    left -= tiers_[i].count;
    count *= tier_growth;
  }
  tiers_[tiers_max] = {.begin = begin, .count = 0};
}

LocationCache::~LocationCache() {
  if (Set* all = sets(); all != nullptr) ::munmap(all, bytes());
}

// Null if there is no memory: then nothing is noted.
LocationCache::Set* LocationCache::make_sets() {
  void* made =
      ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  Set* there = nullptr;
  // release: as `sets`.
  if (sets_.compare_exchange_strong(there, static_cast<Set*>(made), std::memory_order_release,
                                    std::memory_order_acquire)) {
    return static_cast<Set*>(made);
  }
  ::munmap(made, bytes());
  return there;
}

// The key's, or a free one, if need be of another tier; or any of the first set of the last tier.
LocationCache::Entry& LocationCache::entry_for(Set* all, std::uint64_t key_hash, SlotWord word) {
  for (;;) {
    const auto [of_key, free] = seek(all, key_hash);
    if (of_key != nullptr) return *of_key;
    if (free != nullptr) return *free;
    std::size_t in_use = tiers_in_use_.load(std::memory_order_relaxed);
    if (tiers_[in_use].count == 0) break;
    tiers_in_use_.compare_exchange_strong(in_use, in_use + 1, std::memory_order_relaxed);
  }
  const Tier& last = tiers_in_use().back();
  return all[last.first_of(key_hash)].entry[base::mix(word.raw) % entries_in_set];
}

void LocationCache::note(std::uint64_t key_hash, const Location& location, Spot spot) {
  if (bytes() == 0 || location.length_bytes == 0 || location.length_bytes > length_bytes_max ||
      location.slot > slot_max)
    return;
  Set* all = sets();
  if (all == nullptr) all = make_sets();
  if (all == nullptr) return;
  const std::uint64_t rest = location.slot << slot_at | location.length_bytes << length_at |
                             std::uint64_t{location.is_mortal} << mortal_at | check_of(key_hash);
  Entry& at = may_take(spot.entry_, key_hash) ? *spot.entry_ : entry_for(all, key_hash, location.word);
  // What others read is written only if it changes.
  if (at.word.load(std::memory_order_relaxed) != location.word.raw)
    at.word.store(location.word.raw, std::memory_order_relaxed);
  if (at.rest.load(std::memory_order_relaxed) != rest) at.rest.store(rest, std::memory_order_relaxed);
}

void LocationCache::forget(std::uint64_t key_hash, SlotNumber slot) {
  Set* const all = sets();
  Entry* const at = all == nullptr ? nullptr : seek(all, key_hash).of_key;
  if (at != nullptr && at->rest.load(std::memory_order_relaxed) >> slot_at == slot)
    at->rest.store(forgotten, std::memory_order_relaxed);
}

}  // namespace loch::hash
