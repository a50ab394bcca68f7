#include "lab/lochds.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace loch::lab {
namespace {

constexpr std::chrono::seconds patience{60};

}  // namespace

Result<std::string> find_lochd(const std::string& named) {
  if (!named.empty()) return named;
  if (auto installed = find_program("lochd")) return std::move(*installed);
  return fail(Errc::not_found, "lochd", "lochd is neither named by --lochd nor installed");
}

Result<Process> start_lochd(const Command& command) {
  std::error_code none;
  const auto length = std::filesystem::file_size(command.log, none);
  const auto before = none ? 0 : static_cast<std::streamoff>(length);
  const auto lends = [&] {
    std::ifstream log(command.log);
    log.seekg(before);
    return std::string(std::istreambuf_iterator<char>(log), {}).contains("lends the stores");
  };
  return Process::start_until(command, lends, patience);
}

Result<void> Lochds::start(std::size_t host, std::vector<std::string> environment) {
  auto words = files_.arguments(host);
  if (!words) return std::unexpected(std::move(words.error()));
  words->insert(words->begin(), program_);
  running_.erase(host);
  auto started = start_lochd({.words = std::move(*words),
                              .log = files_.stores(host) + ".log",
                              .environment = std::move(environment),
                              .network_namespace = hosts_ != nullptr ? hosts_->at(host).descriptor() : -1});
  if (!started) return std::unexpected(std::move(started.error()));
  running_.emplace(host, std::move(*started));
  return {};
}

}  // namespace loch::lab
