#include "fabric/tcp/answers.h"

#include <algorithm>
#include <utility>

#include "fabric/words.h"

namespace loch::fabric::tcp {

void Answers::gather(const std::byte* at, std::size_t bytes) {
  parts();
  parts_.push_back({.iov_base = const_cast<std::byte*>(at), .iov_len = bytes});
  gathered_ += bytes;
}

std::span<const iovec> Answers::parts() {
  if (begin_ != end_) {
    const std::size_t begin = std::exchange(begin_, end_);
    parts_.push_back({.iov_base = bytes_.get() + begin, .iov_len = end_ - begin});
  }
  return std::span(parts_).subspan(first_);
}

void Answers::drop(std::size_t bytes) {
  while (bytes != 0) {
    iovec& part = parts_[first_];
    const std::size_t of_part = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + of_part;
    part.iov_len -= of_part;
    bytes -= of_part;
    if (part.iov_len == 0) ++first_;
  }
  if (is_empty()) clear();
}

std::vector<std::byte> Answers::take_rest() {
  std::size_t length = 0;
  for (const iovec& part : parts()) length += part.iov_len;
  std::vector<std::byte> rest(length);
  std::byte* to = rest.data();
  for (const iovec& part : parts()) {
    copy_from_region(to, static_cast<std::byte*>(part.iov_base), part.iov_len);
    to += part.iov_len;
  }
  clear();
  return rest;
}

void Answers::clear() {
  parts_.clear();
  begin_ = end_ = first_ = gathered_ = 0;
}

}  // namespace loch::fabric::tcp
