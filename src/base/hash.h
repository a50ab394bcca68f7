// Hashing and checksums: XXH3, of xxHash. Small inputs are hashed in line; long ones by the widest vector
// unit that the processor has.
#pragma once

#define XXH_INLINE_ALL
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <xxhash.h>

namespace loch::base {

// XXH3 of inputs that need vectors to be fast; chosen at run time by what the processor can do.
std::uint64_t hash_long(const void* bytes, std::size_t length_bytes, std::uint64_t seed);
std::uint64_t checksum_long(const void* bytes, std::size_t length_bytes);

inline constexpr std::size_t hash_short_bytes_max = 240;

// Of keys: the seed keeps an outsider from choosing keys that collide.
[[gnu::always_inline]] inline std::uint64_t hash_bytes(const void* bytes, std::size_t length_bytes,
                                                       std::uint64_t seed) {
  if (length_bytes <= hash_short_bytes_max) [[likely]]
    return XXH3_64bits_withSeed(bytes, length_bytes, seed);
  return hash_long(bytes, length_bytes, seed);
}

// Of what is stored: tells accidents, not attacks.
[[gnu::always_inline]] inline std::uint64_t checksum_bytes(const void* bytes, std::size_t length_bytes) {
  if (length_bytes <= hash_short_bytes_max) [[likely]]
    return XXH3_64bits(bytes, length_bytes);
  return checksum_long(bytes, length_bytes);
}

// A bijection of 64-bit words that spreads every bit of `x` over the result (the finalizer of splitmix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

}  // namespace loch::base
