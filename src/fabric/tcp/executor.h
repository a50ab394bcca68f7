// Executor: carries out the operations of one connection (wire.h) on memory that is mapped here, with the
// processor's atomics, and puts their answers together. What an operation says is input: one of what is not
// there, or not the connection's to change, is answered as a bad address.
//
// Of the agent's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "fabric/endpoint.h"
#include "fabric/fabric.h"
#include "fabric/readers.h"
#include "fabric/tcp/answers.h"
#include "fabric/tcp/wire.h"

namespace loch::fabric::tcp {

// Of counters that one thread changes and others read.
inline void raise(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

class Executor {
 public:
  struct Counts {
    std::atomic<std::uint64_t> reads, writes, atomics, bad_addresses;
  };
  struct Settings {
    bool may_change = false;  // all; else its own words, by writes alone
    bool gathers = true;      // Stream::gathers
  };

  // Both outlive it, and serve several.
  Executor(Answers& answers, Counts& counts, Settings settings)
      : answers_(answers), counts_(counts), settings_(settings) {}

  // Before anything else.
  void set_regions(std::shared_ptr<Endpoint> regions) { regions_ = std::move(regions); }
  // Which it may write if it may not change all; none until it is told.
  void set_own_words(const OwnWords& words) { own_words_ = words; }

  // Whether what a READ is of goes out from where it lies.
  [[nodiscard]] bool gathers(const OperationHead& head) const {
    // What is shorter costs less to copy than to have as a part of a call.
    constexpr std::size_t gathered_bytes_min = 1'024;
    return is_settled(head) && head.length_bytes >= gathered_bytes_min && settings_.gathers;
  }
  // Asks for the memory of the next operations between `from` and `end`, so that none of them waits for its
  // own while those of the others could come beside it. Returns the end of those that were looked at.
  const std::byte* fetch_ahead(const std::byte* from, const std::byte* end) const;
  // Carries out one operation, which is_operation and whole, and answers it.
  void execute(const std::byte* operation);

 private:
  void read(const OperationHead& head, std::byte* at);
  void read_words(const OperationHead& head, const std::byte* rest);
  void answer(const OperationHead& head, Status status, std::span<const std::uint64_t> words);

  Answers& answers_;
  Counts& counts_;
  const Settings settings_;
  std::shared_ptr<Endpoint> regions_;
  OwnWords own_words_{};
  bool refused_last_ = false;  // the operation before
};

}  // namespace loch::fabric::tcp
