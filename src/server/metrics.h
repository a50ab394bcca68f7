// Metrics: what lochd tells Prometheus of itself, and of what the clients of its stores have counted: their
// one-sided operations pass it by, so they publish their counters in the stores.
#pragma once

#include <memory>

#include <loch/error.h>

#include "fabric/host.h"
#include "server/keeper.h"

namespace loch::server {

class Metrics {
 public:
  // Answers at http://`at`/metrics. `host` and `keeper` outlive it. Errors: io, invalid_argument.
  static Result<std::unique_ptr<Metrics>> start(const net::HostPort& at, const fabric::Host& host,
                                                Keeper& keeper);
  virtual ~Metrics() = default;
};

}  // namespace loch::server
