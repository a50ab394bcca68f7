#include "demo/echo.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "bench/clock.h"
#include "net/socket.h"
#include "net/stream.h"

namespace loch::demo {
namespace {

constexpr std::size_t message_bytes = 64;
constexpr std::uint64_t timeout_ns = 10 * base::second_ns;

using Message = std::array<char, message_bytes>;

Error late() {
  return {.code = Errc::timed_out, .operation = "echo", .detail = "the other end neither sends nor reads"};
}

// All of the message, of which `part` takes what it can now. Both ends look again and again, and let others
// run between any two looks, as the ends of Loch's connections do: an end that slept would measure how the
// kernel wakes it.
template <class Part>
Result<void> transfer(Message& message, Part part) {
  const std::uint64_t deadline_ns = bench::now_ns() + timeout_ns;
  for (std::size_t done = 0; done < message.size();) {
    const iovec rest{.iov_base = message.data() + done, .iov_len = message.size() - done};
    const Result<std::size_t> went = part(std::span(&rest, 1));
    if (!went) return std::unexpected(went.error());
    done += *went;
    if (*went == 0 && bench::now_ns() > deadline_ns) return std::unexpected(late());
    if (*went == 0) ::sched_yield();
  }
  return {};
}

Result<void> receive(net::Stream& stream, Message& into) {
  return transfer(into, [&](std::span<const iovec> rest) { return stream.read(rest); });
}

Result<void> send(net::Stream& stream, Message& from) {
  return transfer(from, [&](std::span<const iovec> rest) { return stream.write(rest); });
}

// The server may not listen yet.
Result<base::FileDescriptor> connect(const std::string& address) {
  const std::uint64_t deadline_ns = bench::now_ns() + timeout_ns;
  for (;;) {
    auto socket = net::connect({.host = address, .port = std::to_string(echo_port)}, "",
                               base::Clock().now() + timeout_ns);
    if (socket || bench::now_ns() > deadline_ns) return socket;
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
    base::FileDescriptor connection = net::accept(*listener);
    if (!connection.is_open()) continue;
    net::Stream stream(std::move(connection));
    Message message{};
    while (receive(stream, message) && send(stream, message)) {
    }
  }
}

Result<bench::Histogram> measure_round_trips(const std::string& address, double seconds) {
  auto socket = connect(address);
  if (!socket) return std::unexpected(std::move(socket.error()));
  net::Stream stream(std::move(*socket));
  Message message{};
  bench::Histogram histogram;
  for (const std::uint64_t end_ns = bench::now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
       bench::now_ns() < end_ns;) {
    const std::uint64_t before_ns = bench::now_ns();
    if (auto sent = send(stream, message); !sent) return std::unexpected(std::move(sent.error()));
    if (auto got = receive(stream, message); !got) return std::unexpected(std::move(got.error()));
    histogram.record(bench::now_ns() - before_ns);
  }
  return histogram;
}

}  // namespace loch::demo
