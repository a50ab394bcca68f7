// How a store is created, attached and opened as a program's Options ask for it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <loch/loch.h>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "memory/attachment.h"
#include "memory/store_memory.h"

namespace loch::client {

constexpr base::Nanos nanos(std::chrono::milliseconds time) {
  return static_cast<base::Nanos>(time.count()) * base::millisecond_ns;
}

fabric::Access access_of(const Options& options);

// Whether options are within their bounds; `operation` is what an error names. Errors: invalid_argument.
Result<void> check_options(const Options& options, const char* operation);
// Errors: permission, of a client that only reads.
Result<void> check_may_change(const Options& options, const char* operation);
// Whether a store that is there is as the options ask for; `location` is what an error names. Errors:
// incompatible.
Result<void> check_geometry(const Options& options, const memory::Geometry& geometry,
                            const std::string& location);

// Errors: those of fabric::create.
Result<std::shared_ptr<fabric::Fabric>> create_store(std::string_view url, const Options& options);

// Where new items of a cluster's store are put; null: it is of no cluster. A node whose name is not looked up
// by the deadline is not this host's. Errors: invalid_argument, if the cluster has no node as the options
// name.
Result<memory::Placement> placement_of(const Options& options, const fabric::ClusterMap* cluster,
                                       base::Nanos deadline);

struct Opened {
  std::shared_ptr<memory::StoreMemory> memory;
  Result<memory::Placement> placement;
};
// Attaches to the store, or creates it, as the options' mode says. Errors: those of fabric::attach and
// fabric::create; incompatible.
Result<Opened> open_memory(std::string_view url, const Options& options);

}  // namespace loch::client
