#include "fabric/shm/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace loch::fabric::shm {
namespace {

constexpr int madv_collapse = 25;  // MADV_COLLAPSE of Linux 6.1; older headers do not name it

}  // namespace

Result<FileMapping> FileMapping::map(int fd, std::uint64_t reserved_bytes, const std::string& path) {
  // An anonymous reservation first, so that the file can be placed on a huge page's boundary.
  const std::uint64_t padded = reserved_bytes + huge_page_bytes;
  void* reservation = ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) {
    return fail(
        Errc::io, "open",
        fmt::format(
            "{} bytes of address space for {}: {}; raise `ulimit -v`, or have the store on a smaller file "
            "system (--directory)",
            padded, path, std::strerror(errno)));
  }
  auto* start = static_cast<std::byte*>(reservation);
  const std::uint64_t misaligned = reinterpret_cast<std::uintptr_t>(start) % huge_page_bytes;
  std::byte* aligned = misaligned == 0 ? start : start + (huge_page_bytes - misaligned);
  if (aligned != start) ::munmap(start, static_cast<std::size_t>(aligned - start));
  std::byte* end = start + padded;
  std::byte* mapped_end = aligned + reserved_bytes;
  if (end != mapped_end) ::munmap(mapped_end, static_cast<std::size_t>(end - mapped_end));

  void* mapped =
      ::mmap(aligned, reserved_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error_number = errno;
    ::munmap(aligned, reserved_bytes);
    return system_error("open", error_number, path);
  }
  FileMapping result;
  result.base_ = aligned;
  result.reserved_bytes_ = reserved_bytes;
  result.guarded_ = GuardedRange(aligned, reserved_bytes);
  return result;
}

FileMapping::~FileMapping() {
  if (base_ == nullptr) return;
  guarded_ = {};
  ::munmap(base_, reserved_bytes_);
}

bool FileMapping::collapse(std::uint64_t at_bytes) const {
  if (reserved_bytes_ < huge_page_bytes || at_bytes > reserved_bytes_ - huge_page_bytes) return false;
  // What another process uses just now is tried again.
  constexpr int tries_max = 3;
  int tried = 0;
  while (::madvise(base_ + at_bytes, huge_page_bytes, madv_collapse) != 0) {
    if (errno != EAGAIN) return false;
    if (++tried == tries_max) break;
  }
  return true;
}

void FileMapping::keep_to_this_process(int fd) const {
  // Where the kernel promises no more memory than there is, what may be written counts in full, whatever the
  // flags: so no more of it than there is, after the rest.
  const void* const kept =
      ::mmap(base_, reserved_bytes_, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0);
  struct stat stat{};
  if (kept == MAP_FAILED || ::fstat(fd, &stat) != 0) {
    ::mprotect(base_, reserved_bytes_, PROT_READ);
    return;
  }
  const auto length = std::min(static_cast<std::uint64_t>(stat.st_size), reserved_bytes_);
  ::mprotect(base_, length, PROT_READ | PROT_WRITE);
}

void FileMapping::want_huge_pages() const { ::madvise(base_, reserved_bytes_, MADV_HUGEPAGE); }

std::unexpected<Error> system_error(const char* operation, int error_number, const std::string& path) {
  const char* reason = std::strerror(error_number);
  switch (error_number) {
    case ENOENT:
      return fail(Errc::not_found, operation, fmt::format("{}: {}", path, reason));
    case EACCES:
    case EPERM:
      return fail(Errc::permission, operation,
                  fmt::format("{}: {}; the files' mode and group say who may use the store", path, reason));
    case ENOSPC:
    case EDQUOT:
      return fail(
          Errc::no_space, operation,
          fmt::format(
              "{}: {}; {} bytes are free there. Remove items or stores (`loch ls`), or enlarge the file "
              "system (`mount -o remount,size=...`)",
              path, reason, free_bytes_at(path)));
    case EFBIG:
      return fail(Errc::io, operation,
                  fmt::format("{}: {}; raise `ulimit -f`, or LimitFSIZE of the unit", path, reason));
    default:
      return fail(Errc::io, operation, fmt::format("{}: {}", path, reason));
  }
}

std::uint64_t free_bytes_at(const std::string& path) {
  struct statvfs stat{};
  if (::statvfs(path.c_str(), &stat) != 0) return 0;
  constexpr std::uint64_t without_limit = std::uint64_t{1}
                                          << 56;  // a tmpfs of size=0: more than any host has
  if (stat.f_blocks == 0) return without_limit;
  return static_cast<std::uint64_t>(stat.f_bavail) * stat.f_frsize;
}

Result<void> reserve(int fd, std::uint64_t length_bytes, const FileMapping* in_huge_pages,
                     const std::string& path) {
  struct stat stat{};
  if (::fstat(fd, &stat) != 0) return system_error("extend", errno, path);
  auto length = static_cast<std::uint64_t>(stat.st_size);
  // Going over this limit would end a process that does not ignore SIGXFSZ.
  rlimit limit{};
  if (length < length_bytes && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && length_bytes > limit.rlim_cur)
    return system_error("extend", EFBIG, path);
  // Unlike ftruncate, this takes the memory now: a full file system is an error here and never a SIGBUS
  // later. The length grows only once all of it is there.
  const auto take = [&](std::uint64_t bytes) {
    // A signal undoes what one call has taken, so a process that gets many gets on with short ones only.
    constexpr int tries_max = 1'000;
    int error_number = EINTR;
    for (int tried = 0; error_number == EINTR && tried < tries_max; ++tried)
      error_number = ::posix_fallocate(fd, static_cast<off_t>(length), static_cast<off_t>(bytes));
    return error_number;
  };
  // Piece by piece only where there is room for all of it: else what was taken would stay.
  const bool has_room = length >= length_bytes || free_bytes_at(path) >= length_bytes - length;
  if (!has_room) in_huge_pages = nullptr;
  while (length < length_bytes) {
    std::uint64_t end = (length / huge_page_bytes + 1) * huge_page_bytes;
    if (end > length_bytes) in_huge_pages = nullptr;
    if (in_huge_pages != nullptr) {
      // The kernel makes a huge page of a small one and nothing else, which is cleared once: a tenth of what
      // it takes to take all the small ones and copy them.
      constexpr std::uint64_t small_page_bytes = 4'096;
      if (length % huge_page_bytes == 0) {
        if (const int error_number = take(small_page_bytes); error_number != 0)
          return system_error("extend", error_number, path);
      }
      if (!in_huge_pages->collapse(end - huge_page_bytes)) in_huge_pages = nullptr;
    }
    if (!has_room || end > length_bytes) end = length_bytes;
    if (const int error_number = take(end - length); error_number != 0)
      return system_error("extend", error_number, path);
    length = end;
  }
  return {};
}

}  // namespace loch::fabric::shm
