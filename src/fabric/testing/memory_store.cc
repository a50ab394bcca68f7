#include "fabric/testing/memory_store.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace loch::fabric::fake {
namespace {

constexpr std::size_t page_bytes = 4'096;

// Which of the pages from a boundary on have ever been touched: all others are zeros. Where the kernel does
// not tell, all of them may have been.
class TouchedPages {
 public:
  TouchedPages(const std::byte* from, std::uint64_t length_bytes)
      : pages_((length_bytes + page_bytes - 1) / page_bytes, touched_bits) {
    static const base::FileDescriptor map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    const std::uint64_t first = reinterpret_cast<std::uintptr_t>(from) / page_bytes;
    const std::size_t bytes = pages_.size() * sizeof(std::uint64_t);
    const auto got =
        ::pread(map.get(), pages_.data(), bytes, static_cast<off_t>(first * sizeof(std::uint64_t)));
    if (got != static_cast<ssize_t>(bytes)) std::ranges::fill(pages_, touched_bits);
  }
  [[nodiscard]] std::size_t count() const { return pages_.size(); }
  bool operator[](std::size_t page) const { return (pages_[page] & touched_bits) != 0; }

 private:
  static constexpr std::uint64_t touched_bits = std::uint64_t{3} << 62;  // in memory, or swapped out

  std::vector<std::uint64_t> pages_;  // as in proc_pid_pagemap(5)
};

// Memory for regions, which is full of zeros. What one store leaves the next one takes: a page that is
// touched for the first time costs up to 15 us in a virtual machine, and a simulated run touches thousands.
class SpareMemory {
 public:
  static SpareMemory& shared() {
    static auto* const all = new SpareMemory;  // for ever: a store may outlive what is static
    return *all;
  }

