// GET and the update of an existing key on memory that is mapped here: the same steps as Reader's and
// Writer's, as plain functions, so that the processor can overlap the cache misses of one call with the work
// of the next. A batch takes each step for all its keys before the next one, and overlaps all their misses.
//
// Each step says whether it went the plain way. Whatever does not (a miss, a growth, a damaged or expired
// item, another key with the same filter) is left to the coroutines, which begin again from the start.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "fabric/endpoint.h"
#include "hash/index.h"
#include "hash/item.h"

namespace loch::hash {

struct Probe {
  Key key;
  std::array<std::byte*, candidates_max> slot;
  std::byte* matched = nullptr;  // the slot whose word is `word`
  SlotWord word;
  ItemView item;
};

class Here {
 public:
  static constexpr unsigned usual_candidates = 3;

  Here(fabric::Endpoint& endpoint, fabric::RegionId region, const std::byte* directory_word,
       unsigned candidates)
      : endpoint_(endpoint), region_(region), directory_word_(directory_word), candidates_(candidates) {}

  [[gnu::always_inline]] bool step1_find_slots(Probe& probe) {
    const std::uint64_t directory = fabric::load_word(directory_word_);
    if (directory != seen_directory_) [[unlikely]] {
      if (!take_directory(directory)) return false;
    }
    if (candidates_ == usual_candidates) [[likely]] {
      find_slots<usual_candidates>(probe, usual_candidates);
    } else {
      find_slots<candidates_max>(probe, candidates_);
    }
    return true;
  }

  // One slot must match: which one is as good as random, so it is selected without a branch that the
  // processor would guess wrong, and would forget the next call's loads over. Of the item, the first
  // `item_bytes_wanted` may be touched afterwards; they, or all of it, are asked for.
  enum class Asks : std::uint8_t { for_all, for_wanted };
  template <Asks asks = Asks::for_all>
  [[gnu::always_inline]] bool step2_match_filter(Probe& probe, std::uint64_t item_bytes_wanted) {
    const std::uint64_t wanted = wanted_word(probe.key);
    const std::uint64_t nearest = candidates_ == usual_candidates
                                      ? find_nearest<usual_candidates>(probe, wanted, usual_candidates)
                                      : find_nearest<candidates_max>(probe, wanted, candidates_);
    if (nearest >> SlotWord::filter_at != 0) return false;
    probe.word = {nearest ^ wanted};
    const memory::ItemRef ref = probe.word.item();
    const std::byte* item = endpoint_.mapped(ref.address(), item_bytes_wanted);
    if (item == nullptr) [[unlikely]]
      return false;
    // Its class says how long the item may be, before its header can be read.
    const std::uint64_t all = ref.size_class < memory::size_class_count ? memory::class_bytes[ref.size_class]
                                                                        : prefetched_bytes_max;
    const std::uint64_t asked = asks == Asks::for_all ? all : item_bytes_wanted;
    for (std::uint64_t line = 0; line < std::min(asked, prefetched_bytes_max);
         line += fabric::cache_line_bytes)
      ask_for(item + line);
    probe.item.begin(item, ref);
    return true;
  }

  // Steps 1 and 2 of one key alone, of the usual number of candidates. They call nothing, and so find nothing
  // where the index is another one than when it was last seen, or the item was not mapped yet.
  //
  // First its rows are asked for; what the caller does then costs no time.
  struct Glance {
    std::uint64_t hash = 0;
    std::uint64_t wanted = 0;
    const std::byte* home = nullptr;
    const std::byte* other = nullptr;
  };
  [[gnu::always_inline]] Glance begin_glance(const Key& key) const {
    Glance glance{.hash = key.hash, .wanted = wanted_word(key)};
    glance.home = index_ + (home_row_mix(key.hash) & row_mask_) * row_bytes;
    glance.other = index_ + (other_row_mix(key.hash) & row_mask_) * row_bytes;
    // Computed once, and not again where they are used.
    asm("" : "+r"(glance.home), "+r"(glance.other));
    __builtin_prefetch(glance.home);
    __builtin_prefetch(glance.other);
    return glance;
  }
  // The item that matches, of which the first `item_bytes_wanted` may be touched, or null.
  [[gnu::always_inline]] const std::byte* end_glance(const Glance& glance,
                                                     std::uint64_t item_bytes_wanted) const {
    if (fabric::load_word(directory_word_) != usual_directory_) [[unlikely]]
      return nullptr;
    std::uint64_t nearest = ~std::uint64_t{0};
#pragma unroll
    for (unsigned i = 0; i < usual_candidates; ++i) {
      const std::byte* row = i + 1 < usual_candidates ? glance.home : glance.other;
      const std::uint64_t word = fabric::load_word(row + column_of(glance.hash, i) * sizeof(std::uint64_t));
      const std::uint64_t difference = word ^ glance.wanted;
      nearest = __builtin_unpredictable(difference < nearest) ? difference : nearest;
    }
    if (nearest >> SlotWord::filter_at != 0) [[unlikely]]
      return nullptr;
    const SlotWord word{nearest ^ glance.wanted};
    return endpoint_.mapped_item(word.item().address(), item_bytes_wanted);
  }

