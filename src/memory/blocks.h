// The blocks of a store's data regions, numbered through: number = (region - first) * blocks_in_region_max +
// block. Block 0 of a region holds the descriptors and is never an item's.
#pragma once

#include <cstdint>

#include "memory/layout.h"
#include "memory/size_class.h"

namespace loch::memory {

using BlockNumber = std::uint32_t;

constexpr fabric::RegionId region_of(BlockNumber block) {
  return static_cast<fabric::RegionId>(first_data_region + block / blocks_in_region_max);
}
constexpr fabric::Address block_address(BlockNumber block) {
  return {region_of(block), block % blocks_in_region_max * block_bytes};
}
constexpr fabric::Address lease_address(BlockNumber block) {
  return {region_of(block), block % blocks_in_region_max * sizeof(BlockDescriptor)};
}
constexpr fabric::Address released_address(BlockNumber block) {
  return lease_address(block) + offsetof(BlockDescriptor, released);
}
constexpr bool holds_descriptors(BlockNumber block) { return block % blocks_in_region_max == 0; }

constexpr BlockNumber block_of(const ItemRef& item) {
  return static_cast<BlockNumber>((item.region - first_data_region) * blocks_in_region_max +
                                  item.address().offset_bytes / block_bytes);
}
constexpr ItemRef item_in_block(BlockNumber block, std::uint8_t size_class, std::uint32_t index) {
  return item_ref(block_address(block) + std::uint64_t{index} * class_bytes[size_class], size_class);
}
// Counts the 64-byte units of all data regions in the order of their blocks.
constexpr std::size_t unit_number(const ItemRef& item) {
  constexpr std::uint64_t units_in_region = fabric::region_bytes_max / item_unit_bytes;
  return (item.region - first_data_region) * units_in_region + item.unit;
}
constexpr ItemRef large_item(BlockNumber head) { return item_ref(block_address(head), large_class); }

// The items of a block that its lease says there are.
constexpr std::uint32_t items_of(LeaseWord lease) {
  switch (lease.state) {
    case BlockState::leased:
    case BlockState::full:
    case BlockState::swept:
    case BlockState::open:
      return lease.size_class < size_class_count ? items_in_block(lease.size_class) : 0;
    case BlockState::large_head:
      return 1;
    case BlockState::free:
    case BlockState::large_part:
      return 0;
  }
  return 0;
}
constexpr ItemRef item_of(BlockNumber block, LeaseWord lease, std::uint32_t index) {
  return lease.state == BlockState::large_head ? large_item(block)
                                               : item_in_block(block, lease.size_class, index);
}

}  // namespace loch::memory
