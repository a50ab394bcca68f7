#include "net/socket.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "net/testing/reserved_port.h"

namespace loch::net {
namespace {

using testing::HasSubstr;

constexpr std::uint16_t usual_port = 7117;
constexpr base::Nanos soon_ns = 300 * base::millisecond_ns;

base::Nanos in(base::Nanos time) { return base::Clock().now() + time; }

TEST(HostPort, IsReadWithAPortAndWithoutOne) {
  const auto read = [](const char* text) { return parse_host_port(text, usual_port).value(); };
  EXPECT_EQ(read("db.example"), (HostPort{.host = "db.example", .port = "7117"}));
  EXPECT_EQ(read("192.0.2.7:80"), (HostPort{.host = "192.0.2.7", .port = "80"}));
  EXPECT_EQ(read("[2001:db8::7]"), (HostPort{.host = "2001:db8::7", .port = "7117"}));
  EXPECT_EQ(read("[::1]:80").text(), "[::1]:80");
}

TEST(HostPort, WhatIsNoneIsNamedWithWhatToWrite) {
  for (const char* text : {"", ":80", "a:", "a:http", "a:65536", "a:000080", "::1", "a:1:2", "[::1",
                           "[::1]80", "[]:80", "a b", "ä"}) {
    const auto read = parse_host_port(text, usual_port);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
    EXPECT_THAT(read.error().message(), HasSubstr(std::string("\"") + text + "\" is no address; write HOST"));
  }
}

// Receive: what a terminal or a log would act on. Expect: none of it comes back in the error.
TEST(HostPort, WhatIsNoneIsNamedInPlainText) {
  for (const char* text : {"a\x1b]0;b\x07:80", "[::1\n]:80", "a:8\x1b[2J",
                           "\xc2\x9b"
                           "2J"}) {
    const auto read = parse_host_port(text, usual_port);
    ASSERT_FALSE(read.has_value());
    EXPECT_TRUE(std::ranges::all_of(read.error().detail, [](char c) { return c >= ' ' && c <= '~'; }))
        << read.error().detail;
  }
}

TEST(HostPort, IsNoLongerThanANameOfDns) {
  EXPECT_TRUE(parse_host_port(std::string(host_bytes_max, 'a'), usual_port).has_value());
  EXPECT_FALSE(parse_host_port(std::string(host_bytes_max + 1, 'a'), usual_port).has_value());
}

// Given: a name of two addresses, as the empty one is where there is IPv6 (::1 and 127.0.0.1), and who
// listens at the second alone.
TEST(Connect, TriesAllAddressesOfAName) {
  const auto listener = listen({.host = "127.0.0.1", .port = "0"}).value();
  const auto socket = connect({.host = "", .port = std::to_string(listener.port)}, "", in(base::second_ns));
  ASSERT_TRUE(socket.has_value()) << socket.error().message();
  EXPECT_THAT(peer_of(socket->get()), HasSubstr("127.0.0.1:"));
}

TEST(Connect, NamesWhoDoesNotAnswer) {
  const fake::ReservedPort nobody;
  const auto socket = connect(nobody.at(), "", in(base::second_ns));
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code, Errc::unavailable);
  EXPECT_THAT(socket.error().message(), HasSubstr(nobody.at().text() + ": Connection refused"));
}

// Receive: to come from an address that is kept for examples, and no host has. Expect: that one is named, and
// not who was to be reached.
TEST(Connect, NamesASourceThatIsNotOfThisHost) {
  const auto listener = listen({.host = "127.0.0.1", .port = "0"}).value();
  const HostPort to{.host = "127.0.0.1", .port = std::to_string(listener.port)};
  EXPECT_TRUE(connect(to, "127.0.0.1", in(base::second_ns)).has_value());
  const auto socket = connect(to, "192.0.2.1", in(base::second_ns));
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code, Errc::invalid_argument);
  EXPECT_THAT(socket.error().message(), HasSubstr("192.0.2.1 is no address of this host"));
  EXPECT_THAT(socket.error().message(), testing::Not(HasSubstr("firewall")));
}

// Given: a name that leads nowhere, as that of a host that is down may. It is no name at all, so no resolver
// is asked. Expect: that the other hosts of a cluster are gone on with.
TEST(Connect, ANameThatLeadsNowhereIsUnavailable) {
  const auto socket = connect({.host = std::string(64, 'a') + ".b", .port = "1"}, "", in(base::second_ns));
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code, Errc::unavailable);
  EXPECT_THAT(socket.error().message(), HasSubstr(std::string(64, 'a') + ".b:1: "));
}

