// ClusterPort: the ways of one session to the hosts of a cluster.
//
// A batch goes to the host of its regions; one that is for several hosts is cut up, and is over when all its
// parts are. What is on a host that was not reached is refused at once, and has not happened. While a session
// waits for one host it lets the others hear of it, or they would take it for dead. One thread.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/cluster_map.h"
#include "fabric/remote/remote_port.h"

namespace loch::fabric::cluster {

class ClusterPort final : public Port {
 public:
  struct Way {
    std::shared_ptr<Fabric> host{};              // of the port, and outlives it
    std::unique_ptr<remote::RemotePort> port{};  // null: not reached
    std::optional<Error> why{};                  // then
  };
  // `map` outlives it; `ways` are to its nodes.
  ClusterPort(const ClusterMap& map, std::vector<Way> ways);
  ~ClusterPort() override;

  Result<Mapping> map(RegionId region) override;
  Result<std::uint64_t> length_bytes(RegionId region) override;
  [[nodiscard]] std::string why_unreachable(RegionId region) const override;
  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) override;
  void poll(base::Nanos wait_ns) override;
  void extend_soon(RegionId region, std::uint64_t length_bytes) override {
    if (auto way = way_of(region)) (*way)->extend_soon(region, length_bytes);
  }

  void break_off() override {
    for (remote::RemotePort* port : ports_) port->break_off();
  }
  [[nodiscard]] OperationCost operation_cost() const override {
    OperationCost most = OperationCost::little;
    for (const remote::RemotePort* port : ports_) most = std::max(most, port->operation_cost());
    return most;
  }
  [[nodiscard]] bool keeps_order() const override {
    return std::ranges::all_of(ports_, &remote::RemotePort::keeps_order);
  }

  Result<std::vector<RdmaConnection>> rdma_connections() override;

  Result<bool> claim_presence(std::uint32_t client) override;
  void release_presence(std::uint32_t client) override;
  [[nodiscard]] bool present(std::uint32_t client) override;

 private:
  struct Parts;
  Result<remote::RemotePort*> way_of(RegionId region);
  Result<remote::RemotePort*> way_to(std::uint32_t node);
  void post_in_parts(std::span<Operation> batch, base::Nanos deadline, Completion& done);
  [[nodiscard]] bool any_severed() const;

  const ClusterMap& map_;
  std::array<std::uint32_t, region_count_max> nodes_{};  // of the regions
  std::vector<Way> ways_;
  std::vector<remote::RemotePort*> ports_;  // that were reached
  remote::Wakefulness wakefulness_;
};

}  // namespace loch::fabric::cluster
