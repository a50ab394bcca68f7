// A connection in memory, of which the fuzzer is one end. The other end is a Stream, which gives and takes as
// many bytes at once as the fuzzer wants.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/uio.h>
#include <utility>

#include <loch/error.h>

#include "base/file_descriptor.h"
#include "net/stream.h"

namespace loch::fuzz {

class Connection {
 public:
  struct Cuts {
    std::size_t bytes_max = std::numeric_limits<std::size_t>::max();  // at once
    bool falters = false;  // between any two bits that go, nothing does for now
  };
  explicit Connection(Cuts cuts) : cuts_(cuts) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() = default;

  // It outlives what this returns.
  std::unique_ptr<net::Stream> other_end() { return std::make_unique<End>(*this); }

  void tell(std::string_view bytes) { told_ += bytes; }
  // What was told is read still.
  void close() { is_closed_ = true; }
  // What the other end has said since this was last asked.
  std::string take_heard() { return std::exchange(heard_, {}); }
  // How many bytes have gone, in both directions together.
  [[nodiscard]] std::size_t moved_bytes() const { return moved_bytes_; }

 private:
  class End final : public net::Stream {
   public:
    explicit End(Connection& of) : Stream(base::FileDescriptor()), of_(of) {}
    Result<std::size_t> read(std::span<const iovec> into) override { return of_.give(into); }
    Result<std::size_t> write(std::span<const iovec> from) override { return of_.hear(from); }

   private:
    Connection& of_;
  };

  static std::unexpected<Error> gone() {
    return fail(Errc::unavailable, "fuzz", "the connection is gone: the fuzzer has closed it");
  }
  // How much goes now.
  std::size_t may_go(bool* has_gone) const {
    *has_gone = !(cuts_.falters && *has_gone);
    return *has_gone ? cuts_.bytes_max : 0;
  }

  Result<std::size_t> give(std::span<const iovec> into) {
    if (given_ == told_.size() && is_closed_) return gone();
    const std::size_t end = given_ + std::min(may_go(&has_given_), told_.size() - given_);
    const std::size_t begin = given_;
    for (const iovec& part : into) {
      const std::size_t bytes = std::min(part.iov_len, end - given_);
      if (bytes != 0) std::memcpy(part.iov_base, told_.data() + given_, bytes);
      given_ += bytes;
    }
    moved_bytes_ += given_ - begin;
    return given_ - begin;
  }

  Result<std::size_t> hear(std::span<const iovec> from) {
    if (is_closed_) return gone();
    std::size_t left = may_go(&has_heard_);
    const std::size_t before = heard_.size();
    for (const iovec& part : from) {
      const std::size_t bytes = std::min(part.iov_len, left);
      heard_.append(static_cast<const char*>(part.iov_base), bytes);
      left -= bytes;
    }
    moved_bytes_ += heard_.size() - before;
    return heard_.size() - before;
  }

  const Cuts cuts_;
  std::string told_{};
  std::size_t given_ = 0;   // of what was told
  bool has_given_ = false;  // the last time
  std::string heard_{};
  bool has_heard_ = false;  // likewise
  bool is_closed_ = false;
  std::size_t moved_bytes_ = 0;
};

}  // namespace loch::fuzz
