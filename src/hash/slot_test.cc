// Slot words, the index's places and items, bit by bit.
#include "hash/slot.h"

#include <gtest/gtest.h>
#include <set>

#include "base/random.h"
#include "hash/index.h"

namespace loch::hash {
namespace {

constexpr memory::ItemRef item{.region = 0x55, .size_class = 0x15, .unit = 0x2aaaaaaa};

TEST(Slot, LinkBits) {
  const SlotWord word = SlotWord::link(SlotType::committed, item, 0xc3, 0x2d, 6);
  EXPECT_EQ(word.raw, std::uint64_t{2} << 61 | std::uint64_t{2} << 59 | std::uint64_t{0xc3} << 51 |
                          std::uint64_t{0x15} << 43 | std::uint64_t{0x55} << 36 |
                          std::uint64_t{0x2aaaaaaa} << 6 | 0x2dU);
  EXPECT_EQ(word.raw, 0x5618ad5aaaaaaaadU);
  EXPECT_EQ(word.type(), SlotType::committed);
  EXPECT_EQ(word.level(), 2);
  EXPECT_EQ(word.tag(), 0x2d);
  EXPECT_EQ(word.filter(), 0xc3);
  EXPECT_EQ(word.item(), item);
  EXPECT_EQ(word.ref(), Ref{});
}

TEST(Slot, EmptyBits) {
  EXPECT_EQ(SlotWord::empty(0, 0).raw, std::uint64_t{1} << 61);
  EXPECT_EQ(SlotWord::empty(0x1234, 7).raw, std::uint64_t{1} << 61 | std::uint64_t{3} << 59 | 0x1234);
  // 59 bits of nonce are kept.
  EXPECT_EQ(SlotWord::empty((std::uint64_t{1} << 59) - 1, 0).nonce(), (std::uint64_t{1} << 59) - 1);
}

#ifdef LOCH_FAULT_POINTS
// Receive: a filter that is narrowed to two bits. Expect: keys have those two bits of theirs, and no others.
TEST(Key, ANarrowFilterHasFewerBits) {
  constexpr std::uint64_t hash = std::uint64_t{0xa7} << 56;
  EXPECT_EQ(filter_of(hash), 0xa7);
  base::narrowing.filter_mask = 3;
  EXPECT_EQ(filter_of(hash), 3);
  base::narrowing = {};
}
#endif

TEST(Slot, EachPartIsChangedAlone) {
  base::Random random(1);
  for (int i = 0; i < 1'000; ++i) {
    const SlotWord word{random.next()};
    const auto tag = static_cast<std::uint8_t>(random.below(64));
    const auto level = static_cast<unsigned>(random.below(100));
    const Ref ref{.candidates_further = static_cast<std::uint8_t>(random.below(4)),
                  .level_parity = static_cast<std::uint8_t>(random.below(2))};
    const SlotWord tagged = word.with_tag(tag);
    EXPECT_EQ(tagged.tag(), tag);
    EXPECT_EQ(tagged.with_tag(word.tag()), word);
    const SlotWord levelled = word.with_level(level);
    EXPECT_EQ(levelled.level(), level % 4);
    EXPECT_EQ(levelled.with_level(word.level()), word);
    const SlotWord referring = word.with_ref(ref);
    EXPECT_EQ(referring.ref(), ref);
    EXPECT_EQ(referring.with_ref(word.ref()), word);
    for (unsigned type = 0; type < 7; ++type) {
      const SlotWord typed = word.with_type(static_cast<SlotType>(type));
      EXPECT_TRUE(typed.is(static_cast<SlotType>(type)));
      EXPECT_EQ(typed.raw << 3, word.raw << 3);
      EXPECT_EQ(typed.names_item(), type >= 2);
    }
    const SlotWord relinked =
        SlotWord::link(word.type(), word.item(), word.filter(), word.tag(), word.level())
            .with_ref(word.ref());
    EXPECT_EQ(relinked, word);
  }
  EXPECT_FALSE(SlotWord{std::uint64_t{7} << 61}.names_item());
  EXPECT_TRUE(SlotWord{std::uint64_t{7} << 61}.is(SlotType::none));
  EXPECT_FALSE(SlotWord{0}.names_item());
}

TEST(Slot, LinksOfOneItemAreAlikeInWhateverState) {
  const SlotWord word = SlotWord::link(SlotType::committed, item, 1, 2, 0);
  EXPECT_TRUE(same_link(word, word.with_type(SlotType::moved).with_level(1).with_ref({2, 1})));
  EXPECT_FALSE(same_link(word, word.with_tag(3)));
  EXPECT_FALSE(same_link(word, SlotWord::link(SlotType::committed, item, 2, 2, 0)));
}

TEST(Directory, Bits) {
  const Directory growing{.level = 12, .growing = true};
  EXPECT_EQ(growing.encode(), 0x1'010cU);
  EXPECT_EQ(Directory::decode(0x1'010c), growing);
  EXPECT_EQ(growing.rows(), 4'096U);
  const Directory left{.level = 9, .stage = ShardStage::left};
  EXPECT_EQ(left.encode(), 0x1'0409U);
  EXPECT_EQ(Directory::decode(0x1'0409), left);
  const Directory arrives = Directory{.level = 30}.arriving(0x7f);
  EXPECT_EQ(arrives.encode(), 0x7f'061eU);
  EXPECT_EQ(Directory::decode(0x7f'061e), arrives);
}

// Receive: a word that no client writes. Expect: nobody goes by it, and it is not taken for one that says the
// same without the other bits.
TEST(Directory, AWordThatNoClientWrites) {
  EXPECT_EQ(Directory::decode(last_level + 1).level, 0U);
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t word = Directory{}.encode() | std::uint64_t{1} << bit;
    const Directory read = Directory::decode(word);
    EXPECT_TRUE(read.level == 0 || read.encode() == word) << bit;
    EXPECT_FALSE(read.level == 0 && read.is_open(read.region)) << bit;
  }
}

TEST(Locations, AKeyHasAHomeRowAndOneMore) {
  base::Random random(4);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t hash = random.next();
    for (unsigned candidates = 2; candidates <= candidates_max; ++candidates) {
      const Locations at = Locations::of(hash, {.level = 20}, candidates);
      for (unsigned j = 0; j + 1 < candidates; ++j) EXPECT_EQ(at.slot[j] / row_slots, at.slot[0] / row_slots);
      EXPECT_EQ(at.slot[candidates - 1] / row_slots, other_row_mix(hash) % (1U << 20));
    }
  }
}

TEST(Locations, TheCandidatesOfAKeyAreDifferentSlots) {
  base::Random random(2);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t hash = random.next();
    for (unsigned candidates = 2; candidates <= 4; ++candidates) {
      for (const bool growing : {false, true}) {
        const Directory d{.level = static_cast<std::uint8_t>(10 + random.below(10)), .growing = growing};
        const Locations at = Locations::of(hash, d, candidates);
        const std::set<SlotNumber> slots(at.slot.begin(), at.slot.begin() + at.count);
        EXPECT_EQ(slots.size(), at.count);
        EXPECT_GE(at.count, candidates);
        EXPECT_LE(at.count, 2 * candidates);
        for (unsigned j = 0; j < at.count; ++j) {
          EXPECT_LT(at.slot[j], d.slots());
          EXPECT_EQ(at.index_of(at.slot[j]), static_cast<int>(j));
          for (unsigned from = 0; from < at.count; ++from)
            EXPECT_EQ(at.find(at.ref_of(j, from), from, hash), static_cast<int>(j))
                << "a reference leads back";
        }
      }
    }
  }
}

// Receive: a reference that was written while the index grew, read after it has grown. Expect: the same slot,
// or none.
TEST(Locations, ReferencesOutliveAGrowth) {
  base::Random random(3);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t hash = random.next();
    const Locations during = Locations::of(hash, {.level = 11, .growing = true}, 3);
    const Locations after = Locations::of(hash, {.level = 12, .growing = false}, 3);
    for (unsigned from = 0; from < during.count; ++from) {
      const int at = after.index_of(during.slot[from]);
      if (at < 0) continue;
      for (unsigned j = 0; j < during.count; ++j) {
        const int found = after.find(during.ref_of(j, from), static_cast<unsigned>(at), hash);
        if (found >= 0) {
          EXPECT_EQ(after.slot[static_cast<unsigned>(found)], during.slot[j]);
        } else {
          EXPECT_LT(j, 3U);
          EXPECT_GE(during.high[j], 0) << "only what has moved up is gone";
        }
      }
    }
    // Where a key stands after the growth is where it could stand during it.
    for (unsigned j = 0; j < 3; ++j) {
      const auto* end = during.slot.begin() + during.count;
      EXPECT_NE(std::find(during.slot.begin(), end, after.slot[j]), end);
    }
  }
}

TEST(Locations, AReferenceToNoCandidateLeadsNowhere) {
  const Locations at = Locations::of(12'345, {}, 2);
  EXPECT_EQ(at.find({.candidates_further = 2, .level_parity = 0}, 0, 12'345), -1);
  EXPECT_EQ(at.find({.candidates_further = 3, .level_parity = 1}, 1, 12'345), -1);
}

}  // namespace
}  // namespace loch::hash
