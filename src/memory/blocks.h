// The blocks of a store's data regions, numbered through: number = (region - first) * blocks_in_region_max +
// block. Block 0 of a region holds the descriptors and is never an item's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

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

constexpr BlockNumber block_of(const ItemRef& item) {
  return static_cast<BlockNumber>((item.region - first_data_region) * blocks_in_region_max +
                                  item.address().offset_bytes / block_bytes);
}
constexpr ItemRef item_in_block(BlockNumber block, std::uint8_t size_class, std::uint32_t index) {
  return item_ref(block_address(block) + std::uint64_t{index} * class_bytes[size_class], size_class);
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

// Whether a block that is `distance` behind the head of a large item is a part of that.
constexpr bool is_part(LeaseWord part, std::size_t distance, LeaseWord head) {
  return part.state == BlockState::large_part && part.client == head.client && part.block_count == distance &&
         distance < head.block_count;
}

// The blocks that regions had when somebody looked, in their order, without those that hold descriptors.
class BlockList {
 public:
  // Regions are added in the order of their numbers.
  void add(fabric::RegionId region, std::uint64_t length_bytes) {
    const auto blocks = static_cast<BlockNumber>(length_bytes / block_bytes);
    const auto first = static_cast<BlockNumber>((region - first_data_region) * blocks_in_region_max);
    if (blocks > 1) ranges_.push_back({first + 1, first + blocks});
  }

  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = BlockNumber;

    Iterator() = default;
    Iterator(const BlockList& list, std::size_t range)
        : list_(&list), range_(range), block_(range < list.ranges_.size() ? list.ranges_[range].first : 0) {}
    BlockNumber operator*() const { return block_; }
    Iterator& operator++() {
      if (++block_ == list_->ranges_[range_].end) *this = Iterator(*list_, range_ + 1);
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return range_ == other.range_ && block_ == other.block_; }

   private:
    const BlockList* list_ = nullptr;
    std::size_t range_ = 0;
    BlockNumber block_ = 0;
  };
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, ranges_.size()}; }

  [[nodiscard]] std::size_t size() const {
    std::size_t size = 0;
    for (const Range& range : ranges_) size += range.end - range.first;
    return size;
  }
  [[nodiscard]] BlockNumber operator[](std::size_t index) const {
    auto range = ranges_.begin();
    for (; index >= range->end - range->first; ++range) index -= range->end - range->first;
    return static_cast<BlockNumber>(range->first + index);
  }
  [[nodiscard]] bool contains(BlockNumber block) const { return following(block) != 0; }
  // How many there are in a row, in one region, from `block` on; 0 if it is none of them.
  [[nodiscard]] std::size_t following(BlockNumber block) const {
    for (const Range& range : ranges_) {
      if (block >= range.first && block < range.end) return range.end - block;
    }
    return 0;
  }

 private:
  struct Range {
    BlockNumber first;
    BlockNumber end;
  };
  std::vector<Range> ranges_;
};
static_assert(std::forward_iterator<BlockList::Iterator>);

// What the descriptors of some blocks in a row said when they were read (Allocator::read_descriptors).
class DescriptorGroup {
 public:
  [[nodiscard]] bool has(BlockNumber block) const {
    return block >= first_ && block - first_ < descriptors_.size();
  }
  [[nodiscard]] LeaseWord lease(BlockNumber block) const {
    return LeaseWord::decode(descriptors_[block - first_].lease);
  }
  // Whether others have left items there, of a block that is cut into such ones, or the large one.
  [[nodiscard]] bool has_released(BlockNumber block, std::uint8_t size_class) const {
    const LeaseWord word = lease(block);
    const BlockState holder = size_class == large_class ? BlockState::large_head : BlockState::full;
    return word.state == holder && word.size_class == size_class &&
           descriptors_[block - first_].released != 0;
  }

 private:
  friend class Allocator;
  BlockNumber first_ = 0;
  std::vector<BlockDescriptor> descriptors_;
};

// A set of items, with a bit for each 64 bytes of those regions in which there are any.
class ItemSet {
 public:
  // False if it was there.
  bool insert(const ItemRef& item) {
    auto& bits = regions_[item.region];
    if (item.unit >= bits.size()) bits.resize(item.unit + item.unit / 2 + 1);
    if (bits[item.unit]) return false;
    bits[item.unit] = true;
    return true;
  }
  [[nodiscard]] bool contains(const ItemRef& item) const {
    const auto& bits = regions_[item.region];
    return item.unit < bits.size() && bits[item.unit];
  }

 private:
  std::array<std::vector<bool>, data_regions_end> regions_;
};

}  // namespace loch::memory
