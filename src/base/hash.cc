#include "base/hash.h"

#include <algorithm>
#include <array>

// The dispatching function is of the shared library; this header declares it without redefining the inlined
// ones.
extern "C" XXH64_hash_t XXH3_64bits_withSeed_dispatch(const void* input, std::size_t length,
                                                      XXH64_hash_t seed);

namespace loch::base {
namespace {

constexpr std::size_t words_in_line = 8;
constexpr std::size_t line_bytes = words_in_line * sizeof(std::uint64_t);
constexpr std::size_t lanes = 4;
// How much earlier than it is needed each line is asked for: with the line that is copied then, since a burst
// of requests would wait for itself, and all that follows with it.
constexpr std::size_t ahead_bytes = 4096;

// A bijection of 32-bit words, another one for each lane, that spreads every bit over the result (the
// finalizer of MurmurHash3).
constexpr std::uint32_t mixed(std::uint64_t crc, std::size_t lane) {
  auto x = static_cast<std::uint32_t>(crc + lane * 0x9e3779b9U);
  x ^= x >> 16;
  x *= 0x85ebca6bU;
  x ^= x >> 13;
  x *= 0xc2b2ae35U;
  x ^= x >> 16;
  return x;
}

template <class To>
std::uint32_t in_lanes(std::uint32_t seed, const char* from, std::size_t length_bytes, To to) {
  constexpr bool copies = !std::is_null_pointer_v<To>;
  std::array<std::uint64_t, lanes> crc = {seed};
  const std::size_t end = length_bytes / line_bytes * line_bytes;
  for (std::size_t at = 0; at < end; at += line_bytes) {
    __builtin_prefetch(from + std::min(at + ahead_bytes, length_bytes - 1));
    std::array<std::uint64_t, words_in_line> word;
    std::memcpy(word.data(), from + at, line_bytes);
#pragma clang loop unroll(full)
    for (std::size_t i = 0; i < words_in_line; ++i) {
      asm("" : "+r"(word[i]));  // read once: what is summed up is what is copied
      crc[i % lanes] = _mm_crc32_u64(crc[i % lanes], word[i]);
    }
    if constexpr (copies) std::memcpy(to + at, word.data(), line_bytes);
  }
  auto so_far = static_cast<std::uint32_t>(crc[0]);
  for (std::size_t lane = 1; lane < lanes; ++lane) so_far ^= mixed(crc[lane], lane);
  if constexpr (copies) return crc32c(so_far, from + end, length_bytes - end, to + end);
  return crc32c(so_far, from + end, length_bytes - end, nullptr);
}

}  // namespace

std::uint64_t hash_long(const void* bytes, std::size_t length_bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed_dispatch(bytes, length_bytes, seed);
}

std::uint32_t crc32c_in_lanes(std::uint32_t seed, const void* bytes, std::size_t length_bytes, char* to) {
  return in_lanes(seed, static_cast<const char*>(bytes), length_bytes, to);
}

std::uint32_t crc32c_in_lanes(std::uint32_t seed, const void* bytes, std::size_t length_bytes,
                              std::nullptr_t) {
  return in_lanes(seed, static_cast<const char*>(bytes), length_bytes, nullptr);
}

}  // namespace loch::base
