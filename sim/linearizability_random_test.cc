// The checker against random histories: against a search of all orders where they are short, and against what
// is known of how they were made where they are long.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/linearizability.h"

namespace loch::sim {
namespace {

using Random = std::mt19937_64;
using History = std::vector<Operation>;
using Value = std::optional<ValueId>;

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }
bool chance(Random& random, double probability) {
  return static_cast<double>(random() >> 11U) * 0x1p-53 < probability;
}

std::string text(const History& history) {
  std::string lines;
  for (const Operation& o : history) {
    lines +=
        fmt::format("{} .. {}  {}\n", o.invoked_ns, static_cast<std::int64_t>(o.responded_ns), describe(o));
  }
  return lines;
}

bool may_remove(const Operation& o) {
  const bool removes = o.kind == Kind::remove || o.kind == Kind::remove_version;
  return o.kind == Kind::expire || o.kind == Kind::erase ||
         (removes && (o.outcome == Outcome::ok || o.outcome == Outcome::unknown));
}

// What a map answers: fills in the outcome, and changes the value.
void execute(Operation& o, Value& value) {
  const auto present = [&value](Outcome yes, Outcome no) { return value ? yes : no; };
  switch (o.kind) {
    case Kind::get:
      o.found = value.value_or(no_value);
      [[fallthrough]];
    case Kind::exists:
      o.outcome = present(Outcome::ok, Outcome::not_found);
      break;
    case Kind::put:
      o.outcome = Outcome::ok;
      break;
    case Kind::insert:
      o.outcome = present(Outcome::exists, Outcome::ok);
      break;
    case Kind::replace:
      o.outcome = present(value == o.expected ? Outcome::ok : Outcome::changed, Outcome::not_found);
      break;
    case Kind::remove:
      o.outcome = present(Outcome::ok, Outcome::not_found);
      value.reset();
      break;
    case Kind::remove_version:
      o.outcome = present(value == o.expected ? Outcome::ok : Outcome::changed, Outcome::not_found);
      if (o.outcome == Outcome::ok) value.reset();
      break;
    case Kind::erase:
      o.outcome = Outcome::ok;
      value.reset();
      break;
    case Kind::expire:
      o.outcome = Outcome::ok;
      if (value == o.expected) value.reset();
      break;
  }
  if (writes(o.kind) && o.outcome == Outcome::ok) value = o.written;
}

// Tries every order of the operations of one key, and of every subset of those of unknown outcome.
class AllOrders {
 public:
  explicit AllOrders(const History& history) : history_(history), used_(history.size(), false) {}

  bool some_order_fits() { return search({}); }

 private:
  bool may_be_next(std::size_t candidate) const {
    const Operation& next = history_[candidate];
    const bool is_end = next.kind == Kind::expire && next.outcome == Outcome::ok;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const Operation& o = history_[i];
      const bool is_its_write = is_end && o.written == next.expected && o.outcome == Outcome::ok;
      if (!used_[i] && (o.responded_ns < next.invoked_ns || is_its_write)) return false;
    }
    return true;
  }

  bool search(const Value& value) {
    bool all_answered_used = true;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (used_[i]) continue;
      const bool answered = history_[i].outcome != Outcome::unknown;
      all_answered_used = all_answered_used && !answered;
      if (!may_be_next(i)) continue;
      Operation executed = history_[i];
      Value after = value;
      executed.found = no_value;
      execute(executed, after);
      if (answered && (executed.outcome != history_[i].outcome || executed.found != history_[i].found))
        continue;
      used_[i] = true;
      const bool fits = search(after);
      used_[i] = false;
      if (fits) return true;
    }
    return all_answered_used;
  }

  const History& history_;
  std::vector<bool> used_;
};

// Small histories of any answers, most of them wrong.
struct Draw {
  double unknown = 0.2;  // of the outcomes
  double expire = 0.1;   // of the operations; a value's time is over, of half of them for certain
  double plain = 0;      // of the operations: writes and removes that are often alike
  std::uint64_t length_ns_max = 4;
};

