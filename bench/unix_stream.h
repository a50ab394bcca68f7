// bench/unix_stream: a blocking connection over a Unix socket with deadlines, for the text protocol of
// memcached.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

namespace loch::bench {

// One thread. A failed call leaves the connection unusable.
class UnixStream {
 public:
  // Every later send and receive ends within `timeout_s`. Errors: io, naming the path.
  static Result<UnixStream> connect(const std::string& path, int timeout_s);

  UnixStream(UnixStream&& other) noexcept;
  UnixStream& operator=(UnixStream&&) = delete;
  UnixStream(const UnixStream&) = delete;
  UnixStream& operator=(const UnixStream&) = delete;
  ~UnixStream();

  Result<void> send(std::string_view bytes) const;

  // The next line without its "\r\n"; valid until the next call.
  Result<std::string_view> receive_line();
  // The next `length_bytes` bytes; valid until the next call.
  Result<std::string_view> receive(std::size_t length_bytes);

 private:
  explicit UnixStream(int socket) : socket_(socket) {}
  Result<void> receive_more();
  [[nodiscard]] std::string_view unread() const { return {buffer_.data() + begin_, end_ - begin_}; }

  int socket_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{64} << 10);
  std::size_t begin_ = 0;  // of what was received and not yet read
  std::size_t end_ = 0;
};

}  // namespace loch::bench
