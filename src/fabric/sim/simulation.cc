#include "fabric/sim/simulation.h"

#include <algorithm>

namespace loch::fabric::sim {

void Simulation::at(base::Nanos time, Event event) {
  events_.push_back({std::max(time, now_), ++events_added_, std::move(event)});
  std::ranges::push_heap(events_, Later{});
}

bool Simulation::run_one() {
  if (events_.empty()) return false;
  std::ranges::pop_heap(events_, Later{});
  Due due = std::move(events_.back());
  events_.pop_back();
  move_to(due.time);
  due.event();
  return true;
}

void Simulation::run_until(base::Nanos time) {
  while (next_at() <= time) run_one();
  move_to(std::max(time, now_));
}

void Simulation::move_to(base::Nanos time) {
  now_ = time;
  clock_.store(time / tick_ns_ * tick_ns_, std::memory_order_relaxed);
}

}  // namespace loch::fabric::sim
