// Linearizability: is there one order of a history's operations, each taking effect at some instant between
// its invocation and its response, in which a plain map would have given every answer?
//
// The method is Wing and Gong's search in Lowe's form, one key at a time (a history is linearizable if and
// only if its part for each key is): linearize some operation that no other one must precede, go on from the
// key's new state, try another one when stuck; never visit a configuration (operations linearized so far,
// state) twice. What keeps it fast:
// 1. The operations of a key are cut into chains, each in the order of real time, no more of them than
//    operations were ever in flight at once. What is linearized so far is then one position a chain,
//    exactly, however long the history is.
// 2. An operation that may come next and is answered by the present state without changing it is taken at
//    once: if any order works from here, then one that begins with it does.
// 3. A write whose value somebody saw took effect before that one's response, whether or not its own
//    outcome is known.
// 4. Writes of unknown outcome whose values nobody saw differ only in what they do to the state, so they
//    are counted, not told apart; and a configuration that used fewer of them covers the same one that used
//    more. So thousands of killed clients do not make the search exponential.
// 5. A value is written once. Nothing takes its place while an operation that saw it is not linearized.
// 6. Of two operations that do the same in every state (put values that nobody read, say), the one that was
//    neither invoked nor answered later comes first: where it does not, the two can change places. So they
//    share a chain even if they were in flight together.
// 7. A value may vanish when its time is over, once, for it is there but once; no other one does instead.
//    So the ends of values need not be counted. But a value that may vanish is a state of its own, even if
//    nobody read it. The known end of a value that was there, and is not any more, is taken at once.
//
// The state of a key is absent, or the id of its value:
//   get             ok with the value, or not_found
//   exists          ok if present, otherwise not_found
//   put             ok
//   insert          ok if absent, otherwise exists
//   replace         ok if the value is the expected one, changed if it is another, otherwise not_found
//   remove          ok if present, otherwise not_found
//   remove_version  as replace, and absent afterwards
//   erase           ok
//   expire          ok, after the write of the expected value if that is ok: absent afterwards if that value
//                   is there, otherwise as before. Not answered where the value may stay
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sim/history.h"

namespace loch::sim {

enum class Verdict : std::uint8_t {
  linearizable,
  not_linearizable,
  undecided,  // the limit of configurations was reached
  malformed,  // not a history of such a map: an id written twice, an answer that the operation can not give
};

std::string_view name(Verdict verdict);

struct CheckOptions {
  // Of one key's search; about 200 bytes each. Past it the verdict is `undecided`.
  std::uint64_t configurations_max = 4'000'000;
};

struct CheckResult {
  Verdict verdict = Verdict::linearizable;
  std::string key{};  // the first one that is not linearizable; if there is none, the first without a verdict
  // Empty if linearizable; otherwise lines for people. Of a violation: the first response that no order
  // explains (what came before it has one), the states that the key can have been in, and the operations
  // around it with their times.
  std::string explanation{};
  std::uint64_t configurations = 0;  // visited, of all keys

  [[nodiscard]] bool linearizable() const { return verdict == Verdict::linearizable; }
};

// Checks a history in which every key is absent at first. The order of `history` does not matter; times that
// are equal order nothing.
CheckResult check_linearizability(std::span<const Operation> history, const CheckOptions& options = {});

}  // namespace loch::sim
