// The rules of the slot protocol, one received situation a test. A situation is written as one word a slot:
//
//   E   empty             C0  committed, tag 0        c0  the same of another key
//   I0  pending           A0  aborted
//   P1<2 placed, its source is slot 2                 M1>2 moved, its destination is slot 2
//
// Different items of the key are told apart by a letter behind the tag: C0a, I0b.
#include "hash/rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "base/random.h"

namespace loch::hash {
namespace {

constexpr std::uint64_t key_hash = 0x1234567890abcdefULL;
constexpr std::uint64_t nonce = 999;

// `situation` has a word for each of a key's slots, of an index that does not grow.
Collect receive(const std::string& situation, std::uint8_t owner_gone = 0) {
  Collect c;
  c.at = Locations::of(key_hash, {}, 3);
  c.key_hash = key_hash;
  c.owner_gone = owner_gone;
  std::istringstream words(situation);
  std::string word;
  for (unsigned j = 0; words >> word; ++j) {
    const char kind = static_cast<char>(std::toupper(word[0]));
    if (kind == 'E') {
      c.word[j] = SlotWord::empty(j, first_level);
      continue;
    }
    const auto tag = static_cast<std::uint8_t>(word[1] - '0');
    const SlotType type = kind == 'C'   ? SlotType::committed
                          : kind == 'I' ? SlotType::pending
                          : kind == 'A' ? SlotType::aborted
                          : kind == 'P' ? SlotType::placed
                                        : SlotType::moved;
    memory::ItemRef item{.region = 2, .size_class = 1, .unit = 100};
    const bool other_key = word[0] != kind;
    if (other_key) item.unit = 7'000 + j;
    if (std::isalpha(static_cast<unsigned char>(word.back())) != 0)
      item.unit += static_cast<std::uint32_t>(word.back());
    const auto filter = static_cast<std::uint8_t>(key_hash >> 56);
    c.word[j] = SlotWord::link(type, item, filter, tag, first_level);
    if (kind == 'P' || kind == 'M')
      c.word[j] = c.word[j].with_ref(c.at.ref_of(static_cast<unsigned>(word[3] - '0'), j));
    if (!other_key) c.mine |= static_cast<std::uint8_t>(1U << j);
  }
  return c;
}

// What RESOLVE does, as "slot:word", in the letters above; "" for nothing.
std::string resolved(const Collect& c) {
  const auto repair = resolve(c, nonce);
  if (!repair) return "";
  EXPECT_EQ(repair->expected, c.word[repair->location]) << "the compare-swap expects what was read";
  const SlotWord to = repair->desired;
  constexpr std::string_view letters = "?ECIAPM?";
  std::string text = fmt::format("{}:{}", repair->location, letters[static_cast<std::size_t>(to.type())]);
  if (to.is(SlotType::empty)) {
    EXPECT_EQ(to.nonce(), nonce) << "an empty word is never one that was there before";
  } else {
    text += fmt::format("{}", to.tag());
  }
  if (to.is(SlotType::moved)) text += fmt::format(">{}", c.at.find(to.ref(), repair->location, key_hash));
  if (to.is(SlotType::committed)) EXPECT_EQ(to.ref(), Ref{});
  return text;
}

TEST(Current, TheCommittedWordOrAPairedMove) {
  EXPECT_EQ(current_location(receive("E E E")), -1);
  EXPECT_EQ(current_location(receive("C0 E E")), 0);
  EXPECT_EQ(current_location(receive("c0 E C0")), 2);
  EXPECT_EQ(current_location(receive("E M2>2 P2<1")), 1);
  EXPECT_EQ(current_location(receive("P2<2 E M2>0")), 2);
}

TEST(Current, IgnoresInsertsInDoubtAndLoneHalves) {
  EXPECT_EQ(current_location(receive("c0 I0 E")), -1);
  EXPECT_EQ(current_location(receive("c0 A0 E")), -1);
  EXPECT_EQ(current_location(receive("E M2>2 E")), -1) << "the other half is gone";
  EXPECT_EQ(current_location(receive("E M2>2 P3<1")), -1) << "another tag";
  EXPECT_EQ(current_location(receive("E M2>2 P2<0")), -1) << "P comes from elsewhere";
  EXPECT_EQ(current_location(receive("E M2>2 P2<1a")), -1) << "another item";
  EXPECT_EQ(current_location(receive("E E P2<1")), -1);
}

TEST(Current, AFinishedMovesRestDoesNotHideTheKey) {
  EXPECT_EQ(current_location(receive("M2>1 C2 E")), 1);
  EXPECT_EQ(current_location(receive("C1 P2<0 E")), 0);
}

TEST(Home, IsClaimableWhenEmptyOrLeftByAMove) {
  EXPECT_TRUE(home_is_claimable(receive("E c0 E")));
  EXPECT_TRUE(home_is_claimable(receive("m1>1 E E")));
  EXPECT_FALSE(home_is_claimable(receive("c0 E E")));
  EXPECT_FALSE(home_is_claimable(receive("i0 E E")));
  EXPECT_FALSE(home_is_claimable(receive("p1<1 E E")));
}

TEST(Unfinished, TellsMovesAndInsertsOfTheKeyAlone) {
  EXPECT_FALSE(has_unfinished(receive("C0 E E")));
  EXPECT_FALSE(has_unfinished(receive("c0 i0 p1<0")));
  EXPECT_TRUE(has_unfinished(receive("c0 I0 E")));
  EXPECT_TRUE(has_unfinished(receive("E E P1<0")));
  EXPECT_TRUE(has_unfinished(receive("M1>2 E E")));
  EXPECT_FALSE(has_unfinished(receive("c0 A0 E"))) << "its owner clears it";
  EXPECT_EQ(lowest_pending(receive("c0 I0 I0a")), 1);
  EXPECT_EQ(lowest_pending(receive("c0 i0 E")), -1);
}

// ---- RESOLVE, the first rule that applies

// Receive: a paired M. Expect: its P is committed.
TEST(Resolve, Rule1CommitsAPairedMove) {
  EXPECT_EQ(resolved(receive("M2>1 P2<0 E")), "1:C2");
  EXPECT_EQ(resolved(receive("P5<2 c0 M5>0")), "0:C5");
}

// Receive: an M without its P. Expect: it is cleared.
TEST(Resolve, Rule2ClearsAnMThatIsAlone) {
  EXPECT_EQ(resolved(receive("M2>1 E E")), "0:E");
  EXPECT_EQ(resolved(receive("M2>1 C2 E")), "0:E") << "what a finished move left";
  EXPECT_EQ(resolved(receive("M2>1 P3<0 E")), "0:E");
  EXPECT_EQ(resolved(receive("M2>1 p2<0 E")), "0:E") << "the other half is another key's";
}

// Receive: a P whose source is still the item at the tag before. Expect: the source is marked.
TEST(Resolve, Rule3MarksTheSourceOfALiveP) {
  EXPECT_EQ(resolved(receive("C1 P2<0 E")), "0:M2>1");
  EXPECT_EQ(resolved(receive("P2<1 C1 E")), "1:M2>0");
}

// Receive: a P whose source has changed. Expect: it is cleared.
TEST(Resolve, Rule3ClearsADeadP) {
  EXPECT_EQ(resolved(receive("E P2<0 E")), "1:E");
  EXPECT_EQ(resolved(receive("C1a P2<0 E")), "1:E") << "an update took the source's place";
  EXPECT_EQ(resolved(receive("C2 P2<0 E")), "1:E") << "another tag";
  EXPECT_EQ(resolved(receive("c1 P2<0 E")), "1:E");
  EXPECT_EQ(resolved(receive("I1 P2<0 E")), "1:E");
}

// Receive: one insert in doubt, and no reason against it. Expect: it is committed.
TEST(Resolve, Rule4CommitsALoneInsert) {
  EXPECT_EQ(resolved(receive("c0 I0 E")), "1:C0");
  EXPECT_EQ(resolved(receive("c0 i0 I3")), "2:C3");
  EXPECT_EQ(resolved(receive("p1<1 E I0")), "2:C0") << "a home that is being filled is taken";
}

// Receive: an insert in doubt, and K committed elsewhere, or home free, or another insert. Expect: the
// highest loses.
TEST(Resolve, Rule4AbortsTheHighest) {
  EXPECT_EQ(resolved(receive("C0 I0a E")), "1:A0");
  EXPECT_EQ(resolved(receive("E I0 E")), "1:A0");
  EXPECT_EQ(resolved(receive("m1>1 E I0")), "2:A0");
  EXPECT_EQ(resolved(receive("c0 I0 I0a")), "2:A0");
  EXPECT_EQ(resolved(receive("c0 I1a I0")), "2:A0");
}

// Receive: an insert that lost. Expect: left to its owner, cleared when that is gone.
TEST(Resolve, Rule5ClearsAnAWhoseOwnerIsGone) {
  EXPECT_EQ(resolved(receive("C0 A0a E")), "");
  EXPECT_EQ(resolved(receive("C0 A0a E", 2)), "1:E");
  EXPECT_EQ(resolved(receive("C0 a0 E", 2)), "") << "another key's";
}

// Receive: at random, what clients leave of one key: its item, committed or half way in a move, and rests of
// moves and inserts. Expect: RESOLVE ends, the key's item stays it, and nothing is left in doubt.
TEST(Resolve, EndsAndKeepsTheCurrentItem) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> words(3, "E");
    const auto empty = [&] {
      std::size_t j = random.below(3);
      while (words[j] != "E") j = (j + 1) % 3;
      return j;
    };
    const auto how = random.below(4);
    if (how == 1 || how == 2) words[empty()] = "C3";
    if (how == 2) {  // a move was begun, or given up since
      const std::size_t source = words[0] == "C3" ? 0 : words[1] == "C3" ? 1 : 2;
      words[empty()] = fmt::format("P{}<{}", random.below(2) == 0 ? 4 : 2, source);
    }
    if (how == 3) {  // a move is half way
      const std::size_t source = empty();
      words[source] = "M";
      const std::size_t destination = empty();
      words[source] = fmt::format("M4>{}", destination);
      words[destination] = fmt::format("P4<{}", source);
    }
    const auto empties = std::ranges::count(words, "E");
    for (std::size_t left = random.below(static_cast<std::uint64_t>(empties) + 1); left > 0; --left) {
      const std::size_t j = empty();
      const char item = static_cast<char>('a' + j);
      const auto kind = random.below(4);
      words[j] = kind == 0   ? fmt::format("I0{}", item)
                 : kind == 1 ? fmt::format("A0{}", item)
                 : kind == 2 ? fmt::format("M2>{}", (j + 1) % 3)
                             : fmt::format("c0{}", item);
    }
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    Collect c = receive(fmt::format("{}", fmt::join(words, " ")), 7);
    const bool had = current_location(c) >= 0;
    const memory::ItemRef item =
        had ? c.word[static_cast<unsigned>(current_location(c))].item() : memory::ItemRef{};
    int steps = 0;
    for (; steps < 12; ++steps) {
      const auto repair = resolve(c, nonce + static_cast<unsigned>(steps));
      if (!repair) break;
      ASSERT_EQ(repair->expected, c.word[repair->location]);
      c.word[repair->location] = repair->desired;
      if (repair->desired.is(SlotType::empty)) c.mine &= static_cast<std::uint8_t>(~(1U << repair->location));
      if (!had) continue;
      const int now = current_location(c);
      ASSERT_GE(now, 0) << "after step " << steps;
      ASSERT_EQ(c.word[static_cast<unsigned>(now)].item(), item) << "after step " << steps;
    }
    ASSERT_LT(steps, 12) << "it does not end";
    EXPECT_FALSE(has_unfinished(c));
    if (had) EXPECT_EQ(c.word[static_cast<unsigned>(committed_location(c))].item(), item);
  }
}

