#include "net/stream.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>

#include "lab/temp_folder.h"
#include "net/socket.h"
#include "net/testing/certificates.h"

namespace loch::net {
namespace {

using testing::HasSubstr;

constexpr base::Nanos patience_ns = 10 * base::second_ns;

// Two ends on this host, both inside TLS.
class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    const auto server = TlsContext::server(
        {.certificate = certificates_.file("host.pem"), .key = certificates_.file("host.key")});
    const auto client = TlsContext::client({.authority = certificates_.file("authority.pem")});
    ASSERT_TRUE(server && client);
    host_ = server->accept(base::FileDescriptor(ends[0]));
    client_ = client->connect(base::FileDescriptor(ends[1]), "127.0.0.1");
    for (bool is_done = false; !is_done;) {
      const auto there = client_->establish();
      const auto here = host_->establish();
      ASSERT_TRUE(there && here);
      is_done = *there && *here;
    }
  }
  static Result<std::size_t> read_from(Stream& stream) {
    std::array<std::byte, 16> bytes{};
    const iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    return stream.read({&part, 1});
  }

  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const fake::Certificates certificates_{temp_.path()};
  std::unique_ptr<Stream> host_;
  std::unique_ptr<Stream> client_;
};

// Receive: nothing for now, and then the end of the connection. Expect: the error says who ended it, and not
// what the system said before.
TEST_F(TlsTest, AnEndThatTheOtherClosedIsNamedSo) {
  EXPECT_EQ(read_from(*client_).value(), 0U);
  host_.reset();
  ASSERT_TRUE(wait_for(client_->socket(), POLLIN, base::Clock().now() + patience_ns));
  const auto read = read_from(*client_);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::unavailable);
  EXPECT_THAT(read.error().detail, HasSubstr("closed by the other end"));
}

// Receive: names by which no host can be told from another. Expect: nobody is taken for it, though the
// authority trusts him.
TEST_F(TlsTest, AHostWithoutANameIsNobody) {
  const auto client = TlsContext::client({.authority = certificates_.file("authority.pem")}).value();
  for (const std::string& name : {std::string(), std::string(300, 'a')}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    const base::FileDescriptor other(ends[0]);
    const auto established = client.connect(base::FileDescriptor(ends[1]), name)->establish();
    ASSERT_FALSE(established.has_value()) << name.size();
    EXPECT_EQ(established.error().code, Errc::invalid_argument);
  }
}

// Receive: a certificate without its key, or a key alone. Expect: what is missing is named, as lochd's
// setting and as the command's option.
TEST_F(TlsTest, ACertificateNeedsItsKey) {
  TlsFiles files{.certificate = certificates_.file("host.pem"),
                 .authority = certificates_.file("authority.pem")};
  for (const auto& made : {TlsContext::server(files), TlsContext::client(files)}) {
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, Errc::invalid_argument);
    EXPECT_THAT(made.error().detail, HasSubstr("there is no key (tls.key, --tls-key)"));
  }
  files.key = std::exchange(files.certificate, "");
  const auto made = TlsContext::client(files);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().detail, HasSubstr("there is no certificate (tls.certificate"));
}

TEST_F(TlsTest, AClientNeedsAnAuthority) {
  const auto made = TlsContext::client(
      {.certificate = certificates_.file("client.pem"), .key = certificates_.file("client.key")});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Errc::invalid_argument);
  EXPECT_THAT(made.error().detail, HasSubstr("--tls-authority"));
}

// Receive: a certificate's key that others may read, or change. Expect: it is refused at either end, by name.
TEST_F(TlsTest, AKeyThatOthersReadIsRefused) {
  const TlsFiles files{.certificate = certificates_.file("host.pem"),
                       .key = certificates_.file("host.key"),
                       .authority = certificates_.file("authority.pem")};
  for (const mode_t mode : {0644, 0602, 0660}) {
    ASSERT_EQ(::chmod(files.key.c_str(), mode), 0);
    for (const auto& made : {TlsContext::server(files), TlsContext::client(files)}) {
      ASSERT_FALSE(made.has_value()) << mode;
      EXPECT_EQ(made.error().code, Errc::permission);
      EXPECT_THAT(made.error().detail,
                  testing::AllOf(HasSubstr(files.key), HasSubstr("chmod it to 600 or 640")));
    }
  }
  ASSERT_EQ(::chmod(files.key.c_str(), 0640), 0);
  EXPECT_TRUE(TlsContext::server(files).has_value());
}

// Receive: a key that needs a pass phrase, and a file that has no key. Expect: nobody is asked for one, and
// each is refused for what it is.
TEST_F(TlsTest, AnEncryptedKeyIsRefused) {
  TlsFiles files{.certificate = certificates_.file("host.pem"),
                 .key = certificates_.file("encrypted.key"),
                 .authority = certificates_.file("authority.pem")};
  for (const auto& made : {TlsContext::server(files), TlsContext::client(files)}) {
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, Errc::invalid_argument);
    EXPECT_THAT(made.error().detail, testing::AllOf(HasSubstr("the key in " + files.key + " is encrypted"),
                                                    HasSubstr("openssl pkey -in " + files.key)));
  }
  files.key = certificates_.file("host.pem");
  ASSERT_EQ(::chmod(files.key.c_str(), 0600), 0);
  const auto made = TlsContext::server(files);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().detail, HasSubstr("the key in " + files.key + " can not be used"));
}

// Receive: keys that are not the certificate's, of its type and of another.
TEST_F(TlsTest, TheKeyOfAnotherCertificateIsRefused) {
  for (const char* other : {"client.key", "rsa.key"}) {
    const TlsFiles files{.certificate = certificates_.file("host.pem"),
                         .key = certificates_.file(other),
                         .authority = certificates_.file("authority.pem")};
    for (const auto& made : {TlsContext::server(files), TlsContext::client(files)}) {
      ASSERT_FALSE(made.has_value()) << other;
      EXPECT_EQ(made.error().code, Errc::invalid_argument);
      EXPECT_THAT(made.error().detail, HasSubstr("the key in " + files.key + " can not be used"));
    }
  }
}

}  // namespace
}  // namespace loch::net
