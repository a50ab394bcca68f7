// Operator new in the forms that all others call, and operator delete to match. Under a sanitizer they are
// still seen, since malloc and free are the sanitizer's.
#include "base/testing/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace loch::base::fake {
namespace {

std::atomic<std::uint64_t> count{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  count.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

std::uint64_t allocations() { return count.load(std::memory_order_relaxed); }

}  // namespace loch::base::fake

namespace {
constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
std::size_t value_of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }
}  // namespace

using loch::base::fake::allocate;

void* operator new(std::size_t bytes) { return allocate(bytes, usual); }
void* operator new[](std::size_t bytes) { return allocate(bytes, usual); }
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, usual);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate(bytes, usual);
}
void* operator new(std::size_t bytes, std::align_val_t at) { return allocate(bytes, value_of(at)); }
void* operator new[](std::size_t bytes, std::align_val_t at) { return allocate(bytes, value_of(at)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*at*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t /*at*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*at*/) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t /*bytes*/, std::align_val_t /*at*/) noexcept {
  std::free(memory);
}
