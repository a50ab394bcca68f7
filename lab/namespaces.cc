#include "lab/namespaces.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "lab/process.h"

namespace loch::lab {
namespace {

constexpr std::chrono::seconds command_timeout{10};

std::unexpected<Error> failure(const char* step) {
  const int number = errno;
  std::string what = fmt::format("{}: {}", step, std::strerror(number));
  if (number != EPERM) return fail(Errc::io, "network", std::move(what));
  return fail(
      Errc::permission, "network",
      what + "; network namespaces are for root, in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN");
}

}  // namespace

Result<NetworkNamespace> NetworkNamespace::current() {
  base::FileDescriptor descriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) return failure("open /proc/thread-self/ns/net");
  return NetworkNamespace(std::move(descriptor));
}

Result<NetworkNamespace> NetworkNamespace::enter_new() {
  if (::unshare(CLONE_NEWNET) != 0) return failure("unshare");
  return current();
}

Result<void> NetworkNamespace::enter() const {
  if (::setns(descriptor(), CLONE_NEWNET) != 0) return failure("setns");
  return {};
}

std::string NetworkNamespace::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor()); }

Result<Ip> Ip::make(std::string log) {
  auto program = find_program("ip", "iproute2");
  if (!program) return std::unexpected(std::move(program.error()));
  return Ip(std::move(*program), std::move(log));
}

Result<void> Ip::run(std::vector<std::string> words) const {
  words.insert(words.begin(), program_);
  return Process::run_to_end({.words = std::move(words), .log = log_}, command_timeout);
}

Result<void> Ip::raise(const std::string& interface, const std::string& address) const {
  if (auto done = run({"address", "add", address, "dev", interface}); !done) return done;
  return run({"link", "set", interface, "up"});
}

}  // namespace loch::lab
