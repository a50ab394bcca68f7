#include "net/cookie.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace loch::net {
namespace {

constexpr std::size_t random_bytes = 32;
constexpr std::size_t digits = 2 * random_bytes;

std::unexpected<Error> system_error(int error_number, const std::string& path) {
  const bool is_forbidden = error_number == EACCES || error_number == EPERM || error_number == EROFS;
  const Errc code = error_number == ENOENT ? Errc::not_found : is_forbidden ? Errc::permission : Errc::io;
  return fail(code, "cookie", fmt::format("{}: {}", path, std::strerror(error_number)));
}

bool is_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Whole under another name first; somebody else may be first with the one that counts.
Result<void> make(const std::string& path) {
  const std::string unnamed = path + "." + random_hex(8);
  const base::FileDescriptor file(
      ::open(unnamed.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return system_error(errno, unnamed);
  const std::string text = random_hex(random_bytes) + "\n";
  const bool is_whole = ::fchmod(file.get(), 0600) == 0 &&
                        ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool is_there = is_whole && ::link(unnamed.c_str(), path.c_str()) == 0;
  const int error_number = errno;
  ::unlink(unnamed.c_str());
  if (is_there || (is_whole && error_number == EEXIST)) return {};
  return system_error(error_number, path);
}

}  // namespace

std::string cookie_path(const std::string& directory, uid_t user) {
  return fmt::format("{}/.loch-cookie.{}", directory, user);
}

Result<Secret> read_cookie(const std::string& directory, uid_t user) {
  const std::string path = cookie_path(directory, user);
  // Not to wait for the other end, if somebody has put a pipe there.
  constexpr int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const base::FileDescriptor file(::open(path.c_str(), flags));
  if (!file.is_open() && errno == ELOOP)
    return fail(Errc::corrupt, "cookie", fmt::format("{} is a link; remove it", path));
  struct stat stat{};
  if (!file.is_open() || ::fstat(file.get(), &stat) != 0) return system_error(errno, path);
  if (!S_ISREG(stat.st_mode))
    return fail(Errc::corrupt, "cookie", fmt::format("{} is no plain file; remove it", path));
  if (stat.st_uid != user) {
    return fail(Errc::permission, "cookie",
                fmt::format("{} belongs to user {}, and should to user {}; it has to be removed", path,
                            stat.st_uid, user));
  }
  if ((stat.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(Errc::permission, "cookie",
                fmt::format("{} was for others, too (mode {:o}), who may know it; remove it, and lochd makes "
                            "another when it starts",
                            path, stat.st_mode & 0777U));
  }
  std::array<char, digits + 2> bytes{};
  const ssize_t got = ::read(file.get(), bytes.data(), bytes.size());
  if (got < 0) return system_error(errno, path);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  if (text.size() != digits + 1 || text.back() != '\n' ||
      !std::ranges::all_of(text.substr(0, digits), is_digit)) {
    return fail(
        Errc::corrupt, "cookie",
        fmt::format("{} is none of lochd's; remove it, and lochd makes another when it starts", path));
  }
  return digest(Secret{}, {"loch cookie", text.substr(0, digits)});
}

Result<Secret> own_cookie(const std::string& directory) {
  const uid_t self = ::geteuid();
  auto cookie = read_cookie(directory, self);
  if (cookie || cookie.error().code != Errc::not_found) return cookie;
  if (auto made = make(cookie_path(directory, self)); !made) {
    // What is not there is the directory.
    if (made.error().code == Errc::not_found) made.error().code = Errc::io;
    return std::unexpected(std::move(made.error()));
  }
  return read_cookie(directory, self);
}

Secret cookie_key(const Secret& cookie, std::string_view server_address) {
  return digest(cookie, {"loch cookie at", server_address});
}

}  // namespace loch::net
