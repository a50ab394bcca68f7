// For tests: a TCP port that nobody else is given as long as the object lives, for servers that end and come
// back to where they were.
//
// A socket is bound to it and never listens. Linux gives such a port to no connection and to nobody who asks
// for any port; whoever binds to this one with SO_REUSEADDR, as servers do, gets it.
#pragma once

#include <array>
#include <cerrno>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"
#include "net/socket.h"

namespace loch::net::fake {

class ReservedPort {
 public:
  // `host` is an address of this host.
  explicit ReservedPort(std::string host = "127.0.0.1") : at_{.host = std::move(host), .port = "0"} {
    SocketAddress address = look_up(at_, base::Clock().now() + look_up_max_ns).value();
    socket_ = base::FileDescriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must(::bind(socket_.get(), address.get(), address.length), "bind");
    // Not before: the port is to be one that nobody has reserved.
    constexpr int yes = 1;
    must(::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), "setsockopt");
    must(::getsockname(socket_.get(), address.get(), &address.length), "getsockname");
    std::array<char, NI_MAXSERV> port{};
    must(::getnameinfo(address.get(), address.length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV),
         "getnameinfo");
    at_.port = port.data();
  }

  [[nodiscard]] const HostPort& at() const { return at_; }

 private:
  static void must(int result, const char* call) {
    if (result != 0) throw std::system_error(errno, std::generic_category(), call);
  }

  HostPort at_;
  base::FileDescriptor socket_;
};

}  // namespace loch::net::fake
