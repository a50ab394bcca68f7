// GET and the update of an existing key on memory that is mapped here: the same steps as in reader.cc and
// writer.cc, as plain functions, so that the processor can overlap the cache misses of one call with the work
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
  Here(fabric::Endpoint& endpoint, fabric::RegionId region, const std::byte* directory_word,
       unsigned candidates)
      : endpoint_(endpoint), region_(region), directory_word_(directory_word), candidates_(candidates) {}

  // `alone`: the next step follows at once, so what it loads need not be asked for before; and nothing is
  // called, so that what is not known yet fails.
  enum class Pace : std::uint8_t { alone, batch };

  template <Pace pace = Pace::batch>
  [[gnu::always_inline]] bool step1_find_slots(Probe& probe) {
    const std::uint64_t directory = fabric::load_word(directory_word_);
    if (directory != seen_directory_) [[unlikely]] {
      if (pace == Pace::alone || !take_directory(directory)) return false;
    }
    if (candidates_ == usual_candidates) [[likely]] {
      find_slots<pace, usual_candidates>(probe, usual_candidates);
    } else {
      find_slots<pace, candidates_max>(probe, candidates_);
    }
    return true;
  }

  // One slot must match: which one is as good as random, so it is selected without a branch that the
  // processor would guess wrong, and would forget the next call's loads over. Of the item, the first
  // `item_bytes_wanted` may be touched afterwards.
  template <Pace pace = Pace::batch>
  [[gnu::always_inline]] bool step2_match_filter(Probe& probe, std::uint64_t item_bytes_wanted) {
    const std::uint64_t wanted = upper_bits_ | std::uint64_t{probe.key.filter()} << SlotWord::filter_at;
    const std::uint64_t nearest = candidates_ == usual_candidates
                                      ? find_nearest<usual_candidates>(probe, wanted, usual_candidates)
                                      : find_nearest<candidates_max>(probe, wanted, candidates_);
    if (nearest >> SlotWord::filter_at != 0) return false;
    probe.word = {nearest ^ wanted};
    const memory::ItemRef ref = probe.word.item();
    const std::byte* item = pace == Pace::alone ? endpoint_.mapped_before(ref.address(), item_bytes_wanted)
                                                : endpoint_.mapped(ref.address(), item_bytes_wanted);
    if (item == nullptr) [[unlikely]]
      return false;
    if constexpr (pace == Pace::alone) {
      __builtin_prefetch(item + fabric::cache_line_bytes);
    } else {
      // Its class says how long the item may be, before its header can be read.
      const std::uint64_t length = ref.size_class < memory::size_class_count
                                       ? memory::class_bytes[ref.size_class]
                                       : prefetched_bytes_max;
      for (std::uint64_t line = 0; line < std::min(length, prefetched_bytes_max);
           line += fabric::cache_line_bytes)
        __builtin_prefetch(item + line);
    }
    probe.item.begin(item, ref);
    return true;
  }

  // Of an item of which header and key may be touched.
  [[gnu::always_inline]] static bool step3_compare_key(const Probe& probe) {
    return probe.item.key_bytes() == probe.key.bytes.size() &&
           same_bytes(probe.item.key_text(), probe.key.bytes);
  }

  // Without a call, which would make the processor see less far.
  [[gnu::always_inline]] static bool same_bytes(const char* a, std::string_view b) {
    constexpr std::size_t word_bytes = sizeof(std::uint64_t);
    const auto differ = [&](std::size_t offset) __attribute__((always_inline)) {
      std::uint64_t x = 0;
      std::uint64_t y = 0;
      std::memcpy(&x, a + offset, word_bytes);
      std::memcpy(&y, b.data() + offset, word_bytes);
      return x ^ y;
    };
    if (b.size() < word_bytes) [[unlikely]] {
      for (std::size_t i = 0; i < b.size(); ++i) {
        if (a[i] != b[i]) return false;
      }
      return true;
    }
    const std::size_t last = b.size() - word_bytes;
    for (std::size_t offset = 0; offset < last; offset += word_bytes) {
      if (differ(offset) != 0) return false;
    }
    return differ(last) == 0;
  }

 private:
  static constexpr unsigned usual_candidates = 3;
  static constexpr std::uint64_t prefetched_bytes_max = 1024;  // the processor goes on by itself

  // Keeps what follows from a directory word, until there is another. False while the index grows.
  bool take_directory(std::uint64_t word);

  // `most` is known to the compiler, which unrolls the loop; `count` is at most that.
  template <Pace pace, unsigned most>
  [[gnu::always_inline]] void find_slots(Probe& probe, unsigned count) const {
#pragma unroll
    for (unsigned i = 0; i < most; ++i) {
      if (i >= count) break;
      const SlotNumber slot = (row_mix(probe.key.hash, i) & row_mask_) * count + i;
      probe.slot[i] = index_ + slot * sizeof(std::uint64_t);
      if constexpr (pace == Pace::batch) __builtin_prefetch(probe.slot[i]);
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

  // What follows from `seen_directory_`.
  std::uint64_t seen_directory_ = ~std::uint64_t{0};
  std::byte* index_ = nullptr;
  std::uint64_t row_mask_ = 0;
  std::uint64_t upper_bits_ = 0;  // type and level of a committed word
};

}  // namespace loch::hash
