// Simulation: virtual time, and everything that happens in it, in an order that follows from the seed alone.
//
// Nothing happens by itself: an event runs when `run_one` takes it, and time moves to it. What the simulated
// programs see of the time is a clock that ticks, as the coarse clock of a host does.
//
// One thread at a time: `guard` is held by whoever makes things happen, so that several threads may take
// turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"

namespace loch::fabric::sim {

class Simulation;

// The clock of one host, which drifts from the simulation's time and may jump. The simulation outlives it.
class HostClock {
 public:
  // Gains `drift_ppm` millionths.
  HostClock(Simulation& simulation, std::int64_t drift_ppm);
  ~HostClock();
  HostClock(const HostClock&) = delete;
  HostClock& operator=(const HostClock&) = delete;

  [[nodiscard]] base::Clock clock() const { return base::Clock(&reading_); }
  [[nodiscard]] base::Nanos now() const { return reading_.load(std::memory_order_relaxed); }
  void jump(std::int64_t by_ns);
  // When, by the simulation's time, this clock comes to `time`, if it does not jump before.
  [[nodiscard]] base::Nanos simulated(base::Nanos time) const;

 private:
  friend class Simulation;
  static constexpr std::int64_t million = 1'000'000;
  void tell();

  Simulation& simulation_;
  std::int64_t drift_ppm_;
  base::Nanos set_at_ = 0;  // by the simulation's time
  base::Nanos set_to_ = 0;
  std::atomic<base::Nanos> reading_{0};
};

class Simulation {
 public:
  using Event = std::move_only_function<void()>;

  explicit Simulation(std::uint64_t seed, base::Nanos tick_ns = 1)
      : random_(seed), tick_ns_(tick_ns), now_(first_time), clock_(first_time) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  [[nodiscard]] base::Nanos now() const { return now_; }
  [[nodiscard]] base::Clock clock() const { return base::Clock(&clock_); }
  [[nodiscard]] base::Nanos tick_ns() const { return tick_ns_; }
  [[nodiscard]] base::Nanos next_tick() const { return (now_ / tick_ns_ + 1) * tick_ns_; }
  [[nodiscard]] base::Random& random() { return random_; }
  [[nodiscard]] std::recursive_mutex& guard() { return guard_; }

  // `event` happens at `time`, or now if that has passed; of one time, in the order of these calls.
  void at(base::Nanos time, Event event);
  void after(base::Nanos wait_ns, Event event) { at(now_ + wait_ns, std::move(event)); }
  // When the next event happens; never_ns if there is none.
  static constexpr base::Nanos never_ns = ~base::Nanos{0};
  [[nodiscard]] base::Nanos next_at() const { return due_.empty() ? never_ns : due_.front().time; }
  // Moves on to the next event, and runs it; false if there is none.
  bool run_one();
  // Lets time pass until `time`, with the events before it.
  void run_until(base::Nanos time);

  // What happened, in a number: two runs that noted the same in the same order have the same.
  void note(std::uint64_t word) { trace_hash_ = base::mix(trace_hash_ + word + 0x9e3779b97f4a7c15ULL); }
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_hash_; }

 private:
  // A time at which everything that a store compares with "long ago" has passed.
  static constexpr base::Nanos first_time = 1'000 * base::second_ns;

  struct Due {
    base::Nanos time;
    std::uint64_t number;
    std::size_t place;  // of the event, among events_
  };
  // Of a heap whose front is the earliest.
  struct Later {
    bool operator()(const Due& a, const Due& b) const {
      return std::pair(a.time, a.number) > std::pair(b.time, b.number);
    }
  };
  friend class HostClock;
  void move_to(base::Nanos time);

  base::Random random_;
  base::Nanos tick_ns_;
  base::Nanos now_;
  std::atomic<base::Nanos> clock_;
  std::vector<Due> due_;
  std::vector<Event> events_;
  std::vector<std::size_t> places_free_;  // among events_
  std::uint64_t events_added_ = 0;
  std::vector<HostClock*> host_clocks_;
  std::uint64_t trace_hash_ = 0;
  std::recursive_mutex guard_;
};

}  // namespace loch::fabric::sim
