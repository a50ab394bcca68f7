#include "bench/network.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <tuple>
#include <utility>

#include "base/file_descriptor.h"

namespace loch::bench {
namespace {

constexpr const char* address_of_servers = "192.0.2.1";  // of a block that is for documentation alone
constexpr const char* address_of_clients = "192.0.2.2";
constexpr const char* subnet = "192.0.2.0/30";
constexpr const char* interface = "loch0";  // at both ends
// Linux's default, which goes by losses alone, of which there are none. One that paces, as BBR, learns
// another bandwidth of a pair of virtual interfaces in each run, and all servers' figures for large values
// with it.
constexpr const char* congestion_control = "cubic";

std::unexpected<Error> network_failure(const char* step) {
  return fail(Errc::io, "bench", fmt::format("{}: {}", step, std::strerror(errno)));
}

// In the calling thread's namespace.
Result<void> raise_interface(const lab::Ip& ip, const char* address) {
  if (auto raised = ip.raise(interface, fmt::format("{}/30", address)); !raised) return raised;
  return ip.run({"route", "change", subnet, "dev", interface, "congctl", congestion_control});
}

// The servers' namespace; the calling thread is in the clients' then.
Result<lab::NetworkNamespace> make_namespaces(const std::string& log) {
  const auto ip = lab::Ip::make(log);
  if (!ip) return std::unexpected(ip.error());
  auto servers = lab::NetworkNamespace::enter_new();
  if (!servers) return servers;
  const auto clients = lab::NetworkNamespace::enter_new();
  if (!clients) return std::unexpected(clients.error());
  auto done = ip->run(
      {"link", "add", interface, "type", "veth", "peer", "name", interface, "netns", servers->path()});
  if (done) done = raise_interface(*ip, address_of_clients);
  if (done) done = servers->enter();
  if (done) done = raise_interface(*ip, address_of_servers);
  if (done) done = clients->enter();
  if (!done) return std::unexpected(std::move(done.error()));
  return servers;
}

}  // namespace

Network Network::make(const std::string& log) {
  const auto before = lab::NetworkNamespace::current();
  auto servers = make_namespaces(log);
  if (servers) return Network(std::move(*servers));
  // Left as it was found: where a namespace could be entered it can be left.
  if (before) std::ignore = before->enter();
  return Network(servers.error().detail);
}

std::string Network::text() const {
  if (has_namespaces())
    return fmt::format("two network namespaces of this host and a pair of virtual interfaces, with {}",
                       congestion_control);
  return fmt::format("loopback, since network namespaces can not be had ({})", why_not_);
}

Result<void> Network::enter_servers() const { return servers_ ? servers_->enter() : Result<void>(); }

std::string Network::server_address() const { return has_namespaces() ? address_of_servers : "127.0.0.1"; }

Result<std::uint16_t> Network::free_port() const {
  const base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(has_namespaces() ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!socket.is_open() || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return network_failure("bind");
  }
  return ntohs(address.sin_port);
}

}  // namespace loch::bench
