// Values that say who they are: an id, the length, and a pattern made of both over every byte, so that a
// value put together from two others, or cut, or overwritten in part is told from one that was written.
//
//   bytes 0-7 id, 8-15 length, then the words mix(id + (length << 40) + position); all little-endian, the
//   last word cut
#pragma once

#include <cstddef>
#include <expected>
#include <string>
#include <string_view>

#include "sim/history.h"

namespace loch::sim {

inline constexpr std::size_t value_bytes_min = 16;

// `length_bytes` is at least value_bytes_min.
void make_value(ValueId id, std::size_t length_bytes, std::string& into);

// The id of a value; or a line that says what is wrong with it, and where.
std::expected<ValueId, std::string> read_value(std::string_view value);

}  // namespace loch::sim
