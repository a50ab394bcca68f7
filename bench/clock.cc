#include "bench/clock.h"

#include <cmath>

namespace loch::bench {

std::uint64_t processor_time_ns(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void sleep_for(double seconds) {
  double whole_s = 0;
  const double part_s = std::modf(seconds, &whole_s);
  const timespec pause{.tv_sec = static_cast<time_t>(whole_s), .tv_nsec = static_cast<long>(part_s * 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
}

std::uint64_t processor_time_asleep_ns(double seconds) {
  const std::uint64_t before_ns = processor_time_ns();
  sleep_for(seconds);
  return processor_time_ns() - before_ns;
}

}  // namespace loch::bench
