#include "net/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "net/look_up.h"

namespace loch::net {
namespace {

using base::FileDescriptor;

bool is_host(std::string_view text) {
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".-_:%*").contains(c);
  };
  return !text.empty() && text.size() <= host_bytes_max && std::ranges::all_of(text, may_stand);
}

bool is_port(std::string_view text) {
  constexpr std::size_t digits_max = 5;
  if (text.size() > digits_max) return false;
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size();
}

Result<std::vector<SocketAddress>> resolve(const HostPort& at, int flags, const char* operation,
                                           base::Nanos deadline) {
  auto found = find_addresses(at, flags, deadline);
  if (!found) return std::unexpected(std::move(found.error()));
  if (!*found) {
    return fail(
        Errc::unavailable, operation,
        fmt::format("{}: the name was not looked up in time; do the name servers answer?", at.text()));
  }
  const int error = (*found)->error;
  if (error != 0) {
    return fail(error == EAI_AGAIN ? Errc::unavailable : Errc::invalid_argument, operation,
                fmt::format("{}: {}", at.text(), ::gai_strerror(error)));
  }
  return std::move((*found)->addresses);
}

base::Nanos look_up_deadline() { return base::Clock().now() + look_up_max_ns; }

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

// Without delay for small frames. A host that is gone is noticed while nothing is sent, too.
void prepare(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  constexpr int idle_s = 2;
  constexpr int between_s = 1;
  constexpr int probes = 3;
  constexpr int unacknowledged_ms = 5'000;
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, between_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}

