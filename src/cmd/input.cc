#include "cmd/input.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "cmd/terminal.h"

namespace loch::cmd {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{256} << 10;

// Appends what one read gives; 0 at the end of the file.
Parsed<std::size_t> read_some(int descriptor, std::string& into) {
  const std::size_t before = into.size();
  into.resize(before + chunk_bytes);
  ssize_t got = 0;
  do {
    got = ::read(descriptor, into.data() + before, chunk_bytes);
  } while (got < 0 && errno == EINTR && !interrupted());
  const int error = errno;
  into.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
  if (got < 0) return std::unexpected(fmt::format("cannot read: {}", std::strerror(error)));
  return static_cast<std::size_t>(got);
}

}  // namespace

Parsed<InputFile> InputFile::open(const std::string& path) {
  if (path == "-") return InputFile(STDIN_FILENO, false, "standard input");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::unexpected(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  InputFile file(descriptor, true, path);
  struct stat status{};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode))
    return std::unexpected(fmt::format("cannot open {}: {}", path, std::strerror(EISDIR)));
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(other.descriptor_),
      owned_(std::exchange(other.owned_, false)),
      name_(std::move(other.name_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(owned_, other.owned_);
  std::swap(name_, other.name_);
  return *this;
}

InputFile::~InputFile() {
  if (owned_) ::close(descriptor_);
}

std::optional<std::uint64_t> InputFile::size_bytes() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(status.st_size);
}

Parsed<std::optional<std::string>> InputFile::read_all(std::size_t bytes_max) {
  std::string all;
  while (true) {
    const auto got = read_some(descriptor_, all);
    if (!got) return std::unexpected(fmt::format("{}: {}", name_, got.error()));
    if (all.size() > bytes_max) return std::nullopt;
    if (*got == 0) return all;
  }
}

bool LineReader::line_ready() const { return ended_ || buffer_.find('\n', begin_) != std::string::npos; }

Parsed<bool> LineReader::fill() {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
  }
  const auto got = read_some(descriptor_, buffer_);
  if (!got) return std::unexpected(got.error());
  if (*got == 0) ended_ = true;
  return *got > 0;
}

Parsed<std::optional<std::string_view>> LineReader::next() {
  while (true) {
    const std::size_t newline = buffer_.find('\n', searched_);
    const bool last = newline == std::string::npos && ended_;
    if (last && begin_ == buffer_.size()) return std::nullopt;
    if (newline != std::string::npos || last) {
      const std::size_t end = last ? buffer_.size() : newline;
      std::string_view line(buffer_.data() + begin_, end - begin_);
      begin_ = last ? end : end + 1;
      searched_ = begin_;
      ++line_number_;
      bytes_taken_ += line.size() + 1;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line_number_ == 1 && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
      return line;
    }
    searched_ = buffer_.size();
    if (searched_ - begin_ > line_bytes_max_) {
      return std::unexpected(
          fmt::format("line {} is longer than {} bytes", line_number_ + 1, line_bytes_max_));
    }
    const auto filled = fill();
    if (!filled) return std::unexpected(filled.error());
  }
}

}  // namespace loch::cmd
