// For tests: a store's memory inside one process, with as many "processes" attached to it as a test wants.
//
// Each MemoryFabric is one process's way to the store. Time is simulated: it stands still until a test moves
// it, or until somebody waits. A process dies by `kill`: its presence is let go of, and nothing that it left
// is cleared up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/readers.h"

namespace loch::fabric::fake {

class MemoryFabric;

class MemoryStore : public std::enable_shared_from_this<MemoryStore> {
 public:
  struct Limits {
    std::uint64_t free_bytes = std::uint64_t{1} << 40;    // what `extend` can still have
    std::uint64_t region_bytes = std::uint64_t{1} << 30;  // address space reserved for each region
  };

  static std::shared_ptr<MemoryStore> create(const Plan& plan, Limits limits);
  static std::shared_ptr<MemoryStore> create(const Plan& plan) { return create(plan, Limits{}); }
  ~MemoryStore();
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  // A further process.
  std::shared_ptr<MemoryFabric> attach();
  // The process that holds `client` is gone, as by kill -9.
  void kill(std::uint32_t client);

  [[nodiscard]] base::Nanos now() const { return time_ns_.load(std::memory_order_relaxed); }
  void advance(base::Nanos by_ns) { time_ns_.fetch_add(by_ns, std::memory_order_relaxed); }
  void set_free_bytes(std::uint64_t bytes) { free_bytes_ = bytes; }
  // What was in a region is lost: it is new, and so long, also if so much is not free.
  void renew(RegionId id, std::uint64_t length_bytes);
  // What was in a region that nobody has mapped, and is not there any more.
  struct Taken {
    std::shared_ptr<const std::byte> base;
    std::uint64_t length_bytes = 0;
  };
  Taken take(RegionId id);
  // Nobody holds a client number of [first, end) any more.
  void let_go(std::uint32_t first, std::uint32_t end);

  // Copies bytes of a region, of which pages that nobody has touched stay so.
  static void copy_out(std::byte* into, std::byte* from, std::size_t length);

  // For looking at the store, and for damaging it.
  [[nodiscard]] std::byte* at(Address address) const {
    return regions_[address.region].base + address.offset_bytes;
  }
  [[nodiscard]] std::uint64_t length_bytes(RegionId region) const {
    return regions_[region].length_bytes.load();
  }

 private:
  friend class MemoryFabric;
  struct Region {
    std::byte* base = nullptr;
    std::atomic<std::uint64_t> length_bytes{0};
  };

  explicit MemoryStore(Limits limits) : limits_(limits), free_bytes_(limits.free_bytes) {}
  Result<void> extend(RegionId id, std::uint64_t length_bytes);
  void reserve(Region& region) const;

  const Limits limits_;
  std::mutex mutex_;
  std::array<Region, region_count_max> regions_;
  std::map<std::uint32_t, const MemoryFabric*> holders_;
  std::atomic<std::uint64_t> free_bytes_;
  std::atomic<base::Nanos> time_ns_{1'000 * base::second_ns};
};

class MemoryFabric : public Fabric {
 public:
  explicit MemoryFabric(std::shared_ptr<MemoryStore> store) : store_(std::move(store)) {}
  MemoryFabric(const MemoryFabric&) = delete;
  MemoryFabric& operator=(const MemoryFabric&) = delete;
  ~MemoryFabric() override;

  std::unique_ptr<Port> connect() override;
  Result<void> extend(RegionId region, std::uint64_t length_bytes) override {
    if (read_only()) return fail(Errc::permission, "extend", "this process may only read");
    return store_->extend(region, length_bytes);
  }
  [[nodiscard]] Atomics atomics() const override { return Atomics::processor; }
  // This process takes part in barriers from now on; before it connects. `works`: and they can be had.
  void take_part_in_barriers(bool works = true) {
    takes_part_ = true;
    has_barriers_ = works;
  }
  [[nodiscard]] bool takes_part_in_barriers() const override { return takes_part_; }
  bool barrier_for_all() override { return has_barriers_; }
  // This process may only read from now on; before it connects. Of fabrics that post.
  void only_read(Readers readers) { readers_ = std::move(readers); }
  [[nodiscard]] bool read_only() const override { return readers_.has_value(); }
  [[nodiscard]] Readers* readers() { return readers_ ? &*readers_ : nullptr; }
  Result<bool> claim_presence(std::uint32_t client);
  void release_presence(std::uint32_t client);
  // Of all numbers that this process holds.
  void release_all_presence();
  [[nodiscard]] bool present(std::uint32_t client);
  [[nodiscard]] bool holds_presence(std::uint32_t client);
  [[nodiscard]] bool is_published() const override { return true; }
  [[nodiscard]] std::string location() const override { return "memory of a test"; }
  [[nodiscard]] std::uint64_t free_bytes() const override { return store_->free_bytes_; }
  [[nodiscard]] std::uint64_t huge_page_bytes() const override { return 0; }
  [[nodiscard]] base::Clock clock() const override { return base::Clock(&store_->time_ns_); }

  [[nodiscard]] MemoryStore& store() { return *store_; }
  Result<Mapping> map(RegionId region);

 private:
  std::shared_ptr<MemoryStore> store_;
  std::optional<Readers> readers_;
  bool takes_part_ = false;
  bool has_barriers_ = false;
};

// What the ports of all these have in common: presence is of the fabric, that is of the process.
class MemoryPort : public Port {
 public:
  explicit MemoryPort(MemoryFabric& memory) : memory_(memory) {}
  Result<bool> claim_presence(std::uint32_t client) override;
  void release_presence(std::uint32_t client) override;
  [[nodiscard]] bool present(std::uint32_t client) override { return memory_.present(client); }

 protected:
  // Where [at, at + length) of an operation is; null if it is outside its region, or may not be done.
  [[nodiscard]] std::byte* place_of(const Operation& operation) const;

 private:
  [[nodiscard]] bool may(const Operation& operation) const;

  MemoryFabric& memory_;
  std::map<std::uint32_t, OwnWords>
      own_;  // of one that may only read: by node, while it has a client number there
};

}  // namespace loch::fabric::fake
