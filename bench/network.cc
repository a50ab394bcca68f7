#include "bench/network.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "bench/server_process.h"

namespace loch::bench {
namespace {

constexpr const char* address_of_servers = "192.0.2.1";  // of a block that is for documentation alone
constexpr const char* address_of_clients = "192.0.2.2";
constexpr const char* interface = "loch0";  // at both ends
constexpr std::chrono::seconds command_timeout{10};

std::unexpected<Error> network_failure(const char* step) {
  return fail(Errc::io, "bench", fmt::format("{}: {}", step, std::strerror(errno)));
}

base::FileDescriptor current_namespace() {
  return base::FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

// A new namespace, which the calling thread is in then.
Result<base::FileDescriptor> enter_new() {
  if (::unshare(CLONE_NEWNET) != 0) return network_failure("unshare");
  auto made = current_namespace();
  if (!made.is_open()) return network_failure("open /proc/thread-self/ns/net");
  return made;
}

Result<void> enter(const base::FileDescriptor& which) {
  if (::setns(which.get(), CLONE_NEWNET) != 0) return network_failure("setns");
  return {};
}

class Ip {
 public:
  static Result<Ip> make(std::string log) {
    auto program = find_program("ip", "iproute2");
    if (!program) return std::unexpected(std::move(program.error()));
    return Ip(std::move(*program), std::move(log));
  }

  // In the calling thread's namespace.
  Result<void> run(std::vector<std::string> words) const {
    words.insert(words.begin(), program_);
    return run_to_end(words, log_, command_timeout);
  }
  Result<void> raise(const char* address) const {
    if (auto done = run({"address", "add", fmt::format("{}/30", address), "dev", interface}); !done)
      return done;
    return run({"link", "set", interface, "up"});
  }

 private:
  Ip(std::string program, std::string log) : program_(std::move(program)), log_(std::move(log)) {}

  std::string program_;
  std::string log_;
};

// The servers' namespace; the calling thread is in the clients' then.
Result<base::FileDescriptor> make_namespaces(const std::string& log) {
  const auto ip = Ip::make(log);
  if (!ip) return std::unexpected(ip.error());
  auto servers = enter_new();
  if (!servers) return servers;
  const auto clients = enter_new();
  if (!clients) return std::unexpected(clients.error());
  const std::string other_end = fmt::format("/proc/{}/fd/{}", getpid(), servers->get());
  auto done =
      ip->run({"link", "add", interface, "type", "veth", "peer", "name", interface, "netns", other_end});
  if (done) done = ip->raise(address_of_clients);
  if (done) done = enter(*servers);
  if (done) done = ip->raise(address_of_servers);
  if (done) done = enter(*clients);
  if (!done) return std::unexpected(std::move(done.error()));
  return servers;
}

}  // namespace

Network Network::make(const std::string& log) {
  const auto before = current_namespace();
  auto servers = make_namespaces(log);
  if (servers) return Network(std::move(*servers));
  // Left as it was found: where a namespace could be entered it can be left.
  [[maybe_unused]] const auto back = enter(before);
  return Network(servers.error().detail);
}

std::string Network::text() const {
  if (has_namespaces()) return "two network namespaces of this host and a pair of virtual interfaces";
  return fmt::format("loopback, since network namespaces can not be had ({})", why_not_);
}

std::string Network::server_address() const { return has_namespaces() ? address_of_servers : "127.0.0.1"; }

Result<std::uint16_t> Network::free_port() const {
  const base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(has_namespaces() ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return network_failure("bind");
  }
  return ntohs(address.sin_port);
}

}  // namespace loch::bench
