// Keys that the index crowds into a few of its rows, so that their homes and alternates are taken all the
// time: they are inserted in doubt, moved about and withdrawn as seldom happens to keys that lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hash/index.h"
#include "memory/store_memory.h"

namespace loch::sim {

class Crowd {
 public:
  // All candidates of its keys are in the first `columns` columns of the first `rows` rows of the index, as
  // long as it has not grown.
  Crowd(const memory::Geometry& geometry, std::string_view prefix, std::uint64_t rows,
        unsigned columns = hash::row_slots);

  // The first so many of them, until more are asked for. Each takes about (512 / rows)^2 tries, and in half
  // of the columns eight times as many with three candidates.
  std::span<const std::string> keys(std::size_t count);

 private:
  [[nodiscard]] bool is_crowded(std::string_view key) const;

  memory::Geometry geometry_;
  std::uint64_t rows_;
  unsigned columns_;
  std::size_t prefix_length_;
  std::string next_;  // to be tried: the prefix, and a number
  std::vector<std::string> found_;
};

}  // namespace loch::sim
