// Where a key's slots are. The index has 2^level rows of eight slots, which are a line of memory each. A key
// has two rows and N candidates, each in a column of its own, so that they are always different slots: all
// but the last are in its home row, the last is in its other row (docs/hash.md, "Rows"). Candidate 0 is its
// home.
//
// While the index grows from `level` to `level + 1`, each row r is split into r and r + 2^level. A word's own
// level says whether its slot has been split: a candidate stands in the low row until then, and where the
// next bit of its row's mix says from then on (docs/hash.md, "Growth").
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/hash.h"
#include "base/narrowing.h"
#include "hash/slot.h"
#include "memory/layout.h"

namespace loch::hash {

inline constexpr unsigned candidates_max = 4;
inline constexpr unsigned locations_max = 2 * candidates_max;
inline constexpr unsigned row_slots = 8;
inline constexpr std::uint64_t row_bytes = row_slots * sizeof(std::uint64_t);
static_assert(row_bytes == fabric::cache_line_bytes && candidates_max <= row_slots);
inline constexpr std::uint64_t rows_split_at_once = 2;  // what one operation is held up by while it grows
inline constexpr unsigned first_level = 9;
inline constexpr unsigned last_level = 30;
static_assert(row_bytes << last_level <= fabric::region_bytes_max);

inline constexpr std::uint64_t chunk_slots = rows_split_at_once * row_slots;

// Which chunk of slots is the next that somebody takes, of what is done once for all slots of a level.
struct ChunkCursor {
  static constexpr unsigned level_shift = 48;

  std::uint64_t level = 0;
  std::uint64_t chunk = 0;

  [[nodiscard]] constexpr std::uint64_t encode() const { return level << level_shift | chunk; }
  static constexpr ChunkCursor decode(std::uint64_t word) {
    return {.level = word >> level_shift, .chunk = word & ((std::uint64_t{1} << level_shift) - 1)};
  }
};

// In the control region.
struct IndexRoot {
  std::uint64_t directory;  // Directory
  std::uint64_t unused_0[7];
  std::uint64_t split_cursor;  // ChunkCursor: of the growth from its level
  std::uint64_t
      homing_cursor;  // ChunkCursor: of what is brought home after the growth to its level (homing.h)
  std::uint64_t unused_1[6];
  std::uint64_t
      reached_at_ns[4];  // when the level (modulo 4) was reached, or a little later; ~0: not told yet
  // What the times to live of its items are ahead of the clock of its home, modulo 2^64: they go by the clock
  // of the home that the shard had first. It stays where the shard begins anew.
  std::uint64_t time_ahead_ns;
};
static_assert(sizeof(IndexRoot) == 168 && std::has_unique_object_representations_v<IndexRoot>);
static_assert(offsetof(IndexRoot, directory) == 0 && offsetof(IndexRoot, split_cursor) == 64 &&
              offsetof(IndexRoot, homing_cursor) == 72 && offsetof(IndexRoot, reached_at_ns) == 128 &&
              offsetof(IndexRoot, time_ahead_ns) == 160);
static_assert(sizeof(IndexRoot) <= memory::shard_root_bytes &&
              memory::index_root_offset + sizeof(IndexRoot) <= memory::totals_offset);

// Of a shard that moves to another host, at its one home and its other (handover.h). Where it is not `open`,
// nothing is changed and nothing taken for absent.
enum class ShardStage : std::uint8_t {
  open = 0,
  leaves = 1,   // what is there is what there is; it may be opened again
  left = 2,     // it is elsewhere
  arrives = 3,  // it is whole, and not opened yet
};

struct Directory {
  std::uint8_t level = first_level;
  bool growing = false;
  ShardStage stage = ShardStage::open;
  // Where its slots are, unless it has left. A shard's two regions take turns, so it may
  // come back to a host in the other one: whoever goes by an older map does not take what it had there before
  // for its slots, nor is what is left of a move that was given up taken for the next one.
  fabric::RegionId region = memory::index_region;

