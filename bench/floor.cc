#include "bench/floor.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/random.h"

namespace loch::bench {
namespace {

constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;
constexpr int advice_collapse = 25;  // MADV_COLLAPSE of kernel 6.1 and later; older headers do not name it

// Makes the compiler compute `value`, and nothing else.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

std::unexpected<Error> file_failure(const char* step, const std::string& path, int number) {
  if (number == ENOSPC) {
    struct statvfs system{};
    const std::uint64_t free_bytes =
        statvfs(path.c_str(), &system) == 0 ? system.f_bavail * system.f_frsize : 0;
    return fail(Errc::no_space, "floor",
                fmt::format("{} {}: no space ({} bytes free); take another --directory or fewer items", step,
                            path, free_bytes));
  }
  return fail(Errc::io, "floor", fmt::format("{} {}: {}", step, path, std::strerror(number)));
}

}  // namespace

Result<Floor> Floor::create(const std::string& path, std::uint64_t bytes, std::uint64_t seed) {
  const base::FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return file_failure("create", path, errno);
  bytes = std::max(bytes + huge_page_bytes - 1, huge_page_bytes) / huge_page_bytes * huge_page_bytes;
  const int number = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (number != 0) {
    auto failure = file_failure("allocate", path, number);
    unlink(path.c_str());
    return failure;
  }
  auto floor = map(file.get(), path, bytes);
  if (floor) floor->build_cycle(seed);
  return floor;
}

Result<Floor> Floor::attach(const std::string& path) {
  const base::FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return file_failure("open", path, errno);
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return file_failure("read the size of", path, errno);
  return map(file.get(), path, static_cast<std::uint64_t>(status.st_size));
}

// A mapping in pages of 2 MiB must begin at a multiple of them: reserve more, and map over an aligned part of
// it.
Result<Floor> Floor::map(int file, const std::string& path, std::uint64_t bytes) {
  const std::uint64_t reserved_bytes = bytes + huge_page_bytes;
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return file_failure("reserve addresses for", path, errno);
  auto* const first = static_cast<char*>(reserved);
  const std::uint64_t over = reinterpret_cast<std::uintptr_t>(first) % huge_page_bytes;
  const std::uint64_t front_bytes = over == 0 ? 0 : huge_page_bytes - over;
  char* const begin = first + front_bytes;
  if (front_bytes != 0) munmap(first, front_bytes);
  munmap(begin + bytes, reserved_bytes - front_bytes - bytes);
  void* const mapped = mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  if (mapped == MAP_FAILED) {
    const int number = errno;
    munmap(begin, bytes);
    return file_failure("map", path, number);
  }
  Floor floor;
  floor.lines_ = static_cast<Line*>(mapped);
  floor.bytes_ = bytes;
  floor.ask_for_huge_pages();
  return floor;
}

void Floor::ask_for_huge_pages() {
  madvise(lines_, bytes_, MADV_HUGEPAGE);
  // Piece by piece, so that one piece without free memory does not end it for the rest. Small pages are no
  // error.
  auto* const begin = reinterpret_cast<char*>(lines_);
  for (std::uint64_t at = 0; at < bytes_; at += huge_page_bytes) {
    madvise(begin + at, std::min(huge_page_bytes, bytes_ - at), advice_collapse);
  }
}

// Sattolo's shuffle: one cycle through all lines.
void Floor::build_cycle(std::uint64_t seed) {
  for (std::uint64_t i = 0; i < lines(); ++i) {
    lines_[i].words[0] = i;
    for (std::uint64_t word = 2; word < 8; ++word) lines_[i].words[word] = i + word;
  }
  base::Random random(seed);
  for (std::uint64_t i = lines() - 1; i > 0; --i)
    std::swap(lines_[i].words[0], lines_[random.below(i)].words[0]);
}

Lap Floor::independent_reads(double seconds, std::uint64_t seed) {
  constexpr std::uint64_t between_clocks = 4096;
  base::Random random(seed);
  std::uint64_t sum = 0;
  const Lap lap = repeat_for(seconds, between_clocks, [&] {
    for (std::uint64_t i = 0; i < between_clocks; ++i) {
      const Line& line = lines_[random.below(lines())];
      for (const std::uint64_t word : line.words) sum += word;
    }
    keep(sum);
  });
  return lap;
}

Lap Floor::dependent_reads(double seconds, std::uint64_t seed) {
  constexpr std::uint64_t between_clocks = 1024;
  std::uint64_t at = base::Random(seed).below(lines());
  return repeat_for(seconds, between_clocks, [&] {
    for (std::uint64_t i = 0; i < between_clocks; ++i) at = lines_[at].words[0];
    keep(at);
  });
}

Lap Floor::compare_swaps(double seconds, std::uint64_t seed) {
  constexpr std::uint64_t between_clocks = 4096;
  base::Random random(seed);
  std::uint64_t failures = 0;
  const Lap lap = repeat_for(seconds, between_clocks, [&] {
    for (std::uint64_t i = 0; i < between_clocks; ++i) {
      const std::atomic_ref word(lines_[random.below(lines())].words[1]);
      // It succeeds with the word that it finds: the processor takes the line for writing all the same.
      std::uint64_t expected = 0;
      failures += word.compare_exchange_strong(expected, 0, std::memory_order_acq_rel) ? 0 : 1;
    }
    keep(failures);
  });
  return lap;
}

Lap Floor::copies(double seconds, std::uint64_t seed, std::size_t length_bytes) {
  constexpr std::uint64_t between_clocks = 8;
  const std::uint64_t length_lines =
      std::min<std::uint64_t>((length_bytes + line_bytes - 1) / line_bytes, lines());
  std::vector<char> buffer(length_lines * line_bytes);
  base::Random random(seed);
  return repeat_for(seconds, between_clocks, [&] {
    for (std::uint64_t i = 0; i < between_clocks; ++i) {
      const Line* from = lines_ + random.below(lines() - length_lines + 1);
      std::memcpy(buffer.data(), from, std::min(length_bytes, buffer.size()));
      keep(buffer.data());
    }
  });
}

std::uint64_t Floor::next_of(std::uint64_t line) const { return lines_[line].words[0]; }

// From the kernel's account of this process's mappings: the lines after the one that begins with our address.
// The others begin with a name and a colon.
std::uint64_t Floor::huge_bytes() const {
  std::ifstream account("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(lines_));
  bool ours = false;
  for (std::string line; std::getline(account, line);) {
    if (line.substr(0, line.find(' ')).find(':') == std::string::npos) ours = line.starts_with(begin);
    if (!ours || !line.starts_with("ShmemPmdMapped:")) continue;
    std::uint64_t kib = 0;
    std::istringstream(line.substr(line.find(':') + 1)) >> kib;
    return kib << 10;
  }
  return 0;
}

Floor::Floor(Floor&& other) noexcept
    : lines_(std::exchange(other.lines_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Floor& Floor::operator=(Floor&& other) noexcept {
  if (this != &other) {
    unmap();
    lines_ = std::exchange(other.lines_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Floor::~Floor() { unmap(); }

void Floor::unmap() noexcept {
  if (lines_ != nullptr) munmap(lines_, bytes_);
}

}  // namespace loch::bench
