#include "net/stream.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/check.h"
#include "net/proof.h"

namespace loch::net {
namespace {

bool is_none_now(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::unexpected<Error> broken(const char* operation, std::string_view why) {
  return fail(Errc::unavailable, operation, fmt::format("the connection is gone: {}", why));
}

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

}  // namespace

short Stream::awaited() const { return POLLIN; }

Result<std::size_t> Stream::read(std::span<const iovec> into) {
  ssize_t got = 0;
  if (into.size() == 1) {
    got = ::recv(socket(), into[0].iov_base, into[0].iov_len, 0);
  } else {
    msghdr message = message_of(into);
    got = ::recvmsg(socket(), &message, 0);
  }
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0) return broken("read", "closed by the other end");
  if (is_none_now(errno)) return 0;
  return broken("read", std::strerror(errno));
}

Result<std::size_t> Stream::write(std::span<const iovec> from) {
  ssize_t sent = 0;
  if (from.size() == 1) {
    sent = ::send(socket(), from[0].iov_base, from[0].iov_len, MSG_NOSIGNAL);
  } else {
    const msghdr message = message_of(from);
    sent = ::sendmsg(socket(), &message, MSG_NOSIGNAL);
  }
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (is_none_now(errno)) return 0;
  return broken("write", std::strerror(errno));
}

bool Stream::leave() const {
  ::shutdown(socket(), SHUT_WR);
  std::array<std::byte, 4'096> dropped{};
  constexpr int reads_max = 16;
  for (int i = 0; i < reads_max; ++i) {
    const ssize_t got = ::recv(socket(), dropped.data(), dropped.size(), 0);
    if (got <= 0) return got == 0 || !is_none_now(errno);
  }
  return false;
}

// ---- TLS

namespace {

// OpenSSL's own way to a socket raises SIGPIPE when the other end is gone.
int bio_write(BIO* bio, const char* bytes, int length) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(static_cast<Stream*>(BIO_get_data(bio))->socket(), bytes,
                              static_cast<std::size_t>(length), MSG_NOSIGNAL);
  if (sent < 0 && is_none_now(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* bytes, int length) {
  BIO_clear_retry_flags(bio);
  const ssize_t got =
      ::recv(static_cast<Stream*>(BIO_get_data(bio))->socket(), bytes, static_cast<std::size_t>(length), 0);
  if (got < 0 && is_none_now(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long bio_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "loch");
    LOCH_CHECK(made != nullptr);
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

std::string openssl_reason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (error == 0) return "no reason given";
  std::array<char, 256> text{};
  ERR_error_string_n(error, text.data(), text.size());
  return text.data();
}

// What an alert of the other end says of our certificate; empty if the error is another one.
std::string_view refusal_of_certificate(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return {};
  switch (ERR_GET_REASON(error)) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "the other end wants a certificate, and was shown none";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
      return "the other end does not trust the certificate that it was shown";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "the certificate that the other end was shown has expired";
    default:
      return {};
  }
}

class TlsStream final : public Stream {
 public:
  // `host`: of a client, whom it wants to talk to.
  TlsStream(base::FileDescriptor socket, std::shared_ptr<SSL_CTX> context, const std::string* host)
      : Stream(std::move(socket)), context_(std::move(context)), ssl_(SSL_new(context_.get()), &SSL_free) {
    LOCH_CHECK(ssl_ != nullptr);
    BIO* bio = BIO_new(bio_method());
    LOCH_CHECK(bio != nullptr);
    BIO_set_data(bio, static_cast<Stream*>(this));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    if (host == nullptr) {
      SSL_set_accept_state(ssl_.get());
      return;
    }
    SSL_set_connect_state(ssl_.get());
    expects_host_ = expect_host(*host);
  }

  Result<bool> establish() override {
    if (!expects_host_)
      return fail(Errc::invalid_argument, "TLS", "no certificate can be for a host of that name");
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_.get());
    if (done == 1) return true;
    if (auto wait = none_or_error(done, "TLS"); !wait) return std::unexpected(std::move(wait.error()));
    return false;
  }
  [[nodiscard]] bool gathers() const override { return false; }  // each part is a record of its own
  [[nodiscard]] bool holds_back() const override { return SSL_has_pending(ssl_.get()) == 1; }
  [[nodiscard]] short awaited() const override { return SSL_want_write(ssl_.get()) ? POLLOUT : POLLIN; }

  Result<std::size_t> read(std::span<const iovec> into) override {
    std::size_t total = 0;
    for (const iovec& part : into) {
      std::size_t got = 0;
      ERR_clear_error();
      const int done = SSL_read_ex(ssl_.get(), part.iov_base, part.iov_len, &got);
      if (done != 1) {
        if (total != 0) return total;
        return none_or_error(done, "read");
      }
      total += got;
      if (got < part.iov_len) break;
    }
    return total;
  }

  Result<std::size_t> write(std::span<const iovec> from) override {
    std::size_t total = 0;
    for (const iovec& part : from) {
      if (part.iov_len == 0) continue;
      std::size_t sent = 0;
      ERR_clear_error();
      const int done = SSL_write_ex(ssl_.get(), part.iov_base, part.iov_len, &sent);
      if (done != 1) {
        if (total != 0) return total;
        return none_or_error(done, "write");
      }
      total += sent;
      if (sent < part.iov_len) break;
    }
    return total;
  }

 private:
  // Only a certificate of that host counts. False if that can not be had, and then any of the authority's
  // would; an empty name asks for none.
  bool expect_host(const std::string& host) {
    if (host.empty()) return false;
    if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str()) == 1;
    return SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) == 1 &&
           SSL_set1_host(ssl_.get(), host.c_str()) == 1;
  }
  static bool is_address(const std::string& host) {
    std::array<std::byte, sizeof(in6_addr)> bytes{};
    return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
  }