FileDescriptor stream_socket(const SocketAddress& at) {
  return FileDescriptor(
      ::socket(at.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

// 0, or why no socket can be bound to it; the kernel lets nobody bind to another host's.
int error_of_binding(SocketAddress& address) {
  const FileDescriptor socket(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket.is_open() && ::bind(socket.get(), address.get(), address.length) == 0 ? 0 : errno;
}

// What its bytes are, by its family.
template <class Address>
Address as(const SocketAddress& address) {
  Address result{};
  static_assert(sizeof result <= sizeof address.storage);
  std::memcpy(&result, &address.storage, sizeof result);
  return result;
}

std::optional<SocketAddress> address_by(decltype(&::getpeername) get_address, int socket) {
  SocketAddress address{.storage = {}, .length = sizeof address.storage};
  if (get_address(socket, address.get(), &address.length) != 0) return std::nullopt;
  if (address.storage.ss_family != AF_INET6) return address;
  const auto inside = as<sockaddr_in6>(address);
  if (!IN6_IS_ADDR_V4MAPPED(&inside.sin6_addr)) return address;
  constexpr std::size_t before_bytes = 12;
  sockaddr_in plain{};
  plain.sin_family = AF_INET;
  plain.sin_port = inside.sin6_port;
  std::memcpy(&plain.sin_addr, inside.sin6_addr.s6_addr + before_bytes, sizeof plain.sin_addr);
  address = {.storage = {}, .length = sizeof plain};
  std::memcpy(&address.storage, &plain, sizeof plain);
  return address;
}

// The address that connections are to come from.
Result<SocketAddress> look_up_source(const std::string& source, base::Nanos deadline) {
  auto address = look_up({.host = source, .port = "0"}, deadline);
  if (address && error_of_binding(*address) == EADDRNOTAVAIL) {
    return fail(
        Errc::invalid_argument, "connect",
        fmt::format("{} is no address of this host, and no connection can come from it (--from)", source));
  }
  return address;
}

// 0, or the error of connecting to one address.
int connect_one(int socket, SocketAddress& to, SocketAddress* source, base::Nanos deadline) {
  if (source != nullptr && ::bind(socket, source->get(), source->length) != 0) return errno;
  if (::connect(socket, to.get(), to.length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

}  // namespace

std::string HostPort::text() const {
  return host.contains(':') ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port) {
  const auto wrong = [text] {
    return fail(Errc::invalid_argument, "open",
                fmt::format("{:?} is no address; write HOST, HOST:PORT or [IPv6]:PORT", text));
  };
  HostPort result{.host = std::string(text), .port = std::to_string(default_port)};
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return wrong();
    result.host = text.substr(1, close - 1);
    text = text.substr(close + 1);
    if (!text.empty() && !text.starts_with(':')) return wrong();
    if (!text.empty()) result.port = text.substr(1);
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) != std::string_view::npos) return wrong();
    result.host = text.substr(0, colon);
    result.port = text.substr(colon + 1);
  }
  if (!is_host(result.host) || !is_port(result.port)) return wrong();
  return result;
}

bool wait_for(int socket, short events, base::Nanos deadline) {
  const base::Clock clock;
  for (;;) {
    const base::Nanos now = clock.now();
    const base::Nanos left = deadline > now ? deadline - now : 0;
    // Rounded up, so that it is not asked again and again in the last millisecond.
    const base::Nanos wait_ms =
        std::min<base::Nanos>((left + base::millisecond_ns - 1) / base::millisecond_ns, 60'000);
    pollfd one{.fd = socket, .events = events, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(wait_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next call on the socket says what is wrong
    if (left == 0) return false;
  }
}

base::Nanos deadline_of_one(base::Nanos deadline, std::size_t left) {
  const base::Nanos now = base::Clock().now();
  return now >= deadline ? deadline : now + (deadline - now) / left;
}

Result<std::vector<SocketAddress>> look_up_all(const HostPort& at, base::Nanos deadline) {
  return resolve(at, AI_PASSIVE, "address", deadline);
}

Result<SocketAddress> look_up(const HostPort& at, base::Nanos deadline) {
  auto addresses = look_up_all(at, deadline);
  if (!addresses) return std::unexpected(std::move(addresses.error()));
  return addresses->front();
}

std::optional<std::size_t> first_of_this_host(std::span<const HostPort> hosts, base::Nanos deadline) {
  // To bind to, whatever serves at its own port.
  const auto any_port_of = [](const HostPort& at) { return HostPort{.host = at.host, .port = "0"}; };
  for (const HostPort& each : hosts) begin_look_up(any_port_of(each));
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    auto address = look_up(any_port_of(hosts[i]), deadline);
    if (address && error_of_binding(*address) == 0) return i;
  }
  return std::nullopt;
}

Result<FileDescriptor> connect(const HostPort& to, const std::string& source, base::Nanos deadline) {
  std::optional<SocketAddress> from;
  if (!source.empty()) {
    auto looked_up = look_up_source(source, deadline);
    if (!looked_up) return std::unexpected(std::move(looked_up.error()));
    from = *looked_up;
  }
  auto addresses = resolve(to, 0, "connect", deadline);
  if (!addresses) {
    // Names go with their hosts, and those that are left serve on.
    addresses.error().code = Errc::unavailable;
    return std::unexpected(std::move(addresses.error()));
  }
  std::size_t left = addresses->size();
  int error = 0;
  for (SocketAddress& each : *addresses) {
    FileDescriptor socket = stream_socket(each);
    const base::Nanos until = deadline_of_one(deadline, left--);
    error = socket.is_open() ? connect_one(socket.get(), each, from ? &*from : nullptr, until) : errno;
    if (error != 0) continue;
    prepare(socket.get());
    return socket;
  }
  // The same each time, so that whoever tries again and again can tell that nothing is new.
  return fail(Errc::unavailable, "connect",
              fmt::format("{}: {}; is lochd running there, and does a firewall let it through?", to.text(),
                          std::strerror(error)));
}

Result<Listener> listen(const HostPort& at) {
  auto addresses = resolve(at, AI_PASSIVE, "listen", look_up_deadline());
  if (!addresses) return std::unexpected(std::move(addresses.error()));
  int error = 0;
  for (SocketAddress& each : *addresses) {
    FileDescriptor socket = stream_socket(each);
    if (!socket.is_open()) {
      error = errno;
      continue;
    }
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (each.storage.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    constexpr int backlog = 1'024;
    if (::bind(socket.get(), each.get(), each.length) != 0 || ::listen(socket.get(), backlog) != 0) {
      error = errno;
      continue;
    }
    const std::uint16_t port = own_address(socket.get()).value_or(each).port();
    return Listener{.socket = std::move(socket), .port = port};
  }
  return fail(error == EACCES ? Errc::permission : Errc::io, "listen",
              fmt::format("{}: {}", at.text(), std::strerror(error)));
}

FileDescriptor accept(const Listener& listener) {
  FileDescriptor socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) prepare(socket.get());
  return socket;
}

std::string SocketAddress::text() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return HostPort{.host = host.data(), .port = port.data()}.text();
}

std::uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? as<sockaddr_in6>(*this).sin6_port
                                             : as<sockaddr_in>(*this).sin_port);
}

bool SocketAddress::is_loopback() const {
  constexpr unsigned first_byte_shift = 24;
  if (storage.ss_family == AF_INET)
    return ntohl(as<sockaddr_in>(*this).sin_addr.s_addr) >> first_byte_shift == IN_LOOPBACKNET;
  const auto address = as<sockaddr_in6>(*this);
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
}

std::optional<SocketAddress> peer_address(int socket) { return address_by(&::getpeername, socket); }
std::optional<SocketAddress> own_address(int socket) { return address_by(&::getsockname, socket); }

std::string peer_of(int socket) {
  const auto address = peer_address(socket);
  return address ? address->text() : "somebody who is gone";
}

}  // namespace loch::net