TEST(Resolve, MovesComeBeforeInserts) {
  EXPECT_EQ(resolved(receive("I0a P2<2 M2>1")), "1:C2");
  EXPECT_EQ(resolved(receive("M2>1 E I0a")), "0:E");
}

TEST(Resolve, NothingToDo) {
  EXPECT_EQ(resolved(receive("E E E")), "");
  EXPECT_EQ(resolved(receive("C0 E E")), "");
  EXPECT_EQ(resolved(receive("c0 i0 m1>0")), "") << "another key's";
}

// ---- growth

// A collect by a directory that grows; words are set by the test.
Collect growing(std::uint64_t hash) {
  Collect c;
  c.at = Locations::of(hash, {.level = first_level, .growing = true}, 3);
  c.key_hash = hash;
  c.word.fill({0});  // unborn
  for (unsigned j = 0; j < 3; ++j) c.word[j] = SlotWord::empty(j, first_level);
  return c;
}

TEST(Levels, AWordOfAnotherLevelSaysLookAgain) {
  Collect c = receive("E E E");
  EXPECT_FALSE(is_outdated(c));
  for (unsigned level = first_level + 1; level < first_level + 4; ++level) {
    c.word[1] = SlotWord::empty(1, level);
    EXPECT_TRUE(is_outdated(c)) << level;
  }
}

