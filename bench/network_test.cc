#include "bench/network.h"

#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "bench/socket_stream.h"
#include "lab/namespaces.h"
#include "lab/process.h"
#include "lab/temp_folder.h"

namespace loch::bench {
namespace {

// A thread does not come back from the clients' namespace, so this is for a child.
int in_child(const std::function<int()>& body) {
  const auto ended = lab::Process::fork(body).value().wait_for_end(std::chrono::seconds(60));
  return ended ? ended->exit_code : -1;
}

// Receive: a server in the servers' namespace. Expect: whoever made the network gets to it by its address,
// and by no other way. Without privileges: loopback, and the reason.
TEST(Network, JoinsTwoNamespacesOrSaysWhyNot) {
  const auto folder = lab::TempFolder::make("/tmp").value();
  const std::string log = folder.path() + "/log";
  const int outcome = in_child([&] {
    const Network network = Network::make(log);
    if (!network.has_namespaces()) {
      const bool says_why = network.text().contains("loopback") && network.text().contains("unshare");
      return says_why && network.servers() == -1 && network.server_address() == "127.0.0.1" ? 0 : 1;
    }
    const auto port = network.free_port();
    if (!port) return 2;
    const auto connects = [&](const std::string& address) {
      return SocketStream::connect_tcp(address, *port, 5).has_value();
    };
    const auto server = lab::Process::start_until(
        {.words = {lab::find_program("memcached", "memcached").value(), "-u", "root", "-U", "0", "-p",
                   std::to_string(*port)},
         .log = log,
         .network_namespace = network.servers()},
        [&] { return connects(network.server_address()); }, std::chrono::seconds(20));
    if (!server) return 3;
    return connects("127.0.0.1") ? 4 : 0;
  });
  EXPECT_EQ(outcome, 0);
}

std::string congestion_control_of(const base::FileDescriptor& socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  return name.data();
}

// Receive: a connection between the namespaces, on a system of any congestion control. Expect: both ends have
// the one that the network tells of.
TEST(Network, ChoosesTheCongestionControl) {
  const auto folder = lab::TempFolder::make("/tmp").value();
  const int outcome = in_child([&] {
    const Network network = Network::make(folder.path() + "/log");
    if (!network.has_namespaces()) return 0;
    const auto clients = lab::NetworkNamespace::current().value();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, network.server_address().c_str(), &address.sin_addr);
    socklen_t length = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    network.enter_servers().value();
    const base::FileDescriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(listening.get(), name, length) != 0 || ::listen(listening.get(), 1) != 0 ||
        ::getsockname(listening.get(), name, &length) != 0)
      return 1;
    clients.enter().value();
    const base::FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(client.get(), name, length) != 0) return 2;
    const base::FileDescriptor server(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!network.text().ends_with(congestion_control_of(client))) return 3;
    return network.text().ends_with(congestion_control_of(server)) ? 0 : 4;
  });
  EXPECT_EQ(outcome, 0);
}

TEST(Network, OverLoopbackItTellsTheReasonAndAFreePort) {
  const Network network("nobody asked for more");
  EXPECT_TRUE(network.text().contains("nobody asked for more"));
  EXPECT_FALSE(network.has_namespaces());
  const auto port = network.free_port();
  ASSERT_TRUE(port) << port.error().detail;
  EXPECT_NE(*port, 0);
  EXPECT_FALSE(SocketStream::connect_tcp(network.server_address(), *port, 5));
}

}  // namespace
}  // namespace loch::bench
