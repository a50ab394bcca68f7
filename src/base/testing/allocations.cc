// Operator new in the forms that all others call, and operator delete to match. Under a sanitizer they are
// still seen, since malloc and free are the sanitizer's.
#include "base/testing/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace loch::base::fake {
namespace {

constexpr std::size_t any_length = std::numeric_limits<std::size_t>::max();
std::atomic<std::uint64_t> count{0};
std::atomic<std::size_t> longest{any_length};

void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  if (bytes > longest.load(std::memory_order_relaxed)) return nullptr;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}
void* allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = allocate_or_null(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

std::uint64_t allocations() { return count.load(std::memory_order_relaxed); }

NoLongerThan::NoLongerThan(std::size_t bytes) { longest = bytes; }
NoLongerThan::~NoLongerThan() { longest = any_length; }

}  // namespace loch::base::fake

namespace {
constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
std::size_t value_of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }
}  // namespace

using loch::base::fake::allocate;
using loch::base::fake::allocate_or_null;

void* operator new(std::size_t bytes) { return allocate(bytes, usual); }
void* operator new[](std::size_t bytes) { return allocate(bytes, usual); }
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate_or_null(bytes, usual);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return allocate_or_null(bytes, usual);
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
