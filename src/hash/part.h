// A host's part of a store of a cluster: what becomes of it with the cluster's map.
#pragma once

#include <memory>

#include "fabric/cluster_map.h"
#include "fabric/fabric.h"

namespace loch::hash {

// Has the part of `node`, which `here` has mapped, say and be what the map says: shards that have come are
// opened, or begin anew, empty, if they are lost; those that are elsewhere are void; clients learn of the
// map, and whether new items are put here. Nobody moves a shard from here meanwhile. Errors: incompatible (it
// is no part of that node's, or was made by another map of the same epoch, which has keys elsewhere);
// unavailable (a later map has been gone by here); those of the memory.
Result<void> tend_part(const std::shared_ptr<fabric::Fabric>& here, const fabric::ClusterMap& map,
                       std::uint32_t node);

}  // namespace loch::hash
