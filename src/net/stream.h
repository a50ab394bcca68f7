// Stream: the bytes of one TCP connection, plain or inside TLS. It never blocks. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/uio.h>

#include <loch/error.h>

#include "base/file_descriptor.h"
#include "net/tls_files.h"

struct ssl_ctx_st;

namespace loch::net {

class Stream {
 public:
  explicit Stream(base::FileDescriptor socket) : socket_(std::move(socket)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int socket() const { return socket_.get(); }

  // Whether both ends can begin; false: not yet, wait for `awaited`. Errors: unavailable, permission (a
  // certificate that is not trusted, at either end).
  virtual Result<bool> establish() { return true; }
  // The events of poll(2) that establish waits for.
  [[nodiscard]] virtual short awaited() const;

  // How many bytes were taken or given; 0: none for now. Errors: unavailable (closed by the other end, or
  // broken), permission (of a client: the server has looked at its certificate by now).
  virtual Result<std::size_t> read(std::span<const iovec> into);
  virtual Result<std::size_t> write(std::span<const iovec> from);
  // Whether a write of many parts costs no more than one of the same bytes in one part.
  [[nodiscard]] virtual bool gathers() const { return true; }
  // Whether there may be more to read that poll(2) on the socket does not tell of.
  [[nodiscard]] virtual bool holds_back() const { return false; }

  // Says no more, and drops what comes: who closes a socket with something unread resets the connection, and
  // the other end may never read what it was told last. Whether the other end has closed, too; false: not
  // yet, wait for POLLIN.
  [[nodiscard]] bool leave() const;

 private:
  base::FileDescriptor socket_;
};

// What TLS needs of one end; shared by its streams, from any thread.
class TlsContext {
 public:
  // Whether a certificate is there with its key. Errors: invalid_argument.
  static Result<void> check(const TlsFiles& files);
  // Errors: as check; invalid_argument (a file that can not be read or used, with OpenSSL's reason).
  static Result<TlsContext> server(const TlsFiles& files);
  static Result<TlsContext> client(const TlsFiles& files);

  // What is wrong with the dates of its certificate now: the other end does not trust it.
  [[nodiscard]] std::optional<std::string> flaw_of_dates() const;

  // A stream of TLS over `socket`. A client trusts whoever is certified as `host`.
  [[nodiscard]] std::unique_ptr<Stream> accept(base::FileDescriptor socket) const;
  [[nodiscard]] std::unique_ptr<Stream> connect(base::FileDescriptor socket, const std::string& host) const;

 private:
  explicit TlsContext(std::shared_ptr<ssl_ctx_st> context) : context_(std::move(context)) {}
  static Result<TlsContext> make(const TlsFiles& files, bool is_server);
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace loch::net