  std::byte* take(std::uint64_t bytes) {
    {
      const std::scoped_lock lock(mutex_);
      if (auto& spare = spare_[bytes]; !spare.empty()) {
        std::byte* base = spare.back();
        spare.pop_back();
        return base;
      }
    }
    void* mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCH_CHECK(mapped != MAP_FAILED);
    return static_cast<std::byte*>(mapped);
  }
  // Of which the first `used` bytes may have been written to.
  void give_back(std::byte* base, std::uint64_t bytes, std::uint64_t used) {
    clear(base, used);
    const std::scoped_lock lock(mutex_);
    spare_[bytes].push_back(base);
  }
  static void clear(std::byte* base, std::uint64_t used) {
    const TouchedPages touched(base, used);
    for (std::size_t page = 0; page < touched.count(); ++page) {
      if (touched[page]) std::memset(base + page * page_bytes, 0, page_bytes);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<std::byte*>> spare_;  // by how long they are
};

// All memory is mapped: nothing is ever posted but what has a bad address. Waiting lets the simulated time
// pass.
class MappedPort final : public MemoryPort {
 public:
  explicit MappedPort(MemoryFabric& fabric) : MemoryPort(fabric), fabric_(fabric) {}
  Result<Mapping> map(RegionId region) override { return fabric_.map(region); }
  void post(std::span<Operation> batch, base::Nanos /*deadline*/, Completion& done) override {
    for (Operation& operation : batch) operation.bad_address = true;
    done.complete(done, {});
  }
  void poll(base::Nanos wait_ns) override { fabric_.store().advance(wait_ns); }

 private:
  MemoryFabric& fabric_;
};

}  // namespace

std::shared_ptr<MemoryStore> MemoryStore::create(const Plan& plan, Limits limits) {
  std::shared_ptr<MemoryStore> store(new MemoryStore(limits));
  std::vector<Mapping> filled;
  for (const Plan::Region& region : plan.regions) {
    LOCH_CHECK(store->extend(region.id, region.length_bytes).has_value());
    filled.push_back({store->at({region.id, 0}), region.length_bytes});
  }
  if (plan.fill) plan.fill(filled);
  return store;
}

MemoryStore::~MemoryStore() {
  for (const Region& region : regions_) {
    if (region.base != nullptr)
      SpareMemory::shared().give_back(region.base, limits_.region_bytes, region.length_bytes);
  }
}

std::shared_ptr<MemoryFabric> MemoryStore::attach() {
  return std::make_shared<MemoryFabric>(shared_from_this());
}

void MemoryStore::kill(std::uint32_t client) {
  const std::scoped_lock lock(mutex_);
  holders_.erase(client);
}

void MemoryStore::renew(RegionId id, std::uint64_t length_bytes) {
  const std::scoped_lock lock(mutex_);
  Region& region = regions_[id];
  reserve(region);
  const std::uint64_t before = region.length_bytes.exchange(length_bytes);
  SpareMemory::clear(region.base, before);
  const std::uint64_t free = free_bytes_ + before;
  free_bytes_ = free - std::min(free, length_bytes);
}

MemoryStore::Taken MemoryStore::take(RegionId id) {
  const std::scoped_lock lock(mutex_);
  Region& region = regions_[id];
  const std::uint64_t length = region.length_bytes.exchange(0);
  free_bytes_ += length;
  const auto give_back = [reserved = limits_.region_bytes, length](std::byte* base) {
    SpareMemory::shared().give_back(base, reserved, length);
  };
  return {.base = {std::exchange(region.base, nullptr), give_back}, .length_bytes = length};
}

void MemoryStore::copy_out(std::byte* into, std::byte* from, std::size_t length) {
  constexpr std::size_t looked_at_min = 16 * page_bytes;  // to look costs as much as to touch a page
  if (length < looked_at_min) {
    std::memcpy(into, from, length);
    return;
  }
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(from) % page_bytes;
  const TouchedPages touched(from - skew, skew + length);
  std::size_t done = 0;
  for (std::size_t page = 0; page < touched.count(); ++page) {
    const std::size_t end = std::min((page + 1) * page_bytes - skew, length);
    if (touched[page]) {
      std::memcpy(into + done, from + done, end - done);
    } else {
      std::memset(into + done, 0, end - done);
    }
    done = end;
  }
}

void MemoryStore::let_go(std::uint32_t first, std::uint32_t end) {
  const std::scoped_lock lock(mutex_);
  holders_.erase(holders_.lower_bound(first), holders_.lower_bound(end));
}

Result<void> MemoryStore::extend(RegionId id, std::uint64_t length_bytes) {
  const std::scoped_lock lock(mutex_);
  Region& region = regions_[id];
  const std::uint64_t before = region.length_bytes;
  if (length_bytes <= before && region.base != nullptr) return {};
  if (length_bytes - before > free_bytes_ || length_bytes > limits_.region_bytes) {
    return fail(Errc::no_space, "extend",
                fmt::format("region {}: {} bytes wanted, {} are free", id, length_bytes - before,
                            free_bytes_.load()));
  }
  reserve(region);
  free_bytes_ -= length_bytes - before;
  region.length_bytes = length_bytes;
  return {};
}

void MemoryStore::reserve(Region& region) const {
  if (region.base == nullptr) region.base = SpareMemory::shared().take(limits_.region_bytes);
}

MemoryFabric::~MemoryFabric() { release_all_presence(); }

void MemoryFabric::release_all_presence() {
  const std::scoped_lock lock(store_->mutex_);
  std::erase_if(store_->holders_, [this](const auto& held) { return held.second == this; });
}

std::unique_ptr<Port> MemoryFabric::connect() { return std::make_unique<MappedPort>(*this); }

Result<Mapping> MemoryFabric::map(RegionId region) {
  const std::scoped_lock lock(store_->mutex_);
  const MemoryStore::Region& r = store_->regions_[region];
  if (r.base == nullptr) return fail(Errc::not_found, "map", fmt::format("there is no region {}", region));
  return Mapping{r.base, r.length_bytes};
}

Result<bool> MemoryFabric::claim_presence(std::uint32_t client) {
  const std::scoped_lock lock(store_->mutex_);
  return store_->holders_.emplace(client, this).second;
}

void MemoryFabric::release_presence(std::uint32_t client) {
  const std::scoped_lock lock(store_->mutex_);
  const auto it = store_->holders_.find(client);
  if (it != store_->holders_.end() && it->second == this) store_->holders_.erase(it);
}

bool MemoryFabric::holds_presence(std::uint32_t client) {
  const std::scoped_lock lock(store_->mutex_);
  const auto it = store_->holders_.find(client);
  return it != store_->holders_.end() && it->second == this;
}

bool MemoryFabric::present(std::uint32_t client) {
  const std::scoped_lock lock(store_->mutex_);
  return store_->holders_.contains(client);
}

Result<bool> MemoryPort::claim_presence(std::uint32_t client) {
  if (own_.contains(node_of_client(client)))
    return fail(Errc::permission, "claim", "a session that only reads has one client number");
  auto claimed = memory_.claim_presence(client);
  if (!claimed || !*claimed || !memory_.read_only()) return claimed;
  const auto words = memory_.readers()->admit(memory_, client);
  if (words && *words) {
    own_[node_of_client(client)] = **words;
    return true;
  }
  memory_.release_presence(client);
  if (!words) return std::unexpected(words.error());
  return false;
}

void MemoryPort::release_presence(std::uint32_t client) {
  // What it was taken for dead with may be another's by now.
  if (own_.erase(node_of_client(client)) != 0 && memory_.holds_presence(client))
    memory_.readers()->dismiss(memory_, client);
  memory_.release_presence(client);
}

std::byte* MemoryPort::place_of(const Operation& operation) const {
  if (!may(operation)) return nullptr;
  const auto mapping = memory_.map(operation.at.region);
  const bool fits = mapping && operation.at.offset_bytes <= mapping->length_bytes &&
                    operation.length_bytes <= mapping->length_bytes - operation.at.offset_bytes;
  return fits ? mapping->base + operation.at.offset_bytes : nullptr;
}

bool MemoryPort::may(const Operation& operation) const {
  const bool changes_nothing =
      operation.kind == Operation::Kind::read || operation.kind == Operation::Kind::expect;
  if (!memory_.read_only() || changes_nothing) return true;
  return operation.kind == Operation::Kind::write && std::ranges::any_of(own_, [&](const auto& own) {
           return own.second.contains(operation.at, operation.length_bytes);
         });
}

}  // namespace loch::fabric::fake
