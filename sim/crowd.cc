#include "sim/crowd.h"

#include <fmt/format.h>

#include "hash/index.h"

namespace loch::sim {

std::vector<std::string> crowded_keys(const memory::Geometry& geometry, std::string_view prefix,
                                      std::uint64_t rows, std::size_t count) {
  std::vector<std::string> keys;
  std::string key(prefix);
  for (std::uint64_t number = 0; keys.size() < count; ++number) {
    const fmt::format_int digits(number);
    key.resize(prefix.size());
    key.append(digits.data(), digits.size());
    const std::uint64_t hash = hash::Key::of(key, geometry.hash_seed).hash;
    bool crowded = true;
    for (std::uint32_t i = 0; i < geometry.candidates && crowded; ++i) {
      crowded = hash::row_mix(hash, i) % (std::uint64_t{1} << hash::first_level) < rows;
    }
    if (crowded) keys.push_back(key);
  }
  return keys;
}

}  // namespace loch::sim
