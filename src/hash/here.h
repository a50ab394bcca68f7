// GET and the update of an existing key on memory that is mapped here: the same steps as in reader.cc and
// writer.cc, as plain functions, so that the processor can overlap the cache misses of one call with the work
// of the next. A batch takes each step for all its keys before the next one, and overlaps all their misses.
//
// Each step says whether it went the plain way. Whatever does not (a miss, a growth, a damaged or expired
// item, another key with the same filter) is left to the coroutines, which begin again from the start.
#pragma once

#include <array>

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
  Here(fabric::Endpoint& endpoint, const std::byte* directory_word, unsigned candidates)
      : endpoint_(endpoint), directory_word_(directory_word), candidates_(candidates) {}

  [[gnu::always_inline]] bool step1_find_slots(Probe& probe) {
    const Directory directory = Directory::decode(fabric::load_word(directory_word_));
    if (directory.growing) [[unlikely]]
      return false;
    const std::uint64_t rows = directory.rows();
    std::byte* index =
        endpoint_.mapped({memory::index_region, 0}, rows * candidates_ * sizeof(std::uint64_t));
    if (index == nullptr) [[unlikely]]
      return false;
    if (candidates_ == usual_candidates) [[likely]] {
      find_slots<usual_candidates>(probe, index, rows, usual_candidates);
    } else {
      find_slots<candidates_max>(probe, index, rows, candidates_);
    }
    return true;
  }

  // One slot must match: which one is as good as random, so it is selected without a branch that the
  // processor would guess wrong, and would forget the next call's loads over.
  [[gnu::always_inline]] bool step2_match_filter(Probe& probe) {
    constexpr std::uint64_t compared = std::uint64_t{0xff} << 19 | 7;
    const std::uint64_t wanted =
        std::uint64_t{probe.key.filter()} << 19 | static_cast<std::uint64_t>(SlotType::committed);
    const unsigned matches = candidates_ == usual_candidates
                                 ? select<usual_candidates>(probe, compared, wanted, usual_candidates)
                                 : select<candidates_max>(probe, compared, wanted, candidates_);
    if (matches != 1) return false;
    const memory::ItemRef ref = probe.word.item();
    if (ref.size_class >= memory::size_class_count) return false;
    const std::byte* item = endpoint_.mapped(ref.address(), memory::class_bytes[ref.size_class]);
    if (item == nullptr) [[unlikely]]
      return false;
    __builtin_prefetch(item);
    __builtin_prefetch(item + fabric::cache_line_bytes);
    probe.item.begin(item, ref);
    return true;
  }

  // Keys are short: two loads that overlap compare up to 16 bytes.
  [[gnu::always_inline]] static bool same_bytes(std::string_view a, std::string_view b) {
    constexpr std::size_t word = sizeof(std::uint64_t);
    if (a.size() != b.size()) return false;
    if (a.size() < word || a.size() > 2 * word) return a == b;
    const auto at = [](std::string_view text, std::size_t offset) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, text.data() + offset, sizeof bytes);
      return bytes;
    };
    const std::size_t last = a.size() - word;
    return ((at(a, 0) ^ at(b, 0)) | (at(a, last) ^ at(b, last))) == 0;
  }

  [[gnu::always_inline]] bool step3_compare_key(Probe& probe) {
    return probe.item.take_lengths(memory::class_bytes[probe.item.ref().size_class]) &&
           same_bytes(probe.item.key(), probe.key.bytes);
  }

 private:
  static constexpr unsigned usual_candidates = 3;

  // `most` is known to the compiler, which unrolls the loop; `count` is at most that.
  template <unsigned most>
  [[gnu::always_inline]] static void find_slots(Probe& probe, std::byte* index, std::uint64_t rows,
                                                unsigned count) {
#pragma unroll
    for (unsigned i = 0; i < most; ++i) {
      if (i >= count) break;
      const SlotNumber slot = (row_mix(probe.key.hash, i) & (rows - 1)) * count + i;
      probe.slot[i] = index + slot * sizeof(std::uint64_t);
      __builtin_prefetch(probe.slot[i]);
    }
  }

  // How many slots match; the word and the place of the one that does.
  template <unsigned most>
  [[gnu::always_inline]] static unsigned select(Probe& probe, std::uint64_t compared, std::uint64_t wanted,
                                                unsigned count) {
    std::uint64_t matches = 0;
    std::uint64_t word = 0;
    std::uintptr_t place = 0;
#pragma unroll
    for (unsigned i = 0; i < most; ++i) {
      if (i >= count) break;
      const std::uint64_t seen = fabric::load_word(probe.slot[i]);
      std::uint64_t match = static_cast<std::uint64_t>((seen & compared) == wanted);
      asm("" : "+r"(match));  // a number from here on: the compiler is not to make branches of it
      matches += match;
      word |= seen & (0 - match);
      place |= reinterpret_cast<std::uintptr_t>(probe.slot[i]) & (0 - match);
    }
    probe.word = {word};
    probe.matched = reinterpret_cast<std::byte*>(place);
    return static_cast<unsigned>(matches);
  }

  fabric::Endpoint& endpoint_;
  const std::byte* directory_word_;
  unsigned candidates_;
};

}  // namespace loch::hash
