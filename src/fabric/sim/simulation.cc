#include "fabric/sim/simulation.h"

#include <algorithm>

namespace loch::fabric::sim {

void Simulation::at(base::Nanos time, Event event) {
  if (places_free_.empty()) {
    places_free_.push_back(events_.size());
    events_.emplace_back();
  }
  const std::size_t place = places_free_.back();
  places_free_.pop_back();
  events_[place] = std::move(event);
  due_.push_back({std::max(time, now_), ++events_added_, place});
  std::ranges::push_heap(due_, Later{});
}

bool Simulation::run_one() {
  if (due_.empty()) return false;
  std::ranges::pop_heap(due_, Later{});
  const Due due = due_.back();
  due_.pop_back();
  Event event = std::move(events_[due.place]);
  places_free_.push_back(due.place);
  move_to(due.time);
  event();
  return true;
}

void Simulation::run_until(base::Nanos time) {
  while (next_at() <= time) run_one();
  move_to(std::max(time, now_));
}

void Simulation::move_to(base::Nanos time) {
  now_ = time;
  if (time - clock_.load(std::memory_order_relaxed) >= tick_ns_)
    clock_.store(time / tick_ns_ * tick_ns_, std::memory_order_relaxed);
  for (HostClock* clock : host_clocks_) clock->tell();
}

HostClock::HostClock(Simulation& simulation, std::int64_t drift_ppm)
    : simulation_(simulation), drift_ppm_(drift_ppm) {
  const std::scoped_lock lock(simulation_.guard());
  set_at_ = set_to_ = simulation_.now();
  tell();
  simulation_.host_clocks_.push_back(this);
}

HostClock::~HostClock() {
  const std::scoped_lock lock(simulation_.guard());
  std::erase(simulation_.host_clocks_, this);
}

void HostClock::jump(std::int64_t by_ns) {
  set_to_ = now() + static_cast<base::Nanos>(by_ns);
  set_at_ = simulation_.now();
  tell();
}

base::Nanos HostClock::simulated(base::Nanos time) const {
  if (time <= now()) return simulation_.now();
  const auto wait = static_cast<std::int64_t>(time - now());
  return simulation_.now() +
         static_cast<base::Nanos>(wait / (million + drift_ppm_) * million + wait % (million + drift_ppm_)) +
         1;
}

void HostClock::tell() {
  const auto passed = static_cast<std::int64_t>(simulation_.now() - set_at_);
  const std::int64_t gained = passed / million * drift_ppm_ + passed % million * drift_ppm_ / million;
  reading_.store(set_to_ + static_cast<base::Nanos>(passed + gained), std::memory_order_relaxed);
}

}  // namespace loch::fabric::sim
