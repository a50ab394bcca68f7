#include "sim/key_search.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace loch::sim {
namespace {

using Done = KeyHistory::Done;
using Loose = KeyHistory::Loose;

bool removes(Kind kind) { return kind == Kind::remove || kind == Kind::erase; }
// Whether it says, when it is done, that its expected value was there.
bool sees_expected(Kind kind) { return kind == Kind::replace || kind == Kind::remove_version; }

// Whether it leaves every state as it was. (A put of a value that nobody read may leave state_other as it
// was, and yet matter after a remove.)
bool only_looks(const Done& done) { return !changes(done.origin->kind) || done.outcome != Outcome::ok; }

// The state after an operation that gave `done.outcome` in `state`; nothing if it could not have.
std::optional<State> apply(const Done& done, State state) {
  const bool present = state != state_absent;
  const auto keep_if = [state](bool condition) { return condition ? std::optional(state) : std::nullopt; };
  const auto become_if = [](bool condition, State after) {
    return condition ? std::optional(after) : std::nullopt;
  };
  switch (done.origin->kind) {
    case Kind::get:
      return keep_if(done.outcome == Outcome::ok ? state == done.found : !present);
    case Kind::exists:
      return keep_if(done.outcome == Outcome::ok ? present : !present);
    case Kind::put:
      return done.written;
    case Kind::insert:
      return done.outcome == Outcome::ok ? become_if(!present, done.written) : keep_if(present);
    case Kind::replace:
      if (done.outcome == Outcome::ok) return become_if(state == done.expected, done.written);
      return keep_if(done.outcome == Outcome::changed ? present && state != done.expected : !present);
    case Kind::remove:
      return done.outcome == Outcome::ok ? become_if(present, state_absent) : keep_if(!present);
    case Kind::remove_version:
      if (done.outcome == Outcome::ok) return become_if(state == done.expected, state_absent);
      return keep_if(done.outcome == Outcome::changed ? present && state != done.expected : !present);
    case Kind::erase:
      return state_absent;
    case Kind::expire:
      return state == done.expected ? state_absent : state;
  }
  return std::nullopt;
}

// Whether the two do the same in every state, and `first` was neither invoked nor answered later.
bool is_first_of_two_alike(const Done& first, const Done& second) {
  const auto does = [](const Done& done) {
    return std::tuple(done.origin->kind, done.outcome, done.written, done.expected, done.found);
  };
  return does(first) == does(second) && first.origin->invoked_ns <= second.origin->invoked_ns &&
         first.responded_ns <= second.responded_ns;
}

// The state after a write that nobody had an answer to.
State apply(const Loose& loose, State state) {
  switch (loose.kind) {
    case Kind::put:
      return loose.written;
    case Kind::insert:
      return state == state_absent ? loose.written : state;
    case Kind::replace:
    case Kind::remove_version:
    case Kind::expire:
      return state == loose.expected ? loose.written : state;
    case Kind::remove:
    case Kind::erase:
      return state_absent;
    case Kind::get:
    case Kind::exists:
      break;
  }
  return state;
}

// The first two kinds of loose writes: of values that nobody asks about. The put can do whatever the insert
// can.
constexpr std::size_t loose_put = 0;
constexpr std::size_t loose_insert = 1;

// What it costs to use a loose write, so that a configuration never covers a cheaper one.
std::uint32_t cost_of(std::size_t loose) { return loose == loose_put ? 2 : 1; }

// Whether what is left over after `fewer` can do all that what is left over after `more` can.
bool covers(std::u32string_view fewer, std::u32string_view more) {
  if (fewer[loose_put] > more[loose_put]) return false;
  if (fewer[loose_put] + fewer[loose_insert] > more[loose_put] + more[loose_insert]) return false;
  for (std::size_t i = loose_insert + 1; i < fewer.size(); ++i) {
    if (fewer[i] > more[i]) return false;
  }
  return true;
}

// Turns operations into Done and Loose.
class Preparation {
 public:
  explicit Preparation(std::span<const Operation* const> operations) {
    for (const Operation* operation : operations) {
      if (operation->outcome == Outcome::failed) continue;
      if (operation->outcome == Outcome::unknown) {
        if (changes(operation->kind)) pending_.push_back(operation);
      } else {
        answered_.push_back(operation);
      }
    }
  }

  KeyHistory make() {
    find_writers();
    find_seen();
    name_values();
    make_chains();
    find_sightings();
    make_loose();
    return std::move(result_);
  }

