#include "fabric/remote/remote_port.h"

#include <algorithm>

#include "fabric/remote/wait.h"

namespace loch::fabric::remote {
namespace {

// Sleeps until one of them has something to do; whether one is over by then.
bool wait_for_any(std::span<RemotePort* const> ports, base::Nanos wait_ns) {
  const auto over_before = std::ranges::count_if(ports, &RemotePort::is_severed);
  std::vector<pollfd> waits;
  std::vector<std::size_t> counts;
  for (RemotePort* port : ports) {
    const std::size_t before = waits.size();
    if (!port->await(waits)) wait_ns = 0;
    counts.push_back(waits.size() - before);
  }
  const timespec time = timespec_of(std::min(wait_ns, sleep_max_ns));
  ::ppoll(waits.data(), waits.size(), &time, nullptr);
  std::size_t from = 0;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    ports[i]->awoken(std::span(waits).subspan(from, counts[i]));
    from += counts[i];
  }
  return std::ranges::count_if(ports, &RemotePort::is_severed) != over_before;
}

}  // namespace

void RemotePort::end_flights(const Error& why) {
  const auto ending = Flights::Ending::of(why, flights_.location());
  severed_ = ending.posted_later;
  flights_.end_all(ending);
}

void RemotePort::poll(base::Nanos wait_ns) {
  RemotePort* const self = this;
  poll_all({&self, 1}, wakefulness_, wait_ns);
}

void poll_all(std::span<RemotePort* const> ports, Wakefulness& wakefulness, base::Nanos wait_ns) {
  const base::Nanos start = precise_now();
  bool has_slept = false;
  for (;;) {
    bool has_ended = false;
    // A look at a connection on which nothing is under way is a call of the kernel for nothing. One that was
    // lost shows with the next sign.
    for (RemotePort* port : ports) has_ended = (!port->is_idle() && port->progress()) || has_ended;
    if (has_ended && !has_slept) return;
    const base::Nanos now = precise_now();
    const base::Nanos passed = now - start;
    if (has_ended || passed >= wait_ns) break;
    const bool are_idle = std::ranges::all_of(ports, [](const RemotePort* port) { return port->is_idle(); });
    const bool sleeps = wakefulness.is_over(passed, now);
    if (are_idle || sleeps) {
      const bool is_over = wait_for_any(ports, wait_ns - passed);
      has_slept = has_slept || (sleeps && !are_idle);
      if (is_over) break;
    } else {
      wakefulness.yield();
    }
  }
  if (has_slept) wakefulness.learn(precise_now() - start);
}

}  // namespace loch::fabric::remote
