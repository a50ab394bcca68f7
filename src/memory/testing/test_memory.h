// For tests: a store of the memory module alone, in a MemoryStore, and sessions of "processes" that can die.
#pragma once

#include <memory>
#include <vector>

#include "base/check.h"
#include "fabric/testing/memory_store.h"
#include "memory/allocator.h"
#include "memory/session.h"
#include "memory/store_memory.h"

namespace loch::memory::fake {

inline std::shared_ptr<fabric::fake::MemoryStore> make_memory(const Geometry& geometry,
                                                              fabric::fake::MemoryStore::Limits limits = {}) {
  return fabric::fake::MemoryStore::create(
      {.regions = {{control_region, control_bytes}, {first_data_region, 2 * block_bytes}},
       .fill =
           [&](std::span<const fabric::Mapping> regions) {
             StoreMemory::initialize_control(regions[0].base, geometry);
           }},
      limits);
}

// A process with one session.
struct Process final : ReuseGuard {
  std::unique_ptr<Session> session;
  std::unique_ptr<Allocator> allocator;
  bool reuse_allowed = true;  // what the guard answers
  int guarded = 0;            // how often it was asked

  explicit Process(fabric::fake::MemoryStore& store) {
    auto attached = StoreMemory::attach(store.attach());
    LOCH_CHECK(attached.has_value());
    auto opened = Session::open(*attached);
    LOCH_CHECK(opened.has_value());
    session = std::move(*opened);
    allocator = std::make_unique<Allocator>(*session);
    allocator->set_guard(this);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() = default;

  coro::Task<bool> before_reuse(ItemRef /*item*/) override {
    ++guarded;
    co_return reuse_allowed;
  }

  template <class T>
  T run(coro::Task<T> task) {
    return session->endpoint().run(std::move(task));
  }
  Result<ItemRef> allocate(std::uint64_t bytes) { return run(allocator->allocate(bytes)); }
};

}  // namespace loch::memory::fake
