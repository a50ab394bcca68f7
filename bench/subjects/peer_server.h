// PeerServer: what the peers have in common that are programs of their own: reached over a Unix socket, or
// over TCP where there is a network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/subject.h"
#include "lab/process.h"

namespace loch::bench {

inline constexpr std::size_t peer_batch = 64;  // keys of a request, or requests of a pipeline
inline constexpr int peer_timeout_s = 10;      // of a call

class PeerServer : public Subject {
 public:
  PeerServer(std::string program, Place place, const Dataset& dataset);

  [[nodiscard]] std::string_view name() const final { return place_.name; }
  [[nodiscard]] std::size_t batch() const final { return peer_batch; }
  [[nodiscard]] const Dataset& dataset() const final { return dataset_; }

  Result<void> start() final;
  void stop() noexcept final { server_.reset(); }
  [[nodiscard]] pid_t server() const final { return server_ ? server_->id() : 0; }

 protected:
  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] bool is_over_tcp() const { return place_.network != nullptr; }
  [[nodiscard]] const std::string& socket() const { return socket_; }  // its path

 private:
  using Arguments = std::vector<std::string>;
  [[nodiscard]] virtual Arguments arguments() const = 0;  // wherever it listens
  [[nodiscard]] virtual Arguments listen_at_socket() const = 0;
  [[nodiscard]] virtual Arguments listen_at_port(std::uint16_t port) const = 0;
  [[nodiscard]] virtual bool answers() const = 0;  // the server that was started

  std::string program_;
  Place place_;
  std::string socket_;
  Dataset dataset_;
  std::optional<lab::Process> server_;
};

// Resident bytes of a process, 0 when it is not there.
std::uint64_t resident_bytes(pid_t process);

}  // namespace loch::bench
