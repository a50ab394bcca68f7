// Control: a node's control region as one session sees it. Where it is mapped, its words are the store's
// own. Elsewhere they are a copy, which is as old as its last reading; what is written goes to the store
// first, and then into the copy.
//
// Errors are those of the fabric. One thread, of the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include <loch/coro/task.h>

#include "fabric/endpoint.h"
#include "memory/layout.h"

namespace loch::memory {

// A word of the store's memory as an atomic.
inline std::atomic_ref<std::uint64_t> shared(std::uint64_t& word) {
  return std::atomic_ref<std::uint64_t>(word);
}

class Control {
 public:
  explicit Control(fabric::Endpoint& endpoint, fabric::RegionId region = control_region);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  [[nodiscard]] bool is_copy() const { return copy_ != nullptr; }
  [[nodiscard]] std::byte* bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t& word(std::uint64_t offset) const {
    return *reinterpret_cast<std::uint64_t*>(bytes_ + offset);
  }
  [[nodiscard]] ClientEntry& entry(std::uint32_t client) const {
    return reinterpret_cast<ClientEntry*>(bytes_ + registry_offset)[client];
  }
  [[nodiscard]] ClientCounters& counters(std::uint32_t client) const {
    return reinterpret_cast<ClientCounters*>(bytes_ + counters_offset)[client];
  }
  // One more than the highest client number that was ever used.
  [[nodiscard]] std::uint32_t clients_end() const;

  // Where something in bytes() is in the store.
  [[nodiscard]] fabric::Address address_of(const void* place) const {
    const auto offset = static_cast<const std::byte*>(place) - bytes_;
    return {region_, static_cast<std::uint64_t>(offset)};
  }

  // What all sessions have counted since the store was made. Of a copy: as far as they had when it was read
  // last.
  [[nodiscard]] Stats totals() const;
  // The store's latest time is `time` at least. Only where it is mapped.
  void raise_latest(base::Nanos time) const;
  // Client numbers below `end` are looked at. Likewise.
  void raise_clients_end(std::uint32_t end) const;

  // Words of bytes(). A raise leaves a word that is as great as it is.
  coro::Task<Result<void>> write(std::uint64_t* word, std::uint64_t value);
  coro::Task<Result<void>> add(std::uint64_t* word, std::uint64_t n);
  coro::Task<Result<void>> raise(std::uint64_t* word, std::uint64_t to);

  // The store's time as it is between the call and the answer.
  coro::Task<Result<base::Nanos>> read_time(fabric::Urgency urgency = fabric::Urgency::awaited);
  // The two halves of it, of a copy: the operation, and what it read.
  [[nodiscard]] fabric::Operation time_reading(base::Nanos* into) const {
    return fabric::Operation::read({region_, latest_offset}, into, sizeof *into);
  }
  void learn_time(base::Nanos time) { newest_time_ns_ = std::max(newest_time_ns_, time); }
  // The newest of those, or of the clock here.
  [[nodiscard]] base::Nanos newest_time() const { return is_copy() ? newest_time_ns_ : endpoint_.now(); }

  // The rest is for copies alone; what is mapped is always new.
  //
  // Everything but what has been counted, after a reading of the store's time that becomes the copy's latest
  // time; and but for the entry of `own`, who alone writes it.
  coro::Task<Result<void>> read(std::uint32_t own);
  coro::Task<Result<void>> read_word(std::uint64_t* word);
  // With its counters.
  coro::Task<Result<void>> read_entry(std::uint32_t client);
  // What all have counted, but for `own`.
  coro::Task<Result<void>> read_totals(std::uint32_t own);
  // What this session has counted, as the copy has it.
  coro::Task<Result<void>> write_counters(std::uint32_t own);

 private:
  fabric::Endpoint& endpoint_;
  const fabric::RegionId region_;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  // Zeros at first. Of its pages, few clients need few, and a page that nobody touches costs nothing.
  std::unique_ptr<std::byte, Free> copy_;
  std::byte* bytes_;
  base::Nanos newest_time_ns_ = 0;
};

}  // namespace loch::memory
