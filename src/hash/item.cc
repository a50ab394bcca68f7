#include "hash/item.h"

#include <algorithm>

namespace loch::hash {

std::uint32_t copy_long_value(std::uint32_t header_sum, std::string_view value, char* to) {
  constexpr std::size_t piece_bytes = std::size_t{2} << 10;
  constexpr std::size_t ahead_bytes = std::size_t{8} << 10;
  if (value.size() <= piece_bytes) {
    if (to != nullptr) std::memcpy(to, value.data(), value.size());
    const char* copied = to != nullptr ? to : value.data();
    return header_sum ^ static_cast<std::uint32_t>(base::checksum(copied, value.size()));
  }
  base::Checksum sum;
  for (std::size_t at = 0; at < value.size(); at += piece_bytes) {
    const std::string_view piece = value.substr(at, piece_bytes);
    // Summed up where it was copied to: what counts is what the reader gets.
    if (to != nullptr) std::memcpy(to + at, piece.data(), piece.size());
    // What comes a few pieces later is fetched while this one is summed up.
    const std::string_view later = value.substr(std::min(at + ahead_bytes, value.size()), piece_bytes);
    for (std::size_t line = 0; line < later.size(); line += fabric::cache_line_bytes)
      __builtin_prefetch(later.data() + line);
    sum.update(to != nullptr ? to + at : piece.data(), piece.size());
  }
  return header_sum ^ static_cast<std::uint32_t>(sum.digest());
}

}  // namespace loch::hash
