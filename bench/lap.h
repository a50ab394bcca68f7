// bench/lap: how many operations ran in which time.
#pragma once

#include <cstdint>

#include "bench/clock.h"

namespace loch::bench {

struct Lap {
  std::uint64_t operations = 0;
  std::uint64_t elapsed_ns = 0;

  [[nodiscard]] double ns_per_operation() const {
    return operations == 0 ? 0 : static_cast<double>(elapsed_ns) / static_cast<double>(operations);
  }
};

// Calls `act`, which does `operations_a_call`, until `seconds` are over, and at least once.
template <class Act>
Lap repeat_for(double seconds, std::uint64_t operations_a_call, Act act) {
  const auto wanted_ns = static_cast<std::uint64_t>(seconds * 1e9);
  const std::uint64_t start_ns = now_ns();
  Lap lap;
  do {
    act();
    lap.operations += operations_a_call;
    lap.elapsed_ns = now_ns() - start_ns;
  } while (lap.elapsed_ns < wanted_ns);
  return lap;
}

}  // namespace loch::bench
