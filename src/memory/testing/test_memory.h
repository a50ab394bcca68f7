// For tests: a store of the memory module alone, in a MemoryStore, and sessions of "processes" that can die.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/posting_fabric.h"
#include "memory/allocator.h"
#include "memory/session.h"
#include "memory/store_memory.h"

namespace loch::memory::fake {

inline constexpr base::Nanos expiry_ns = base::second_ns;
inline constexpr Geometry geometry{.expiry_ns = expiry_ns};

inline std::shared_ptr<fabric::fake::MemoryStore> make_memory(const Geometry& of,
                                                              fabric::fake::MemoryStore::Limits limits = {}) {
  return fabric::fake::MemoryStore::create(
      {.regions = {{control_region, control_bytes}, {first_data_region, 2 * block_bytes}},
       .fill =
           [&](std::span<const fabric::Mapping> regions) {
             StoreMemory::initialize_control(regions[0].base, of);
           }},
      limits);
}

// A process on another host: nothing of the store is mapped.
inline std::shared_ptr<fabric::Fabric> elsewhere(fabric::fake::MemoryStore& store, std::uint64_t seed = 1) {
  return std::make_shared<fabric::fake::PostingFabric>(
      store.shared_from_this(),
      fabric::fake::PostingOptions{.seed = seed, .mapped = {}, .before = {}, .held = {}});
}

// What the store's host does for those that can not see its clock.
inline void tell_time(const fabric::fake::MemoryStore& store) {
  fabric::store_word(store.at({control_region, latest_offset}), store.now());
}

// A process's way to a store whose blocks it does not map.
inline std::shared_ptr<fabric::Fabric> posting_blocks(fabric::fake::MemoryStore& store,
                                                      std::uint64_t seed = 1) {
  return std::make_shared<fabric::fake::PostingFabric>(
      store.shared_from_this(),
      fabric::fake::PostingOptions{.seed = seed,
                                   .mapped = [](fabric::RegionId id) { return id == control_region; },
                                   .before = {},
                                   .held = {}});
}

// A process with one session.
struct Process final : ReuseGuard {
  std::unique_ptr<Session> session;
  std::unique_ptr<Allocator> allocator;
  bool reuse_allowed = true;  // what the guard answers
  int guarded = 0;            // how often it was asked

  explicit Process(fabric::fake::MemoryStore& store) : Process(store.attach()) {}
  explicit Process(std::shared_ptr<fabric::Fabric> fabric) {
    auto attached = StoreMemory::attach(std::move(fabric));
    LOCH_CHECK(attached.has_value());
    auto opened = Session::open(*attached);
    LOCH_CHECK(opened.has_value());
    session = std::move(*opened);
    allocator = std::make_unique<Allocator>(*session);
    allocator->set_guard(this);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() override = default;

  coro::Task<bool> before_reuse(ItemRef /*item*/) override {
    ++guarded;
    co_return reuse_allowed;
  }

  template <class T>
  T run(coro::Task<T> task) {
    return session->endpoint().run(std::move(task));
  }
  Result<ItemRef> allocate(std::uint64_t bytes) { return run(allocator->allocate(bytes)); }
  void discard(ItemRef item) { LOCH_CHECK(run(allocator->discard(item)).has_value()); }
  LeaseWord lease_of(BlockNumber block) { return run(allocator->lease_of(block)).value(); }
};

// As a client writes an item that it is about to link.
inline void write(const fabric::fake::MemoryStore& store, Process& process, ItemRef item) {
  ItemHeader header{};
  header.written_at_ns = process.session->next_write_time();
  header.client = process.session->client();
  std::byte* at = store.at(item.address());
  std::memcpy(at + sizeof(std::uint64_t), reinterpret_cast<const std::byte*>(&header) + sizeof(std::uint64_t),
              sizeof header - sizeof(std::uint64_t));
  fabric::store_word(at, ItemState::in_use(header.client, header.written_at_ns).encode());
}

inline ItemRef make_item(const fabric::fake::MemoryStore& store, Process& process, std::uint64_t bytes) {
  const auto item = process.allocate(bytes);
  LOCH_CHECK(item.has_value());
  write(store, process, *item);
  return *item;
}

inline void retire(Process& process, ItemRef item, bool moved = false) {
  LOCH_CHECK(process.run(process.allocator->retire(item, moved)).has_value());
}

}  // namespace loch::memory::fake
