// How the ends of a connection wait for each other: awake for a short while, and then asleep.
#pragma once

#include <algorithm>
#include <ctime>

#include "base/clock.h"

namespace loch::fabric::remote {

// How long it sleeps at once; then the deadlines are looked at again.
inline constexpr base::Nanos sleep_max_ns = 10 * base::millisecond_ns;

// How long one who waits looks for what it waits for before it sleeps. To be woken takes a while, on a
// virtual machine often longer than the answer itself, and who waits for one who is woken sleeps in turn: if
// both ends gave up a little too early, none would be quick again. So whose sleep was a short one stays awake
// longer the next time, until there is nothing to do for so long that sleep is right.
class Wakefulness {
 public:
  static constexpr base::Nanos shortest_ns =
      50 * base::microsecond_ns;  // a little longer than a quick host takes
  static constexpr base::Nanos longest_ns = 400 * base::microsecond_ns;

  [[nodiscard]] bool is_over(base::Nanos waited_ns) const { return waited_ns > limit_ns_; }
  // After a sleep: how long all of the wait was.
  void learn(base::Nanos waited_ns) {
    limit_ns_ = waited_ns > longest_ns ? shortest_ns : std::min(2 * limit_ns_, longest_ns);
  }

 private:
  base::Nanos limit_ns_ = shortest_ns;
};

// Finer than base::Clock, for waits that are shorter than its ticks.
inline base::Nanos precise_now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<base::Nanos>(time.tv_sec) * base::second_ns + static_cast<base::Nanos>(time.tv_nsec);
}

inline timespec timespec_of(base::Nanos time) {
  return {.tv_sec = static_cast<time_t>(time / base::second_ns),
          .tv_nsec = static_cast<long>(time % base::second_ns)};
}

}  // namespace loch::fabric::remote
