// The simulator finds what is wrong with the paper's protocol (sim/paper), and tells its faults apart: by
// what goes wrong in the run, by how what the paper leaves open is read, and by what the run ends in.
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "sim/run/run.h"

namespace loch::sim {
namespace {

using paper::Undo;

struct Case {
  const char* name;
  std::uint64_t seeds;                     // within which it is found; docs/simulation.md has what it took
  void (*change)(struct Setup& setup);     // of what the seeds give
  bool (*finding)(const Outcomes& found);  // whether a run ended in what is looked for
  std::uint64_t from = 0;                  // the first of them
};

// For lists of tests, which would show the bytes of it.
void PrintTo(const Case& looked_for, std::ostream* out) { *out << looked_for.name; }

// ---- what goes wrong

void nothing_changed(struct Setup& /*setup*/) {}

template <Undo undo>
void no_faults(struct Setup& setup) {
  setup.paper = undo;
  setup.faults.clear();
}

void no_faults_but_many_moves(struct Setup& setup) {
  no_faults<Undo::restore>(setup);
  setup.crowd_rows = 2;
  setup.keys = 6;
  setup.players = 8;
  setup.acts = 400;
}

// One key, in the one slot that it can have: no entry is moved, doubled or emptied.
void no_faults_and_one_slot(struct Setup& setup) {
  no_faults<Undo::nothing>(setup);
  setup.kept_keys = 0;
  setup.keys = 1;
  setup.geometry.candidates = 1;
  setup.mix = {60, 0, 40, 0, 0, 0, 0, 0, 0, 0};  // of gets and puts
}

void kills_alone(struct Setup& setup) {
  setup.paper = Undo::restore;
  for (Fault& fault : setup.faults) fault.kind = Fault::Kind::kill;
}

// ---- what comes of it

bool something(const Outcomes& outcomes) { return !outcomes.violation.empty(); }
bool not_linearizable(const Outcomes& outcomes) { return !outcomes.history.empty(); }
// Of one that nobody puts or removes, but that is moved.
bool kept_key_not_linearizable(const Outcomes& outcomes) {
  return not_linearizable(outcomes) && outcomes.key.starts_with("kept");
}
// A get found a value that was there before one that others had read, or that was put since.
bool value_of_before(const Outcomes& outcomes) {
  const std::string_view history = outcomes.history;
  const std::string_view culprit = history.substr(std::min(history.find("\n* "), history.size()));
  const std::string_view line = culprit.substr(0, culprit.find('\n', 1));
  return line.find(": get ") != line.npos && line.find("not_found") == line.npos;
}
bool key_blocked(const Outcomes& outcomes) { return outcomes.violation.starts_with("at the end"); }
bool kept_key_unreadable(const Outcomes& outcomes) {
  return outcomes.violation.starts_with("at the end, get kept");
}
bool key_unreadable(const Outcomes& outcomes) {
  return outcomes.violation.starts_with("at the end, get key");
}
bool key_unwritable(const Outcomes& outcomes) {
  return outcomes.violation.starts_with("at the end, put key");
}

constexpr std::array cases = {
    Case{"AnyFault", 20, nothing_changed, something},
    // A PUT that meets interference has replaced an entry, or emptied others, whose values were acknowledged.
    // Whatever it does with its own entry, that may not come back.
    Case{"WithEntriesClearedAKeyIsLost", 100, no_faults<Undo::clear>, not_linearizable},
    Case{"WithEntriesRestoredAKeyIsNotFound", 500, no_faults<Undo::restore>, not_linearizable},
    // Its retries, as all others, give way to the entry that is not valid.
    Case{"WithNothingUndoneAKeyIsBlocked", 20, no_faults<Undo::nothing>, key_blocked},
    // The key is moved twice while a GET looks for it: a slot is empty, then the key's, and empty again.
    Case{"AGetMissesAKeyThatIsMoved", 8'000, no_faults_but_many_moves, kept_key_not_linearizable, 640},
    // A GET finds a version that is over, and goes on to the one before, which is not marked as over yet.
    Case{"AGetFindsAValueOfBefore", 500, no_faults_and_one_slot, value_of_before},
    // It has emptied the source, and the copy at the destination is not valid yet.
    Case{"AKilledMoveLeavesAKeyUnreadable", 500, kills_alone, kept_key_unreadable},
    // The entry that is not valid stands before the one that is.
    Case{"AKilledPutHidesTheValue", 100, kills_alone, key_unreadable},
    Case{"AKilledPutBlocksAllOthers", 500, kills_alone, key_unwritable},
};

class LiteralPaperCase : public testing::TestWithParam<Case> {};

TEST_P(LiteralPaperCase, IsFound) {
  const Case& looked_for = GetParam();
  for (std::uint64_t seed = looked_for.from; seed < looked_for.from + looked_for.seeds; ++seed) {
    sim::Setup setup = draw_setup(literal_paper, seed).value();
    looked_for.change(setup);
    if (!looked_for.finding(run(setup))) continue;
    RecordProperty("runs", std::to_string(seed + 1));
    return;
  }
  ADD_FAILURE() << "not found in " << looked_for.seeds << " runs";
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }
// What takes many runs is left to the build without sanitizers.
std::vector<Case> cases_for_this_build() {
  constexpr std::uint64_t seeds_max = LOCH_SANITIZED ? 100 : 8'000;
  std::vector<Case> some;
  std::ranges::copy_if(cases, std::back_inserter(some), [](const Case& c) { return c.seeds <= seeds_max; });
  return some;
}
INSTANTIATE_TEST_SUITE_P(All, LiteralPaperCase, testing::ValuesIn(cases_for_this_build()), case_name);

TEST(LiteralPaper, ASeedGivesOneRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const sim::Setup setup = draw_setup(literal_paper, seed).value();
    EXPECT_EQ(run(setup).trace_hash, run(setup).trace_hash) << seed;
  }
}

// Receive: a run that fails. Expect: one that fails with as little as can be.
TEST(LiteralPaper, IsMadeSmall) {
  const sim::Setup least = minimize(draw_setup(literal_paper, 1).value(), 50);
  EXPECT_NE(run(least).violation, "");
}

}  // namespace
}  // namespace loch::sim
