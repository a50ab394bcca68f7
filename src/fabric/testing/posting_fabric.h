// For tests: a way to a MemoryStore that maps nothing, so that every operation is posted. A batch that was
// posted lies until a poll takes it: which one, and in which order its operations run, is drawn from a seed.
// A batch whose deadline has passed is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "fabric/testing/memory_store.h"

namespace loch::fabric::fake {

struct PostingOptions {
  std::uint64_t seed = 1;
  bool keeps_order = false;  // of the operations of a batch
  OperationCost operation_cost = OperationCost::little;
  // Which regions are mapped all the same; none unless told.
  std::function<bool(RegionId)> mapped{};
  // Called before each operation is carried out, by the thread that polls.
  std::function<void(const Operation&)> before{};
  // Counts round trips: all that is posted is carried out at each poll that finds any.
  std::uint64_t* round_trips = nullptr;
  // Counts how often it was asked whether a client is there.
  std::uint64_t* presence_asked = nullptr;
  // Asked before each batch is carried out; while it returns true, the batch waits and time passes.
  std::function<bool(std::span<const Operation>)> held{};
};

class PostingFabric final : public MemoryFabric {
 public:
  PostingFabric(std::shared_ptr<MemoryStore> store, PostingOptions options)
      : MemoryFabric(std::move(store)), options_(std::move(options)) {}

  std::unique_ptr<Port> connect() override;

 private:
  PostingOptions options_;
  std::atomic<std::uint64_t> ports_{0};
};

}  // namespace loch::fabric::fake
