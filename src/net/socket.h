// TCP sockets, not blocking. Every wait has a deadline by base::Clock; errors name the address, the step and
// how long it took. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <loch/error.h>

#include "base/clock.h"
#include "base/file_descriptor.h"

namespace loch::net {

struct HostPort {
  std::string host;
  std::string port;

  [[nodiscard]] std::string text() const;  // "host:port", "[::1]:port"
  bool operator==(const HostPort&) const = default;
};

inline constexpr std::size_t host_bytes_max = 253;  // as long as the longest name of DNS

// "host:port", "host", "[::1]:port". A host has letters, digits and what else stands in names and addresses:
// nothing that a terminal or a log would act on. Errors: invalid_argument.
Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port);

// From `source`, an address of this host, unless it is empty: then as the kernel's routes say. Errors:
// unavailable (nobody answers there, or not in time, or the name leads nowhere), invalid_argument (`source`
// is no address).
Result<base::FileDescriptor> connect(const HostPort& to, const std::string& source, base::Nanos deadline);

struct Listener {
  base::FileDescriptor socket;
  std::uint16_t port = 0;  // as the kernel chose it, if 0 was asked for
};
// Errors: io (the address is taken, or not of this host), invalid_argument, permission.
Result<Listener> listen(const HostPort& at);

// The next connection that waits; not open if there is none.
base::FileDescriptor accept(const Listener& listener);

// An address as the kernel wants it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] std::string text() const;  // "192.0.2.7:40312"
  [[nodiscard]] std::uint16_t port() const;
  // Whether it is one that only this host reaches.
  [[nodiscard]] bool is_loopback() const;
};
// Those of a connection's other end and of its own; none of one that is gone. What is of IPv4 is told as
// that, also of a socket for both (not as ::ffff:192.0.2.7), so that both ends name each address alike.
std::optional<SocketAddress> peer_address(int socket);
std::optional<SocketAddress> own_address(int socket);
// The addresses of `at`, one at least; to bind to, if it is empty or "*". Errors: invalid_argument (the name
// leads nowhere), unavailable (it can not be looked up now, or not in time).
Result<std::vector<SocketAddress>> look_up_all(const HostPort& at, base::Nanos deadline);
// The first of them.
Result<SocketAddress> look_up(const HostPort& at, base::Nanos deadline);
// How long it may take where nobody is in a hurry.
inline constexpr base::Nanos look_up_max_ns = 10 * base::second_ns;

// "192.0.2.7:40312", for people.
std::string peer_of(int socket);

// The first of them that has an address of this host, by its place. Their names are looked up together, and
// one that is not known by the deadline counts as another host's.
std::optional<std::size_t> first_of_this_host(std::span<const HostPort> hosts, base::Nanos deadline);

// When to go on to the next of `left` that there are to try until the deadline: one that does not answer
// leaves time for the others.
base::Nanos deadline_of_one(base::Nanos deadline, std::size_t left);

// Waits until `events` of poll(2) are there; false if the deadline passed.
bool wait_for(int socket, short events, base::Nanos deadline);

}  // namespace loch::net