TEST(Levels, WhileItGrowsBothLevelsAreRight) {
  constexpr std::uint64_t moves_up = std::uint64_t{1} << first_level;
  Collect c = growing(moves_up);
  ASSERT_GT(c.at.count, 3U) << "it has slots in upper rows, too";
  EXPECT_FALSE(is_outdated(c)) << "high slots are not born yet";
  c.word[0] = c.word[0].with_level(first_level + 1);
  EXPECT_FALSE(is_outdated(c));
  c.word[0] = c.word[0].with_level(first_level + 2);
  EXPECT_TRUE(is_outdated(c));
  c.word[0] = c.word[0].with_level(first_level);
  c.word[3] = SlotWord::empty(9, first_level);
  EXPECT_TRUE(is_outdated(c)) << "a high slot is of the next level alone";
  c.word[3] = SlotWord::empty(9, first_level + 1);
  EXPECT_FALSE(is_outdated(c));
}

TEST(Levels, TheOpenPlaceIsLowUntilTheRowIsSplit) {
  // A key whose home moves up.
  std::uint64_t hash = 1;
  while (Locations::of(hash, {.level = first_level, .growing = true}, 3).high[0] < 0) ++hash;
  Collect c = growing(hash);
  const auto high = static_cast<std::uint8_t>(c.at.high[0]);
  EXPECT_EQ(home_location(c), 0U);
  c.word[high] = SlotWord::empty(5, first_level + 1);
  EXPECT_EQ(home_location(c), 0U) << "born, but the row is not split";
  c.word[0] = c.word[0].with_level(first_level + 1);
  EXPECT_EQ(home_location(c), high);
  EXPECT_TRUE(home_is_claimable(c));
}

