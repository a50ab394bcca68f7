// A deadline for what a test waits for.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace loch::base::fake {

inline Nanos in_seconds(std::uint64_t n) { return Clock().now() + n * second_ns; }

}  // namespace loch::base::fake
