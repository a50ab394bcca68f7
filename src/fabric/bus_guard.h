// bus_guard: mapped files that others may cut short, in a process that survives that (survive_truncation).
//
// The kernel sends SIGBUS to who touches what was cut off. From that access on all of the range that was
// mapped is *lost*: zeros of this process's own. What is read there means nothing any more, and what is
// written comes to nobody. So whoever works on a guarded range asks after it has touched it, and before it
// says what it read or that it wrote, whether any is lost.
//
// I1 A range is lost as a whole, and not by its pages: each has one fault, and takes one mapping of the
//    kernel, whatever is touched, and nothing that is written later comes to a store that is damaged.
// I2 Whoever reads a zero of a lost range finds that any is lost when it asks after that.
//
// What nobody touches makes no difference, cut off or not, nor does a file that became longer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <loch/truncation.h>

namespace loch::fabric {

// The process's SIGBUS handler, once survive_truncation has installed it, looks the ranges up.
namespace detail {
struct GuardedEntry;
inline constinit std::atomic<std::uint32_t> ranges_lost{0};
}  // namespace detail

// Says that a range is that of a mapped file, for as long as this is there; it goes before the range does.
// Any thread.
class GuardedRange {
 public:
  GuardedRange() = default;  // of nothing
  GuardedRange(const std::byte* base, std::uint64_t length_bytes);
  GuardedRange(GuardedRange&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  GuardedRange& operator=(GuardedRange&& other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;
  ~GuardedRange();

  [[nodiscard]] bool is_lost() const;

 private:
  detail::GuardedEntry* entry_ = nullptr;
};

// Whether any range that is there is lost, among them those that this thread has touched. Costs a load.
inline bool any_range_lost() {
  // The handler may have run in this thread since it last looked.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // acquire: pairs with the handler's release, which comes before any zero can be read (I2).
  return detail::ranges_lost.load(std::memory_order_acquire) != 0;
}

}  // namespace loch::fabric
