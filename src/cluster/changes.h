// What may become of a cluster's map. Each gives another map, of a later epoch if clients have to know of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/cluster_map.h"

namespace loch::cluster {

using fabric::ClusterMap;

// How many data regions a host brings, of 64 GiB each, unless told.
inline constexpr std::uint32_t usual_regions = 2;

// Whether it stands for all addresses of a host: it may listen there, and others do not find it by that.
bool is_wildcard(const net::HostPort& at);
// Whether others may find a host there that listens so: of names, and of one that listens everywhere, only
// the port says that they do not.
bool may_be_at(const net::HostPort& listens, const net::HostPort& at);
// Why others could not connect to a node of that name there; nothing if they may.
std::optional<std::string> flaw_of_address(std::string_view name, const net::HostPort& at);

// A host comes: with a number that nobody had, or else one whose host is gone, together with that one's
// regions. It has no shards yet. One that leaves or is drained stays instead, and one that has no shards yet
// may be elsewhere than was said. Errors: exists (it serves); no_space (64 hosts, or all regions are taken);
// invalid_argument.
Result<ClusterMap> with_node(const ClusterMap& map, std::string_view name, const net::HostPort& at,
                             std::uint32_t regions = usual_regions);
// The first map of a cluster, of hosts that have no shards yet to give away, with a hash seed that is drawn
// from the system. Errors: as ClusterMap::flaw.
struct NewNode {
  std::string name;
  net::HostPort at;
  std::uint32_t regions = usual_regions;
};
Result<ClusterMap> first_map(const std::vector<NewNode>& nodes, std::uint32_t shards);
// A host is to give away what it has. Errors: not_found; invalid_argument, if none that serves would remain.
Result<ClusterMap> draining(const ClusterMap& map, std::string_view name);
// It has given away all that it had. Errors: invalid_argument, if it has a shard still, or does not leave.
Result<ClusterMap> drained(const ClusterMap& map, std::string_view name);
// A host goes. Errors: not_found; invalid_argument, unless it is drained, or `lost`: then what is on it is
// given up, and its shards begin anew, empty, on hosts that serve.
Result<ClusterMap> without_node(const ClusterMap& map, std::string_view name, bool lost);
// Those that are drained, and those of `before` that have gone since.
fabric::NodeSet drained_nodes(const ClusterMap& map, fabric::NodeSet before);

// Whether node `from` has to give away shards: all of them if it leaves; else, if it has more than its share,
// or nobody has and another that serves has fewer by more than one.
bool has_too_many(const ClusterMap& map, std::uint32_t from);
// The map in which those that it gives away have a `next`, on none of `full`; of the same epoch, for clients
// need not know. One that moves already stays as it is.
ClusterMap with_moves_announced(const ClusterMap& map, std::uint32_t from, fabric::NodeSet full = 0);
// The map in which those of these shards that were to move from `from`, and are open there, stay. Of a later
// epoch, so that whoever goes by the one in which they move does not go on with that.
ClusterMap with_moves_taken_back(const ClusterMap& map, std::uint32_t from,
                                 const std::vector<std::uint32_t>& shards);
// The map in which those of these shards that move from `from` are where they were to go.
ClusterMap with_moves_done(const ClusterMap& map, std::uint32_t from,
                           const std::vector<std::uint32_t>& shards);

}  // namespace loch::cluster
