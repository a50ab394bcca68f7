// shm: regions as files in memory, mapped by every process of the host.
//
// A store NAME is the folder DIRECTORY/loch.NAME with the files
//
//   region.0, region.1, ...
//     one a region, as long as the region; mapped at once for as long as it may become
//   present
//     empty; client n is present while somebody holds the lock of its byte n
//   device-atomics
//     empty; there if an RDMA device changes the words, and not the processor
//   sessions
//     of a node of a cluster: what its other hosts know each client's session by
//
// A folder is made under a name that begins with ".loch." and renamed when all is in it, so a store is there
// whole or not at all; what a creator left that died is removed by the next one. The locks are "open file
// description" locks: the kernel lets go of them when the process ends, however it ends, in whichever PID
// namespace; the child of a fork has none of its parent's. Access is the files' mode and group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace loch::fabric::shm {

Result<std::shared_ptr<Fabric>> attach(const std::string& name, const Access& access);
Result<std::shared_ptr<Fabric>> create(const std::string& name, const Access& access, const Plan& plan);
Result<void> destroy(const std::string& name, const Access& access);
Result<std::vector<std::string>> list(const Access& access);

}  // namespace loch::fabric::shm
