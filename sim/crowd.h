// Keys that the index crowds into a few of its rows, so that their homes and alternates are taken all the
// time: they are inserted in doubt, moved about and withdrawn as seldom happens to keys that lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/store_memory.h"

namespace loch::sim {

// `count` keys, all of whose candidates are in the first `rows` rows of the index, as long as it has not
// grown. Takes about count * (1024 / rows)^3 tries with three candidates.
std::vector<std::string> crowded_keys(const memory::Geometry& geometry, std::string_view prefix,
                                      std::uint64_t rows, std::size_t count);

}  // namespace loch::sim