// Given: a host that takes no more connections, and drops who asks for one.
TEST(Connect, EndsWithItsDeadline) {
  const base::FileDescriptor full(::socket(AF_INET, SOCK_STREAM, 0));
  SocketAddress at = look_up({.host = "127.0.0.1", .port = "0"}, in(base::second_ns)).value();
  ASSERT_EQ(::bind(full.get(), at.get(), at.length), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), at.get(), &at.length), 0);
  const HostPort to{.host = "127.0.0.1", .port = std::to_string(at.port())};
  std::vector<base::FileDescriptor> waiting;
  for (;;) {
    const base::Nanos began = base::Clock().now();
    auto socket = connect(to, "", began + soon_ns);
    if (socket) {
      waiting.push_back(std::move(*socket));
      ASSERT_LT(waiting.size(), 16U) << "it takes all of them";
      continue;
    }
    EXPECT_EQ(socket.error().code, Errc::unavailable);
    EXPECT_THAT(socket.error().message(), HasSubstr(to.text() + ": Connection timed out"));
    EXPECT_GE(base::Clock().now(), began + soon_ns);
    return;
  }
}

// As the kernel says: that Loch can not listen there is no proof of it.
bool has_ipv6() {
  const base::FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  return socket.is_open() && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
}

TEST(Address, OfThisHostAloneAreItsLoopbackAddresses) {
  for (const std::string host : {"127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"}) {
    const auto listener = listen({.host = host, .port = "0"});
    if (!listener && host.starts_with("::") && !has_ipv6()) continue;
    ASSERT_TRUE(listener.has_value()) << listener.error().message();
    const auto socket =
        connect({.host = host, .port = std::to_string(listener->port)}, "", in(base::second_ns));
    ASSERT_TRUE(socket.has_value()) << host;
    EXPECT_TRUE(peer_address(socket->get()).value().is_loopback()) << host;
  }
  EXPECT_FALSE(peer_address(-1).has_value());
  EXPECT_FALSE(own_address(-1).has_value());
  // A socket of UDP has a peer that nobody asks.
  const base::FileDescriptor elsewhere(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress address = look_up({.host = "192.0.2.7", .port = "9"}, in(base::second_ns)).value();
  if (::connect(elsewhere.get(), address.get(), address.length) != 0)
    GTEST_SKIP() << "this host has no route to others";
  EXPECT_FALSE(peer_address(elsewhere.get()).value().is_loopback());
  EXPECT_EQ(peer_of(elsewhere.get()), "192.0.2.7:9");
}

// Given: who listens at both, IPv4 and IPv6. Receive: a connection over each. Expect: both ends have the same
// name for where it went.
TEST(Address, IsNamedAlikeByBothEnds) {
  const auto listener = listen({.host = "::", .port = "0"});
  if (!listener && !has_ipv6()) GTEST_SKIP() << "there is no IPv6";
  ASSERT_TRUE(listener.has_value()) << listener.error().message();
  for (const std::string host : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
    const HostPort at{.host = host, .port = std::to_string(listener->port)};
    const auto socket = connect(at, "", in(base::second_ns));
    if (!socket && host == "::1" && !has_ipv6()) continue;  // no such address
    ASSERT_TRUE(socket.has_value()) << socket.error().message();
    ASSERT_TRUE(wait_for(listener->socket.get(), POLLIN, in(base::second_ns)));
    const base::FileDescriptor accepted = accept(*listener);
    const std::string plain = (host == "::1" ? "[::1]:" : "127.0.0.1:") + at.port;
    EXPECT_EQ(peer_address(socket->get()).value().text(), plain);
    EXPECT_EQ(own_address(accepted.get()).value().text(), plain);
    EXPECT_EQ(own_address(socket->get()).value().text(), peer_of(accepted.get()));
    EXPECT_EQ(std::to_string(own_address(accepted.get()).value().port()), at.port);
  }
}

TEST(Listen, AnAddressThatIsTakenIsNamed) {
  const auto first = listen({.host = "127.0.0.1", .port = "0"}).value();
  const auto second = listen({.host = "127.0.0.1", .port = std::to_string(first.port)});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::io);
  EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(first.port) + ": Address already in use"));
}

}  // namespace
}  // namespace loch::net
