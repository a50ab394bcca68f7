// Size classes: how long the items are that a block is cut into. Small ones rise by a quarter to a half and
// are multiples of 64 bytes; large ones divide a block evenly. Class 31 stands for an item of whole blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/narrowing.h"
#include "memory/layout.h"

namespace loch::memory {

inline constexpr std::size_t size_class_count = 31;
inline constexpr std::uint8_t large_class = 31;

namespace detail {
consteval std::array<std::uint32_t, size_class_count> make_class_bytes() {
  constexpr std::array<std::uint32_t, 16> small = {64,  128, 192, 256,  320,  384,  448,  512,
                                                   640, 768, 896, 1024, 1280, 1536, 2048, 3072};
  constexpr std::array<std::uint32_t, 15> items_in_block = {224, 160, 112, 80, 56, 40, 28, 20,
                                                            14,  10,  7,   5,  4,  3,  2};
  std::array<std::uint32_t, size_class_count> bytes{};
  std::size_t next = 0;
  for (const std::uint32_t size : small) bytes[next++] = size;
  for (const std::uint32_t items : items_in_block) {
    bytes[next++] = static_cast<std::uint32_t>(block_bytes / items / item_unit_bytes * item_unit_bytes);
  }
  return bytes;
}
}  // namespace detail

inline constexpr std::array<std::uint32_t, size_class_count> class_bytes = detail::make_class_bytes();
inline constexpr std::uint64_t class_bytes_max = class_bytes.back();
static_assert(class_bytes_max == block_bytes / 2);

namespace detail {
// The class of each length up to 3072 bytes, in units of 64 bytes.
consteval std::array<std::uint8_t, 3072 / item_unit_bytes + 1> make_small_classes() {
  std::array<std::uint8_t, 3072 / item_unit_bytes + 1> classes{};
  std::uint8_t size_class = 0;
  for (std::size_t units = 0; units < classes.size(); ++units) {
    while (class_bytes[size_class] < units * item_unit_bytes) ++size_class;
    classes[units] = size_class;
  }
  return classes;
}
inline constexpr auto small_classes = make_small_classes();

constexpr std::uint8_t smallest_class_of(std::uint64_t bytes) {
  const std::uint64_t units = (bytes + item_unit_bytes - 1) / item_unit_bytes;
  if (units < small_classes.size()) [[likely]]
    return small_classes[units];
  for (std::size_t c = 16; c < size_class_count; ++c) {
    if (bytes <= class_bytes[c]) return static_cast<std::uint8_t>(c);
  }
  return large_class;
}
}  // namespace detail

// The class of an item of `bytes`: the smallest that holds them.
constexpr std::uint8_t size_class_of(std::uint64_t bytes) {
  const std::uint8_t smallest = detail::smallest_class_of(bytes);
  if (base::narrowing.classes_joined == 1 || smallest == large_class) return smallest;
  const std::size_t longest_joined = smallest | (base::narrowing.classes_joined - 1U);
  return static_cast<std::uint8_t>(std::min(longest_joined, size_class_count - 1));
}

constexpr std::uint32_t items_in_block(std::uint8_t size_class) {
  return static_cast<std::uint32_t>(block_bytes / class_bytes[size_class]);
}

constexpr std::uint64_t blocks_of_large(std::uint64_t bytes) {
  return (bytes + block_bytes - 1) / block_bytes;
}

// Names an item: its place and its size class.
struct ItemRef {
  fabric::RegionId region = 0;
  std::uint8_t size_class = 0;
  std::uint32_t unit = 0;  // offset in the region, in units of 64 bytes

  [[nodiscard]] constexpr fabric::Address address() const {
    return {region, std::uint64_t{unit} * item_unit_bytes};
  }
  // A number that no other place has: the seed of the item's checksum.
  [[nodiscard]] constexpr std::uint64_t place() const { return std::uint64_t{region} << 32 | unit; }
  bool operator==(const ItemRef&) const = default;
};
static_assert(sizeof(ItemRef) == 8);

constexpr ItemRef item_ref(fabric::Address at, std::uint8_t size_class) {
  return {.region = at.region,
          .size_class = size_class,
          .unit = static_cast<std::uint32_t>(at.offset_bytes / item_unit_bytes)};
}

}  // namespace loch::memory
