// Member: this host's part in a cluster: the map, which node of it the host is, and its parts of the stores.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/host.h"
#include "net/proof.h"
#include "server/config.h"

namespace loch::server {

class Member {
 public:
  // Errors: those of the coordinator; invalid_argument, if the cluster has no such node.
  static Result<std::unique_ptr<Member>> join(const Config& config);

  // Makes this host's part of a store, unless it is there. `key` is the cluster's. Errors: as fabric::create.
  Result<void> make_part(const Config::Store& store, const fabric::Access& access, const net::Secret& key);

  // What Host and Keeper want to know of a store; nothing of those that are of this host alone. Any thread,
  // once the parts are made.
  [[nodiscard]] std::optional<fabric::Host::Options::Cluster> cluster_of(const std::string& store) const;
  [[nodiscard]] std::optional<std::uint32_t> node_of(const std::string& store) const;

  // Those of the cluster that this host has a part of.
  [[nodiscard]] std::vector<std::string> stores() const { return {stores_.begin(), stores_.end()}; }
  [[nodiscard]] const fabric::ClusterMap& map() const { return map_; }
  [[nodiscard]] std::uint32_t node() const { return node_; }

 private:
  Member(fabric::ClusterMap map, std::uint32_t node) : map_(std::move(map)), node_(node) {}

  const fabric::ClusterMap map_;
  const std::uint32_t node_;
  std::set<std::string> stores_;
};

}  // namespace loch::server
