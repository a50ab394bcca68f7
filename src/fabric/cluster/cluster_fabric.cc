#include "fabric/cluster/cluster_fabric.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>
#include <system_error>
#include <utility>

#include "fabric/cluster/cluster_port.h"
#include "fabric/map_message.h"
#include "fabric/remote/protocol.h"
#include "net/proof.h"

namespace loch::fabric::cluster {
namespace {

constexpr base::Nanos look_every_ns = 500 * base::millisecond_ns;

std::string location_of(const ClusterMap& map, const remote::Target& first) {
  std::string text = first.scheme + "://";
  bool is_first = true;
  for (const ClusterMap::Node& node : map.nodes) {
    if (node.state == ClusterMap::NodeState::gone) continue;
    text += (is_first ? "" : ",") + node.at.text();
    is_first = false;
  }
  return text + "/" + first.store;
}

// What clients go by: not what shards are about to move to.
bool same_for_clients(ClusterMap a, ClusterMap b) {
  for (ClusterMap* map : {&a, &b}) {
    for (ClusterMap::Shard& shard : map->shards) shard.next.reset();
    for (ClusterMap::Node& node : map->nodes) {
      if (node.state == ClusterMap::NodeState::drained) node.state = ClusterMap::NodeState::leaves;
    }
  }
  return a == b;
}

std::string new_session_name() { return net::random_hex(remote::session_name_bytes_max / 2); }

// Does it for all nodes at once, since some of their hosts may not answer.
template <class Do>
void at_once(std::size_t nodes, Do one) {
  std::vector<std::jthread> threads;
  for (std::uint32_t node = 0; node + 1 < nodes; ++node) {
    try {
      threads.emplace_back([&one, node] { one(node); });
    } catch (const std::system_error&) {
      one(node);  // this process has all the threads that it may have
    }
  }
  if (nodes != 0) one(static_cast<std::uint32_t>(nodes - 1));
}

std::unexpected<Error> unreached(Error why) {
  why.code = Errc::unavailable;
  return std::unexpected(std::move(why));
}

}  // namespace

ClusterFabric::ClusterFabric(ClusterMap map, const remote::Target& first)
    : map_(std::move(map)), location_(location_of(map_, first)), read_only_(first.read_only) {
  for (const ClusterMap::Node& node : map_.nodes) {
    remote::Target target = first;
    target.host = node.at;
    nodes_.push_back({.target = std::move(target), .host = unreached({})});
  }
}

ClusterFabric::~ClusterFabric() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (scout_.joinable()) scout_.join();  // it is at one step of those that end within joining_max_ns
}

Result<std::shared_ptr<ClusterFabric>> ClusterFabric::attach(const remote::Target& first, ClusterMap map) {
  constexpr int maps_max = 8;  // that change while it looks
  for (int tried = 1;; ++tried) {
    std::optional<ClusterMap> newer;
    auto fabric = try_attach(first, std::move(map), &newer);
    if (!newer || tried == maps_max) return fabric;
    map = std::move(*newer);
  }
}

Result<std::shared_ptr<ClusterFabric>> ClusterFabric::try_attach(const remote::Target& first, ClusterMap map,
                                                                 std::optional<ClusterMap>* newer) {
  std::shared_ptr<ClusterFabric> fabric(new ClusterFabric(std::move(map), first));
  std::vector<Result<Reached>> hosts(fabric->nodes_.size(), unreached({}));
  at_once(hosts.size(), [&](std::uint32_t node) {
    if (!fabric->is_gone(node)) hosts[node] = fabric->reach(node);
  });
  for (const Result<Reached>& host : hosts) {
    if (host && host->map.epoch > (*newer ? **newer : fabric->map_).epoch) *newer = host->map;
  }
  std::optional<Error> why;
  bool any = false;
  for (std::uint32_t node = 0; node < hosts.size(); ++node) {
    if (fabric->is_gone(node)) continue;
    if (!hosts[node]) {
      if (!why) why = hosts[node].error();
      fabric->lose(node, std::move(hosts[node].error()));
      continue;
    }
    if (auto agrees = fabric->check_agrees(node, *hosts[node]); !agrees)
      return std::unexpected(std::move(agrees.error()));
    fabric->atomics_ = hosts[node]->host->atomics();
    fabric->nodes_[node].host = std::move(hosts[node]->host);
    any = true;
  }
  if (!any) return std::unexpected(std::move(*why));
  // Now, since a host that is lost later would never be found if there were no thread for it then.
  try {
    fabric->scout_ = std::thread([of = fabric.get()] { of->look_for_the_lost(); });
  } catch (const std::system_error& error) {
    return fail(
        Errc::unavailable, "open",
        fmt::format("{}: no thread that looks for lost hosts: {}; raise `ulimit -u`, or TasksMax of the "
                    "unit",
                    fabric->location_, error.what()));
  }
  return fabric;
}

bool ClusterFabric::is_gone(std::uint32_t node) const {
  return map_.nodes[node].state == ClusterMap::NodeState::gone;
}

