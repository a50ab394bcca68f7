// bench/exchanges: the floor of a network: bytes there and others back over one connection of TCP, again and
// again, and nothing else. What goes over TCP is compared with it.
#pragma once

#include <cstdint>

#include <loch/error.h>

#include "bench/histogram.h"
#include "bench/lap.h"
#include "net/socket.h"

namespace loch::bench {

struct Exchange {
  std::uint64_t request_bytes = 64;  // 1 at least, as of the reply
  std::uint64_t reply_bytes = 64;
};

// Of a request, and of a reply: 32 of the largest values.
inline constexpr std::uint64_t exchange_bytes_max = std::uint64_t{4} << 30;

// Answers one connection after the other, as each asks first. Returns only with an error: io.
Result<void> serve_exchanges(const net::Listener& listener);

struct Exchanges {
  Lap lap{};
  Histogram latencies{};
};

// One exchange after the other for so long, and at least one. Waits for who does not listen yet. Errors:
// invalid_argument (sizes), unavailable, timed_out.
Result<Exchanges> run_exchanges(const net::HostPort& with, const Exchange& exchange, double seconds);

}  // namespace loch::bench
