// Linearizability while it happens: for each key the set of all states in which it can be, each with the
// pending operations that have taken effect in it. Exact: an answer that no state allows is a violation, and
// only such a one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/explore/scenario.h"

namespace loch::explore {

// A value is known by an id from 1 to 199; 0 is absent.
using ValueId = std::uint8_t;

// What an operation told its caller.
struct Answer {
  enum class Kind : std::uint8_t { none, ok, not_found, exists, value, error };
  Kind kind = Kind::none;
  ValueId value = 0;
  bool operator==(const Answer&) const = default;
};

class Monitor {
 public:
  static constexpr unsigned participants_max = clients_max + 1;  // the clients, and who probes

  void set_initial(unsigned key, ValueId value);
  // `written`: of put and insert.
  void begin(unsigned client, Act act, unsigned key, ValueId written);
  // False if no order of the operations explains the answer. A client that never responds stays pending for
  // ever.
  bool respond(unsigned client, Answer answer);

  [[nodiscard]] std::uint64_t hash() const;

 private:
  // Byte 0: the key's value; byte 1 + c: what client c will be told, 0 while its operation has not taken
  // effect.
  using State = std::uint64_t;
  struct Pending {
    bool is_pending = false;
    Act act = Act::get;
    std::uint8_t key = 0;
    ValueId written = 0;
  };

  void close(unsigned key, std::vector<State>& states, unsigned except) const;

  std::array<std::vector<State>, keys_max> states_{{{0}, {0}, {0}}};
  std::array<Pending, participants_max> pending_{};
};

}  // namespace loch::explore