Result<ClusterFabric::Reached> ClusterFabric::reach(std::uint32_t node) const {
  const remote::Target& target = nodes_[node].target;
  auto attached = remote::RemoteFabric::attach(target, remote::joining_max_ns);
  if (!attached) return std::unexpected(std::move(attached.error()));
  const auto said = (*attached)->membership();
  if (!said) return std::unexpected(said.error());
  auto map = map_of(said->map);
  if (!map) {
    return fail(Errc::incompatible, "open",
                fmt::format("{} does not say of which cluster the store is; give it the configuration of the "
                            "others, and start it anew",
                            target.text()));
  }
  return Reached{.host = std::move(*attached), .map = std::move(*map), .node = said->node};
}

Result<void> ClusterFabric::check_agrees(std::uint32_t node, const Reached& reached) const {
  const std::string where = nodes_[node].target.text();
  if (reached.host->read_only() != read_only_) {
    return fail(Errc::incompatible, "open",
                fmt::format("{} lets this client only read, and others let it change the store; give all "
                            "hosts the same keys",
                            where));
  }
  const ClusterMap& map = reached.map;
  const bool agrees = reached.node == node && node < map.nodes.size() &&
                      map.nodes[node].name == map_.nodes[node].name &&
                      (map.epoch != map_.epoch || same_for_clients(map, map_));
  if (agrees) return {};
  return fail(Errc::incompatible, "open",
              fmt::format("{} does not say of the cluster what the others say; give all hosts the same "
                          "configuration, and start them anew",
                          where));
}

Result<ClusterFabric::Host> ClusterFabric::find(std::uint32_t node) const {
  auto reached = reach(node);
  if (!reached) return std::unexpected(std::move(reached.error()));
  if (auto agrees = check_agrees(node, *reached); !agrees) return std::unexpected(std::move(agrees.error()));
  // One that answers may have no way for sessions, such as queue pairs; new ones would come to nothing.
  if (!stop_) {
    if (auto tried = reached->host->connect(new_session_name()); !tried)
      return std::unexpected(std::move(tried.error()));
  }
  return std::move(reached->host);
}

void ClusterFabric::lose(std::uint32_t node, Error why) {
  const std::scoped_lock lock(mutex_);
  nodes_[node].host = unreached(std::move(why));
  changed_.notify_all();
}

void ClusterFabric::ask_for_map(remote::RemoteFabric& host) {
  const auto said = host.ask_membership();
  const auto map = said ? map_of(said->map) : std::unexpected(said.error());
  if (map && map->epoch > map_.epoch && map->epoch > newest_epoch_) newest_epoch_ = map->epoch;
}

void ClusterFabric::look_for_the_lost() {
  std::unique_lock lock(mutex_);
  const auto is_lost = [this](const Node& node) {
    return !node.host && !is_gone(static_cast<std::uint32_t>(&node - nodes_.data()));
  };
  for (std::size_t round = 0; !stop_; ++round) {
    changed_.wait(lock, [&] { return stop_ || std::ranges::any_of(nodes_, is_lost); });
    std::vector<Host> living;
    bool any = false;
    for (std::uint32_t node = 0; node < nodes_.size() && !stop_; ++node) {
      if (nodes_[node].host) living.push_back(*nodes_[node].host);
      if (!is_lost(nodes_[node])) continue;
      lock.unlock();
      auto host = find(node);
      lock.lock();
      if (host) {
        nodes_[node].host = std::move(host);
        ++found_;
      } else {
        nodes_[node].host = unreached(std::move(host.error()));
        any = true;
      }
    }
    if (!any || stop_) continue;
    if (!living.empty()) {
      lock.unlock();
      ask_for_map(*living[round % living.size()]);
      lock.lock();
    }
    // Or until another is lost: one that is about to join is there a moment later.
    if (!stop_) changed_.wait_for(lock, std::chrono::nanoseconds(look_every_ns));
  }
}

std::unique_ptr<Port> ClusterFabric::connect() {
  const std::string session = new_session_name();
  std::vector<ClusterPort::Way> ways(nodes_.size());
  at_once(ways.size(), [&](std::uint32_t node) {
    const auto host = host_of(control_region_of(node));
    auto port = host ? (*host)->connect(session) : std::unexpected(host.error());
    if (port) {
      ways[node].host = *host;
      ways[node].port = std::move(*port);
      return;
    }
    if (host) lose(node, port.error());
    ways[node].why = unreached(std::move(port.error())).error();
  });
  return std::make_unique<ClusterPort>(map_, std::move(ways));
}

Result<ClusterFabric::Host> ClusterFabric::host_of(RegionId region) const {
  const auto node = map_.node_of(region);
  if (!node) return fail(Errc::not_found, "fabric", fmt::format("no node has region {}", region));
  const std::scoped_lock lock(mutex_);
  return nodes_[*node].host;
}

Result<void> ClusterFabric::extend(RegionId region, std::uint64_t length_bytes) {
  const auto host = host_of(region);
  if (!host) return std::unexpected(host.error());
  return (*host)->extend(region, length_bytes);
}

std::uint64_t ClusterFabric::free_bytes() const {
  std::uint64_t bytes = 0;
  for (std::uint32_t node = 0; node < map_.nodes.size(); ++node) {
    if (const auto host = host_of(control_region_of(node))) bytes += (*host)->free_bytes();
  }
  return bytes;
}

}  // namespace loch::fabric::cluster
