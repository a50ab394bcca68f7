// PointerCache: where the items of keys that a remote session used lately are, and the slots that name them,
// so that it can ask for an item and its slot at once. Whoever uses a pointer makes sure that the slot still
// names the item. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "hash/index.h"
#include "hash/slot.h"

namespace loch::hash {

class PointerCache {
 public:
  static constexpr std::size_t key_bytes_max = 64;

  // The slot was seen to hold the word, which is committed and names an item of the key, by an operation that
  // began at `seen_at`, by the clock of the item's node. If the session with that node has kept what there
  // was since (memory::Session::kept_since), the item's memory has not been reused: what names it is the
  // key's still.
  struct Pointer {
    SlotWord word{};
    SlotNumber slot = 0;
    base::Nanos seen_at = 0;
    std::uint64_t length_bytes = 0;  // of the item

    [[nodiscard]] memory::ItemRef item() const { return word.item(); }
  };

  [[nodiscard]] std::optional<Pointer> find(std::string_view key, std::uint64_t key_hash) const {
    if (places_.empty()) return std::nullopt;
    for (const Entry& entry : places_[key_hash % places_max]) {
      if (entry.key_hash == key_hash && entry.key == key) return entry.pointer;
    }
    return std::nullopt;
  }

  // Of the keys that share its place, the one that was seen longest ago is forgotten.
  void note(std::string_view key, std::uint64_t key_hash, const Pointer& pointer) {
    if (key.size() > key_bytes_max) return;
    if (places_.empty()) places_.resize(places_max);
    Place& place = places_[key_hash % places_max];
    Entry* chosen = place.data();
    for (Entry& entry : place) {
      if (entry.key_hash == key_hash && entry.key == key) {
        chosen = &entry;
        break;
      }
      if (entry.pointer.seen_at < chosen->pointer.seen_at) chosen = &entry;
    }
    if (chosen->key != key) chosen->key.assign(key);
    chosen->key_hash = key_hash;
    chosen->pointer = pointer;
  }

 private:
  static constexpr std::size_t places_max = std::size_t{1} << 12;
  static constexpr std::size_t entries_in_place = 4;
  struct Entry {
    std::uint64_t key_hash = 0;
    std::string key;  // no key is empty, so an entry that was never used is none's
    Pointer pointer;
  };
  using Place = std::array<Entry, entries_in_place>;
  std::vector<Place> places_;  // made when first needed
};

}  // namespace loch::hash
