// Seldom: what strangers can bring about as often as they like is told of now and then, with how often it was
// left out. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace loch::fabric::remote {

class Seldom {
 public:
  static constexpr base::Nanos every_ns = 10 * base::second_ns;

  // Whether to tell of what happens now: how many before it nobody was told of; else nothing.
  std::optional<std::uint64_t> tell(base::Nanos now) {
    if (told_ns_ && now - *told_ns_ < every_ns) {
      ++left_out_;
      return std::nullopt;
    }
    told_ns_ = now;
    const std::uint64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  std::optional<base::Nanos> told_ns_;
  std::uint64_t left_out_ = 0;
};

}  // namespace loch::fabric::remote
