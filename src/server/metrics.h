// Metrics: what lochd tells Prometheus of itself, of the stores of its configuration, and of others while
// clients on other hosts have them open: what memory they take, and what all their clients have counted.
// Operations of those pass lochd by, so they publish their counters in the stores.
#pragma once

#include <memory>

#include <loch/error.h>

#include "fabric/host.h"
#include "server/keeper.h"
#include "server/member.h"

namespace loch::server {

class Metrics {
 public:
  // Answers at http://`at`/metrics. `host`, `keeper` and `member` (null: of no cluster) outlive it. Errors:
  // io, invalid_argument.
  static Result<std::unique_ptr<Metrics>> start(const net::HostPort& at, const fabric::Host& host,
                                                Keeper& keeper, const Member* member);
  virtual ~Metrics() = default;
};

}  // namespace loch::server
