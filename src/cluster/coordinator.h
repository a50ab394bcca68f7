// Coordinator: where the hosts of a cluster learn which hosts it has, and what is on which.
#pragma once

#include <memory>
#include <string_view>

#include <loch/error.h>

#include "fabric/cluster_map.h"

namespace loch::cluster {

class Coordinator {
 public:
  virtual ~Coordinator() = default;

  // "file:PATH": a list that is the same on all hosts, and fixed (file_coordinator.h). Errors:
  // invalid_argument.
  static Result<std::unique_ptr<Coordinator>> open(std::string_view where);

  // The map of the cluster's stores as it is now. Errors: not_found, permission, io, invalid_argument (names
  // the file and the line).
  virtual Result<fabric::ClusterMap> read_map() = 0;
};

}  // namespace loch::cluster
