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

// Fixed when a store is created. Each part of a cluster's store has one of its own: all but `max_bytes`,
// which its host sees to, is to be the same.
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
  // Of a node of a cluster: also its incarnation, which no node that has its number has had before.
  static void initialize_node(std::byte* control, const Geometry& geometry, std::uint32_t node,
                              std::uint64_t incarnation);

  // Checks the superblock of each node of `fabric`'s store. Of several nodes one has to be sound: the
  // geometry is what most of them have, or as many as have another and come first, and the largest
  // `max_bytes` of those. Errors: incompatible (another version, or left by an earlier boot), corrupt, those
  // of the fabric.
  static Result<std::shared_ptr<StoreMemory>> attach(std::shared_ptr<fabric::Fabric> fabric,
                                                     RegionMap map = RegionMap::of_one_host());

  // Whether a sound store, or part of one, whose files are on this host was left by an earlier boot of it:
  // what is in there means nothing now.
  static bool is_of_earlier_boot(const std::shared_ptr<fabric::Fabric>& fabric, fabric::RegionId control);

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

  // Whether what a node has is a part of this store: another one may have come there since, or it
  // may be what `attach` has left out. Errors: incompatible, corrupt; they do not name the node.
  [[nodiscard]] Result<void> check_part(const Superblock& superblock) const;

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] const RegionMap& region_map() const { return map_; }
  // What people call a node: "host b (10.0.0.2:7457)", or its number if nobody has given it a name.
  [[nodiscard]] std::string name_of_node(std::uint32_t node) const;
  [[nodiscard]] fabric::Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] const std::shared_ptr<fabric::Fabric>& shared_fabric() const { return fabric_; }

 private:
  StoreMemory(std::shared_ptr<fabric::Fabric> fabric, RegionMap map, const Geometry& geometry)
      : fabric_(std::move(fabric)), map_(std::move(map)), geometry_(geometry) {}

  const std::shared_ptr<fabric::Fabric> fabric_;
  const RegionMap map_;
  const Geometry geometry_;
  std::atomic<std::uint32_t> entering_ = 0;
};

}  // namespace loch::memory
