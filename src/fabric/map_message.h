// A ClusterMap as hosts tell it to clients, and as a coordinator keeps it.
#pragma once

#include <string_view>

#include "fabric/cluster_map.h"
#include "net/message.h"

namespace loch::fabric::cluster {

std::string_view name_of(ClusterMap::NodeState state);
net::Message to_message(const ClusterMap& map);
// Errors: corrupt, if it is no map, or says what can not be.
Result<ClusterMap> map_of(const net::Message& message);

}  // namespace loch::fabric::cluster
