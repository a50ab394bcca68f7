// Small owners of what the kernel hands out, and the errors of its calls as ours.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/file_descriptor.h"
#include "fabric/bus_guard.h"
#include "fabric/fabric.h"

namespace loch::fabric::shm {

using base::FileDescriptor;

// Address space for a file that grows: the whole length is mapped at the start, and pages come to life as the
// file gets them. Aligned to a huge page.
class FileMapping {
 public:
  static Result<FileMapping> map(int fd, std::uint64_t reserved_bytes, const std::string& path);

  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        reserved_bytes_(std::exchange(other.reserved_bytes_, 0)),
        guarded_(std::move(other.guarded_)) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(guarded_, other.guarded_);
    return *this;
  }
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t reserved_bytes() const { return reserved_bytes_; }
  // Whether it was touched where the file was cut off (bus_guard.h): it is the file's no longer.
  [[nodiscard]] bool is_lost() const { return guarded_.is_lost(); }

  // Says that huge pages are welcome everywhere. Once for the whole mapping: each part that differed would be
  // a mapping of its own.
  void want_huge_pages() const;
  // Puts what the file has of the 2 MiB at `at_bytes`, one page at least, into a huge page, whose rest is
  // zero, though the file be shorter. False if there is none to be had (MADV_COLLAPSE, Linux 6.1), or the
  // mapping does not go as far; small pages do.
  [[nodiscard]] bool collapse(std::uint64_t at_bytes) const;
  // From now on what is written here comes neither to the file nor to anybody else who maps it; what is not
  // written goes on as the file does. Where the kernel has no memory for that, nothing can be written.
  void keep_to_this_process(int fd) const;

 private:
  std::byte* base_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  GuardedRange guarded_;
};

inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

// The Error for `errno` after a failed call about `path`.
std::unexpected<Error> system_error(const char* operation, int error_number, const std::string& path);

// Free bytes of the file system of `path`; 0 if it can not be asked.
std::uint64_t free_bytes_at(const std::string& path);

// Makes the file at least `length_bytes` long, its memory reserved, so that no later touch of it fails: in
// huge pages, whole ones, if its mapping is given and as long as there are any to be had.
Result<void> reserve(int fd, std::uint64_t length_bytes, const FileMapping* in_huge_pages,
                     const std::string& path);

}  // namespace loch::fabric::shm