// Receive: a key all of whose slots have upper ones. Expect: its item may move up while its slot is not
// split, and else to where its candidates stand now.
TEST(Levels, AnItemMovesUpOrToWhereACandidateStands) {
  Collect c = growing(std::uint64_t{1} << first_level);
  ASSERT_EQ(c.at.count, 6U);
  const auto high = [&](unsigned i) { return static_cast<unsigned>(c.at.high[i]); };
  EXPECT_TRUE(may_be_moved(c, 0, high(0)));
  EXPECT_TRUE(may_be_moved(c, 0, 1));
  EXPECT_FALSE(may_be_moved(c, 0, high(1))) << "slot 1 is not split";
  c.word[1] = c.word[1].with_level(first_level + 1);
  EXPECT_TRUE(may_be_moved(c, 0, high(1)));
  EXPECT_FALSE(may_be_moved(c, 0, 1)) << "it is split";
}

// Receive: an M of a move to the other half of its row, and one of a move elsewhere. Expect: only the former
// leaves a slot that is split; and so does none once the index does not grow.
TEST(Levels, AnItemThatWentUpLeavesASlotThatIsSplit) {
  const Collect c = growing(std::uint64_t{1} << first_level);
  const SlotNumber slot = c.at.slot[0];
  const unsigned high = static_cast<std::uint8_t>(c.at.high[0]);
  const SlotWord moved =
      SlotWord::link(SlotType::moved, {.region = 2, .size_class = 1, .unit = 100}, 0, 2, first_level);
  const SlotWord up = moved.with_ref(c.at.ref_of(high, 0));
  const SlotWord aside = moved.with_ref(c.at.ref_of(1, 0));
  const Directory d = c.at.directory;
  EXPECT_EQ(cleared_word(up, slot, d, nonce), SlotWord::empty(nonce, first_level + 1));
  EXPECT_EQ(cleared_word(aside, slot, d, nonce), SlotWord::empty(nonce, first_level));
  EXPECT_EQ(cleared_word(up, slot, {.level = first_level}, nonce), SlotWord::empty(nonce, first_level));
}

TEST(Levels, WordsThatNoClientWritesAreDamage) {
  EXPECT_FALSE(is_damaged(receive("E c0 C1")));
  Collect c = receive("E E E");
  c.word[2] = {7};
  EXPECT_TRUE(is_damaged(c));
  c.word[2] = {0};
  EXPECT_TRUE(is_damaged(c)) << "a low slot was born long ago";
  const Collect g = growing(key_hash);
  EXPECT_FALSE(is_damaged(g));
}

TEST(Snapshot, AgreesInWordsAndDirectory) {
  const Collect a = receive("E C0 E");
  Collect b = a;
  EXPECT_TRUE(a.same_words(b));
  b.mine = 0;
  EXPECT_TRUE(a.same_words(b)) << "what the words mean is not compared";
  b.word[0] = SlotWord::empty(77, first_level);
  EXPECT_FALSE(a.same_words(b)) << "another empty";
  b = a;
  b.at = Locations::of(key_hash, {.level = first_level, .growing = true}, 3);
  EXPECT_FALSE(a.same_words(b));
}

}  // namespace
}  // namespace loch::hash
