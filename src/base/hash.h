// Hashing, by XXH3, of xxHash, and checksums, by the processor's CRC32C. Small inputs are done in line; long
// ones are hashed by the widest vector unit that the processor has.
#pragma once

#define XXH_INLINE_ALL
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nmmintrin.h>
#include <type_traits>
#include <xxhash.h>

namespace loch::base {

// XXH3 of an input that needs vectors to be fast; they are chosen at run time by what the processor can do.
std::uint64_t hash_long(const void* bytes, std::size_t length_bytes, std::uint64_t seed);

inline constexpr std::size_t hash_short_bytes_max = 240;

// Of keys: the seed keeps an outsider from choosing keys that collide.
[[gnu::always_inline]] inline std::uint64_t hash_bytes(const void* bytes, std::size_t length_bytes,
                                                       std::uint64_t seed) {
  if (length_bytes <= hash_short_bytes_max) [[likely]]
    [[clang::always_inline]] return XXH3_64bits_withSeed(bytes, length_bytes, seed);
  return hash_long(bytes, length_bytes, seed);
}

// CRC32C of whole words: the last one overlaps the one before it, or is filled up with zeros. Copies the
// bytes to `to` on the way, unless that is `nullptr` itself; what is summed up is what was copied. For short
// inputs, of which it takes a quarter of the instructions that XXH3 would.
template <class To>
[[gnu::always_inline]] inline std::uint32_t crc32c(std::uint32_t seed, const void* bytes,
                                                   std::size_t length_bytes, To to) {
  constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  constexpr std::size_t pair_bytes = 2 * word_bytes;
  constexpr std::size_t line_bytes = 4 * pair_bytes;
  constexpr bool copies = !std::is_null_pointer_v<To>;
  const char* from = static_cast<const char*>(bytes);
  asm("" : "+r"(from));  // one address, where the compiler would compute several from what it comes from
  std::uint64_t crc = seed;
  const auto add_word = [&](std::size_t offset) __attribute__((always_inline)) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + offset, word_bytes);
    if constexpr (copies) std::memcpy(to + offset, &word, word_bytes);
    crc = _mm_crc32_u64(crc, word);
  };
  const auto add_pair = [&](std::size_t offset) __attribute__((always_inline)) {
    struct Pair {
      std::uint64_t first;
      std::uint64_t second;
    };
    Pair pair;
    std::memcpy(&pair, from + offset, pair_bytes);
    if constexpr (copies) {
      // One load and one store for both; they are summed up from where they were copied to.
      std::memcpy(to + offset, &pair, pair_bytes);
      asm("" : "+m"(*reinterpret_cast<Pair*>(to + offset)));
      std::memcpy(&pair, to + offset, pair_bytes);
    }
    crc = _mm_crc32_u64(crc, pair.first);
    crc = _mm_crc32_u64(crc, pair.second);
  };
  std::size_t offset = 0;
  if (const std::size_t end = length_bytes / line_bytes * line_bytes; end != 0) [[likely]] {
#pragma clang loop unroll(disable)
    do {
      for (std::size_t i = 0; i < line_bytes; i += pair_bytes) add_pair(offset + i);
      offset += line_bytes;
    } while (offset != end);
  }
  const std::size_t rest = length_bytes % line_bytes;
  if (rest == 0) return static_cast<std::uint32_t>(crc);
  if (length_bytes >= word_bytes) [[likely]] {
    if ((rest & 2 * pair_bytes) != 0) {
      add_pair(offset);
      add_pair(offset + pair_bytes);
      offset += 2 * pair_bytes;
    }
    if ((rest & pair_bytes) != 0) {
      add_pair(offset);
      offset += pair_bytes;
    }
    if ((rest & word_bytes) != 0) add_word(offset);
    if (rest % word_bytes != 0) add_word(length_bytes - word_bytes);
  } else {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) {
      if constexpr (copies) to[i] = from[i];
      word |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
    }
    crc = _mm_crc32_u64(crc, word);
  }
  return static_cast<std::uint32_t>(crc);
}
inline constexpr std::size_t crc_in_line_bytes_max = 512;  // beyond, in lanes

// The checksum of a longer input, in four lanes: of each whole line of 64 bytes, word i goes into the CRC32C
// of lane i mod 4, of which the first begins with `seed` and the others with 0. A CRC is linear, so equal
// differences in two lanes would cancel; the lanes are therefore mixed before they are put together. The
// CRC32C goes on from there over what is left. A difference in one lane alone is detected as by a CRC. A CRC
// is a chain of instructions that wait for each other: four chains take no longer than one, and no longer
// than memory takes to come. Copies and sums up like crc32c.
std::uint32_t crc32c_in_lanes(std::uint32_t seed, const void* bytes, std::size_t length_bytes, char* to);
std::uint32_t crc32c_in_lanes(std::uint32_t seed, const void* bytes, std::size_t length_bytes,
                              std::nullptr_t);

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
