#include "fabric/host/fencer.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "base/clock.h"
#include "fabric/host/log.h"

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
    if (!job.others.empty()) jobs_.push_back(std::move(job));
  }
}

void Fencer::ask_others(Job& job) {
  std::erase_if(job.others, [&](const Other& other) { return !stop_ && ask(other, job.session); });
  job.again_at = base::Clock().now() + again_after_ns;
  for (const Other& other : job.others) {
    if (const auto failing = failing_.find(other.name); failing != failing_.end())
      job.again_at = std::min(job.again_at, failing->second.not_before);
  }
}

bool Fencer::ask(const Other& other, const std::string& session) {
  const auto at = find_(other);
  const auto failing = failing_.find(other.name);
  if (!at) {
    if (failing != failing_.end()) failing_.erase(failing);
    return true;
  }
  if (failing != failing_.end() && base::Clock().now() < failing->second.not_before) return false;
  const auto fenced = remote::fence(*at, session, base::Clock().now() + answer_within_ns);
  if (!fenced) {
    note_failure(other, *at, fenced.error());
    return false;
  }
  if (failing != failing_.end()) {
    failing_.erase(failing);
    log(options_, Host::Level::info, fmt::format("{} ({}) ends sessions again", other.name, at->host.text()));
  }
  return true;
}

// It is told of once, and of each other error once more: it may be one that does not pass by itself.
void Fencer::note_failure(const Other& other, const remote::Target& at, const Error& error) {
  Failing& failing = failing_[other.name];
  failing.not_before = base::Clock().now() + again_after_ns;
  if (!failing.told.insert(error.code).second) return;
  log(options_, Host::Level::warning,
      fmt::format(
          "{} ({}) can not be asked to end sessions that are taken for dead: {}; it is asked again each "
          "second, and what they have is kept until it has ended them, or is removed from the cluster",
          other.name, at.host.text(), error.message()));
}

}  // namespace loch::fabric::host
