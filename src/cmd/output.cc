#include "cmd/output.h"

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "cmd/terminal.h"

namespace loch::cmd {
namespace {

constexpr std::size_t kept_bytes_max = std::size_t{64} << 10;

// The folder that it is in, with no link on the way; empty if there is none.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  std::error_code failed;
  const auto whole = std::filesystem::absolute(path, failed);
  return failed ? whole : std::filesystem::canonical(whole.parent_path(), failed);
}

// Whether it stands for what a process has open, as /proc/17/fd/3 does.
bool is_descriptor(const std::filesystem::path& path) {
  const auto folder = folder_of(path);
  return folder.filename() == "fd" && folder.native().starts_with("/proc/");
}

// Where a link leads, also to what is yet to be: that is what is replaced, not the link. A descriptor is left
// as it is: what its link says need be no path.
std::filesystem::path followed(std::filesystem::path path) {
  constexpr int links_max = 40;
  std::error_code failed;
  for (int links = 0; links < links_max && !is_descriptor(path); ++links) {
    if (!std::filesystem::is_symlink(path, failed)) break;
    const auto target = std::filesystem::read_symlink(path, failed);
    if (failed) break;
    path = path.parent_path() / target;
  }
  return path;
}

// Opens a descriptor: one of this process's as it was given, another's to write after what is there. -1 and
// errno if it can not.
int open_descriptor(const std::filesystem::path& path) {
  if (folder_of(path) != folder_of("/proc/self/fd/0"))
    return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const std::string name = path.filename();
  const char* const end = name.data() + name.size();
  int number = -1;
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  const int flags = error == std::errc{} && rest == end ? ::fcntl(number, F_GETFD) : -1;
  // One that exec would close was not given to us: it is of the store's own files.
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) return ::fcntl(number, F_DUPFD_CLOEXEC, 0);
  errno = EBADF;
  return -1;
}

// Opens what is written in place.
int open_in_place(const std::filesystem::path& path) {
  return is_descriptor(path) ? open_descriptor(path) : ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
}

}  // namespace

bool Output::write(std::string_view bytes) {
  if (!good()) return false;
  if (bytes.size() >= kept_bytes_max) {  // a large value: not copied
    flush();
    write_through(bytes);
    return good();
  }
  kept_ += bytes;
  if (kept_.size() >= kept_bytes_max) flush();
  return good();
}

bool Output::flush() {
  write_through(kept_);
  kept_.clear();
  return good();
}

bool Output::reader_gone() const { return error_ == EPIPE; }

void Output::write_through(std::string_view bytes) {
  constexpr int meanwhile_ms = 250;
  while (!bytes.empty() && good()) {
    const bool may_wait = !meanwhile_ && !interrupted();
    if (!may_wait && !has_room(interrupted() ? 0 : meanwhile_ms)) {
      if (interrupted()) {
        error_ = EINTR;
      } else {
        meanwhile_();
      }
      continue;
    }
    // What a pipe that has room takes without waiting.
    const auto part = may_wait ? bytes : bytes.substr(0, PIPE_BUF);
    const ssize_t written = ::write(descriptor_, part.data(), part.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

bool Output::has_room(int wait_ms) const {
  pollfd output{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const int ready = ::poll(&output, 1, wait_ms);
  return ready > 0 || (ready < 0 && errno != EINTR);  // an error is for the write to tell
}

Parsed<WholeFile> WholeFile::create(const std::string& path) {
  const std::string target = followed(path);
  struct stat status{};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (is_descriptor(target) || (exists && !S_ISREG(status.st_mode))) {
    const int descriptor = open_in_place(target);
    if (descriptor < 0) return std::unexpected(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    return WholeFile(descriptor, "", path);
  }
  // Of a name that no other process has, nor has left there when it was killed.
  constexpr std::string_view ending = ".part";
  std::string temporary = fmt::format("{}.XXXXXX{}", target, ending);
  const int descriptor = ::mkostemps(temporary.data(), static_cast<int>(ending.size()), O_CLOEXEC);
  if (descriptor < 0) {
    return std::unexpected(
        fmt::format("cannot create a file in the folder of {}: {}", path, std::strerror(errno)));
  }
  WholeFile file(descriptor, std::move(temporary), target);
  if (!exists) return file;
  // Whoever may read the one that it replaces may read it too, and nobody else: no other group, if this can
  // not be its group's.
  struct stat made{};
  const bool has_group = ::fchown(descriptor, static_cast<uid_t>(-1), status.st_gid) == 0 ||
                         (::fstat(descriptor, &made) == 0 && made.st_gid == status.st_gid);
  if (::fchmod(descriptor, status.st_mode & (has_group ? 0777 : 0707)) != 0)
    return std::unexpected(fmt::format("cannot give {} its mode: {}", path, std::strerror(errno)));
  return file;
}

WholeFile::WholeFile(WholeFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      temporary_(std::move(other.temporary_)),
      path_(std::move(other.path_)) {}

WholeFile::~WholeFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Parsed<void> WholeFile::publish() {
  if (!temporary_.empty() &&
      (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)) {
    return std::unexpected(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    return std::unexpected(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  return {};
}

}  // namespace loch::cmd
