#include "cluster/coordinator.h"

#include <fmt/format.h>
#include <string>

#include "cluster/file_coordinator.h"
#include "cluster/zookeeper_coordinator.h"

namespace loch::cluster {

Result<std::unique_ptr<Coordinator>> Coordinator::open(std::string_view where) {
  constexpr std::string_view file = "file:";
  if (where.starts_with(file) && where.size() > file.size())
    return std::make_unique<FileCoordinator>(std::string(where.substr(file.size())));
  constexpr std::string_view zookeeper = "zookeeper://";
  if (where.starts_with(zookeeper)) return ZooKeeperCoordinator::open(where.substr(zookeeper.size()));
  return fail(Errc::invalid_argument, "cluster",
              fmt::format("'{}' is no coordinator; write file:/etc/loch/cluster.toml or "
                          "zookeeper://HOST:PORT,HOST:PORT/PATH",
                          without_password(where)));
}

Result<Versioned> change_map(
    Coordinator& coordinator,
    const std::function<Result<fabric::ClusterMap>(const fabric::ClusterMap&)>& how) {
  constexpr int tries_max = 16;
  for (int tries = 1;; ++tries) {
    auto read = coordinator.read_map();
    if (!read) return read;
    auto changed = how(read->map);
    if (!changed) return std::unexpected(std::move(changed.error()));
    if (*changed == read->map) return read;
    const auto written = coordinator.write_map(*changed, read->version);
    if (written) return Versioned{.map = std::move(*changed), .version = read->version + 1};
    if (written.error().code != Errc::changed || tries == tries_max) return std::unexpected(written.error());
  }
}

std::string without_password(std::string_view where) {
  const std::size_t scheme = where.find("://");
  const std::size_t begin = scheme == std::string_view::npos ? 0 : scheme + 3;
  const std::size_t at = where.rfind('@');
  if (at == std::string_view::npos || at < begin) return std::string(where);
  return std::string(where.substr(0, begin)) + std::string(where.substr(at + 1));
}

}  // namespace loch::cluster
