// For tests: how often this program has taken memory from the heap. allocations.cc, which replaces operator
// new, is a source of the test itself.
#pragma once

#include <cstdint>

namespace loch::base::fake {

// By operator new in all its forms, of all threads.
std::uint64_t allocations();

}  // namespace loch::base::fake
