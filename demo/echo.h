// demo/echo: the plainest round trip over TCP that there is, for what goes over TCP to be compared with.
#pragma once

#include <cstdint>
#include <string>

#include <loch/error.h>

#include "bench/histogram.h"

namespace loch::demo {

inline constexpr std::uint16_t echo_port = 7;  // as it was always known

// Listens at the address and sends back what each connection sends, one connection after the other. Returns
// only with an error: io, permission.
Result<void> serve_echo(const std::string& address);

// Round trips of 64 bytes, one at a time, for so long. Errors: unavailable, timed_out.
Result<bench::Histogram> measure_round_trips(const std::string& address, double seconds);

}  // namespace loch::demo
