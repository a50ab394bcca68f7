#include "bench/clock.h"

#include <cmath>

namespace loch::bench {

std::uint64_t processor_time_asleep_ns(double seconds) {
  double whole_s = 0;
  const double part_s = std::modf(seconds, &whole_s);
  const timespec pause{.tv_sec = static_cast<time_t>(whole_s), .tv_nsec = static_cast<long>(part_s * 1e9)};
  const std::uint64_t before_ns = processor_time_ns();
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  return processor_time_ns() - before_ns;
}

}  // namespace loch::bench
