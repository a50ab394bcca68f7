// bench/clock: time for measuring: that of the wall, and that of the processor.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <sys/types.h>

namespace loch::bench {

inline std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// That all threads of this process have used, in the kernel and outside.
inline std::uint64_t processor_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// That all threads of another process have used; 0 when it is not there.
std::uint64_t processor_time_ns(pid_t process);

void sleep_for(double seconds);

// How much processor time this process uses while the calling thread sleeps for so long.
std::uint64_t processor_time_asleep_ns(double seconds);

}  // namespace loch::bench
