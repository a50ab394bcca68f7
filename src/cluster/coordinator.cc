#include "cluster/coordinator.h"

#include <fmt/format.h>
#include <string>

#include "cluster/file_coordinator.h"

namespace loch::cluster {

Result<std::unique_ptr<Coordinator>> Coordinator::open(std::string_view where) {
  constexpr std::string_view file = "file:";
  if (where.starts_with(file) && where.size() > file.size())
    return std::make_unique<FileCoordinator>(std::string(where.substr(file.size())));
  return fail(Errc::invalid_argument, "cluster",
              fmt::format("'{}' is no coordinator; write file:/etc/loch/cluster.toml", where));
}

}  // namespace loch::cluster
