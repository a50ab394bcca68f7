#include "bench/echo.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "bench/clock.h"
#include "bench/socket_stream.h"
#include "net/socket.h"

namespace loch::bench {
namespace {

constexpr std::size_t message_bytes = 64;
constexpr int timeout_s = 10;

// Until the other end closes it.
void send_back(int connection) {
  std::array<char, message_bytes> bytes{};
  for (;;) {
    const ssize_t received = ::recv(connection, bytes.data(), bytes.size(), 0);
    if (received <= 0) return;
    if (::send(connection, bytes.data(), static_cast<std::size_t>(received), MSG_NOSIGNAL) != received)
      return;
  }
}

// The server may not listen yet.
Result<SocketStream> connect(const std::string& address) {
  const std::uint64_t deadline_ns = now_ns() + std::uint64_t{timeout_s} * 1'000'000'000;
  for (;;) {
    auto stream = SocketStream::connect_tcp(address, echo_port, timeout_s);
    if (stream || now_ns() > deadline_ns) return stream;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Result<void> serve_echo(const std::string& address) {
  const auto listener = net::listen({.host = address, .port = std::to_string(echo_port)});
  if (!listener) return std::unexpected(listener.error());
  for (;;) {
    pollfd waiting{.fd = listener->socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, -1) < 0 && errno != EINTR)
      return fail(Errc::io, "echo", fmt::format("poll: {}", std::strerror(errno)));
    const base::FileDescriptor connection = net::accept(*listener);
    if (!connection.is_open()) continue;
    // One call of the kernel for each direction, and no other.
    ::fcntl(connection.get(), F_SETFL, ::fcntl(connection.get(), F_GETFL) & ~O_NONBLOCK);
    send_back(connection.get());
  }
}

Result<Histogram> measure_round_trips(const std::string& address, double seconds) {
  auto stream = connect(address);
  if (!stream) return std::unexpected(stream.error());
  const std::string message(message_bytes, 'x');
  Histogram histogram;
  for (const std::uint64_t end_ns = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
       now_ns() < end_ns;) {
    const std::uint64_t before_ns = now_ns();
    if (auto sent = stream->send(message); !sent) return std::unexpected(sent.error());
    if (const auto answer = stream->receive(message_bytes); !answer) return std::unexpected(answer.error());
    histogram.record(now_ns() - before_ns);
  }
  return histogram;
}

}  // namespace loch::bench
