#include "sim/value.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>

#include "base/hash.h"

namespace loch::sim {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t word_bytes = sizeof(std::uint64_t);

std::uint64_t word_at(std::uint64_t id, std::uint64_t length_bytes, std::size_t position) {
  if (position == 0) return id;
  if (position == 1) return length_bytes;
  return base::mix(id + (length_bytes << 40) + position);
}

// The bytes from `at` on, as many as make a word or as there are left.
std::uint64_t found_at(std::string_view value, std::size_t at) {
  std::uint64_t word = 0;
  if (value.size() - at >= word_bytes) {
    std::memcpy(&word, value.data() + at, word_bytes);
  } else {
    std::memcpy(&word, value.data() + at, value.size() - at);
  }
  return word;
}

}  // namespace

void make_value(ValueId id, std::size_t length_bytes, std::string& into) {
  into.resize(length_bytes);
  const std::size_t words = length_bytes / word_bytes;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = word_at(id, length_bytes, i);
    std::memcpy(into.data() + i * word_bytes, &word, word_bytes);
  }
  const std::uint64_t last = word_at(id, length_bytes, words);
  std::memcpy(into.data() + words * word_bytes, &last, length_bytes % word_bytes);
}

std::expected<ValueId, std::string> read_value(std::string_view value) {
  if (value.size() < value_bytes_min) return std::unexpected(fmt::format("of {} bytes only", value.size()));
  std::uint64_t id = 0;
  std::memcpy(&id, value.data(), sizeof id);
  for (std::size_t at = word_bytes; at < value.size(); at += word_bytes) {
    std::uint64_t word = word_at(id, value.size(), at / word_bytes);
    const std::size_t left = value.size() - at;
    if (left < word_bytes) word &= (std::uint64_t{1} << 8 * left) - 1;
    const std::uint64_t found = found_at(value, at);
    if (found == word) continue;
    return std::unexpected(
        fmt::format("that begins as value {} of {} bytes, but is {:016x} instead of {:016x} from byte {} on",
                    id, value.size(), found, word, at));
  }
  return id;
}

}  // namespace loch::sim