  [[nodiscard]] constexpr std::uint64_t encode() const {
    return std::uint64_t{level} | std::uint64_t{growing} << 8 |
           std::uint64_t{static_cast<std::uint8_t>(stage)} << 9 | std::uint64_t{region} << 16;
  }
  // A word that nobody has written yet, or that no client writes, has level 0.
  static constexpr Directory decode(std::uint64_t word) {
    constexpr std::uint64_t used_bits = 0xff07ff;
    const auto level = static_cast<std::uint8_t>(word & 0xff);
    const bool is_sound = level <= last_level && (word & ~used_bits) == 0;
    return {.level = is_sound ? level : std::uint8_t{0},
            .growing = (word >> 8 & 1) != 0,
            .stage = static_cast<ShardStage>(word >> 9 & 3),
            .region = static_cast<fabric::RegionId>(word >> 16 & 0xff)};
  }
  // Of a store of one host, whose directory only rises.
  [[nodiscard]] constexpr bool is_before(Directory other) const {
    return level < other.level || (level == other.level && !growing && other.growing);
  }
  [[nodiscard]] constexpr Directory with_stage(ShardStage other) const {
    return {.level = level, .growing = growing, .stage = other, .region = region};
  }
  [[nodiscard]] constexpr Directory arriving(fabric::RegionId in) const {
    return {.level = level, .growing = growing, .stage = ShardStage::arrives, .region = in};
  }
  [[nodiscard]] constexpr Directory begin_growing() const {
    return {.level = level, .growing = true, .stage = stage, .region = region};
  }
  [[nodiscard]] constexpr Directory grown() const {
    return {
        .level = static_cast<std::uint8_t>(level + 1), .growing = false, .stage = stage, .region = region};
  }
  [[nodiscard]] constexpr bool arrives(fabric::RegionId in) const {
    return stage == ShardStage::arrives && region == in;
  }
  // Whether operations on the slots there may go by it: not while the shard moves, before it is written, or
  // if it is damaged.
  [[nodiscard]] constexpr bool is_open(fabric::RegionId in) const {
    return stage == ShardStage::open && level != 0 && region == in;
  }
  // Whether a slot with that word has its place by this level still, or has been split already.
  [[nodiscard]] constexpr bool is_unsplit(SlotWord word) const {
    return word.level() == level % level_modulus;
  }
  [[nodiscard]] constexpr bool is_split(SlotWord word) const {
    return word.level() == (level + 1U) % level_modulus;
  }
  [[nodiscard]] constexpr std::uint64_t rows() const { return std::uint64_t{1} << level; }
  // Those of the half that it grows from; the number of the first one of the other half.
  [[nodiscard]] constexpr std::uint64_t low_slots() const { return rows() * row_slots; }
  [[nodiscard]] constexpr std::uint64_t chunks() const { return low_slots() / chunk_slots; }
  // Of both halves while it grows.
  [[nodiscard]] constexpr std::uint64_t slots() const { return low_slots() * (growing ? 2 : 1); }
  bool operator==(const Directory&) const = default;
};

using SlotNumber = std::uint64_t;

// What `word` in `slot` becomes when it is cleared. An M whose item went up to the other half of its row is
// cleared by the split of the slot itself: were the low slot opened again, a second item could come to it
// that finds no room above.
constexpr SlotWord cleared_word(SlotWord word, SlotNumber slot, Directory d, std::uint64_t nonce) {
  const bool low_unsplit = d.growing && slot < d.low_slots() && d.is_unsplit(word);
  const Ref up{.candidates_further = 0, .level_parity = static_cast<std::uint8_t>((d.level + 1) & 1)};
  const bool went_up = low_unsplit && word.is(SlotType::moved) && word.ref() == up;
  return SlotWord::empty(nonce, word.level() + (went_up ? 1U : 0U));
}

// Where one index is: that of a store of one host, or a shard of a cluster's.
struct IndexPlace {
  fabric::RegionId slots = memory::index_region;
  fabric::Address root{memory::control_region, memory::index_root_offset};

  static constexpr IndexPlace of(const memory::RegionMap::Shard& shard, const memory::RegionMap::Node& home) {
    return {.slots = shard.index, .root = {home.control, shard.root_offset}};
  }
  [[nodiscard]] constexpr fabric::Address slot(SlotNumber number) const {
    return {slots, number * sizeof(std::uint64_t)};
  }
  [[nodiscard]] constexpr fabric::Address directory() const { return root + offsetof(IndexRoot, directory); }
  [[nodiscard]] constexpr fabric::Address time_ahead() const {
    return root + offsetof(IndexRoot, time_ahead_ns);
  }
  [[nodiscard]] constexpr fabric::Address split_cursor() const {
    return root + offsetof(IndexRoot, split_cursor);
  }
  [[nodiscard]] constexpr fabric::Address homing_cursor() const {
    return root + offsetof(IndexRoot, homing_cursor);
  }
  [[nodiscard]] constexpr fabric::Address reached_at(unsigned level) const {
    return root + (offsetof(IndexRoot, reached_at_ns) + level % level_modulus * sizeof(std::uint64_t));
  }
};
inline constexpr IndexPlace index_of_one_host{};

// The shard that a key belongs to, of a power of two. The bits are none of those that the rows take.
constexpr std::uint32_t shard_of(std::uint64_t hash, std::size_t shards) {
  return static_cast<std::uint32_t>((hash * 0xbf58476d1ce4e5b9ULL) >> 40) &
         static_cast<std::uint32_t>(shards - 1);
}

// What a key's words carry of its hash.
constexpr std::uint8_t filter_of(std::uint64_t hash) {
  return static_cast<std::uint8_t>(hash >> 56 & base::narrowing.filter_mask);
}

// A key as the index sees it. `bytes` outlives the operation.
struct Key {
  std::string_view bytes;
  std::uint64_t hash = 0;

