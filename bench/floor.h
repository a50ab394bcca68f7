// bench/floor: what the machine itself takes for one access to memory of the kind that a store lies in: a
// shared mapping of a file in memory, in pages of 2 MiB where the kernel gives them. No store can be faster;
// every figure of the benchmark is shown as a multiple of it.
//
// The memory is an array of cache lines. Word 0 of a line is the number of the next line on one random cycle
// through all lines; word 1 is what compare-swap works on. One Floor belongs to one thread; several processes
// may attach the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <loch/error.h>

#include "bench/lap.h"

namespace loch::bench {

class Floor {
 public:
  static constexpr std::size_t line_bytes = 64;

  // Makes the file `path` of `bytes` (rounded up to 2 MiB), takes its memory from the system and builds the
  // cycle. Errors: no_space with the path and the free bytes, io.
  static Result<Floor> create(const std::string& path, std::uint64_t bytes, std::uint64_t seed);
  static Result<Floor> attach(const std::string& path);

  Floor(Floor&& other) noexcept;
  Floor& operator=(Floor&& other) noexcept;
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;
  ~Floor();

  // Each runs for about `seconds`, at least once.
  Lap independent_reads(double seconds, std::uint64_t seed);  // all 64 bytes of random lines
  Lap dependent_reads(double seconds, std::uint64_t seed);  // a line's address is known from the line before
  Lap compare_swaps(double seconds, std::uint64_t seed);    // on random lines
  Lap copies(double seconds, std::uint64_t seed,
             std::size_t length_bytes);  // random places to a private buffer

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t lines() const { return bytes_ / line_bytes; }
  [[nodiscard]] std::uint64_t huge_bytes() const;  // of this mapping, in pages of 2 MiB
  [[nodiscard]] std::uint64_t next_of(std::uint64_t line) const;

 private:
  Floor() = default;
  static Result<Floor> map(int file, const std::string& path, std::uint64_t bytes);
  void ask_for_huge_pages();
  void build_cycle(std::uint64_t seed);
  void unmap() noexcept;

  struct Line {
    std::uint64_t words[line_bytes / sizeof(std::uint64_t)];
  };
  static_assert(sizeof(Line) == line_bytes);

  Line* lines_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace loch::bench
