// Why an operation's start needs no fence (session.h, "Reuse"): every interleaving of a reader with one who
// unlinks the item that it reads and uses its memory again, on processors that keep stores back (x86's total
// store order: each sees its own at once, others see them later, in their order).
#include <array>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

namespace loch::memory {
namespace {

// The words that both touch.
enum Word : std::uint8_t { start, slot, item, act_until, words_count };
constexpr std::uint64_t linked = 1;  // what the slot says while it names the item
constexpr std::uint64_t used_again = 2;

struct Processor {
  std::size_t at = 0;  // of its program
  std::deque<std::pair<Word, std::uint64_t>> kept_back{};
  std::array<std::uint64_t, words_count> seen{};  // by its loads, the last of each word
  auto operator<=>(const Processor&) const = default;
};

struct World {
  std::array<std::uint64_t, words_count> memory{};
  std::array<Processor, 2> processors{};
  auto operator<=>(const World&) const = default;

  [[nodiscard]] std::uint64_t load(const Processor& by, Word word) const {
    for (const auto& [kept, value] : std::views::reverse(by.kept_back)) {
      if (kept == word) return value;
    }
    return memory[word];
  }
  void drain_one(Processor& of) {
    const auto [word, value] = of.kept_back.front();
    memory[word] = value;
    of.kept_back.pop_front();
  }
  void drain(Processor& of) {
    while (!of.kept_back.empty()) drain_one(of);
  }
};

// One step of a program. False: the program ends here.
using Step = std::function<bool(World&, Processor&)>;
using Program = std::vector<Step>;

Step store(Word word, std::uint64_t value) {
  return [=](World&, Processor& here) {
    here.kept_back.emplace_back(word, value);
    return true;
  };
}
Step load(Word word) {
  return [=](World& world, Processor& here) {
    here.seen[word] = world.load(here, word);
    return true;
  };
}
// A compare-swap that finds what it expects: it waits for all that is kept back.
Step swap(Word word, std::uint64_t value) {
  return [=](World& world, Processor& here) {
    world.drain(here);
    world.memory[word] = value;
    return true;
  };
}
Step barrier() {
  return [](World& world, Processor&) {
    for (Processor& each : world.processors) world.drain(each);
    return true;
  };
}
Step go_on_if(const std::function<bool(const Processor&)>& condition) {
  return [=](World&, Processor& here) { return condition(here); };
}

// Runs all interleavings. Whether in any of them `is_wrong` of what processor 0 has seen at its end.
bool can_go_wrong(const World& first, const std::array<Program, 2>& programs,
                  const std::function<bool(const Processor&)>& is_wrong) {
  std::set<World> known{first};
  std::vector<World> open{first};
  bool wrong = false;
  const auto reach = [&](World world) {
    if (known.insert(world).second) open.push_back(std::move(world));
  };
  while (!open.empty()) {
    const World world = std::move(open.back());
    open.pop_back();
    wrong = wrong || (world.processors[0].at == programs[0].size() && is_wrong(world.processors[0]));
    for (std::size_t i = 0; i < programs.size(); ++i) {
      if (!world.processors[i].kept_back.empty()) {
        World next = world;
        next.drain_one(next.processors[i]);
        reach(std::move(next));
      }
      if (world.processors[i].at == programs[i].size()) continue;
      World next = world;
      Processor& here = next.processors[i];
      const bool goes_on = programs[i][here.at](next, here);
      here.at = goes_on ? here.at + 1 : programs[i].size();
      reach(std::move(next));
    }
  }
  return wrong;
}

// ---- an operation that runs holds the memory

// It begins, sees what the slot names, reads that, and ends.
Program reader() {
  return {store(start, 1), load(slot),
          go_on_if([](const Processor& here) { return here.seen[slot] == linked; }), load(item),
          store(start, 0)};
}
// Unlinks the item; looks whether an operation runs that began before, or whatever else this word says; if
// none does, uses the memory again.
Program reuser(const std::vector<Step>& before_it_looks, Word said = start) {
  Program program{swap(slot, 0)};
  program.insert(program.end(), before_it_looks.begin(), before_it_looks.end());
  program.push_back(load(said));
  program.push_back(go_on_if([said](const Processor& here) { return here.seen[said] == 0; }));
  program.push_back(store(item, used_again));
  return program;
}
bool reads_what_was_used_again(const Processor& by) {
  return by.seen[slot] == linked && by.seen[item] == used_again;
}
World linked_item() {
  World world;
  world.memory[slot] = linked;
  return world;
}

TEST(BarrierModel, WithoutABarrierAnOperationIsOverlooked) {
  EXPECT_TRUE(can_go_wrong(linked_item(), {reader(), reuser({})}, reads_what_was_used_again));
}

TEST(BarrierModel, WithABarrierItIsSeen) {
  EXPECT_FALSE(can_go_wrong(linked_item(), {reader(), reuser({barrier()})}, reads_what_was_used_again));
}

TEST(BarrierModel, ABarrierBeforeTheUnlinkOrBehindTheLookIsNone) {
  Program before = reuser({});
  before.insert(before.begin(), barrier());
  EXPECT_TRUE(can_go_wrong(linked_item(), {reader(), before}, reads_what_was_used_again));
  Program behind = reuser({});
  behind.insert(behind.begin() + 2, barrier());
  EXPECT_TRUE(can_go_wrong(linked_item(), {reader(), behind}, reads_what_was_used_again));
}

// A compiler that loads the slot before the start is stored would undo it.
TEST(BarrierModel, TheStartIsStoredBeforeTheSlotIsLoaded) {
  Program swapped = reader();
  std::swap(swapped[0], swapped[1]);
  EXPECT_TRUE(can_go_wrong(linked_item(), {swapped, reuser({barrier()})}, reads_what_was_used_again));
}

// A session that takes no part is seen by its own fence, which comes before its first operation.
TEST(BarrierModel, AFenceOfTheReaderIsAsGood) {
  Program fenced = reader();
  fenced.insert(fenced.begin() + 1, [](World& world, Processor& here) {
    world.drain(here);
    return true;
  });
  EXPECT_FALSE(can_go_wrong(linked_item(), {fenced, reuser({})}, reads_what_was_used_again));
}

// ---- an operation that was stopped holds what it acts on when it has said that it acts on

// Its operation runs already. What it saw was written after the time until which it may act; so it says that
// it acts on, and looks again before it reads the item.
Program late_reader() {
  return {store(act_until, 1), load(slot),
          go_on_if([](const Processor& here) { return here.seen[slot] == linked; }), load(item)};
}

TEST(BarrierModel, WhoActsOnIsOverlookedWithoutABarrierAndSeenWithOne) {
  // The item was written after the time until which the operation could act when it began.
  EXPECT_TRUE(can_go_wrong(linked_item(), {late_reader(), reuser({}, act_until)}, reads_what_was_used_again));
  EXPECT_FALSE(can_go_wrong(linked_item(), {late_reader(), reuser({barrier()}, act_until)},
                            reads_what_was_used_again));
}

// If it is said after the slot was read, as by another operation of the session, no barrier helps.
TEST(BarrierModel, ItIsSaidBeforeTheSlotIsRead) {
  Program excused = late_reader();
  std::swap(excused[0], excused[1]);
  EXPECT_TRUE(
      can_go_wrong(linked_item(), {excused, reuser({barrier()}, act_until)}, reads_what_was_used_again));
}

}  // namespace
}  // namespace loch::memory
