// demo/cluster_demo: the demonstration on a store of a cluster, on this machine: hosts a, b and c have a
// lochd each, and host d has none. Two processes load the package index while two others read; half way host
// b is lost, with its memory, and another takes its place; what it had is loaded again. Then every record is
// checked against the source.
#pragma once

#include <loch/error.h>

#include "demo/stage.h"

namespace loch::demo {

// Errors: permission, if this machine may have no such hosts; and what went wrong.
Result<void> run_cluster_demo(const Settings& settings);

}  // namespace loch::demo
