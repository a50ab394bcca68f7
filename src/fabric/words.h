// Copies between a region, which others change meanwhile, and memory of one's own, and a comparison of both:
// each word of the region whole, as promised (P1 of fabric.h).
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
inline std::atomic_ref<std::uint64_t> word_at(std::byte* at) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at));
}
}  // namespace detail

inline void copy_from_region(std::byte* to, std::byte* from, std::size_t length_bytes) {
  std::size_t i = 0;
  const auto bytes_until = [&](std::size_t end) {
    for (; i < end; ++i) to[i] = std::atomic_ref(from[i]).load(std::memory_order_relaxed);
  };
  bytes_until(std::min(length_bytes, detail::bytes_before_a_word(from)));
  for (; length_bytes - i >= word_bytes; i += word_bytes) {
    // acquire: pairs with whoever published what the word names.
    const std::uint64_t word = detail::word_at(from + i).load(std::memory_order_acquire);
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
    // release: what was written before is there for whoever sees the word.
    detail::word_at(to + i).store(word, std::memory_order_release);
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