History arbitrary_history(Random& random, const Draw& draw) {
  const std::size_t size = 1 + below(random, 7);
  History history;
  for (std::size_t i = 0; i < size; ++i) {
    Operation o{.client = i, .key = "k", .kind = static_cast<Kind>(below(random, 8))};
    constexpr std::array<Kind, 4> plain = {Kind::put, Kind::insert, Kind::remove, Kind::exists};
    if (chance(random, draw.plain)) o.kind = plain[below(random, plain.size())];
    if (chance(random, draw.expire)) o.kind = Kind::expire;
    if (writes(o.kind)) o.written = i + 1;
    if (expects(o.kind)) o.expected = 1 + below(random, size);
    Value value;
    if (chance(random, 0.6)) value = 1 + below(random, size);
    execute(o, value);
    o.invoked_ns = below(random, 12);
    o.responded_ns = o.invoked_ns + below(random, draw.length_ns_max + 1);
    if (chance(random, o.kind == Kind::expire ? 0.5 : draw.unknown)) {
      o.outcome = Outcome::unknown;
      o.found = no_value;
      o.responded_ns = never_ns;
    }
    history.push_back(o);
  }
  return history;
}

struct Shape {
  std::size_t operations = 100;
  std::size_t keys = 1;
  std::size_t clients = 4;
  double unknown = 0;       // of the operations; their client goes on as another
  double long_running = 0;  // take a thousand times as long
  double well_guessed = 0;  // of those that expect what is there, without having read it
  double mortal = 0;        // of the writes; their values may be gone from some time on, or are by then
  // get exists put insert replace remove remove_version erase
  std::array<unsigned, 8> mix = {6, 1, 3, 2, 2, 2, 1, 1};
};

Operation end_of(const Operation& write, std::uint64_t over_ns, std::uint64_t gone_by_ns) {
  return {.client = write.client,
          .key = write.key,
          .kind = Kind::expire,
          .expected = write.written,
          .invoked_ns = over_ns,
          .responded_ns = gone_by_ns};
}

