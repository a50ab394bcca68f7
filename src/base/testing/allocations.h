// For tests: how often this program has taken memory from the heap, and what happens when there is none.
// allocations.cc, which replaces operator new, is a source of the test itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loch::base::fake {

// By operator new in all its forms, of all threads.
std::uint64_t allocations();

// While it lives, there is no memory for more than `bytes` in one piece. One at a time.
class NoLongerThan {
 public:
  explicit NoLongerThan(std::size_t bytes);
  ~NoLongerThan();
  NoLongerThan(const NoLongerThan&) = delete;
  NoLongerThan& operator=(const NoLongerThan&) = delete;
};

}  // namespace loch::base::fake
