// A slot of the index: one 64-bit word, changed by compare-swap alone (docs/hash.md, "Words").
//
//   63            34 33    27 26    19 18   14 13  11 10   5 4    3 2    0
//   [unit           ][region ][filter ][class ][ref  ][tag  ][level ][type ]
//   [nonce                                                  ][level ][0 0 1]    empty
//
// unit, region, class   the item (memory::ItemRef)
// filter                8 bits of the key's hash, so that most foreign items need not be read
// tag                   rises with every pending link and every move of an item
// ref                   P and M: where the other end of the move is
// level                 the index level modulo 4 at which this row was last split (docs/hash.md, "Growth")
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
};

inline constexpr std::uint8_t tag_max = 63;
inline constexpr unsigned level_modulus = 4;

// The other end of a move: a candidate of the key, and the parity of the level at which its row is computed.
struct Ref {
  std::uint8_t candidate = 0;
  std::uint8_t level_parity = 0;
  bool operator==(const Ref&) const = default;
};

struct SlotWord {
  std::uint64_t raw;

  [[nodiscard]] constexpr SlotType type() const { return static_cast<SlotType>(raw & 7); }
  [[nodiscard]] constexpr std::uint8_t level() const { return static_cast<std::uint8_t>(raw >> 3 & 3); }
  [[nodiscard]] constexpr std::uint8_t tag() const { return static_cast<std::uint8_t>(raw >> 5 & 63); }
  [[nodiscard]] constexpr Ref ref() const {
    return {.candidate = static_cast<std::uint8_t>(raw >> 11 & 3),
            .level_parity = static_cast<std::uint8_t>(raw >> 13 & 1)};
  }
  [[nodiscard]] constexpr std::uint8_t filter() const { return static_cast<std::uint8_t>(raw >> 19 & 0xff); }
  [[nodiscard]] constexpr memory::ItemRef item() const {
    return {.region = static_cast<fabric::RegionId>(raw >> 27 & 0x7f),
            .unit = static_cast<std::uint32_t>(raw >> 34),
            .size_class = static_cast<std::uint8_t>(raw >> 14 & 31)};
  }
  [[nodiscard]] constexpr bool is(SlotType t) const { return type() == t; }
  // C, I, A, P or M.
  [[nodiscard]] constexpr bool names_item() const { return (raw & 7) >= 2 && (raw & 7) <= 6; }

  bool operator==(const SlotWord&) const = default;

  [[nodiscard]] constexpr SlotWord with_type(SlotType t) const {
    return {(raw & ~std::uint64_t{7}) | static_cast<std::uint64_t>(t)};
  }
  [[nodiscard]] constexpr SlotWord with_level(unsigned l) const {
    return {(raw & ~(std::uint64_t{3} << 3)) | std::uint64_t{l % level_modulus} << 3};
  }
  [[nodiscard]] constexpr SlotWord with_tag(std::uint8_t t) const {
    return {(raw & ~(std::uint64_t{63} << 5)) | std::uint64_t{t} << 5};
  }
  [[nodiscard]] constexpr SlotWord with_ref(Ref r) const {
    return {(raw & ~(std::uint64_t{7} << 11)) | std::uint64_t{r.candidate} << 11 |
            std::uint64_t{r.level_parity} << 13};
  }

  static constexpr SlotWord empty(std::uint64_t nonce, unsigned level) {
    return {static_cast<std::uint64_t>(SlotType::empty) | std::uint64_t{level % level_modulus} << 3 |
            nonce << 5};
  }
  static constexpr SlotWord link(SlotType type, const memory::ItemRef& item, std::uint8_t filter,
                                 std::uint8_t tag, unsigned level) {
    return {static_cast<std::uint64_t>(type) | std::uint64_t{level % level_modulus} << 3 |
            std::uint64_t{tag} << 5 | std::uint64_t{item.size_class} << 14 | std::uint64_t{filter} << 19 |
            std::uint64_t{item.region} << 27 | std::uint64_t{item.unit} << 34};
  }
};
static_assert(sizeof(SlotWord) == 8);
static_assert(fabric::region_bytes_max / memory::item_unit_bytes == std::uint64_t{1} << 30,
              "a unit has 30 bits");
static_assert(fabric::region_count_max == 128, "a region has 7 bits");

// `a` and `b` are the same item at the same tag, in whatever state.
constexpr bool same_link(SlotWord a, SlotWord b) {
  return a.item() == b.item() && a.tag() == b.tag() && a.filter() == b.filter();
}

}  // namespace loch::hash
