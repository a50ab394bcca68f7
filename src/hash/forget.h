// What becomes of an index when items that it names are lost.
#pragma once

#include <cstdint>
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

}  // namespace loch::hash