  // 0 if it has to wait.
  Result<std::size_t> none_or_error(int done, const char* operation) {
    const int error_number = errno;
    switch (SSL_get_error(ssl_.get(), done)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return 0;
      case SSL_ERROR_ZERO_RETURN:
        return broken(operation, "closed by the other end");
      case SSL_ERROR_SYSCALL:
        return broken(operation, error_number == 0 ? "closed by the other end" : std::strerror(error_number));
      default:
        break;
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK) {
      ERR_clear_error();
      return fail(Errc::permission, operation,
                  fmt::format("the other end's certificate is not trusted: {}",
                              X509_verify_cert_error_string(verified)));
    }
    const std::string_view refusal = refusal_of_certificate(ERR_peek_error());
    if (!refusal.empty())
      return fail(Errc::permission, operation, fmt::format("{}: {}", refusal, openssl_reason()));
    return broken(operation, openssl_reason());
  }

  std::shared_ptr<SSL_CTX> context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  bool expects_host_ = true;
};

std::unexpected<Error> unusable(std::string_view what, const std::string& path) {
  return fail(Errc::invalid_argument, "TLS",
              fmt::format("the {} in {} can not be used: {}", what, path, openssl_reason()));
}

// OpenSSL would ask for it on the terminal, where nobody waits for that. Instead the pass phrase is empty,
// and `was_asked`, a bool, says that one is needed.
int no_pass_phrase(char* /*into*/, int /*length_max*/, int /*is_for_writing*/, void* was_asked) {
  if (was_asked != nullptr) *static_cast<bool*>(was_asked) = true;
  return 0;
}

Result<void> use_key(SSL_CTX* context, const std::string& path) {
  bool is_encrypted = false;
  SSL_CTX_set_default_passwd_cb_userdata(context, &is_encrypted);
  const bool is_used = SSL_CTX_use_PrivateKey_file(context, path.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  if (is_used) return {};
  if (!is_encrypted) return unusable("key", path);
  ERR_clear_error();
  return fail(Errc::invalid_argument, "TLS",
              fmt::format("the key in {0} is encrypted, and nobody is asked for its pass phrase; name a file "
                          "that has it without: openssl pkey -in {0} -out FILE",
                          path));
}

}  // namespace

Result<void> TlsContext::check(const TlsFiles& files) {
  if (files.certificate.empty() == files.key.empty()) return {};
  return fail(Errc::invalid_argument, "TLS",
              fmt::format("TLS needs a certificate and its key, both or neither; there is no {}",
                          files.key.empty() ? "key (tls.key, --tls-key)"
                                            : "certificate (tls.certificate, --tls-certificate)"));
}

Result<TlsContext> TlsContext::server(const TlsFiles& files) {
  if (files.certificate.empty() && files.key.empty())
    return fail(Errc::invalid_argument, "TLS", "a server needs a certificate and its key");
  return make(files, true);
}

Result<TlsContext> TlsContext::client(const TlsFiles& files) {
  if (files.authority.empty()) {
    return fail(Errc::invalid_argument, "TLS",
                "a client needs the authority that it trusts: --tls-authority, LOCH_TLS_AUTHORITY, or a "
                "program's Options::tls_authority");
  }
  return make(files, false);
}

Result<TlsContext> TlsContext::make(const TlsFiles& files, bool is_server) {
  if (auto whole = check(files); !whole) return std::unexpected(std::move(whole.error()));
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()),
                                         &SSL_CTX_free);
  LOCH_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  // Nothing is kept of a session, so a certificate is looked at each time.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context.get(), no_pass_phrase);
  if (!files.certificate.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1)
      return unusable("certificate", files.certificate);
    struct stat stat{};
    if (::stat(files.key.c_str(), &stat) == 0) {
      if (auto sound = check_private(files.key, stat.st_mode); !sound)
        return std::unexpected(std::move(sound.error()));
    }
    if (auto used = use_key(context.get(), files.key); !used) return std::unexpected(std::move(used.error()));
    // A key of another type than the certificate's is taken for that of another one, which may follow.
    if (SSL_CTX_check_private_key(context.get()) != 1) return unusable("key", files.key);
  }
  if (!files.authority.empty()) {
    if (SSL_CTX_load_verify_locations(context.get(), files.authority.c_str(), nullptr) != 1)
      return unusable("authority", files.authority);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return TlsContext(context);
}

std::optional<std::string> TlsContext::flaw_of_dates() const {
  const X509* certificate = SSL_CTX_get0_certificate(context_.get());
  if (certificate == nullptr) return std::nullopt;
  const auto text_of = [](const ASN1_TIME* time) {
    constexpr int first_year = 1900;
    std::tm at{};
    ASN1_TIME_to_tm(time, &at);
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", at.tm_year + first_year, at.tm_mon + 1,
                       at.tm_mday, at.tm_hour, at.tm_min);
  };
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(end) < 0) return fmt::format("expired at {}", text_of(end));
  if (X509_cmp_current_time(begin) > 0) return fmt::format("is valid from {} on", text_of(begin));
  return std::nullopt;
}

std::unique_ptr<Stream> TlsContext::accept(base::FileDescriptor socket) const {
  return std::make_unique<TlsStream>(std::move(socket), context_, nullptr);
}

std::unique_ptr<Stream> TlsContext::connect(base::FileDescriptor socket, const std::string& host) const {
  return std::make_unique<TlsStream>(std::move(socket), context_, &host);
}

}  // namespace loch::net
