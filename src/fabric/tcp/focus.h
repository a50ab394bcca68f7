// Focus: which connection of an agent is looked at by itself. To ask the kernel which ones have work is a
// call, and one that costs as much as to look at a connection; where one alone has work, it is for nothing.
// So the longer that is so, the more seldom the others are asked for; and each time again once one of them
// had work.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace loch::fabric::tcp {

class Focus {
 public:
  using Id = std::uint64_t;
  static constexpr int looks_max = 7;  // at one, until all are asked for

  // The one to look at next by itself; nothing if all are to be asked for.
  [[nodiscard]] std::optional<Id> next() {
    if (looks_left_ == 0) return std::nullopt;
    --looks_left_;
    return on_;
  }
  // All were asked for, and these have work.
  void choose(std::span<const Id> due) {
    if (due.size() == 1 && on_ == due.front()) {
      looks_ = std::min(2 * looks_ + 1, looks_max);
    } else if (!due.empty()) {
      on_ = due.front();
      looks_ = 0;
    }
    looks_left_ = looks_;
  }

 private:
  std::optional<Id> on_;
  int looks_ = 0;  // at it, between two times that all are asked for
  int looks_left_ = 0;
};

}  // namespace loch::fabric::tcp
