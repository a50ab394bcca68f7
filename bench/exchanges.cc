#include "bench/exchanges.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <span>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "net/stream.h"

namespace loch::bench {
namespace {

constexpr std::uint64_t timeout_ns = 10 * base::second_ns;

static_assert(std::is_trivially_copyable_v<Exchange>);
constexpr bool is_exchange(const Exchange& exchange) {
  const auto is_size = [](std::uint64_t bytes) { return bytes != 0 && bytes <= exchange_bytes_max; };
  return is_size(exchange.request_bytes) && is_size(exchange.reply_bytes);
}

// All of the bytes, of which `part` takes what it can now. Both ends look again and again, and let others run
// between any two looks, as the ends of Loch's connections do: an end that slept would measure how the kernel
// wakes it.
template <class Part>
Result<void> transfer(std::span<std::byte> bytes, Part part) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  while (!bytes.empty()) {
    const iovec rest{.iov_base = bytes.data(), .iov_len = bytes.size()};
    const Result<std::size_t> went = part(std::span(&rest, 1));
    if (!went) return std::unexpected(went.error());
    bytes = bytes.subspan(*went);
    if (*went != 0) continue;
    if (now_ns() > deadline_ns)
      return fail(Errc::timed_out, "exchange", "the other end neither sends nor reads");
    ::sched_yield();
  }
  return {};
}

Result<void> receive(net::Stream& stream, std::span<std::byte> into) {
  return transfer(into, [&](std::span<const iovec> rest) { return stream.read(rest); });
}

Result<void> send(net::Stream& stream, std::span<std::byte> from) {
  return transfer(from, [&](std::span<const iovec> rest) { return stream.write(rest); });
}

Result<void> serve(net::Stream& stream) {
  std::array<std::byte, sizeof(Exchange)> asked{};
  if (auto heard = receive(stream, asked); !heard) return heard;
  const auto exchange = std::bit_cast<Exchange>(asked);
  if (!is_exchange(exchange)) return fail(Errc::invalid_argument, "exchange", "the sizes are none");
  std::vector<std::byte> request(exchange.request_bytes);
  std::vector<std::byte> reply(exchange.reply_bytes);
  for (;;) {
    if (auto received = receive(stream, request); !received) return received;
    if (auto sent = send(stream, reply); !sent) return sent;
  }
}

// The server may not listen yet.
Result<base::FileDescriptor> connect(const net::HostPort& to) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    auto socket = net::connect(to, "", base::Clock().now() + timeout_ns);
    if (socket || now_ns() > deadline_ns) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Result<void> serve_exchanges(const net::Listener& listener) {
  for (;;) {
    pollfd waiting{.fd = listener.socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, -1) < 0 && errno != EINTR)
      return fail(Errc::io, "exchange", fmt::format("poll: {}", std::strerror(errno)));
    base::FileDescriptor connection = net::accept(listener);
    if (!connection.is_open()) continue;
    net::Stream stream(std::move(connection));
    std::ignore = serve(stream);  // its end is that of the connection
  }
}

Result<Exchanges> run_exchanges(const net::HostPort& with, const Exchange& exchange, double seconds) {
  if (!is_exchange(exchange))
    return fail(Errc::invalid_argument, "exchange",
                fmt::format("{} B there and {} B back; each is 1 to {}", exchange.request_bytes,
                            exchange.reply_bytes, exchange_bytes_max));
  auto socket = connect(with);
  if (!socket) return std::unexpected(std::move(socket.error()));
  net::Stream stream(std::move(*socket));
  std::vector<std::byte> request(exchange.request_bytes);
  std::vector<std::byte> reply(exchange.reply_bytes);
  const auto exchange_once = [&]() -> Result<void> {
    if (auto sent = send(stream, request); !sent) return sent;
    return receive(stream, reply);
  };
  // The sizes are told and the first reply is there before anything is measured.
  auto sizes = std::bit_cast<std::array<std::byte, sizeof exchange>>(exchange);
  auto done = send(stream, sizes);
  if (done) done = exchange_once();
  Exchanges exchanges;
  if (done) {
    exchanges.lap = repeat_for(seconds, 1, [&] {
      const std::uint64_t before_ns = now_ns();
      if (done) done = exchange_once();
      exchanges.latencies.record(now_ns() - before_ns);
    });
  }
  if (!done) return std::unexpected(std::move(done.error()));
  return exchanges;
}

}  // namespace loch::bench
