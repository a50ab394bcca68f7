// How the ports to other hosts wait: awake for a short while, and then asleep.
#pragma once

#include <ctime>

#include "base/clock.h"

namespace loch::fabric::remote {

// How long a port looks for answers before it sleeps: a little longer than a quick host takes.
inline constexpr base::Nanos spin_ns = 50 * base::microsecond_ns;
// How long it sleeps at once; then the deadlines are looked at again.
inline constexpr base::Nanos sleep_max_ns = 10 * base::millisecond_ns;

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