  // Of an item of which header and key may be touched.
  [[gnu::always_inline]] static bool step3_compare_key(const Probe& probe) {
    return probe.item.key_bytes() == probe.key.bytes.size() &&
           same_bytes(probe.item.key_text(), probe.key.bytes);
  }

 private:
  static constexpr std::uint64_t prefetched_bytes_max = 1024;  // the processor goes on by itself

  // Of memory that a whole batch is asked for before it is used: into the second cache, which can wait for
  // more lines at once than the first.
  [[gnu::always_inline]] static void ask_for(const std::byte* line) {
    constexpr int into_second_cache = 2;
    __builtin_prefetch(line, 0, into_second_cache);
  }

  // Keeps what follows from a directory word, until there is another. False while the index grows.
  bool take_directory(std::uint64_t word);

  [[gnu::always_inline]] std::uint64_t wanted_word(const Key& key) const {
    return upper_bits_ | std::uint64_t{key.filter()} << SlotWord::filter_at;
  }
  [[gnu::always_inline]] std::uint64_t slot_offset(const Key& key, unsigned i, unsigned count) const {
    return (row_mix(key.hash, i, count) & row_mask_) * row_bytes +
           column_of(key.hash, i) * sizeof(std::uint64_t);
  }

  // `most` is known to the compiler, which unrolls the loop; `count` is at most that.
  template <unsigned most>
  [[gnu::always_inline]] void find_slots(Probe& probe, unsigned count) const {
#pragma unroll
    for (unsigned i = 0; i < most; ++i) {
      if (i >= count) break;
      probe.slot[i] = index_ + slot_offset(probe.key, i, count);
      // Those of the home row are in one line.
      if (i == 0 || i + 1 == count) ask_for(probe.slot[i]);
    }
  }

  // The least difference of a slot's word from `wanted`, whose lower bits are zero; and its slot.
  template <unsigned most>
  [[gnu::always_inline]] static std::uint64_t find_nearest(Probe& probe, std::uint64_t wanted,
                                                           unsigned count) {
    std::uint64_t nearest = ~std::uint64_t{0};
    std::byte* place = nullptr;
#pragma unroll
    for (unsigned i = 0; i < most; ++i) {
      if (i >= count) break;
      const std::uint64_t difference = fabric::load_word(probe.slot[i]) ^ wanted;
      const bool nearer = difference < nearest;
      place = __builtin_unpredictable(nearer) ? probe.slot[i] : place;
      nearest = __builtin_unpredictable(nearer) ? difference : nearest;
    }
    probe.matched = place;
    return nearest;
  }

  fabric::Endpoint& endpoint_;
  const fabric::RegionId region_;
  const std::byte* directory_word_;
  unsigned candidates_;

  // Stands for the one row of an index of which nothing is known yet.
  std::array<std::byte, usual_candidates * sizeof(std::uint64_t)> unknown_{};

  // What follows from `seen_directory_`.
  std::uint64_t seen_directory_ = ~std::uint64_t{0};
  std::uint64_t usual_directory_ = ~std::uint64_t{0};  // the same, if there are as many candidates as usual
  std::byte* index_ = unknown_.data();
  std::uint64_t row_mask_ = 0;
  std::uint64_t upper_bits_ = 0;  // type and level of a committed word
};

}  // namespace loch::hash
