// StoreMemory: what all sessions of one process share of one store: its fabric, its geometry, and the map of
// its regions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "fabric/endpoint.h"
#include "fabric/fabric.h"
#include "memory/layout.h"

namespace loch::memory {

// Fixed when a store is created.
struct Geometry {
  std::uint32_t candidates = 3;
  base::Nanos expiry_ns = base::second_ns;
  std::uint64_t max_bytes = 0;
  std::uint64_t hash_seed = 0;

  bool operator==(const Geometry&) const = default;
};

class StoreMemory {
 public:
  // The control region of a new store: the superblock and an empty registry.
  static void initialize_control(std::byte* control, const Geometry& geometry);
  // Of a node of a cluster: also its incarnation, which no node that has its number has had before.
  static void initialize_node(std::byte* control, const Geometry& geometry, std::uint32_t node,
                              std::uint64_t incarnation);

  // Checks the superblock of each node of `fabric`'s store that can be reached, of which there has to be one.
  // Errors: incompatible (another version, or left by an earlier boot), corrupt, those of the fabric.
  static Result<std::shared_ptr<StoreMemory>> attach(std::shared_ptr<fabric::Fabric> fabric,
                                                     RegionMap map = RegionMap::of_one_host());

  // The way of one client to all the regions.
  [[nodiscard]] std::shared_ptr<fabric::Endpoint> connect() const {
    return std::make_shared<fabric::Endpoint>(fabric_, fabric_->connect());
  }

  // While a session of this process is entered: how many others were being entered when it began.
  class Entering {
   public:
    explicit Entering(StoreMemory& memory) : memory_(memory), turn_(memory.entering_.fetch_add(1)) {}
    ~Entering() { memory_.entering_.fetch_sub(1); }
    Entering(const Entering&) = delete;
    Entering& operator=(const Entering&) = delete;
    [[nodiscard]] std::uint32_t turn() const { return turn_; }

   private:
    StoreMemory& memory_;
    const std::uint32_t turn_;
  };

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] const RegionMap& region_map() const { return map_; }
  // What people call a node: "host b (10.0.0.2:7457)", or its number if nobody has given it a name.
  [[nodiscard]] std::string name_of_node(std::uint32_t node) const;
  [[nodiscard]] fabric::Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] const std::shared_ptr<fabric::Fabric>& shared_fabric() const { return fabric_; }

 private:
  StoreMemory(std::shared_ptr<fabric::Fabric> fabric, RegionMap map, const Geometry& geometry)
      : fabric_(std::move(fabric)), map_(std::move(map)), geometry_(geometry) {}
  static Result<Geometry> look_at_node(fabric::Endpoint& endpoint, fabric::RegionId control);

  const std::shared_ptr<fabric::Fabric> fabric_;
  const RegionMap map_;
  const Geometry geometry_;
  std::atomic<std::uint32_t> entering_ = 0;
};

}  // namespace loch::memory
