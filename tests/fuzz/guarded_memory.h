// A store's regions between pages that nobody may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <sanitizer/asan_interface.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>

#include <loch/atomics.h>
#include <loch/error.h>

#include "base/check.h"
#include "base/clock.h"
#include "fabric/fabric.h"

namespace loch::fuzz {

inline constexpr std::size_t page_bytes = 4'096;
inline constexpr std::size_t guard_bytes = 65'536;

struct Shape {
  fabric::RegionId id;
  std::size_t length_bytes;  // whole words
};

inline std::byte byte_of_new(fabric::RegionId region, std::size_t i) {
  return static_cast<std::byte>(i * 31 + (i >> 8) + region);
}

// Memory that ends at a page that nobody may touch, and begins at one, or behind bytes that the address
// sanitizer knows of.
class GuardedRegion {
 public:
  explicit GuardedRegion(const Shape& shape) : shape_(shape) {
    const std::size_t usable = (shape.length_bytes + page_bytes - 1) / page_bytes * page_bytes;
    void* all = ::mmap(nullptr, usable + 2 * guard_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCH_CHECK(all != MAP_FAILED);
    std::byte* const begin = static_cast<std::byte*>(all) + guard_bytes;
    LOCH_CHECK(usable == 0 || ::mprotect(begin, usable, PROT_READ | PROT_WRITE) == 0);
    base_ = begin + (usable - shape.length_bytes);
    ASAN_POISON_MEMORY_REGION(begin, usable - shape.length_bytes);
  }
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;
  ~GuardedRegion() = default;  // it stays mapped: regions live as long as the process

  void renew() {
    for (std::size_t i = 0; i < shape_.length_bytes; ++i) base_[i] = byte_of_new(shape_.id, i);
  }
  [[nodiscard]] std::string_view bytes() const {
    return {reinterpret_cast<const char*>(base_), shape_.length_bytes};
  }
  [[nodiscard]] fabric::Mapping mapping() const {
    return {.base = base_, .length_bytes = shape_.length_bytes};
  }

 private:
  const Shape shape_;
  std::byte* base_ = nullptr;
};

using Regions = std::map<fabric::RegionId, GuardedRegion>;

class GuardedPort final : public fabric::Port {
 public:
  explicit GuardedPort(const Regions& regions) : regions_(regions) {}
  Result<fabric::Mapping> map(fabric::RegionId region) override {
    const auto found = regions_.find(region);
    if (found == regions_.end()) return fail(Errc::not_found, "map", "there is no such region");
    return found->second.mapping();
  }
  void post(std::span<fabric::Operation> /*batch*/, base::Nanos /*deadline*/,
            fabric::Completion& done) override {
    done.complete(done, fail(Errc::io, "fabric", "all that an agent touches is mapped"));
  }
  void poll(base::Nanos /*wait_ns*/) override {}
  Result<bool> claim_presence(std::uint32_t /*client*/) override { return false; }
  void release_presence(std::uint32_t /*client*/) override {}
  [[nodiscard]] bool present(std::uint32_t /*client*/) override { return false; }

 private:
  const Regions& regions_;
};

class GuardedFabric final : public fabric::Fabric {
 public:
  GuardedFabric(const Regions& regions, Atomics atomics) : regions_(regions), atomics_(atomics) {}
  std::unique_ptr<fabric::Port> connect() override { return std::make_unique<GuardedPort>(regions_); }
  Result<void> extend(fabric::RegionId /*region*/, std::uint64_t /*length_bytes*/) override {
    return fail(Errc::no_space, "extend", "a guarded region is as long as it is");
  }
  [[nodiscard]] Atomics atomics() const override { return atomics_; }
  [[nodiscard]] bool is_published() const override { return true; }
  [[nodiscard]] std::string location() const override { return "memory of a fuzzer"; }
  [[nodiscard]] std::uint64_t free_bytes() const override { return 0; }
  [[nodiscard]] std::uint64_t huge_page_bytes() const override { return 0; }

 private:
  const Regions& regions_;
  const Atomics atomics_;
};

}  // namespace loch::fuzz
