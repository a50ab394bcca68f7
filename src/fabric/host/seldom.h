// Seldom: limits how often something is reported that strangers can bring about at will. A report says how
// many before it were left out. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace loch::fabric::host {

class Seldom {
 public:
  static constexpr base::Nanos every_ns = 10 * base::second_ns;

  // `at_once`: how many are told of in that time.
  explicit Seldom(unsigned at_once = 1) : at_once_(at_once) {}

  // Whether to tell of what happens now: how many before it nobody was told of; else nothing.
  std::optional<std::uint64_t> tell(base::Nanos now) {
    if (!since_ns_ || now - *since_ns_ >= every_ns) {
      since_ns_ = now;
      told_ = 0;
    }
    if (told_ == at_once_) {
      ++left_out_;
      return std::nullopt;
    }
    ++told_;
    return std::exchange(left_out_, 0);
  }

 private:
  const unsigned at_once_;
  std::optional<base::Nanos> since_ns_;
  unsigned told_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace loch::fabric::host
