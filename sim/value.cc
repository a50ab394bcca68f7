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

}  // namespace

void make_value(ValueId id, std::size_t length_bytes, std::string& into) {
  into.resize(length_bytes);
  for (std::size_t at = 0; at < length_bytes; at += word_bytes) {
    const std::uint64_t word = word_at(id, length_bytes, at / word_bytes);
    std::memcpy(into.data() + at, &word, std::min(word_bytes, length_bytes - at));
  }
}

std::expected<ValueId, std::string> read_value(std::string_view value) {
  if (value.size() < value_bytes_min) return std::unexpected(fmt::format("of {} bytes only", value.size()));
  std::uint64_t id = 0;
  std::memcpy(&id, value.data(), sizeof id);
  for (std::size_t at = word_bytes; at < value.size(); at += word_bytes) {
    const std::uint64_t word = word_at(id, value.size(), at / word_bytes);
    if (std::memcmp(value.data() + at, &word, std::min(word_bytes, value.size() - at)) == 0) continue;
    std::uint64_t found = 0;
    std::memcpy(&found, value.data() + at, std::min(word_bytes, value.size() - at));
    return std::unexpected(
        fmt::format("that begins as value {} of {} bytes, but is {:016x} instead of {:016x} from byte {} on",
                    id, value.size(), found, word, at));
  }
  return id;
}

}  // namespace loch::sim
