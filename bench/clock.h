// bench/clock: time for measuring: that of the wall, and that of the processor.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace loch::bench {

inline std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// That all threads of this process have used.
inline std::uint64_t processor_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// How much of it this process uses while the calling thread sleeps for so long.
std::uint64_t processor_time_asleep_ns(double seconds);

}  // namespace loch::bench
