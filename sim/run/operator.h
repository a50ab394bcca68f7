// Operator: whoever adds hosts to a simulated cluster and takes them out, by the map of the cluster
// (cluster/changes.h), as `loch cluster` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/run/hosts.h"
#include "sim/run/player.h"

namespace loch::sim {

class Operator {
 public:
  // Calls `on_change` whenever there is another map. All outlive it.
  Operator(Scene& scene, Hosts& hosts, std::function<void()> on_change);

  // Fault::Kind::join: a host comes, if there is a number for it.
  void add_host();
  // Fault::Kind::drain: the node gives away what it has, and is removed when it has; unless it is the only
  // one that serves.
  void drain(std::uint32_t node);
  // Fault::Kind::death: the node is gone, and is removed after that time; if no other serves, it comes back.
  void lose_host(std::uint32_t node, base::Nanos after_ns);
  // Nobody is about to be removed.
  [[nodiscard]] bool is_done() const;

 private:
  [[nodiscard]] fabric::sim::Simulation& simulation() const { return scene_.store->simulation(); }
  void remove_when_drained(const std::string& name, int tries_left);
  void put(const fabric::ClusterMap& map);
  base::Nanos draw_wait();

  Scene& scene_;
  Hosts& hosts_;
  const std::function<void()> on_change_;
  std::uint32_t hosts_come_;  // to the cluster, ever
};

}  // namespace loch::sim
