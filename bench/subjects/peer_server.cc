#include "bench/subjects/peer_server.h"

#include <chrono>
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
  auto server = ServerProcess::start(
      command, place_.file("log"), [this] { return answers(); }, std::chrono::seconds(20),
      place_.network_namespace());
  if (!server) return std::unexpected(std::move(server.error()));
  server_.emplace(std::move(*server));
  return {};
}

}  // namespace loch::bench
