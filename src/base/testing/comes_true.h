// For tests: waiting for what comes about by itself.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace loch::base::fake {

// Looks again and again, for longer than any wait that is part of it.
inline bool comes_true(const std::function<bool()>& done,
                       std::chrono::milliseconds patience = std::chrono::seconds(30)) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace loch::base::fake
