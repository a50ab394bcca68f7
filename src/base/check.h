// LOCH_CHECK: a bug of ours, or of a caller whom no error can be told; on in every build. Never for bytes
// that come from another process: those are input.
#pragma once

#include <source_location>

namespace loch::base {

// Prints the place and the condition to standard error and aborts.
[[noreturn]] void check_failed(const char* condition,
                               std::source_location where = std::source_location::current());

}  // namespace loch::base

#define LOCH_CHECK(condition)                 \
  do {                                        \
    if (!(condition)) [[unlikely]] {          \
      ::loch::base::check_failed(#condition); \
    }                                         \
  } while (false)
