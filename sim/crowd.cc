#include "sim/crowd.h"

namespace loch::sim {
namespace {

// Adds one to the decimal number that `text` ends in, which begins at `begin`.
void count_up(std::string* text, std::size_t begin) {
  std::size_t at = text->size();
  while (at > begin && (*text)[at - 1] == '9') (*text)[--at] = '0';
  if (at > begin) {
    ++(*text)[at - 1];
  } else {
    text->insert(begin, 1, '1');
  }
}

}  // namespace

Crowd::Crowd(const memory::Geometry& geometry, std::string_view prefix, std::uint64_t rows, unsigned columns)
    : geometry_(geometry), rows_(rows), columns_(columns), prefix_length_(prefix.size()), next_(prefix) {
  next_ += '0';
}

std::span<const std::string> Crowd::keys(std::size_t count) {
  for (; found_.size() < count; count_up(&next_, prefix_length_)) {
    if (is_crowded(next_)) found_.push_back(next_);
  }
  return std::span(found_).first(count);
}

bool Crowd::is_crowded(std::string_view key) const {
  const std::uint64_t hash = hash::Key::of(key, geometry_.hash_seed).hash;
  for (std::uint32_t i = 0; i < geometry_.candidates; ++i) {
    const std::uint64_t row = hash::row_mix(hash, i, geometry_.candidates);
    if (row % (std::uint64_t{1} << hash::first_level) >= rows_ || hash::column_of(hash, i) >= columns_)
      return false;
  }
  return true;
}

}  // namespace loch::sim