 private:
  void find_writers() {
    for (const Operation* operation : answered_) {
      if (writes(operation->kind) && operation->outcome == Outcome::ok)
        writers_[operation->written] = operation;
    }
    for (const Operation* operation : pending_) {
      if (writes(operation->kind)) writers_[operation->written] = operation;
    }
  }

  // Finds the writes whose value was seen, and by when. A write that was seen is answered: it did take
  // effect. If it is a replace, it saw a value itself.
  void find_seen() {
    std::vector<std::pair<ValueId, std::uint64_t>> sightings;
    for (const Operation* operation : answered_) {
      if (operation->outcome != Outcome::ok) continue;
      if (operation->kind == Kind::get) sightings.emplace_back(operation->found, operation->responded_ns);
      if (sees_expected(operation->kind))
        sightings.emplace_back(operation->expected, operation->responded_ns);
    }
    while (!sightings.empty()) {
      const auto [value, seen_ns] = sightings.back();
      sightings.pop_back();
      const auto writer = writers_.find(value);
      // A value seen before it was asked for: left alone, the search will find that no order explains it.
      if (writer == writers_.end() || seen_ns < writer->second->invoked_ns) continue;
      const auto [known, added] = seen_by_.try_emplace(writer->second, seen_ns);
      if (!added && known->second <= seen_ns) continue;
      known->second = seen_ns;
      if (writer->second->kind == Kind::replace) sightings.emplace_back(writer->second->expected, seen_ns);
    }
  }

  void name_values() {
    const auto add = [this](ValueId value) {
      if (states_.try_emplace(value, state_named_first + static_cast<State>(result_.named.size())).second) {
        result_.named.push_back(value);
      }
    };
    for (const Operation* operation : answered_) {
      if (operation->kind == Kind::get && operation->outcome == Outcome::ok) add(operation->found);
      if (sees_expected(operation->kind)) add(operation->expected);
    }
    // A replace of unknown outcome that was seen is a sighting of what it replaced. Another one may hide a
    // value that was there; where that may never have been there either, there is nothing to hide that could
    // be missed.
    for (const Operation* operation : pending_) {
      if (operation->kind != Kind::replace) continue;
      const Operation* const writer = writer_of(operation->expected);
      const bool was_there =
          writer != nullptr && (writer->outcome == Outcome::ok || seen_by_.contains(writer));
      if (was_there || seen_by_.contains(operation)) add(operation->expected);
    }
    // A value that may vanish, or that somebody removes who was not answered, is told from all that do not,
    // read or not; so is what replaces of unknown outcome may have made it of.
    const auto add_vanishing = [this, &add](ValueId value) {
      const Operation* writer = writer_of(value);
      while (writer != nullptr && may_vanish_.insert(writer->written).second) {
        add(writer->written);
        writer = writer->kind == Kind::replace ? writer_of(writer->expected) : nullptr;
      }
    };
    for (const Operation* operation : pending_) {
      if (operation->kind == Kind::expire || operation->kind == Kind::remove_version)
        add_vanishing(operation->expected);
    }
    for (const Operation* operation : answered_) {
      if (operation->kind != Kind::expire) continue;
      add(operation->expected);
      add_vanishing(operation->expected);
    }
  }

  [[nodiscard]] const Operation* writer_of(ValueId value) const {
    const auto found = writers_.find(value);
    return found == writers_.end() ? nullptr : found->second;
  }

  [[nodiscard]] State state_of(ValueId value) const {
    const auto found = states_.find(value);
    return found == states_.end() ? state_other : found->second;
  }

  [[nodiscard]] Done done(const Operation& operation) const {
    const auto seen = seen_by_.find(&operation);
    return {.origin = &operation,
            .outcome = operation.outcome == Outcome::unknown ? Outcome::ok : operation.outcome,
            .written = state_of(operation.written),
            .expected = state_of(operation.expected),
            .found = state_of(operation.found),
            .responded_ns = seen == seen_by_.end() ? operation.responded_ns
                                                   : std::min(operation.responded_ns, seen->second)};
  }

  void make_chains() {
    std::vector<Done> all;
    all.reserve(answered_.size() + pending_.size());
    for (const Operation* operation : answered_) all.push_back(done(*operation));
    for (const Operation* operation : pending_) {
      if (seen_by_.contains(operation)) all.push_back(done(*operation));
    }
    std::ranges::sort(all, {}, [](const Done& d) { return std::pair(d.origin->invoked_ns, d.responded_ns); });
    for (const Done& next : all) {
      auto chain = std::ranges::find_if(result_.chains, [&next](const std::vector<Done>& c) {
        return is_first_of_two_alike(c.back(), next);
      });
      if (chain == result_.chains.end()) {
        chain = std::ranges::find_if(result_.chains, [&next](const std::vector<Done>& c) {
          return c.back().responded_ns < next.origin->invoked_ns;
        });
      }
      if (chain != result_.chains.end()) {
        chain->push_back(next);
      } else {
        result_.chains.push_back({next});
      }
    }
  }

