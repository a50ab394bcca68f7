// For tests of what a process may do: children that are somebody else's, or have mounts of their own.
#pragma once

#include <array>
#include <fmt/format.h>
#include <functional>
#include <grp.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loch::base::fake {

inline constexpr uid_t nobody = 65'534;

// The calling process is that user's from now on, and of the group of the same number alone, if it was
// root's. False if that failed.
inline bool give_up_root(uid_t user = nobody) {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 && ::setuid(user) == 0;
}

// A file system in memory of its own is on the folder from now on, for this process alone. False if it may
// have none.
inline bool mount_small(const std::string& folder, const char* size) {
  return ::unshare(CLONE_NEWNS | (::geteuid() == 0 ? 0 : CLONE_NEWUSER)) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("small", folder.c_str(), "tmpfs", 0, size) == 0;
}

// Runs `body` in a child; what it returns, or how the child ended.
inline std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = body();
    const bool told = ::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 256> buffer{};
  for (ssize_t got = 0; (got = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0
             ? said
             : fmt::format("ended with status {:#x}: {}", status, said);
}

// For what such a child says of a Result.
inline std::string outcome(const auto& result) {
  return result ? "ok" : fmt::format("{}: {}", name(result.error().code), result.error().detail);
}

}  // namespace loch::base::fake
