#include "cmd/output.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace loch::cmd {
namespace {

constexpr std::size_t kept_bytes_max = std::size_t{64} << 10;

// Where a link leads, also to what is yet to be: that is what is replaced, not the link.
std::string followed(std::filesystem::path path) {
  constexpr int links_max = 40;
  std::error_code failed;
  for (int links = 0; links < links_max && std::filesystem::is_symlink(path, failed); ++links) {
    const auto target = std::filesystem::read_symlink(path, failed);
    if (failed) break;
    path = path.parent_path() / target;
  }
  return path;
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
  while (!bytes.empty() && good()) {
    if (meanwhile_ && !has_room()) {
      meanwhile_();
      continue;
    }
    // What a pipe that has room takes without waiting.
    const auto part = meanwhile_ ? bytes.substr(0, PIPE_BUF) : bytes;
    const ssize_t written = ::write(descriptor_, part.data(), part.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

// An error is for the write to tell.
bool Output::has_room() const {
  constexpr int wait_ms = 250;
  pollfd output{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  return ::poll(&output, 1, wait_ms) != 0;
}

Parsed<WholeFile> WholeFile::create(const std::string& path) {
  const std::string target = followed(path);
  struct stat status{};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  const bool in_place = exists && !S_ISREG(status.st_mode);
  std::string temporary = in_place ? "" : fmt::format("{}.{}.part", target, ::getpid());
  const int descriptor = in_place ? ::open(target.c_str(), O_WRONLY | O_CLOEXEC)
                                  : ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return std::unexpected(
        fmt::format("cannot create {}: {}", in_place ? target : temporary, std::strerror(errno)));
  }
  WholeFile file(descriptor, std::move(temporary), target);
  // Whoever may read the one that it replaces may read it too, and nobody else.
  if (exists && !in_place && ::fchmod(descriptor, status.st_mode & 0777) != 0)
    return std::unexpected(fmt::format("cannot give {} its mode: {}", target, std::strerror(errno)));
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
