#include "lab/cluster_files.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <system_error>
#include <utility>

namespace loch::lab {
namespace {

namespace fs = std::filesystem;

Result<void> write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file.fail()) return fail(Errc::io, "write", fmt::format("{} can not be written", path));
  return {};
}

std::unexpected<Error> failure(const std::string& path, const std::error_code& error) {
  return fail(Errc::io, "folder", fmt::format("{}: {}", path, error.message()));
}

}  // namespace

Result<ClusterFiles> ClusterFiles::make(Settings settings) {
  if (settings.coordinator.empty()) {
    const std::string path = settings.folder + "/cluster.toml";
    std::string list;
    for (std::size_t host = 0; host < settings.hosts; ++host)
      list += fmt::format("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", Hosts::name(host),
                          settings.address(host));
    if (auto written = write(path, list); !written) return std::unexpected(std::move(written.error()));
    settings.coordinator = "file:" + path;
  }
  return ClusterFiles(std::move(settings));
}

Result<std::vector<std::string>> ClusterFiles::arguments(std::size_t host) const {
  std::error_code error;
  fs::create_directory(stores(host), error);
  if (error) return failure(stores(host), error);
  const std::string path = fmt::format("{}/{}.toml", settings_.folder, Hosts::name(host));
  // The network is of this machine alone, so nobody else gets there.
  auto written =
      write(path, fmt::format("listen = [\"{}\"]\nopen_to_all = true\n{}"
                              "[cluster]\ncoordinator = \"{}\"\nnode = \"{}\"\n"
                              "[[store]]\nname = \"{}\"\ncluster = true\n{}",
                              settings_.address(host), settings_.more_of_lochd, settings_.coordinator,
                              Hosts::name(host), settings_.store, settings_.more_of_store));
  if (!written) return std::unexpected(std::move(written.error()));
  return std::vector<std::string>{"--config", path, "--directory", stores(host)};
}

std::string ClusterFiles::stores(std::size_t host) const {
  return fmt::format("{}/{}", settings_.folder, Hosts::name(host));
}

Result<void> ClusterFiles::lose_memory(std::size_t host) const {
  std::error_code error;
  fs::remove_all(stores(host), error);
  if (error) return failure(stores(host), error);
  return {};
}

std::string ClusterFiles::url() const {
  std::string hosts;
  for (std::size_t host = 0; host < settings_.hosts; ++host)
    hosts += (host == 0 ? "" : ",") + settings_.address(host);
  return fmt::format("{}://{}/{}", settings_.scheme, hosts, settings_.store);
}

}  // namespace loch::lab
