// bench/network: what lies between a server and its clients when they speak TCP: two network namespaces of
// this host that a pair of virtual interfaces joins, or its loopback interface where the kernel grants no
// namespaces.
//
// The namespaces have no names: they are gone with the last process in them, however it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <loch/error.h>

#include "lab/namespaces.h"

namespace loch::bench {

class Network {
 public:
  // The calling thread is in the clients' namespace from then on, and with it every thread and process that
  // it starts; servers are started in `servers()`. To be called while there is no other thread. Needs `ip`.
  static Network make(const std::string& log);
  // Over loopback; `why_not` says why there are no namespaces.
  explicit Network(std::string why_not) : why_not_(std::move(why_not)) {}

  [[nodiscard]] bool has_namespaces() const { return servers_.has_value(); }
  [[nodiscard]] std::string text() const;  // for people
  // The calling thread is where servers are from then on. Errors: io.
  [[nodiscard]] Result<void> enter_servers() const;
  // A descriptor of the servers' namespace; -1 over loopback.
  [[nodiscard]] int servers() const { return servers_ ? servers_->descriptor() : -1; }
  [[nodiscard]] std::string server_address() const;
  // One that nobody listened at a moment ago.
  [[nodiscard]] Result<std::uint16_t> free_port() const;

 private:
  explicit Network(lab::NetworkNamespace servers) : servers_(std::move(servers)) {}

  std::optional<lab::NetworkNamespace> servers_;
  std::string why_not_;
};

}  // namespace loch::bench
