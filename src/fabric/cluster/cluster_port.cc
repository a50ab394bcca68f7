#include "fabric/cluster/cluster_port.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <utility>

namespace loch::fabric::cluster {
namespace {

constexpr std::uint32_t no_node = std::numeric_limits<std::uint32_t>::max();

void refuse(Operation& operation, std::uint32_t node) {
  operation.bad_address = node == no_node;
  operation.unreachable = node != no_node;
}

}  // namespace

// A batch for several hosts, and what becomes of its parts.
struct ClusterPort::Parts {
  struct Part : Completion {
    Parts* whole = nullptr;
    std::vector<Operation> operations{};
    std::vector<std::size_t> places{};  // of these, in the batch
  };
  std::span<Operation> batch;
  Completion* done = nullptr;
  std::vector<Part> parts{};  // by node
  std::size_t under_way = 0;
  bool has_swapped = false;  // a word, in one of them
  Result<void> outcome{};

  static void complete(Completion& self, Result<void> outcome) {
    Part& part = static_cast<Part&>(self);
    Parts& whole = *part.whole;
    for (std::size_t i = 0; i < part.places.size(); ++i) {
      whole.batch[part.places[i]].result = part.operations[i].result;
      whole.batch[part.places[i]].bad_address = part.operations[i].bad_address;
    }
    if (outcome) {
      whole.has_swapped = whole.has_swapped || std::ranges::any_of(part.operations, &Operation::is_atomic);
    } else if (whole.outcome || whole.outcome.error().code == Errc::moved) {
      whole.outcome = std::move(outcome);
    }
    whole.finish_one();
  }
  void finish_one() {
    if (--under_way != 0) return;
    const std::unique_ptr<Parts> self(this);
    // What one host has not done is no answer for the others.
    if (has_swapped && !outcome && outcome.error().code == Errc::moved) {
      outcome.error().code = Errc::unavailable;
      outcome.error().detail += "; what was asked of others beside it may have";
    }
    done->complete(*done, std::move(outcome));
  }
};

ClusterPort::ClusterPort(const ClusterMap& map, std::vector<Way> ways) : map_(map), ways_(std::move(ways)) {
  for (std::size_t region = 0; region < nodes_.size(); ++region)
    nodes_[region] = map_.node_of(static_cast<RegionId>(region)).value_or(no_node);
  NodeSet reached = 0;
  for (std::uint32_t node = 0; node < ways_.size(); ++node) {
    if (ways_[node].port == nullptr) continue;
    ports_.push_back(ways_[node].port.get());
    reached |= node_bit(node);
  }
  for (remote::RemotePort* port : ports_) port->tell_reached(reached);
}

// One host that can not be asked any more may have operations of this session under way still, which rely on
// what it has on the others.
ClusterPort::~ClusterPort() {
  if (!any_severed()) return;
  for (remote::RemotePort* port : ports_) port->abandon();
}

bool ClusterPort::any_severed() const {
  return std::ranges::any_of(ports_, [](const remote::RemotePort* port) { return port->is_severed(); });
}

Result<remote::RemotePort*> ClusterPort::way_to(std::uint32_t node) {
  if (node >= ways_.size()) return fail(Errc::not_found, "fabric", "there is no such node");
  if (ways_[node].port == nullptr) return std::unexpected(*ways_[node].why);
  return ways_[node].port.get();
}

Result<remote::RemotePort*> ClusterPort::way_of(RegionId region) {
  if (nodes_[region] == no_node)
    return fail(Errc::not_found, "fabric", fmt::format("no node has region {}", region));
  return way_to(nodes_[region]);
}

Result<Mapping> ClusterPort::map(RegionId region) {
  auto way = way_of(region);
  if (!way) return std::unexpected(std::move(way.error()));
  return (*way)->map(region);
}

Result<std::uint64_t> ClusterPort::length_bytes(RegionId region) {
  auto way = way_of(region);
  if (!way) return std::unexpected(std::move(way.error()));
  return (*way)->length_bytes(region);
}

std::string ClusterPort::why_unreachable(RegionId region) const {
  const std::uint32_t node = nodes_[region];
  return node < ways_.size() && ways_[node].why ? ways_[node].why->detail : "";
}

Result<std::vector<RdmaConnection>> ClusterPort::rdma_connections() {
  std::vector<RdmaConnection> all;
  for (remote::RemotePort* port : ports_) {
    auto its = port->rdma_connections();
    if (!its) return its;
    std::ranges::move(*its, std::back_inserter(all));
  }
  return all;
}

void ClusterPort::post(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
  const bool of_one = std::ranges::all_of(batch, [&](const Operation& operation) {
    return nodes_[operation.at.region] == nodes_[batch.front().at.region];
  });
  if (!of_one) return post_in_parts(batch, deadline, done);
  const std::uint32_t node = batch.empty() ? 0 : nodes_[batch.front().at.region];
  if (node < ways_.size() && ways_[node].port != nullptr)
    return ways_[node].port->post(batch, deadline, done);
  // Of a session that reaches nobody it matters why.
  if (node < ways_.size() && ports_.empty()) return done.complete(done, std::unexpected(*ways_[node].why));
  for (Operation& operation : batch) refuse(operation, node);
  done.complete(done, {});
}

void ClusterPort::post_in_parts(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
  auto whole = std::make_unique<Parts>(Parts{.batch = batch, .done = &done});
  whole->parts.resize(ways_.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::uint32_t node = nodes_[batch[i].at.region];
    if (node == no_node || ways_[node].port == nullptr) {
      refuse(batch[i], node);
      continue;
    }
    Parts::Part& part = whole->parts[node];
    part.operations.push_back(batch[i]);
    part.places.push_back(i);
  }
  // It is kept until all have been posted, and then goes with the last part that ends.
  Parts* parts = whole.release();
  parts->under_way = 1;
  for (std::size_t node = 0; node < ways_.size(); ++node) {
    Parts::Part& part = parts->parts[node];
    if (part.places.empty()) continue;
    part.complete = &Parts::complete;
    part.urgency = done.urgency;
    part.whole = parts;
    ++parts->under_way;
    ways_[node].port->post(part.operations, deadline, part);
  }
  parts->finish_one();
}

void ClusterPort::poll(base::Nanos wait_ns) {
  for (std::uint32_t node = 0; node < ways_.size(); ++node) {
    if (ways_[node].port != nullptr) ways_[node].port->give_sign(control_region_of(node));
  }
  remote::poll_all(ports_, wakefulness_, wait_ns);
}

Result<bool> ClusterPort::claim_presence(std::uint32_t client) {
  auto way = way_to(node_of_client(client));
  if (!way) return std::unexpected(std::move(way.error()));
  return (*way)->claim_presence(number_of_client(client));
}

void ClusterPort::release_presence(std::uint32_t client) {
  if (any_severed()) return;  // the hosts do it, when all of them have ended the session
  if (const auto way = way_to(node_of_client(client))) (*way)->release_presence(number_of_client(client));
}

bool ClusterPort::present(std::uint32_t client) {
  const auto way = way_to(node_of_client(client));
  return !way || (*way)->present(number_of_client(client));
}

}  // namespace loch::fabric::cluster
