// Seeded randomness: the only source of it, so that a run is repeated by its seed.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace loch::base {

// splitmix64: 8 bytes of state, no warm-up; for back-off, sampling and tests, not for secrets.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }

  // Uniform in [0, bound); bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

// A seed from the operating system, for what need not be repeated: the hash seed of a store.
std::uint64_t system_seed();

}  // namespace loch::base
