#include "bench/subjects/peer_server.h"

#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace loch::bench {

PeerServer::PeerServer(std::string program, Place place, const Dataset& dataset)
    : program_(std::move(program)),
      place_(std::move(place)),
      socket_(place_.file("socket")),
      dataset_(dataset) {}

Result<void> PeerServer::start() {
  Arguments command = {program_};
  const auto add = [&](const Arguments& more) { command.insert(command.end(), more.begin(), more.end()); };
  add(arguments());
  if (is_over_tcp()) {
    const auto port = place_.choose_port();
    if (!port) return std::unexpected(port.error());
    add(listen_at_port(*port));
  } else {
    add(listen_at_socket());
  }
  auto server = lab::Process::start_until(
      {.words = std::move(command),
       .log = place_.file("log"),
       .network_namespace = place_.network_namespace()},
      [this] { return answers(); }, std::chrono::seconds(20));
  if (!server) return std::unexpected(std::move(server.error()));
  server_.emplace(std::move(*server));
  return {};
}

std::uint64_t resident_bytes(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace loch::bench
