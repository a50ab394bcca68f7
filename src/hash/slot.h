// A slot of the index: one 64-bit word, changed by compare-swap alone (docs/hash.md, "Words").
//
//   63  61 60   59 58    51 50  48 47   43 42    36 35    6 5    0
//   [type ][level  ][filter ][ref  ][class ][region ][unit  ][tag  ]
//   [type ][level  ][nonce                                         ]    empty
//
// level                 the index level modulo 4 at which this slot was last split (docs/hash.md, "Growth")
// filter                8 bits of the key's hash, so that most foreign items need not be read
// ref                   P and M: where the other end of the move is
// class, region, unit   the item (memory::ItemRef)
// tag                   rises with every pending link and every move of an item
//
// A get knows the upper 13 bits of its key's committed word; XORed with them, no other word is as small
// (here.h). `unit` starts at bit 6, so the word masked to it is the item's byte offset.
#pragma once

#include <cstdint>

#include "memory/size_class.h"

namespace loch::hash {

enum class SlotType : std::uint8_t {
  unborn = 0,  // never used: the zero bytes of a fresh half; nothing is placed there before it is split into
  empty = 1,   // E: the nonce is never used twice, so "unchanged" means untouched
  committed = 2,  // C: the item is the current one of its key
  pending = 3,    // I: an insert in doubt, in a slot that is not the key's home
  aborted = 4,    // A: an insert that lost; its owner clears it
  placed = 5,     // P: a move in progress, at its destination
  moved = 6,      // M: a move in progress, at its source
  none = 7,       // no client leaves such a word
};

inline constexpr std::uint8_t tag_max = 63;
inline constexpr unsigned level_modulus = 4;

// The other end of a move: how many of the key's candidates further it is than the slot that says so,
// beginning again with the first after the last; and the parity of the level at which its row is computed. So
// a word tells by itself whether its item went from one half of a row to the other.
struct Ref {
  std::uint8_t candidates_further = 0;
  std::uint8_t level_parity = 0;
  bool operator==(const Ref&) const = default;
};

struct SlotWord {
  static constexpr unsigned tag_at = 0;
  static constexpr unsigned unit_at = 6;
  static constexpr unsigned region_at = 36;
  static constexpr unsigned class_at = 43;
  static constexpr unsigned ref_at = 48;
  static constexpr unsigned filter_at = 51;
  static constexpr unsigned level_at = 59;
  static constexpr unsigned type_at = 61;
  static constexpr std::uint64_t unit_mask = (std::uint64_t{1} << (region_at - unit_at)) - 1;
  static constexpr std::uint64_t nonce_mask = (std::uint64_t{1} << level_at) - 1;

  std::uint64_t raw;

  [[nodiscard]] constexpr SlotType type() const { return static_cast<SlotType>(raw >> type_at); }
  [[nodiscard]] constexpr std::uint8_t level() const {
    return static_cast<std::uint8_t>(raw >> level_at & 3);
  }
  [[nodiscard]] constexpr std::uint8_t tag() const { return static_cast<std::uint8_t>(raw >> tag_at & 63); }
  [[nodiscard]] constexpr std::uint64_t nonce() const { return raw & nonce_mask; }
  [[nodiscard]] constexpr Ref ref() const {
    return {.candidates_further = static_cast<std::uint8_t>(raw >> ref_at & 3),
            .level_parity = static_cast<std::uint8_t>(raw >> (ref_at + 2) & 1)};
  }
  [[nodiscard]] constexpr std::uint8_t filter() const {
    return static_cast<std::uint8_t>(raw >> filter_at & 0xff);
  }
  [[nodiscard]] constexpr memory::ItemRef item() const {
    return {.region = static_cast<fabric::RegionId>(raw >> region_at & 0x7f),
            .size_class = static_cast<std::uint8_t>(raw >> class_at & 31),
            .unit = static_cast<std::uint32_t>(raw >> unit_at & unit_mask)};
  }
  [[nodiscard]] constexpr bool is(SlotType t) const { return type() == t; }
  // C, I, A, P or M.
  [[nodiscard]] constexpr bool names_item() const {
    return type() >= SlotType::committed && type() <= SlotType::moved;
  }
  // No client has left it. In a slot that was born it is damage, whatever its level.
  [[nodiscard]] constexpr bool is_unwritten() const { return is(SlotType::unborn) || is(SlotType::none); }

  bool operator==(const SlotWord&) const = default;

  [[nodiscard]] constexpr SlotWord with_type(SlotType t) const {
    return with(type_at, 7, static_cast<std::uint64_t>(t));
  }
  [[nodiscard]] constexpr SlotWord with_level(unsigned l) const {
    return with(level_at, 3, l % level_modulus);
  }
  [[nodiscard]] constexpr SlotWord with_tag(std::uint8_t t) const { return with(tag_at, 63, t); }
  [[nodiscard]] constexpr SlotWord with_ref(Ref r) const {
    return with(ref_at, 7, std::uint64_t{r.level_parity} << 2 | r.candidates_further);
  }

  static constexpr SlotWord empty(std::uint64_t nonce, unsigned level) {
    return {static_cast<std::uint64_t>(SlotType::empty) << type_at |
            std::uint64_t{level % level_modulus} << level_at | (nonce & nonce_mask)};
  }
  static constexpr SlotWord link(SlotType type, const memory::ItemRef& item, std::uint8_t filter,
                                 std::uint8_t tag, unsigned level) {
    return {static_cast<std::uint64_t>(type) << type_at | std::uint64_t{level % level_modulus} << level_at |
            std::uint64_t{filter} << filter_at | std::uint64_t{item.size_class} << class_at |
            std::uint64_t{item.region} << region_at | std::uint64_t{item.unit} << unit_at |
            std::uint64_t{tag} << tag_at};
  }

 private:
  [[nodiscard]] constexpr SlotWord with(unsigned at, std::uint64_t mask, std::uint64_t value) const {
    return {(raw & ~(mask << at)) | value << at};
  }
};
static_assert(sizeof(SlotWord) == 8);
static_assert(fabric::region_bytes_max / memory::item_unit_bytes == std::uint64_t{1} << 30,
              "a unit has 30 bits");
static_assert(memory::data_regions_end == 128, "a region has 7 bits");

// `a` and `b` are the same item at the same tag, in whatever state.
constexpr bool same_link(SlotWord a, SlotWord b) {
  return a.item() == b.item() && a.tag() == b.tag() && a.filter() == b.filter();
}

}  // namespace loch::hash
