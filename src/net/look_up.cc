#include "net/look_up.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <sys/types.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace loch::net {
namespace {

// For so long an answer that nobody waited for is as good as a new one.
constexpr base::Nanos kept_ns = 10 * base::second_ns;

Found ask_resolver(const HostPort& at, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  // Not of numbers: it is asked for under a lock, which in a fork may be held by a thread that is not there.
  if ((flags & AI_NUMERICHOST) == 0) hints.ai_flags |= AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  const char* host = at.host.empty() || at.host == "*" ? nullptr : at.host.c_str();
  Found found;
  found.error = ::getaddrinfo(host, at.port.c_str(), &hints, &list);
  if (found.error == EAI_NONAME || found.error == EAI_ADDRFAMILY) {
    // An address of a host whose only interface is the loopback.
    hints.ai_flags &= ~AI_ADDRCONFIG;
    found.error = ::getaddrinfo(host, at.port.c_str(), &hints, &list);
  }
  if (found.error != 0) return found;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    SocketAddress& address = found.addresses.emplace_back();
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  ::freeaddrinfo(list);
  return found;
}

// The look-ups of this process that are not over, or whose answer nobody has taken. It is there for as long
// as the process, as their threads may be. A fork has none of those threads, nor of those that had the lock:
// it begins anew.
class LookUps {
 public:
  static LookUps& of_process() {
    static constinit std::atomic<LookUps*> current = nullptr;
    LookUps* known = current;
    while (known == nullptr || known->process_ != ::getpid()) {
      auto own = std::make_unique<LookUps>();
      if (current.compare_exchange_strong(known, own.get())) return *own.release();
    }
    return *known;
  }

  Result<void> begin(const HostPort& at, int flags) {
    const std::scoped_lock lock(mutex_);
    if (auto begun = begun_for(at, flags); !begun) return std::unexpected(std::move(begun.error()));
    return {};
  }

  Result<std::optional<Found>> find(const HostPort& at, int flags, base::Nanos deadline) {
    const base::Clock clock;
    std::unique_lock lock(mutex_);
    auto begun = begun_for(at, flags);
    if (!begun) return std::unexpected(std::move(begun.error()));
    const LookUp& look_up = **begun;
    const base::Nanos now = clock.now();
    const std::chrono::nanoseconds left(deadline > now ? deadline - now : 0);
    if (!changed_.wait_for(lock, left, [&] { return look_up.found.has_value(); })) return std::nullopt;
    // Whoever waits too has it as well; whoever comes later asks again.
    const auto here = of_.find({at.host, at.port, flags});
    if (here != of_.end() && here->second == *begun) of_.erase(here);
    return look_up.found;
  }

 private:
  struct LookUp {
    std::optional<Found> found{};
    base::Nanos found_at = 0;
  };

  Result<std::shared_ptr<LookUp>> begun_for(const HostPort& at, int flags) {
    std::shared_ptr<LookUp>& known = of_[{at.host, at.port, flags}];
    const bool is_good =
        known != nullptr && (!known->found || base::Clock().now() < known->found_at + kept_ns);
    if (is_good) return known;
    auto look_up = std::make_shared<LookUp>();
    try {
      std::thread([this, at, flags, look_up] {
        Found found = ask_resolver(at, flags);
        const std::scoped_lock lock(mutex_);
        look_up->found = std::move(found);
        look_up->found_at = base::Clock().now();
        changed_.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      of_.erase({at.host, at.port, flags});
      return fail(Errc::unavailable, "open",
                  fmt::format("{}: no thread to look it up: {}", at.text(), error.what()));
    }
    known = look_up;
    return look_up;
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<std::string, std::string, int>, std::shared_ptr<LookUp>> of_;
};

}  // namespace

// Numbers are read at once.
Result<std::optional<Found>> find_addresses(const HostPort& at, int flags, base::Nanos deadline) {
  Found found = ask_resolver(at, flags | AI_NUMERICHOST);
  if (found.error != EAI_NONAME) return found;
  return LookUps::of_process().find(at, flags, deadline);
}

void begin_look_up(const HostPort& at) {
  if (ask_resolver(at, AI_PASSIVE | AI_NUMERICHOST).error != EAI_NONAME) return;
  // Who asks for it next is told what it failed for.
  std::ignore = LookUps::of_process().begin(at, AI_PASSIVE);
}

}  // namespace loch::net
