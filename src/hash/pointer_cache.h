// PointerCache: where the items of keys that a remote session used lately are, and the slots that name them,
// so that it can ask for an item and its slot at once. Whoever uses a pointer makes sure that the slot still
// names the item. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "hash/index.h"
#include "memory/size_class.h"

namespace loch::hash {

class PointerCache {
 public:
  // The slot was seen to name the item as the key's by an operation that began at `seen_at`, by the clock of
  // the item's node. If the session with that node has kept what there was since
  // (memory::Session::kept_since), the item's memory has not been reused.
  struct Pointer {
    memory::ItemRef item;
    SlotNumber slot = 0;
    base::Nanos seen_at = 0;
  };

  [[nodiscard]] std::optional<Pointer> find(std::string_view key, std::uint64_t key_hash) const {
    if (entries_.empty()) return std::nullopt;
    const Entry& entry = entries_[key_hash % entries_max];
    if (entry.key != key) return std::nullopt;
    return entry.pointer;
  }

  // A key that shares its place is forgotten.
  void note(std::string_view key, std::uint64_t key_hash, const Pointer& pointer) {
    if (key.size() > key_bytes_max) return;
    if (entries_.empty()) entries_.resize(entries_max);
    Entry& entry = entries_[key_hash % entries_max];
    if (entry.key != key) entry.key.assign(key);
    entry.pointer = pointer;
  }

 private:
  static constexpr std::size_t entries_max = std::size_t{1} << 14;
  static constexpr std::size_t key_bytes_max = 64;
  struct Entry {
    std::string key;  // no key is empty, so an entry that was never used is none's
    Pointer pointer;
  };
  std::vector<Entry> entries_;  // made when first needed
};

}  // namespace loch::hash