// A history of true atomic registers: every operation takes effect at one random instant between its
// invocation and its response; if its outcome is unknown, at any later time, or never.
History true_history(Random& random, const Shape& shape) {
  struct Planned {
    Operation operation;
    std::uint64_t effect_ns;
  };
  std::vector<Planned> planned;
  std::discrete_distribution<unsigned> kinds(shape.mix.begin(), shape.mix.end());
  for (std::size_t client = 0; client < shape.clients; ++client) {
    std::uint64_t now_ns = below(random, 100);
    for (std::size_t i = 0; i < shape.operations / shape.clients; ++i) {
      Operation o{.client = client, .key = fmt::format("k{}", below(random, shape.keys))};
      o.kind = static_cast<Kind>(kinds(random));
      if (writes(o.kind)) o.written = (i * shape.clients) + client + 1;
      const std::uint64_t length_ns = below(random, 100) * (chance(random, shape.long_running) ? 1000 : 1);
      o.invoked_ns = now_ns;
      o.responded_ns = now_ns + length_ns;
      std::uint64_t effect_ns = now_ns + below(random, length_ns + 1);
      if (chance(random, shape.unknown)) {
        o.responded_ns = never_ns;
        if (chance(random, 0.5)) effect_ns = chance(random, 0.5) ? never_ns : now_ns + below(random, 10'000);
      }
      planned.push_back({o, effect_ns});
      if (writes(o.kind) && chance(random, shape.mortal)) {
        const std::uint64_t over_ns = now_ns + below(random, 500);
        std::uint64_t gone_ns = over_ns + below(random, 300);
        if (effect_ns != never_ns) gone_ns = std::max(gone_ns, effect_ns + 1);
        const std::uint64_t gone_by_ns = chance(random, 0.5) ? never_ns : gone_ns + below(random, 100);
        const bool is_never_gone = gone_by_ns == never_ns && chance(random, 0.5);
        planned.push_back({end_of(o, over_ns, gone_by_ns), is_never_gone ? never_ns : gone_ns});
      }
      now_ns += length_ns + 1 + below(random, 60);
    }
  }
  std::ranges::sort(planned, {}, &Planned::effect_ns);
  std::map<std::string, Value> values;
  std::map<std::string, ValueId> recent;
  History history;
  for (auto& [operation, effect_ns] : planned) {
    Value& value = values[operation.key];
    if (operation.kind == Kind::replace || operation.kind == Kind::remove_version) {
      const ValueId old = recent.try_emplace(operation.key, 1).first->second;
      operation.expected = chance(random, shape.well_guessed) ? value.value_or(old) : old;
    }
    if (effect_ns != never_ns) {
      execute(operation, value);
      if (operation.found != no_value && operation.responded_ns != never_ns)
        recent[operation.key] = operation.found;
    }
    if (operation.responded_ns == never_ns) {
      operation.outcome = Outcome::unknown;
      operation.found = no_value;
    }
    history.push_back(operation);
  }
  std::ranges::shuffle(history, random);
  return history;
}

// One seed a history; printed with what failed, so that it can be run alone.
class RandomHistoryTest : public testing::Test {
 protected:
  static constexpr std::uint64_t base_seed = 20'240'601;

  // Checks against all orders; true if the history is linearizable.
  static bool agrees(const History& history, std::uint64_t seed) {
    const CheckResult result = check_linearizability(history);
    const bool fits = AllOrders(history).some_order_fits();
    EXPECT_EQ(result.verdict, fits ? Verdict::linearizable : Verdict::not_linearizable)
        << "seed " << seed << '\n'
        << text(history) << result.explanation;
    return fits;
  }
};

TEST_F(RandomHistoryTest, ShortHistoriesOfAnyAnswersAgreeWithASearchOfAllOrders) {
  std::size_t good = 0;
  constexpr std::size_t rounds = 30'000;
  for (std::uint64_t seed = base_seed; seed < base_seed + rounds && !HasFailure(); ++seed) {
    Random random(seed);
    if (agrees(arbitrary_history(random, {}), seed)) ++good;
  }
  EXPECT_GT(good, rounds / 20);
  EXPECT_LT(good, rounds - (rounds / 20));
}

TEST_F(RandomHistoryTest, ShortHistoriesWithManyEndsAndUnknownOutcomesAgreeWithASearchOfAllOrders) {
  std::size_t good = 0;
  constexpr std::size_t rounds = 30'000;
  for (std::uint64_t seed = base_seed; seed < base_seed + rounds && !HasFailure(); ++seed) {
    Random random(seed);
    if (agrees(arbitrary_history(random, {.unknown = 0.5, .expire = 0.35}), seed)) ++good;
  }
  EXPECT_GT(good, rounds / 20);
  EXPECT_LT(good, rounds - (rounds / 20));
}

TEST_F(RandomHistoryTest, ShortHistoriesOfOperationsThatAreAlikeAgreeWithASearchOfAllOrders) {
  std::size_t good = 0;
  constexpr std::size_t rounds = 30'000;
  for (std::uint64_t seed = base_seed; seed < base_seed + rounds && !HasFailure(); ++seed) {
    Random random(seed);
    const Draw draw{.unknown = 0.1, .expire = 0.05, .plain = 0.8, .length_ns_max = 1 + below(random, 12)};
    if (agrees(arbitrary_history(random, draw), seed)) ++good;
  }
  EXPECT_GT(good, rounds / 20);
  EXPECT_LT(good, rounds - (rounds / 20));
}

TEST_F(RandomHistoryTest, ShortHistoriesWithOneWrongAnswerAgreeWithASearchOfAllOrders) {
  std::size_t good = 0;
  constexpr std::size_t rounds = 30'000;
  for (std::uint64_t seed = base_seed; seed < base_seed + rounds && !HasFailure(); ++seed) {
    Random random(seed);
    const Shape shape{.operations = 7,
                      .clients = 1 + below(random, 7),
                      .unknown = 0.25,
                      .well_guessed = 0.7,
                      .mortal = chance(random, 0.5) ? 0.3 : 0.0};
    History history = true_history(random, shape);
    EXPECT_TRUE(agrees(history, seed));
    Operation& changed = history[below(random, history.size())];
    if (changed.outcome == Outcome::unknown) continue;
    Value value;
    if (chance(random, 0.7)) value = 1 + below(random, 7);
    changed.found = no_value;
    execute(changed, value);
    if (agrees(history, seed)) ++good;
  }
  EXPECT_GT(good, rounds / 20);
  EXPECT_LT(good, rounds - (rounds / 20));
}

TEST_F(RandomHistoryTest, LongHistoriesOfTrueRegistersAreLinearizable) {
  for (std::uint64_t seed = base_seed; seed < base_seed + 300 && !HasFailure(); ++seed) {
    Random random(seed);
    const Shape shape{.operations = 200 + below(random, 800),
                      .keys = 1 + below(random, 3),
                      .clients = 1 + below(random, 10),
                      .unknown = chance(random, 0.5) ? 0.1 : 0.0,
                      .long_running = chance(random, 0.3) ? 0.01 : 0.0,
                      .mortal = chance(random, 0.5) ? 0.5 : 0.0};
    const CheckResult result = check_linearizability(true_history(random, shape));
    EXPECT_TRUE(result.linearizable()) << "seed " << seed << '\n' << result.explanation;
  }
}

// The ways to break a history so that it can not be linearizable any more. Each returns false if this history
// offers no place for it.
using Breaker = bool (*)(History&, Random&);

bool answered_write(const Operation& o) { return writes(o.kind) && o.outcome == Outcome::ok; }
bool found_value(const Operation& o) { return o.kind == Kind::get && o.outcome == Outcome::ok; }

bool read_what_nobody_wrote(History& history, Random&) {
  const auto get = std::ranges::find_if(history, found_value);
  if (get == history.end()) return false;
  get->found = 1'000'000;
  return true;
}

bool forget_a_write_that_was_read(History& history, Random&) {
  const auto get = std::ranges::find_if(history, found_value);
  if (get == history.end()) return false;
  std::erase_if(history, [value = get->found](const Operation& o) { return o.written == value; });
  return true;
}

bool read_a_value_overwritten_before(History& history, Random&) {
  for (Operation& get : history) {
    if (get.kind != Kind::get || get.outcome == Outcome::unknown) continue;
    for (const Operation& newer : history) {
      if (!answered_write(newer) || newer.key != get.key || newer.responded_ns >= get.invoked_ns) continue;
      for (const Operation& older : history) {
        if (!answered_write(older) || older.key != get.key || older.responded_ns >= newer.invoked_ns)
          continue;
        get.outcome = Outcome::ok;
        get.found = older.written;
        return true;
      }
    }
  }
  return false;
}

bool read_from_the_future(History& history, Random&) {
  for (Operation& get : history) {
    if (get.kind != Kind::get || get.outcome == Outcome::unknown) continue;
    for (const Operation& later : history) {
      if (!answered_write(later) || later.key != get.key || later.invoked_ns <= get.responded_ns) continue;
      get.outcome = Outcome::ok;
      get.found = later.written;
      return true;
    }
  }
  return false;
}

bool overlaps(const Operation& o, std::uint64_t from_ns, std::uint64_t to_ns) {
  return o.invoked_ns <= to_ns && o.responded_ns >= from_ns;
}

// An absence right after a write, with no remove that could be its cause.
bool lose_an_acknowledged_write(History& history, Random&) {
  for (const Operation& write : history) {
    if (!answered_write(write)) continue;
    for (Operation& get : history) {
      if (get.kind != Kind::get || get.outcome == Outcome::unknown || get.key != write.key) continue;
      if (get.invoked_ns <= write.responded_ns) continue;
      const bool removed = std::ranges::any_of(history, [&write, &get](const Operation& o) {
        return may_remove(o) && o.key == write.key && overlaps(o, write.invoked_ns, get.responded_ns);
      });
      if (removed) continue;
      get.outcome = Outcome::not_found;
      get.found = no_value;
      return true;
    }
  }
  return false;
}

// A second insert that succeeds, right after the first.
bool insert_twice(History& history, Random&) {
  for (const Operation& first : history) {
    if (first.kind != Kind::insert || first.outcome != Outcome::ok) continue;
    const std::uint64_t end_ns = first.responded_ns + 2;
    const bool removed = std::ranges::any_of(history, [&first, end_ns](const Operation& o) {
      return may_remove(o) && o.key == first.key && overlaps(o, first.invoked_ns, end_ns);
    });
    if (removed) continue;
    Operation second = first;
    second.written = 1'000'000;
    second.invoked_ns = first.responded_ns + 1;
    second.responded_ns = end_ns;
    history.push_back(second);
    return true;
  }
  return false;
}

// Two removes that succeed with nothing written between.
bool remove_twice(History& history, Random&) {
  for (const Operation& first : history) {
    if (first.kind != Kind::remove || first.outcome != Outcome::ok) continue;
    const std::uint64_t end_ns = first.responded_ns + 2;
    const bool written = std::ranges::any_of(history, [&first, end_ns](const Operation& o) {
      return writes(o.kind) && o.key == first.key && overlaps(o, first.invoked_ns, end_ns);
    });
    if (written) continue;
    Operation second = first;
    second.invoked_ns = first.responded_ns + 1;
    second.responded_ns = end_ns;
    history.push_back(second);
    return true;
  }
  return false;
}

// A second replace of the value that a first one replaced.
bool replace_twice(History& history, Random& random) {
  for (const Operation& first : history) {
    if (first.kind != Kind::replace || first.outcome != Outcome::ok) continue;
    Operation second = first;
    second.written = 1'000'000;
    second.invoked_ns = first.invoked_ns + below(random, 50);
    second.responded_ns = second.invoked_ns + below(random, 200);
    history.push_back(second);
    return true;
  }
  return false;
}

TEST_F(RandomHistoryTest, BrokenHistoriesOfTrueRegistersAreNotLinearizable) {
  constexpr std::array<Breaker, 8> breakers = {read_what_nobody_wrote,
                                               forget_a_write_that_was_read,
                                               read_a_value_overwritten_before,
                                               read_from_the_future,
                                               lose_an_acknowledged_write,
                                               insert_twice,
                                               remove_twice,
                                               replace_twice};
  std::array<std::size_t, breakers.size()> broken{};
  for (std::uint64_t seed = base_seed; seed < base_seed + 400 && !HasFailure(); ++seed) {
    Random random(seed);
    const Shape shape{.operations = 60 + below(random, 200),
                      .keys = 1 + below(random, 2),
                      .clients = 1 + below(random, 6),
                      .unknown = chance(random, 0.3) ? 0.02 : 0.0,
                      .mortal = chance(random, 0.3) ? 0.1 : 0.0};
    const std::size_t how = seed % breakers.size();
    History history = true_history(random, shape);
    if (!breakers[how](history, random)) continue;
    ++broken[how];
    const CheckResult result = check_linearizability(history);
    EXPECT_EQ(result.verdict, Verdict::not_linearizable) << "seed " << seed << " broken in way " << how;
    EXPECT_NE(result.explanation.find("none explains the next"), std::string::npos) << result.explanation;
  }
  for (std::size_t how = 0; how < broken.size(); ++how) EXPECT_GT(broken[how], 10U) << "way " << how;
}

TEST_F(RandomHistoryTest, TheWorkGrowsAsTheHistory) {
  Random random(base_seed);
  History history = true_history(random, {.operations = 100'000, .keys = 16, .clients = 8});
  CheckResult result = check_linearizability(history);
  EXPECT_TRUE(result.linearizable()) << result.explanation;
  EXPECT_LT(result.configurations, 10 * history.size());

  ASSERT_TRUE(read_a_value_overwritten_before(history, random));
  result = check_linearizability(history);
  EXPECT_EQ(result.verdict, Verdict::not_linearizable);
  EXPECT_LT(result.configurations, 10 * history.size());
}

TEST_F(RandomHistoryTest, ThousandsOfUnknownOutcomesAreDecided) {
  Random random(base_seed);
  History history = true_history(random, {.operations = 40'000, .keys = 4, .clients = 8, .unknown = 0.1});
  CheckResult result = check_linearizability(history);
  EXPECT_TRUE(result.linearizable()) << result.explanation;

  ASSERT_TRUE(read_a_value_overwritten_before(history, random));
  result = check_linearizability(history);
  EXPECT_EQ(result.verdict, Verdict::not_linearizable) << result.explanation;
}

}  // namespace
}  // namespace loch::sim
