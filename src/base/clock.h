// Time, the one way to read it. Nanoseconds of a clock that never steps back and is the same for all
// processes of a host. It is coarse (1 to 10 ms) because a precise one would be much of what a call takes:
// all but the plainest get read it, and a put does twice.
//
// Two readings by different processes are ordered: a reading that is smaller was taken earlier
// (docs/memory.md, "Reuse"). A simulation gives each client a clock of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace loch::base {

using Nanos = std::uint64_t;

inline constexpr Nanos microsecond_ns = 1'000;
inline constexpr Nanos millisecond_ns = 1'000'000;
inline constexpr Nanos second_ns = 1'000'000'000;

class Clock {
 public:
  Clock() = default;
  // Reads `*simulated_ns`, which outlives every copy of this clock.
  explicit Clock(const std::atomic<Nanos>* simulated_ns) : simulated_ns_(simulated_ns) {}

  [[nodiscard]] Nanos now() const {
    if (simulated_ns_ != nullptr) [[unlikely]]
      return simulated_ns_->load(std::memory_order_relaxed);
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<Nanos>(t.tv_sec) * second_ns + static_cast<Nanos>(t.tv_nsec);
  }

  [[nodiscard]] bool simulated() const { return simulated_ns_ != nullptr; }

 private:
  const std::atomic<Nanos>* simulated_ns_ = nullptr;
};

}  // namespace loch::base
