// Answers: what an agent sends over a connection in one call: bytes of its own and, between them, bytes that
// go out straight from where they lie. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

#include "fabric/tcp/wire.h"

namespace loch::fabric::tcp {

class Answers {
 public:
  // Whether another answer may not find room.
  [[nodiscard]] bool is_full() const {
    return bytes_max - end_ < answer_bytes_max || parts_.size() >= parts_max ||
           gathered_ > gathered_bytes_max;
  }
  [[nodiscard]] bool has_gathered() const { return gathered_ != 0; }
  [[nodiscard]] bool is_empty() const { return first_ == parts_.size() && begin_ == end_; }

  // Where the next bytes of its own go: room for an answer, unless it is full.
  [[nodiscard]] std::byte* room() { return bytes_.get() + end_; }
  // That many of them are there.
  void add(std::size_t bytes) { end_ += bytes; }
  // After them, what is at `at`, which stays there and is read when it is sent.
  void gather(const std::byte* at, std::size_t bytes);

  // All of it, in order; until something is added.
  std::span<const iovec> parts();
  // The first so many bytes of the parts are sent.
  void drop(std::size_t bytes);
  // Copies what is left, and begins anew.
  std::vector<std::byte> take_rest();
  void clear();

 private:
  static constexpr std::size_t bytes_max = 4 * answer_bytes_max;
  // How much a connection that takes no answers may have to be kept for it.
  static constexpr std::size_t gathered_bytes_max = 1'048'576;
  static constexpr std::size_t parts_max = 1'000;  // and few more: fewer than IOV_MAX

  std::unique_ptr<std::byte[]> bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes_max);
  std::size_t begin_ = 0;  // of those that are in no part yet
  std::size_t end_ = 0;
  std::vector<iovec> parts_;  // of which those before first_ are sent
  std::size_t first_ = 0;
  std::size_t gathered_ = 0;
};

}  // namespace loch::fabric::tcp
