#include "sim/run/operator.h"

#include <algorithm>
#include <utility>

#include "cluster/changes.h"

namespace loch::sim {
namespace {

using base::millisecond_ns;
using base::second_ns;
using fabric::ClusterMap;
using NodeState = ClusterMap::NodeState;

}  // namespace

Operator::Operator(Scene& scene, Hosts& hosts, std::function<void()> on_change)
    : scene_(scene), hosts_(hosts), on_change_(std::move(on_change)), hosts_come_(scene.setup.nodes) {}

// Mostly a host learns soon of another map.
base::Nanos Operator::draw_wait() {
  base::Random& random = simulation().random();
  return random.below(random.below(4) == 0 ? second_ns : 20 * millisecond_ns);
}

void Operator::put(const ClusterMap& map) {
  scene_.change_map(map);
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) scene_.tell_host(node, draw_wait());
  on_change_();
}

void Operator::add_host() {
  const ClusterMap& map = scene_.cluster;
  const bool has_own_number = map.nodes.size() < scene_.setup.nodes_max;
  const auto gone = std::ranges::find(map.nodes, NodeState::gone, &ClusterMap::Node::state);
  // The memory of two hosts can not have the same name here.
  if (!has_own_number && gone != map.nodes.end() &&
      hosts_.is_there(static_cast<std::uint32_t>(gone - map.nodes.begin()))) {
    return;
  }
  const std::uint32_t number = hosts_come_++;
  const std::string name = name_of_host(number);
  // So many regions are not free.
  const std::uint32_t regions = has_own_number ? regions_of_each : fabric::data_regions_end;
  const auto with = cluster::with_node(map, name, address_of_host(number), regions);
  if (!with) return;
  hosts_.start(*with->find(name), draw_wait());
  put(*with);
}

void Operator::drain(std::uint32_t node) {
  if (node >= scene_.cluster.nodes.size()) return;
  const std::string name = scene_.cluster.nodes[node].name;
  const auto with = cluster::draining(scene_.cluster, name);
  if (!with || *with == scene_.cluster) return;
  put(*with);
  constexpr int tries_max = 40;
  remove_when_drained(name, tries_max);
}

// Asks again and again. Has a host stay that does not get rid of what it has.
void Operator::remove_when_drained(const std::string& name, int tries_left) {
  constexpr base::Nanos pause_max_ns = second_ns;
  simulation().after(simulation().random().below(pause_max_ns), [this, name, tries_left] {
    const auto node = scene_.cluster.find(name);
    if (!node) return;  // it was lost meanwhile
    if (const auto without = cluster::without_node(scene_.cluster, name, false)) return put(*without);
    if (tries_left != 0) return remove_when_drained(name, tries_left - 1);
    const net::HostPort at = scene_.cluster.nodes[*node].at;
    put(cluster::with_node(scene_.cluster, name, at).value());
  });
}

void Operator::lose_host(std::uint32_t node, base::Nanos after_ns) {
  if (!hosts_.lose_memory(node, std::nullopt)) return;
  simulation().after(after_ns, [this, node, name = scene_.cluster.nodes[node].name] {
    if (hosts_.is_there(node)) return;  // it came back when nothing went wrong any more
    const auto without = cluster::without_node(scene_.cluster, name, true);
    if (!without) return hosts_.come_back(node);
    put(*without);
  });
}

bool Operator::is_done() const {
  return std::ranges::none_of(scene_.cluster.nodes, [](const ClusterMap::Node& node) {
    return node.state == NodeState::leaves || node.state == NodeState::drained;
  });
}

}  // namespace loch::sim
