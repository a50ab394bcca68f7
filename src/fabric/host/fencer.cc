#include "fabric/host/fencer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace loch::fabric::host {
namespace {

// How long one host may take, and how soon it is asked again.
constexpr base::Nanos answer_within_ns = base::second_ns;
constexpr base::Nanos again_after_ns = base::second_ns;

}  // namespace

Fencer::~Fencer() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Fencer::fence(Id id, std::string session, std::vector<Other> others) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back({.id = id, .session = std::move(session), .others = std::move(others)});
  }
  changed_.notify_all();
}

void Fencer::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto next = std::ranges::min_element(jobs_, {}, &Job::again_at);
    const base::Nanos now = base::Clock().now();
    if (next == jobs_.end()) {
      changed_.wait(lock);
      continue;
    }
    if (next->again_at > now) {
      changed_.wait_for(lock, std::chrono::nanoseconds(next->again_at - now));
      continue;
    }
    Job job = std::move(*next);
    jobs_.erase(next);
    lock.unlock();
    ask_others(job);
    if (job.others.empty()) fenced_(job.id);
    lock.lock();
    if (job.others.empty()) continue;
    job.again_at = base::Clock().now() + again_after_ns;
    jobs_.push_back(std::move(job));
  }
}

void Fencer::ask_others(Job& job) const {
  std::erase_if(job.others, [this, &job](const Other& other) {
    if (stop_) return false;
    const auto at = find_(other);
    return !at || remote::fence(*at, job.session, base::Clock().now() + answer_within_ns).has_value();
  });
}

}  // namespace loch::fabric::host
