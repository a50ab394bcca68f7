// The simulated backend: what fabric.h promises, and no more, in virtual time.
//
// A batch is on its way for a while; each of its operations takes effect by itself at some moment in between,
// in any order unless the network keeps it, and a long one a piece at a time with anything else in between. A
// compare-swap or fetch-add is atomic against other atomics alone: a write may fall between its look and its
// change. What does not come back in time ends as timed_out, and may or may not have happened; after its end
// nothing of it happens any more.
//
// Regions are on several nodes, which may be taken down: the ways of all processes to it are broken for good
// then, and those that begin meanwhile do not reach it. A process on the store's host has the control region
// mapped, as whoever has the store's files; the other regions, and everything for a remote process, are
// reached by posting alone. Of a cluster each node is a host, which ends sessions by itself (SimSession).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/cluster_map.h"
#include "fabric/sim/sim_session.h"
#include "fabric/sim/simulation.h"
#include "fabric/testing/memory_store.h"

namespace loch::fabric::sim {

// How the network behaves; may be changed at any time. Chances are in 65536ths.
struct Network {
  base::Nanos delay_min_ns = 500;
  base::Nanos delay_max_ns = 3'000;
  std::uint32_t slow_chance = 0;  // that a way takes up to slow_max_ns
  base::Nanos slow_max_ns = 0;
  std::uint32_t loss_chance = 0;  // that a batch does not come back
  std::uint32_t tear_chance = 0;  // that an operation of several words takes effect in pieces
  std::uint32_t gap_chance = 0;   // that an atomic looks some time before it changes
  bool keeps_order = false;       // of the operations of a batch; stays so while a session goes by it
  static constexpr std::uint32_t always = 65'536;
};

class SimPort;

// A store in the memory of a simulation.
class SimStore {
 public:
  SimStore(std::shared_ptr<Simulation> simulation, const Plan& plan,
           fake::MemoryStore::Limits limits = fake::MemoryStore::Limits{});

  [[nodiscard]] Simulation& simulation() { return *simulation_; }
  [[nodiscard]] fake::MemoryStore& memory() { return *memory_; }
  [[nodiscard]] const std::shared_ptr<fake::MemoryStore>& shared_memory() const { return memory_; }
  Network network;
  bool is_cluster = false;
  // Between which processes and nodes nothing goes through, and which way.
  struct Cut {
    std::uint32_t process = every;
    std::uint32_t node = every;
    bool there = true;
    bool back = true;
    static constexpr std::uint32_t every = ~std::uint32_t{0};
  };
  // Until it is removed, by the number that is returned.
  std::uint64_t cut(Cut cut);
  void mend(std::uint64_t number) { cuts_.erase(number); }
  void mend_all() { cuts_.clear(); }
  // Whether nobody at all gets to a node now, and back.
  [[nodiscard]] bool is_cut_off(std::uint32_t node) const;

  // What goes to the node by any way that there is does not happen any more.
  void take_down(std::uint32_t node);
  void bring_up(std::uint32_t node);
  [[nodiscard]] bool is_down(std::uint32_t node) const { return lines_[node].is_down; }
  // How often a node was brought up.
  [[nodiscard]] std::uint64_t hosts_found() const { return hosts_found_; }
  // Of a cluster: whether other hosts can ask a node's now. One that has lost its memory is away until it has
  // another.
  [[nodiscard]] bool answers(std::uint32_t node) const {
    return memory_->length_bytes(control_region_of(node)) != 0 && !is_cut_off(node);
  }
  // Whether some node holds on to what a session had that it has ended.
  [[nodiscard]] bool is_fencing() const { return condemned_ != 0; }

  // Which node a region is on; all are on one unless told.
  std::function<std::uint32_t(RegionId)> node_of = [](RegionId) { return 0U; };
  // Whether a node is in the cluster no more, so that its host is not asked for anything.
  std::function<bool(std::uint32_t node)> is_gone = [](std::uint32_t) { return false; };
  // Told of each operation when it has taken effect; for traces.
  std::function<void(std::uint32_t process, const Operation& operation)> on_effect;
  [[nodiscard]] std::uint64_t operations() const { return operations_; }

 private:
  friend class SimPort;
  friend class SimSession;
  [[nodiscard]] bool is_cut(std::uint32_t process, std::uint32_t node, bool Cut::* way) const;

