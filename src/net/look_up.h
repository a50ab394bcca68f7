// Looking names up, by the system's resolver. A name server that does not answer is waited for by a thread of
// its own for each name, which ends when the resolver lets it; whoever asks waits no longer than it likes. An
// answer that comes later is for who asks next. Any thread.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "net/socket.h"

namespace loch::net {

struct Found {
  int error = 0;  // of getaddrinfo
  std::vector<SocketAddress> addresses{};
};

// `flags` are those of getaddrinfo. None: not in time. Errors: unavailable (there is no thread for it).
Result<std::optional<Found>> find_addresses(const HostPort& at, int flags, base::Nanos deadline);

// Has a name looked up that look_up_all is asked for next, so that several take no longer than one.
void begin_look_up(const HostPort& at);

}  // namespace loch::net
