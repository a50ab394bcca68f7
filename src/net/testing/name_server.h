// For tests of names: a process that is its own name server.
#pragma once

#include <arpa/inet.h>
#include <cstring>
#include <fstream>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "lab/temp_folder.h"

namespace loch::net::fake {

// The socket of the one name server of this process, which has a network and mounts of its own from now on;
// not open where it may not. It answers nobody by itself.
inline base::FileDescriptor become_name_server() {
  const lab::TempFolder folder = lab::TempFolder::make("/tmp").value();
  const std::string servers = folder.path() + "/resolv.conf";
  const bool is_written = (std::ofstream(servers) << "nameserver 127.0.0.1\n" << std::flush).good();
  const bool is_apart = is_written &&
                        ::unshare(CLONE_NEWNS | CLONE_NEWNET | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) == 0 &&
                        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        ::mount(servers.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) == 0;
  base::FileDescriptor server(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  const sockaddr_in at{.sin_family = AF_INET,
                       .sin_port = htons(53),
                       .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                       .sin_zero = {}};
  if (!is_apart || ::ioctl(server.get(), SIOCSIFFLAGS, &loopback) != 0 ||
      ::bind(server.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return {};
  return server;
}

}  // namespace loch::net::fake
