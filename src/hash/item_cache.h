// ItemCache: recently read items, kept in this process (nessie.txt 4.1.3, 4.3.1). Items do not change, so a
// copy is the item for as long as its memory can not have been reused since a slot was last seen to name it.
// Least recently used first out. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/clock.h"
#include "base/planted.h"
#include "memory/size_class.h"

namespace loch::hash {

class ItemCache {
 public:
  using Copy = std::shared_ptr<const std::byte[]>;

  explicit ItemCache(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // The copy of an item that a slot was seen to name, as its key's, since `since`, or null. What was seen at
  // `kept_since` or later has not been reused (memory::Session). `length_bytes` is set with it.
  Copy find(const memory::ItemRef& item, base::Nanos since, base::Nanos kept_since,
            std::size_t& length_bytes) {
    const auto it = entries_.find(item.place());
    if (it == entries_.end()) return nullptr;
    const auto entry = it->second;
    const bool is_kept = entry->seen_at >= kept_since || base::planted(base::Planted::copy_of_any_age);
    if (entry->item != item || !is_kept) {
      erase(entry);
      return nullptr;
    }
    entry->seen_at = std::max(entry->seen_at, since);
    order_.splice(order_.begin(), order_, entry);
    length_bytes = entry->length_bytes;
    return entry->copy;
  }

  // Keeps a copy of an item that was read after a slot was seen to name it so, at `seen_at`.
  void insert(const memory::ItemRef& item, const std::byte* bytes, std::size_t length_bytes,
              base::Nanos seen_at) {
    if (length_bytes > bytes_max_ / 4) return;
    if (const auto it = entries_.find(item.place()); it != entries_.end()) erase(it->second);
    while (bytes_ + length_bytes > bytes_max_) erase(std::prev(order_.end()));
    auto copy = std::make_shared_for_overwrite<std::byte[]>(length_bytes);
    std::copy_n(bytes, length_bytes, copy.get());
    order_.push_front({item, seen_at, length_bytes, std::move(copy)});
    entries_[item.place()] = order_.begin();
    bytes_ += length_bytes;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    memory::ItemRef item;
    base::Nanos seen_at;
    std::size_t length_bytes;
    Copy copy;
  };

  void erase(std::list<Entry>::iterator entry) {
    bytes_ -= entry->length_bytes;
    entries_.erase(entry->item.place());
    order_.erase(entry);
  }

  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::list<Entry> order_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> entries_;
};

}  // namespace loch::hash
