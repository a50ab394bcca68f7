// Where a store that was made before differs from what the configuration says of it by now.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fabric/host.h"
#include "memory/region_map.h"
#include "server/config.h"

namespace loch::server {

// Warns of them, since a store stays as it was made, and of one that can not be opened. `map` is of the
// host's own part, which may be all; `hash_seed` is the one that a part that is made now would have.
void warn_of_differences(const Config::Store& wanted, const fabric::Access& here,
                         const memory::RegionMap& map,
                         const std::function<void(fabric::Host::Level, const std::string&)>& log,
                         std::optional<std::uint64_t> hash_seed = std::nullopt);

}  // namespace loch::server
