#include "hash/location_cache.h"

#include <algorithm>
#include <bit>
#include <sys/mman.h>

#include "base/random.h"

namespace loch::hash {

LocationCache::LocationCache(std::size_t bytes)
    : mask_(std::bit_floor(std::max<std::size_t>(bytes / sizeof(Set), 1)) - 1),
      keeps_nothing_(bytes < sizeof(Set)) {}

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

// A free one, or any of the first set.
LocationCache::Entry& LocationCache::entry_for(Set* all, std::uint64_t key_hash, SlotWord word) const {
  for (const std::uint64_t set : {first_of(key_hash), second_of(key_hash)}) {
    for (Entry& entry : all[set].entry) {
      if (entry.rest.load(std::memory_order_relaxed) == 0) return entry;
    }
  }
  return all[first_of(key_hash)].entry[base::mix(word.raw) % entries_in_set];
}

void LocationCache::note(std::uint64_t key_hash, const Location& location) {
  if (keeps_nothing_ || location.length_bytes > length_bytes_max || location.slot > slot_max) return;
  Set* all = sets();
  if (all == nullptr) all = make_sets();
  if (all == nullptr) return;
  const std::uint64_t rest = location.slot << slot_at | location.length_bytes << length_at |
                             std::uint64_t{location.is_mortal} << mortal_at | check_of(key_hash);
  Entry* at = entry_of(all, key_hash);
  if (at == nullptr) at = &entry_for(all, key_hash, location.word);
  // What others read is written only if it changes.
  if (at->word.load(std::memory_order_relaxed) != location.word.raw)
    at->word.store(location.word.raw, std::memory_order_relaxed);
  if (at->rest.load(std::memory_order_relaxed) != rest) at->rest.store(rest, std::memory_order_relaxed);
}

}  // namespace loch::hash
