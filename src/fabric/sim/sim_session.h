// SimSession: a session with the hosts of a simulated cluster, as they know it, and how it ends there: as
// Sessions and Fencer (remote/) have it, and in that order. Each host ends it at a moment of its own; from
// then on nothing happens there that the session has posted, while on others it still may. What it held of a
// host is nobody's until that host has heard of all others that they have ended it, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "base/clock.h"
#include "fabric/cluster_map.h"

namespace loch::fabric::sim {

class SimFabric;

class SimSession : public std::enable_shared_from_this<SimSession> {
 public:
  // Of a process that has a way to the nodes of `reached`. The fabric outlives it.
  SimSession(SimFabric& fabric, NodeSet reached) : fabric_(fabric), reached_(reached) {}
  ~SimSession();
  SimSession(const SimSession&) = delete;
  SimSession& operator=(const SimSession&) = delete;

  // Which client numbers it holds.
  void add(std::uint32_t client) { clients_.insert(client); }
  void remove(std::uint32_t client) { clients_.erase(client); }

  // Whether what is posted to the node from now on does nothing.
  [[nodiscard]] bool has_ended_at(std::uint32_t node) const { return (ended_ & node_bit(node)) != 0; }
  // The node's host takes it for dead, and has the others end it.
  void end_at(std::uint32_t node);
  void end_everywhere();

  // Its process has seen something fail: it leaves what it holds to the hosts.
  void fail() { has_failed_ = true; }
  [[nodiscard]] bool has_failed() const { return has_failed_; }

 private:
  template <class What>
  void after(base::Nanos wait_ns, What what);
  // How long atomics that have begun may take.
  [[nodiscard]] base::Nanos last_change_ns() const;
  void condemn(std::uint32_t node);
  void ask(std::uint32_t by, std::uint32_t other);
  void hear(std::uint32_t by, std::uint32_t other);
  void let_go(std::uint32_t node);

  SimFabric& fabric_;
  const NodeSet reached_;
  NodeSet ended_ = 0;
  bool has_failed_ = false;
  std::set<std::uint32_t> clients_;
  // By each node that holds on to it: of which others it has not heard yet.
  std::map<std::uint32_t, NodeSet> awaited_;
};

}  // namespace loch::fabric::sim