  // What the ways to a node began in; they end with it.
  struct Line {
    std::uint64_t number = 1;
    bool is_down = false;
  };
  std::array<Line, node_count_max> lines_{};
  std::uint64_t hosts_found_ = 0;
  std::shared_ptr<Simulation> simulation_;
  std::shared_ptr<fake::MemoryStore> memory_;
  std::map<std::uint64_t, Cut> cuts_;
  std::uint64_t cuts_made_ = 0;
  std::map<std::byte*, base::Nanos> busy_;  // words between the look and the change of an atomic, until when
  std::uint64_t operations_ = 0;
  std::size_t condemned_ = 0;  // sessions, by the nodes that hold on to what they had
};

// One process's way to a SimStore.
class SimFabric final : public fake::MemoryFabric, public std::enable_shared_from_this<SimFabric> {
 public:
  enum class Place : std::uint8_t { host, remote };
  SimFabric(std::shared_ptr<SimStore> store, std::uint32_t process, Place place = Place::host,
            std::int64_t drift_ppm = 0)
      : MemoryFabric(store->shared_memory()), sim_(std::move(store)), process_(process), place_(place) {
    if (remote()) host_clock_.emplace(sim_->simulation(), drift_ppm);
  }

  std::unique_ptr<Port> connect() override;
  [[nodiscard]] Atomics atomics() const override { return Atomics::device; }
  [[nodiscard]] std::uint64_t hosts_found() const override { return sim_->hosts_found(); }
  [[nodiscard]] base::Clock clock() const override {
    return host_clock_ ? host_clock_->clock() : sim_->simulation().clock();
  }
  // The clock of a remote process's host; null for one on the store's host.
  [[nodiscard]] HostClock* host_clock() { return host_clock_ ? &*host_clock_ : nullptr; }
  // When, by the simulation's time, the process's clock comes to `time`.
  [[nodiscard]] base::Nanos simulated(base::Nanos time) const {
    return host_clock_ ? host_clock_->simulated(time) : time;
  }
  [[nodiscard]] SimStore& sim() { return *sim_; }
  [[nodiscard]] std::uint32_t process() const { return process_; }
  [[nodiscard]] std::uint64_t process_number() const override { return process_; }
  [[nodiscard]] bool remote() const { return place_ == Place::remote; }

  // Of a cluster: it goes to the nodes where this map has the regions, whatever has become of it since;
  // before it connects.
  void go_by(ClusterMap map) { map_ = std::move(map); }
  [[nodiscard]] std::uint32_t node_of(RegionId region) const {
    const auto node = map_ ? map_->node_of(region) : std::nullopt;
    return node ? *node : sim_->node_of(region);
  }

  // Whether something that a port of this process could reach was taken down since.
  [[nodiscard]] bool has_broken_way() const;
  // Whether anything that a port of this process posts to the node can happen there.
  [[nodiscard]] bool reaches(std::uint32_t node) const;

  // Tells the owners of what has completed, as a poll does that does not wait.
  void deliver();
  // Called whenever something has completed.
  std::function<void()> on_completion;
  // The process is gone: of what it has posted, each operation happens or does not; nothing is told. The
  // host lets go of its presence at once, and nothing of it happens once a way's time has passed, however
  // slow that way was; of a remote one, when it is fenced.
  void kill();
  // The host of a node takes a remote process for dead. A store's only host breaks off its ways: of what it
  // has posted nothing happens from now on, as it finds out if it lives, and its presence is let go of. Of a
  // cluster: SimSession.
  void fence(std::uint32_t node);
  // What is posted ends at once; what will be does nothing.
  void sever();

 private:
  friend class SimPort;
  // Of a process on the store's host: it is dead, and nothing of it happens any more.
  [[nodiscard]] bool is_over() const;

  std::shared_ptr<SimStore> sim_;
  std::uint32_t process_;
  Place place_;
  std::optional<HostClock> host_clock_;
  std::optional<ClusterMap> map_;
  std::vector<SimPort*> ports_;
  std::vector<std::shared_ptr<SimSession>> sessions_;  // of a cluster; also those that are condemned
  std::optional<base::Nanos> killed_at_;
  bool severed_ = false;
};

}  // namespace loch::fabric::sim
