// The search for an order of the operations on one key; see linearizability.h for the method.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/history.h"

namespace loch::sim {

// What a key is: absent, or present with a value. Values that no operation asks about are all one state.
using State = char32_t;
inline constexpr State state_absent = 0;
inline constexpr State state_other = 1;
inline constexpr State state_named_first = 2;

// One key's history, made ready for the search.
struct KeyHistory {
  // An operation that took effect (or was refused) between two times. `origin` belongs to the caller of
  // `prepare`.
  struct Done {
    const Operation* origin = nullptr;
    Outcome outcome = Outcome::ok;
    State written = state_other;
    State expected = state_other;
    State found = state_other;
    std::uint64_t responded_ns = 0;  // tightened: never later than the first response that showed its value
  };

  // Writes of unknown outcome that are alike in everything that anybody could have seen.
  struct Loose {
    Kind kind = Kind::put;
    State written = state_other;
    State expected = state_other;
    std::vector<std::uint64_t> invoked_ns{};  // rising
  };

  std::vector<std::vector<Done>> chains;  // in a chain each comes before the next, and responded no later
  std::vector<Loose> loose;
  std::size_t loose_counted = 0;  // the first so many of them, of which a search counts how many it has used
  std::vector<ValueId> named;     // the value of state_named_first + i

  // An operation that saw a value, or wrote it.
  struct Sighting {
    std::size_t chain = 0;
    std::size_t position = 0;
  };
  std::vector<std::vector<Sighting>> sightings;  // of the value of state_named_first + i
  std::vector<std::optional<Sighting>> writers;  // likewise: who is known to have written it

  [[nodiscard]] std::string state_text(State state) const;
};

// Operations of one key, in any order, each well-formed (check_linearizability sees to that). They must
// outlive the result.
KeyHistory prepare(std::span<const Operation* const> operations);

class KeySearch {
 public:
  enum class End { order_found, no_order, limit_reached };

  // `history` outlives the search. Notes the states in which `watched`, if any, might have come next but did
  // not fit.
  KeySearch(const KeyHistory& history, std::uint64_t configurations_max, const Operation* watched = nullptr);

  End run();

  [[nodiscard]] std::uint64_t configurations() const { return configurations_; }
  [[nodiscard]] const std::set<State>& states_refused() const { return states_refused_; }

 private:
  // What is linearized, and where that leaves the key.
  struct Configuration {
    std::u32string
        positions;  // of each chain, how many operations; and one place more for the state, see `visit`
    std::u32string loose_used;  // of each kind of loose writes that is counted, how many
    State state = state_absent;
  };

  // The next operation of a chain if it may come next: nothing unlinearized responded before it was invoked.
  [[nodiscard]] const KeyHistory::Done* next_of(const Configuration& from, std::size_t chain) const;
  [[nodiscard]] bool hides_what_is_seen(State before, const Configuration& after) const;
  void find_frontier(const Configuration& from);
  bool take_looks(Configuration& from);
  [[nodiscard]] bool is_past_end(const KeyHistory::Done& done, const Configuration& from) const;
  [[nodiscard]] bool is_before_its_write(const KeyHistory::Done& done, const Configuration& from) const;
  bool visit(Configuration& from);
  void expand(const Configuration& from);
  void expand_loose(const Configuration& from);
  void note_refused(const Configuration& from);

  const KeyHistory& history_;
  const std::uint64_t configurations_max_;
  const Operation* const watched_;

  // To be visited, by how many loose writes they used: the fewest first, so that what is visited is never
  // covered by what is found later; among these the last found first, which goes deep.
  std::map<std::uint64_t, std::vector<Configuration>> open_;
  std::uint64_t cost_ = 0;  // of the configurations that are visited now

  // The earliest response of what is not linearized in the configuration at hand; nothing invoked later may
  // be next.
  std::uint64_t frontier_ns_ = 0;
  bool finished_ = false;

  // For positions and state, the uses of loose writes with which they were visited, one behind the other
  // (there may be a thousand to look through), none covering another.
  std::unordered_map<std::u32string, std::u32string> visited_;
  std::uint64_t configurations_ = 0;
  std::set<State> states_refused_;
};

}  // namespace loch::sim
