// Keys: the memory of a host that its device lets a session at: to the session what the host has told it,
// which is input, and to the host what it has registered. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace loch::fabric::verbs {

class Keys {
 public:
  struct Key {
    std::uint64_t from_bytes = 0;  // in its region
    std::uint64_t length_bytes = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;

    [[nodiscard]] constexpr std::uint64_t end_bytes() const { return from_bytes + length_bytes; }
    [[nodiscard]] constexpr bool has(std::uint64_t offset_bytes) const {
      return offset_bytes >= from_bytes && offset_bytes - from_bytes < length_bytes;
    }
  };

  // Null if nothing is known there. Until something is added.
  [[nodiscard]] const Key* find(RegionId region, std::uint64_t offset_bytes) const {
    const std::vector<Key>& keys = keys_[region];
    const auto after = std::ranges::upper_bound(keys, offset_bytes, {}, &Key::from_bytes);
    if (after == keys.begin()) return nullptr;
    const Key& key = *std::prev(after);
    return key.has(offset_bytes) ? &key : nullptr;
  }
  // Where what is known before this place ends; 0 if there is nothing.
  [[nodiscard]] std::uint64_t end_before(RegionId region, std::uint64_t offset_bytes) const {
    const std::vector<Key>& keys = keys_[region];
    const auto after = std::ranges::upper_bound(keys, offset_bytes, {}, &Key::from_bytes);
    return after == keys.begin() ? 0 : std::prev(after)->end_bytes();
  }
  // What the host tells of this place. False if that can not be: it does not have the place, goes beyond any
  // region, or lies over what was told before.
  bool add(RegionId region, std::uint64_t offset_bytes, const Key& key) {
    if (key.from_bytes > region_bytes_max || key.length_bytes > region_bytes_max) return false;
    std::vector<Key>& keys = keys_[region];
    const auto after = std::ranges::upper_bound(keys, key.from_bytes, {}, &Key::from_bytes);
    const bool is_apart = (after == keys.begin() || std::prev(after)->end_bytes() <= key.from_bytes) &&
                          (after == keys.end() || key.end_bytes() <= after->from_bytes);
    if (!key.has(offset_bytes) || !is_apart) return false;
    keys.insert(after, key);
    return true;
  }

 private:
  std::array<std::vector<Key>, region_count_max> keys_;  // of each region, sorted by from_bytes
};

}  // namespace loch::fabric::verbs
