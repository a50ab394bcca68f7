// What becomes of an index when items that it names are lost.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <loch/coro/task.h>

#include "hash/index.h"
#include "memory/session.h"

namespace loch::hash {

// Empties the slots of one shard that name items of regions whose memory is lost; how many. `lost` rises.
// `session` is with the shard's home, and nobody else changes the shard meanwhile. Errors: those of the
// fabric.
coro::Task<Result<std::uint64_t>> forget_items(memory::Session* session, IndexPlace place,
                                               const std::vector<fabric::RegionId>* lost);

// A session of this process with a node of a cluster, whose memory `here` is mapped: the node's host does not
// end it with those of its clients. Errors: those of Session::open.
Result<std::unique_ptr<memory::Session>> open_own_session(std::shared_ptr<fabric::Fabric> here,
                                                          const fabric::ClusterMap& cluster,
                                                          std::uint32_t self);

// What a node of a cluster, which `session` is with, has to forget of one that has lost its memory: the same
// of all shards that are there or come there, while nobody else has a session with it. Errors: those of the
// memory.
Result<std::uint64_t> forget_node(memory::Session& session, const fabric::ClusterMap& cluster,
                                  std::uint32_t self, std::uint32_t lost);
// The same with a session of its own.
Result<std::uint64_t> forget_node(std::shared_ptr<fabric::Fabric> here, const fabric::ClusterMap& cluster,
                                  std::uint32_t self, std::uint32_t lost);

// Whether a slot of a node, whose memory `here` is mapped, names what is on another one; of one that nobody
// is about to name any more. Errors: those of the memory.
Result<bool> names_node(fabric::Endpoint& here, const fabric::ClusterMap& cluster, std::uint32_t self,
                        std::uint32_t other);

}  // namespace loch::hash