  void find_sightings() {
    result_.sightings.resize(result_.named.size());
    result_.writers.resize(result_.named.size());
    for (std::size_t chain = 0; chain < result_.chains.size(); ++chain) {
      for (std::size_t position = 0; position < result_.chains[chain].size(); ++position) {
        const Done& done = result_.chains[chain][position];
        if (done.outcome != Outcome::ok) continue;
        const Kind kind = done.origin->kind;
        const State seen = kind == Kind::get ? done.found : sees_expected(kind) ? done.expected : state_other;
        if (seen >= state_named_first)
          result_.sightings[seen - state_named_first].push_back({.chain = chain, .position = position});
        if (writes(kind) && done.written >= state_named_first)
          result_.writers[done.written - state_named_first] = {.chain = chain, .position = position};
      }
    }
  }

  void make_loose() {
    loose_of(Kind::put, state_other, state_absent);
    loose_of(Kind::insert, state_other, state_absent);
    for (const Operation* operation : pending_) {
      if (!expects(operation->kind)) add_loose(*operation);
    }
    // What expects a value needs no count: that value is there but once, and this ends it.
    result_.loose_counted = result_.loose.size();
    for (const Operation* operation : pending_) {
      if (expects(operation->kind)) add_loose(*operation);
    }
    for (Loose& loose : result_.loose) std::ranges::sort(loose.invoked_ns);
  }

  void add_loose(const Operation& operation) {
    if (seen_by_.contains(&operation)) return;
    const State written = writes(operation.kind) ? state_of(operation.written) : state_absent;
    const State expected = expects(operation.kind) ? state_of(operation.expected) : state_absent;
    if (expected == state_other) return;  // see name_values
    // Without an answer the two are alike.
    const Kind kind = removes(operation.kind) ? Kind::remove : operation.kind;
    loose_of(kind, written, expected).invoked_ns.push_back(operation.invoked_ns);
  }

  Loose& loose_of(Kind kind, State written, State expected) {
    const auto [place, added] = loose_places_.try_emplace({kind, written, expected}, result_.loose.size());
    if (added) result_.loose.push_back({.kind = kind, .written = written, .expected = expected});
    return result_.loose[place->second];
  }

  std::vector<const Operation*> answered_;
  std::vector<const Operation*> pending_;  // writes and removes of unknown outcome
  std::unordered_map<ValueId, const Operation*> writers_;
  std::unordered_map<const Operation*, std::uint64_t> seen_by_;  // the first response that showed its value
  std::unordered_map<ValueId, State> states_;
  std::set<ValueId> may_vanish_;  // or may become, unanswered, what may
  std::map<std::tuple<Kind, State, State>, std::size_t> loose_places_;
  KeyHistory result_;
};

}  // namespace

std::string KeyHistory::state_text(State state) const {
  if (state == state_absent) return "absent";
  if (state == state_other) return "a value that nobody read";
  return fmt::format("value {}", named[state - state_named_first]);
}

KeyHistory prepare(std::span<const Operation* const> operations) { return Preparation(operations).make(); }

KeySearch::KeySearch(const KeyHistory& history, std::uint64_t configurations_max, const Operation* watched)
    : history_(history), configurations_max_(configurations_max), watched_(watched) {}

KeySearch::End KeySearch::run() {
  open_[0].push_back({.positions = std::u32string(history_.chains.size() + 1, 0),
                      .loose_used = std::u32string(history_.loose_counted, 0)});
  while (!open_.empty()) {
    const auto cheapest = open_.begin();
    if (cheapest->second.empty()) {
      open_.erase(cheapest);
      continue;
    }
    if (++configurations_ > configurations_max_) return End::limit_reached;
    cost_ = cheapest->first;
    Configuration next = std::move(cheapest->second.back());
    cheapest->second.pop_back();
    while (take_looks(next)) {
    }
    if (finished_) return End::order_found;
    if (watched_ != nullptr) note_refused(next);
    if (!visit(next)) continue;
    expand_loose(next);
    expand(next);
  }
  return End::no_order;
}

