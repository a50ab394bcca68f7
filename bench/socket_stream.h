// bench/socket_stream: a blocking connection with deadlines, for the text protocol of memcached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <loch/error.h>

#include "base/file_descriptor.h"

namespace loch::bench {

// One thread. A failed call leaves the connection unusable.
class SocketStream {
 public:
  // Every later send and receive ends within `timeout_s`. Errors: io, naming the path or the address.
  static Result<SocketStream> connect_unix(const std::string& path, int timeout_s);
  static Result<SocketStream> connect_tcp(const std::string& address, std::uint16_t port, int timeout_s);

  Result<void> send(std::string_view bytes) const;

  // The next line without its "\r\n"; valid until the next call.
  Result<std::string_view> receive_line();
  // The next `length_bytes` bytes; valid until the next call.
  Result<std::string_view> receive(std::size_t length_bytes);

 private:
  explicit SocketStream(int socket) : socket_(socket) {}
  Result<void> connect(const sockaddr* address, std::size_t address_bytes, const std::string& name,
                       int timeout_s) const;
  Result<void> receive_more();
  [[nodiscard]] std::string_view unread() const { return {buffer_.data() + begin_, end_ - begin_}; }

  base::FileDescriptor socket_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{64} << 10);
  std::size_t begin_ = 0;  // of what was received and not yet read
  std::size_t end_ = 0;
};

}  // namespace loch::bench
