// What is done with memory of a region, which others change meanwhile: words of it, copies between it and
// memory of one's own, and a comparison of both; each word of the region whole, as promised (P1 of fabric.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace loch::fabric {

inline constexpr std::size_t word_bytes = sizeof(std::uint64_t);

namespace detail {
inline std::size_t bytes_before_a_word(const std::byte* at) {
  return -reinterpret_cast<std::uintptr_t>(at) % word_bytes;
}
inline std::atomic_ref<std::uint64_t> word_at(const std::byte* at) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at)));
}
}  // namespace detail

inline std::uint64_t load_word(const std::byte* at) {
  // acquire: pairs with the release of the compare-swap or store that published what the word names.
  return detail::word_at(at).load(std::memory_order_acquire);
}
inline void store_word(std::byte* at, std::uint64_t value) {
  // release: pairs with the acquire of load_word.
  detail::word_at(at).store(value, std::memory_order_release);
}

// Both return the word as it was before.
inline std::uint64_t swap_word(std::byte* at, std::uint64_t expected, std::uint64_t desired) {
  // acq_rel: publishes the item that the new word names to the acquire in load_word; sees what the old one
  // names.
  detail::word_at(at).compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
  return expected;
}
inline std::uint64_t add_to_word(std::byte* at, std::uint64_t added) {
  return detail::word_at(at).fetch_add(added, std::memory_order_acq_rel);
}
// The word is `to` at least.
inline void raise_word(std::byte* at, std::uint64_t to) {
  const auto word = detail::word_at(at);
  std::uint64_t before = word.load(std::memory_order_relaxed);
  while (before < to && !word.compare_exchange_weak(before, to, std::memory_order_acq_rel)) {
  }
}

inline void copy_from_region(std::byte* to, std::byte* from, std::size_t length_bytes) {
  std::size_t i = 0;
  const auto bytes_until = [&](std::size_t end) {
    for (; i < end; ++i) to[i] = std::atomic_ref(from[i]).load(std::memory_order_relaxed);
  };
  bytes_until(std::min(length_bytes, detail::bytes_before_a_word(from)));
  for (; length_bytes - i >= word_bytes; i += word_bytes) {
    const std::uint64_t word = load_word(from + i);
    std::memcpy(to + i, &word, word_bytes);
  }
  bytes_until(length_bytes);
}

inline void copy_to_region(std::byte* to, const std::byte* from, std::size_t length_bytes) {
  std::size_t i = 0;
  const auto bytes_until = [&](std::size_t end) {
    for (; i < end; ++i) std::atomic_ref(to[i]).store(from[i], std::memory_order_relaxed);
  };
  bytes_until(std::min(length_bytes, detail::bytes_before_a_word(to)));
  for (; length_bytes - i >= word_bytes; i += word_bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, word_bytes);
    store_word(to + i, word);
  }
  bytes_until(length_bytes);
}

// Whether these bytes are there.
inline bool holds(std::byte* at, const std::byte* bytes, std::size_t length_bytes) {
  constexpr std::size_t at_once = 256;
  std::byte copy[at_once];
  for (std::size_t i = 0; i < length_bytes; i += at_once) {
    const std::size_t length = std::min(at_once, length_bytes - i);
    copy_from_region(copy, at + i, length);
    if (std::memcmp(copy, bytes + i, length) != 0) return false;
  }
  return true;
}

}  // namespace loch::fabric