const Done* KeySearch::next_of(const Configuration& from, std::size_t chain) const {
  const auto& operations = history_.chains[chain];
  const std::size_t position = from.positions[chain];
  if (position == operations.size() || operations[position].origin->invoked_ns > frontier_ns_) return nullptr;
  return &operations[position];
}

void KeySearch::find_frontier(const Configuration& from) {
  frontier_ns_ = never_ns;
  finished_ = true;
  for (std::size_t chain = 0; chain < history_.chains.size(); ++chain) {
    const auto& operations = history_.chains[chain];
    if (from.positions[chain] == operations.size()) continue;
    finished_ = false;
    frontier_ns_ = std::min(frontier_ns_, operations[from.positions[chain]].responded_ns);
  }
}

// Whether the value of `before` is gone in `after`, for good, and has yet to be seen. That leads nowhere; but
// what is watched may be the one that would have seen it.
bool KeySearch::hides_what_is_seen(State before, const Configuration& after) const {
  if (before < state_named_first || before == after.state || watched_ != nullptr) return false;
  return std::ranges::any_of(history_.sightings[before - state_named_first], [&after](const auto& sighting) {
    return sighting.position >= after.positions[sighting.chain];
  });
}

// Whether it is the end of a value that has been there, and is not any more.
bool KeySearch::is_past_end(const Done& done, const Configuration& from) const {
  if (done.origin->kind != Kind::expire || done.expected == from.state) return false;
  const auto writer = history_.writers[done.expected - state_named_first];
  return writer && writer->position < from.positions[writer->chain];
}

// Whether it is the end of a value that certainly comes.
bool KeySearch::is_before_its_write(const Done& done, const Configuration& from) const {
  if (done.origin->kind != Kind::expire) return false;
  const auto writer = history_.writers[done.expected - state_named_first];
  if (!writer || writer->position < from.positions[writer->chain]) return false;
  return history_.chains[writer->chain][writer->position].origin->outcome == Outcome::ok;
}

// Takes the operations that may come next, fit, and change nothing, now or later; false if there was none.
bool KeySearch::take_looks(Configuration& from) {
  find_frontier(from);
  bool took = false;
  for (std::size_t chain = 0; chain < history_.chains.size(); ++chain) {
    for (const Done* next = next_of(from, chain); next != nullptr; next = next_of(from, chain)) {
      const bool looks = only_looks(*next) && apply(*next, from.state);
      if (!looks && !is_past_end(*next, from)) break;
      ++from.positions[chain];
      took = true;
    }
  }
  return took;
}

// False if a configuration was visited from which everything could be reached that can be from this one.
bool KeySearch::visit(Configuration& from) {
  from.positions.back() = from.state;
  std::u32string& visited = visited_[from.positions];
  const std::size_t length = from.loose_used.size();
  for (std::size_t at = 0; at < visited.size(); at += length) {
    if (covers(std::u32string_view(visited).substr(at, length), from.loose_used)) return false;
  }
  visited += from.loose_used;
  return true;
}

void KeySearch::expand(const Configuration& from) {
  for (std::size_t chain = 0; chain < history_.chains.size(); ++chain) {
    const Done* const next = next_of(from, chain);
    const bool may_be = next != nullptr && !is_before_its_write(*next, from);
    const auto after = may_be ? apply(*next, from.state) : std::nullopt;
    if (!after) continue;
    Configuration to = from;
    ++to.positions[chain];
    to.state = *after;
    if (!hides_what_is_seen(from.state, to)) open_[cost_].push_back(std::move(to));
  }
}

void KeySearch::expand_loose(const Configuration& from) {
  for (std::size_t i = 0; i < history_.loose.size(); ++i) {
    const Loose& loose = history_.loose[i];
    const State after = apply(loose, from.state);
    if (after == from.state) continue;
    // The oldest are used first, so the next one is there if any is.
    const bool counts = i < history_.loose_counted;
    const std::size_t used = counts ? from.loose_used[i] : 0;
    if (used == loose.invoked_ns.size() || loose.invoked_ns[used] > frontier_ns_) continue;
    Configuration to = from;
    if (counts) ++to.loose_used[i];
    to.state = after;
    if (!hides_what_is_seen(from.state, to))
      open_[cost_ + (counts ? cost_of(i) : 0)].push_back(std::move(to));
  }
}

void KeySearch::note_refused(const Configuration& from) {
  for (std::size_t chain = 0; chain < history_.chains.size(); ++chain) {
    const Done* const next = next_of(from, chain);
    if (next != nullptr && next->origin == watched_ && !apply(*next, from.state))
      states_refused_.insert(from.state);
  }
}

}  // namespace loch::sim
