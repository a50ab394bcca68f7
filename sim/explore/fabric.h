// The explorer's way to the store: control and data are mapped, so what is done to them happens at once; the
// index is not, so every operation on a slot is posted, and waits in its port until the explorer carries it
// out, word by word.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/testing/memory_store.h"

namespace loch::explore {

class ExploredPort;

class ExploredFabric final : public fabric::fake::MemoryFabric {
 public:
  // `waits`: whether an operation at a byte offset of the index waits for the explorer; the others happen
  // when posted.
  ExploredFabric(std::shared_ptr<fabric::fake::MemoryStore> store, std::function<bool(std::uint64_t)> waits)
      : MemoryFabric(std::move(store)), waits_(std::move(waits)) {}

  std::unique_ptr<fabric::Port> connect() override;
  // The port that was made last; lives as long as its endpoint.
  [[nodiscard]] ExploredPort* last_port() const { return last_port_; }
  [[nodiscard]] bool waits(const fabric::Operation& operation) const {
    return waits_(operation.at.offset_bytes);
  }

 private:
  std::function<bool(std::uint64_t)> waits_;
  ExploredPort* last_port_ = nullptr;
};

class ExploredPort final : public fabric::fake::MemoryPort {
 public:
  explicit ExploredPort(ExploredFabric& fabric) : MemoryPort(fabric), fabric_(fabric) {}

  Result<fabric::Mapping> map(fabric::RegionId region) override;
  void post(std::span<fabric::Operation> batch, base::Nanos deadline, fabric::Completion& done) override;
  void poll(base::Nanos wait_ns) override;

  static constexpr unsigned words_max = 14;  // of a batch
  // The batch that waits (empty if none), an operation for each word, and which of them are still to be
  // carried out: a READ of several words reads each at a time of its own.
  [[nodiscard]] std::span<const fabric::Operation> words() const { return words_; }
  [[nodiscard]] std::uint32_t waiting() const { return waiting_; }
  void execute(unsigned index);
  // Told of each batch, word by word, before its coroutine goes on.
  std::function<void(std::span<const fabric::Operation>)> on_complete;

 private:
  void take_apart(std::span<const fabric::Operation> batch);
  void put_together();
  void carry_out(fabric::Operation& operation);
  void finish_if_done();

  ExploredFabric& fabric_;
  std::span<fabric::Operation> batch_;
  std::vector<fabric::Operation> words_;
  fabric::Completion* done_ = nullptr;
  std::uint32_t waiting_ = 0;
};

}  // namespace loch::explore
