#include "bench/socket_stream.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace loch::bench {
namespace {

std::unexpected<Error> socket_failure(const char* step, int number) {
  const bool late = number == EAGAIN || number == EWOULDBLOCK;
  return fail(late ? Errc::timed_out : Errc::io, "bench", fmt::format("{}: {}", step, std::strerror(number)));
}

}  // namespace

Result<SocketStream> SocketStream::connect_unix(const std::string& path, int timeout_s) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(Errc::invalid_argument, "bench", fmt::format("socket path {} is too long", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  SocketStream stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (auto connected =
          stream.connect(reinterpret_cast<const sockaddr*>(&address), sizeof address, path, timeout_s);
      !connected) {
    return std::unexpected(std::move(connected.error()));
  }
  return stream;
}

Result<SocketStream> SocketStream::connect_tcp(const std::string& address, std::uint16_t port,
                                               int timeout_s) {
  sockaddr_in parsed{};
  parsed.sin_family = AF_INET;
  parsed.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &parsed.sin_addr) != 1) {
    return fail(Errc::invalid_argument, "bench", fmt::format("{} is no address", address));
  }
  SocketStream stream(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (auto connected = stream.connect(reinterpret_cast<const sockaddr*>(&parsed), sizeof parsed,
                                      fmt::format("{}:{}", address, port), timeout_s);
      !connected) {
    return std::unexpected(std::move(connected.error()));
  }
  const int at_once = 1;
  setsockopt(stream.socket_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  return stream;
}

Result<void> SocketStream::connect(const sockaddr* address, std::size_t address_bytes,
                                   const std::string& name, int timeout_s) const {
  if (!socket_.is_open()) return socket_failure("socket", errno);
  const timeval timeout{.tv_sec = timeout_s, .tv_usec = 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (::connect(socket_.get(), address, static_cast<socklen_t>(address_bytes)) != 0) {
    return socket_failure(fmt::format("connect to {}", name).c_str(), errno);
  }
  return {};
}

Result<void> SocketStream::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return socket_failure("send", errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string_view> SocketStream::receive_line() {
  std::size_t searched = 0;
  for (;;) {
    const auto at = unread().find('\n', searched);
    if (at != std::string_view::npos) {
      const auto line = unread().substr(0, at > 0 && unread()[at - 1] == '\r' ? at - 1 : at);
      begin_ += at + 1;
      return line;
    }
    searched = unread().size();
    if (auto more = receive_more(); !more) return std::unexpected(std::move(more.error()));
  }
}

Result<std::string_view> SocketStream::receive(std::size_t length_bytes) {
  while (unread().size() < length_bytes) {
    if (auto more = receive_more(); !more) return std::unexpected(std::move(more.error()));
  }
  const auto bytes = unread().substr(0, length_bytes);
  begin_ += length_bytes;
  return bytes;
}

Result<void> SocketStream::receive_more() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == buffer_.size() && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  for (;;) {
    const ssize_t received = recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, 0);
    if (received > 0) {
      end_ += static_cast<std::size_t>(received);
      return {};
    }
    if (received == 0) return fail(Errc::unavailable, "bench", "the server closed the connection");
    if (errno != EINTR) return socket_failure("receive", errno);
  }
}

}  // namespace loch::bench
