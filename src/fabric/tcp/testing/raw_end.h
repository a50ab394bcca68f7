// What goes over a data connection (wire.h), for tests that are one end of it themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>

#include "base/testing/in_seconds.h"
#include "fabric/endpoint.h"
#include "fabric/tcp/wire.h"
#include "net/stream.h"

namespace loch::fabric::tcp::raw {

inline constexpr auto read_words = static_cast<Operation::Kind>(read_words_kind);
using base::fake::in_seconds;

inline std::string bytes_of(const void* data, std::size_t length) {
  return {static_cast<const char*>(data), length};
}

inline std::string operation(Operation::Kind kind, std::uint64_t offset, std::uint32_t length,
                             std::uint16_t number, std::string_view more = {}) {
  const OperationHead head{.kind = static_cast<std::uint8_t>(kind),
                           .region = 0,
                           .number = number,
                           .length_bytes = length,
                           .offset_bytes = offset};
  return bytes_of(&head, sizeof head) + std::string(more);
}

inline std::string answer(Operation::Kind kind, Status status, std::uint16_t number, std::uint32_t length,
                          std::string_view more = {}) {
  const AnswerHead head{.status = static_cast<std::uint8_t>(status),
                        .kind = static_cast<std::uint8_t>(kind),
                        .number = number,
                        .length_bytes = length};
  return bytes_of(&head, sizeof head) + std::string(more);
}

inline void send_all(net::Stream& stream, std::string_view bytes) {
  while (!bytes.empty()) {
    const iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    const auto sent = stream.write({&part, 1});
    if (!sent) return;
    bytes.remove_prefix(*sent);
    if (*sent == 0 && !net::wait_for(stream.socket(), POLLOUT, in_seconds(5))) return;
  }
}

// What comes until `length` bytes are there, the other end closes, or five seconds have passed.
inline std::string receive(net::Stream& stream, std::size_t length) {
  std::string got(length, '\0');
  std::size_t have = 0;
  const base::Nanos deadline = in_seconds(5);
  while (have < length) {
    const iovec part{.iov_base = got.data() + have, .iov_len = length - have};
    const auto some = stream.read({&part, 1});
    if (!some || (*some == 0 && !net::wait_for(stream.socket(), POLLIN, deadline))) break;
    have += *some;
  }
  got.resize(have);
  return got;
}

inline coro::Task<Result<void>> perform(Endpoint* endpoint, std::span<Operation> operations) {
  co_return co_await endpoint->perform(operations);
}

}  // namespace loch::fabric::tcp::raw
