// What a fuzzer is given, taken from its front; what is missing is zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace loch::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }

  std::uint64_t take(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::size_t got = std::min(bytes, size_);
    std::memcpy(&value, data_, got);
    skip(got);
    return value;
  }
  // As many bytes as there are, up to so many.
  std::string take_bytes(std::size_t bytes) {
    const std::size_t got = std::min(bytes, size_);
    std::string taken(got, '\0');
    std::memcpy(taken.data(), data_, got);
    skip(got);
    return taken;
  }

 private:
  void skip(std::size_t bytes) {
    data_ += bytes;
    size_ -= bytes;
  }

  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace loch::fuzz
