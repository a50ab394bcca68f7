// Narrowing: what the simulator makes coarser than it is, so that what seldom happens happens often: items of
// other keys are read, and items of many lengths share their blocks. Compiled in with the fault points alone;
// anywhere else nothing is ever narrowed.
#pragma once

#include <cstdint>

namespace loch::base {

struct Narrowing {
  std::uint8_t filter_mask = 0xff;  // the bits of a filter that tell keys apart
  std::uint8_t classes_joined = 1;  // so many size classes side by side, a power of two, are one
};

#ifdef LOCH_FAULT_POINTS
// Of the clients that run in this thread. Set before any of them runs; all clients of a store have the same.
inline constinit thread_local Narrowing narrowing;
#else
inline constexpr Narrowing narrowing;
#endif

}  // namespace loch::base