  [[gnu::always_inline]] static Key of(std::string_view bytes, std::uint64_t seed) {
    return {.bytes = bytes, .hash = base::hash_bytes(bytes.data(), bytes.size(), seed)};
  }
  [[nodiscard]] constexpr std::uint8_t filter() const { return filter_of(hash); }
};

// Of which the low bits are the number of a key's row. The hash is a good one already; the upper half of a
// product with an odd number spreads it anew.
constexpr std::uint64_t home_row_mix(std::uint64_t hash) { return hash & 0xffff'ffff; }
constexpr std::uint64_t other_row_mix(std::uint64_t hash) { return (hash * 0x94d049bb133111ebULL) >> 32; }
constexpr std::uint64_t row_mix(std::uint64_t hash, unsigned candidate, unsigned candidates) {
  return candidate + 1 < candidates ? home_row_mix(hash) : other_row_mix(hash);
}
static_assert(last_level < 32, "a mix has 32 bits");

// An odd step leads to all columns. The bits are between those of the home row and the filter.
constexpr unsigned column_of(std::uint64_t hash, unsigned candidate) {
  const auto bits = static_cast<unsigned>(hash >> 32);
  const unsigned step = (bits >> 2 & 6) | 1;
  return (bits + candidate * step) % row_slots;
}

// Where a candidate is; while the index grows, its low slot.
constexpr SlotNumber slot_of_candidate(std::uint64_t hash, Directory directory, unsigned candidate,
                                       unsigned candidates) {
  return (row_mix(hash, candidate, candidates) & (directory.rows() - 1)) * row_slots +
         column_of(hash, candidate);
}

// The slots in which a key may stand: for each candidate its low one, then the high ones of those candidates
// that move up in the growth that is going on.
struct Locations {
  std::array<SlotNumber, locations_max> slot;    // `count` of them
  std::array<std::int8_t, candidates_max> high;  // index of a candidate's high slot, or -1
  std::uint8_t candidates = 0;
  std::uint8_t count = 0;
  Directory directory;

  static Locations of(std::uint64_t hash, Directory directory, unsigned candidates) {
    Locations l;
    l.set(hash, directory, candidates);
    return l;
  }
  void set(std::uint64_t hash, Directory at_directory, unsigned of_candidates) {
    candidates = count = static_cast<std::uint8_t>(of_candidates);
    directory = at_directory;
    for (unsigned i = 0; i < of_candidates; ++i) {
      slot[i] = slot_of_candidate(hash, directory, i, of_candidates);
      high[i] = -1;
      if (directory.growing && (row_mix(hash, i, of_candidates) & directory.rows()) != 0) [[unlikely]] {
        high[i] = static_cast<std::int8_t>(count);
        slot[count++] = slot[i] + directory.low_slots();
      }
    }
  }

  // The location that the word at `from` means by `ref`, or -1 if there is none (any more).
  [[nodiscard]] int find(Ref ref, unsigned from, std::uint64_t hash) const {
    if (ref.candidates_further >= candidates || directory.level == 0) return -1;
    const unsigned candidate = (candidate_of(from) + ref.candidates_further) % candidates;
    const bool at_own_level = ref.level_parity == (directory.level & 1);
    if (directory.growing)
      return static_cast<int>(at_own_level || high[candidate] < 0 ? candidate : high[candidate]);
    if (at_own_level) return static_cast<int>(candidate);
    // Computed at the level before this one: the same slot unless the candidate has moved up since.
    const bool moved_up = (row_mix(hash, candidate, candidates) >> (directory.level - 1) & 1) != 0;
    return moved_up ? -1 : static_cast<int>(candidate);
  }
  // By which `find` gets from the word at `from` to `location`.
  [[nodiscard]] Ref ref_of(unsigned location, unsigned from) const {
    const unsigned candidate = candidate_of(location);
    // While growing: a low slot that stays the candidate's is told by the next level, so that the reference
    // means the same when the growth is over, and in the next one.
    const bool stays = directory.growing && high[candidate] < 0;
    const bool of_next_level = location >= candidates || stays;
    return {.candidates_further =
                static_cast<std::uint8_t>((candidate + candidates - candidate_of(from)) % candidates),
            .level_parity = static_cast<std::uint8_t>((directory.level + (of_next_level ? 1 : 0)) & 1)};
  }
  // The index of the slot among them, or -1.
  [[nodiscard]] int index_of(SlotNumber number) const {
    for (unsigned j = 0; j < count; ++j) {
      if (slot[j] == number) return static_cast<int>(j);
    }
    return -1;
  }

 private:
  [[nodiscard]] unsigned candidate_of(unsigned location) const {
    if (location < candidates) return location;
    return static_cast<unsigned>(std::ranges::find(high, static_cast<std::int8_t>(location)) - high.begin());
  }
};

}  // namespace loch::hash
