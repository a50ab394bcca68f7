#include "bench/dataset.h"

#include <algorithm>
#include <fmt/format.h>

#include <loch/loch.h>

#include "base/random.h"

namespace loch::bench {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t key_bytes_min = 8;  // 8 letters name 2^32 items

std::size_t whole_lines(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + line_bytes - 1) / line_bytes) * line_bytes;
}

}  // namespace

Result<Dataset> Dataset::make(std::uint64_t items, std::uint64_t key_bytes, std::uint64_t value_bytes) {
  if (items == 0 || items > items_max) {
    return fail(Errc::invalid_argument, "bench",
                fmt::format("items: {} is not in 1 to {}", items, items_max));
  }
  if (key_bytes < key_bytes_min || key_bytes > key_bytes_max) {
    return fail(Errc::invalid_argument, "bench",
                fmt::format("key bytes: {} is not in {} to {}", key_bytes, key_bytes_min, key_bytes_max));
  }
  if (value_bytes > value_bytes_max) {
    return fail(Errc::invalid_argument, "bench",
                fmt::format("value bytes: {} is more than {}", value_bytes, value_bytes_max));
  }
  return Dataset(items, key_bytes, value_bytes);
}

void Dataset::prepare_key(char* at) const { std::fill_n(at, key_bytes_, 'k'); }

void Dataset::prepare_value(char* at) const {
  base::Random random(value_bytes_);
  for (std::size_t i = 0; i < value_bytes_; ++i) at[i] = static_cast<char>('a' + random.below(26));
}

void Dataset::write_short_key(std::uint64_t id, char* at) const {
  // An odd factor is a bijection of the lower 32 bits: the first 8 letters alone name the item.
  const std::uint64_t word = id * 0x9e3779b97f4a7c15;
  const std::uint64_t front = letters_of(word);
  const std::uint64_t back = letters_of(word >> 32);
  std::memcpy(at, &front, 8);
  std::memcpy(at + 8, &back, key_bytes_ - 8);
}

Room::Room(const Dataset& dataset, std::size_t count)
    : dataset_(dataset),
      key_stride_(whole_lines(dataset.key_bytes())),
      value_stride_(whole_lines(dataset.value_bytes())),
      keys_(count * key_stride_),
      values_(count * value_stride_) {
  for (std::size_t slot = 0; slot < count; ++slot) {
    dataset_.prepare_key(keys_.data() + slot * key_stride_);
    dataset_.prepare_value(values_.data() + slot * value_stride_);
  }
}

}  // namespace loch::bench
