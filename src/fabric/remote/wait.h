// How the ends of a connection wait for each other: awake for a short while, and then asleep.
#pragma once

#include <algorithm>
#include <ctime>
#include <sched.h>

#include "base/clock.h"

namespace loch::fabric::remote {

// How long it sleeps at once; then the deadlines are looked at again.
inline constexpr base::Nanos sleep_max_ns = 10 * base::millisecond_ns;

// Finer than base::Clock, for waits that are shorter than its ticks.
inline base::Nanos precise_now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<base::Nanos>(time.tv_sec) * base::second_ns + static_cast<base::Nanos>(time.tv_nsec);
}

// How long one who waits looks for what it waits for before it sleeps. To be woken takes a while, on a
// virtual machine often longer than the answer itself, and who waits for one who is woken sleeps in turn: if
// both ends gave up a little too early, none would be quick again. So whose sleep was a short one stays awake
// longer the next time, until there is nothing to do for so long that sleep is right.
//
// Who is awake yields between two looks. On a processor that others want for computing it gets its turn back
// only when theirs is over, milliseconds later, where who is woken from sleep is let in at once. So after a
// yield of such a length it sleeps at once, for some time: longer each time that this happens again soon, and
// a short one first, since a virtual machine itself may have stood still meanwhile.
class Wakefulness {
 public:
  static constexpr base::Nanos shortest_ns =
      50 * base::microsecond_ns;  // a little longer than a quick host takes
  static constexpr base::Nanos longest_ns = 400 * base::microsecond_ns;
  // A round of yields among those that all wait for each other is shorter; a turn of one that computes,
  // longer.
  static constexpr base::Nanos long_yield_ns = 1'500 * base::microsecond_ns;
  static constexpr base::Nanos shortest_asleep_ns = 10 * base::millisecond_ns;
  static constexpr base::Nanos longest_asleep_ns = base::second_ns;

  [[nodiscard]] bool is_over(base::Nanos waited_ns, base::Nanos now) const {
    return waited_ns > limit_ns_ || now < asleep_until_;
  }
  // After a sleep: how long all of the wait was.
  void learn(base::Nanos waited_ns) {
    limit_ns_ = waited_ns > longest_ns ? shortest_ns : std::min(2 * limit_ns_, longest_ns);
  }
  // Between two looks.
  void yield() {
    const base::Nanos before = precise_now();
    ::sched_yield();
    learn_yield(before, precise_now());
  }
  // After a yield.
  void learn_yield(base::Nanos before, base::Nanos now) {
    if (now - before <= long_yield_ns) return;
    const bool was_awake_for_long = before >= asleep_until_ + asleep_ns_;
    asleep_ns_ = was_awake_for_long ? shortest_asleep_ns : std::min(2 * asleep_ns_, longest_asleep_ns);
    asleep_until_ = now + asleep_ns_;
  }

 private:
  base::Nanos limit_ns_ = shortest_ns;
  base::Nanos asleep_ns_ = 0;  // how long it was to sleep at once, the last time
  base::Nanos asleep_until_ = 0;
};

inline timespec timespec_of(base::Nanos time) {
  return {.tv_sec = static_cast<time_t>(time / base::second_ns),
          .tv_nsec = static_cast<long>(time % base::second_ns)};
}

}  // namespace loch::fabric::remote
