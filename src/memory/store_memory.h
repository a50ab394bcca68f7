// StoreMemory: what all sessions of one process share of one store: its fabric and its geometry.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fabric/fabric.h"
#include "memory/layout.h"

namespace loch::memory {

// Fixed when a store is created.
struct Geometry {
  std::uint32_t candidates = 3;
  base::Nanos expiry_ns = base::second_ns;
  std::uint64_t max_bytes = 0;
  std::uint64_t hash_seed = 0;
};

class StoreMemory {
 public:
  // The control region of a new store: the superblock and an empty registry.
  static void initialize_control(std::byte* control, const Geometry& geometry);

  // Checks the superblock of `fabric`'s store. Errors: incompatible (another version, or left by an earlier
  // boot), corrupt.
  static Result<std::shared_ptr<StoreMemory>> attach(std::shared_ptr<fabric::Fabric> fabric);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] fabric::Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] const std::shared_ptr<fabric::Fabric>& shared_fabric() const { return fabric_; }

 private:
  StoreMemory(std::shared_ptr<fabric::Fabric> fabric, const Geometry& geometry)
      : fabric_(std::move(fabric)), geometry_(geometry) {}

  std::shared_ptr<fabric::Fabric> fabric_;
  Geometry geometry_;
};

}  // namespace loch::memory
