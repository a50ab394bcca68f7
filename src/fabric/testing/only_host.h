// For tests: a host that is a cluster's only one, node a.
#pragma once

#include <string>
#include <utility>

#include "fabric/cluster_map.h"
#include "fabric/host.h"

namespace loch::fabric::fake {

template <class OpenStore>
Host::Options only_host(const net::HostPort& at, OpenStore open_store) {
  const ClusterMap map = ClusterMap::spread({{.name = "a", .at = at}}, 1).value();
  return {.listen = {at}, .open_store = std::move(open_store), .cluster_of = [map](const std::string&) {
            return Host::Options::Cluster{.map = map};
          }};
}

}  // namespace loch::fabric::fake
