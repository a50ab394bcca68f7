// Hosts: what the hosts of a simulated store do by themselves, as lochds do. Each tells the time to those who
// can not see its clock. One that loses its memory comes back without, as another incarnation; each of the
// others finds that out, ends all sessions of the store with it, forgets what it knew of the former one, and
// serves again (server/neighbours.h). Where hosts come and go, each goes by the newest map, some later than
// others: one that comes makes its part (server/member.h), one that has gone gives clients the time to learn
// of it before it ends their sessions (server/rebalancer.h), and the others forget it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/run/player.h"
#include "sim/run/subject.h"

namespace loch::sim {

class Hosts {
 public:
  // `end_sessions` cuts off for good all players that are attached to a node. All outlive it.
  Hosts(Scene& scene, const Subject& subject, std::function<void(std::uint32_t node)> end_sessions);

  // From now on.
  void keep_time();
  // Fault::Kind::amnesia. Comes back after that time, if any; false if it is away, so that nothing happens.
  bool lose_memory(std::uint32_t node, std::optional<base::Nanos> away_ns);
  // Without its memory, unless the map does without it by now.
  void come_back(std::uint32_t node);
  // Those that are away come back at once.
  void return_all();
  // A host that the map has as this node comes after a while, and is away until then.
  void start(std::uint32_t node, base::Nanos wait_ns);
  // Goes by the newest map after a while.
  void tell(std::uint32_t node, base::Nanos wait_ns);
  // Whether it has its memory.
  [[nodiscard]] bool is_there(std::uint32_t node) const {
    return scene_.store->memory().length_bytes(control_of(node)) != 0;
  }
  // All are there, go by the newest map, know each other as what they are, and hold on to nothing of a
  // session that has ended.
  [[nodiscard]] bool are_settled() const;

 private:
  struct Host {
    std::string name{};
    base::Nanos ahead_ns = 0;     // how far its clock is ahead of the simulation's
    fabric::NodeSet gone = 0;     // by the map that it goes by
    fabric::NodeSet drained = 0;  // also those that have gone since
    bool departs = false;         // it has gone, and its sessions are about to end
  };
  using Memory = std::map<fabric::RegionId, fabric::fake::MemoryStore::Taken>;
  // What a node had when it lost it.
  struct Lost {
    base::Nanos at_ns = 0;
    Memory data{};
  };
  using Incarnation = std::pair<std::uint32_t, std::uint64_t>;  // of a node

  [[nodiscard]] fabric::sim::Simulation& simulation() const { return scene_.store->simulation(); }
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(hosts_.size()); }
  [[nodiscard]] fabric::RegionId control_of(std::uint32_t node) const {
    return scene_.setup.shards == 0 ? memory::control_region : fabric::control_region_of(node);
  }
  // Of a node, as another one knows it.
  [[nodiscard]] std::uint64_t incarnation(std::uint32_t by, std::uint32_t of) const;
  [[nodiscard]] bool answers(std::uint32_t node) const;
  [[nodiscard]] bool is_gone(std::uint32_t node) const;
  // As a host knows.
  [[nodiscard]] bool is_gone(std::uint32_t by, std::uint32_t of) const {
    return (hosts_[by].gone & fabric::node_bit(of)) != 0;
  }
  [[nodiscard]] bool is_mistaken(std::uint32_t by, std::uint32_t of) const;
  // The way of a host's own process to its memory.
  [[nodiscard]] std::shared_ptr<fabric::Fabric> own(std::uint32_t node) const;
  void tell_time(std::uint32_t node);
  void begin_homing();
  Memory take_memory(std::uint32_t node);
  void follow_map(std::uint32_t node);
  // Whether its part is what the newest map says.
  [[nodiscard]] bool is_up_to_date(std::uint32_t node) const;
  void say_farewell(std::uint32_t node);
  void depart(std::uint32_t node);
  // How long it takes to end all sessions with a node (SimFabric::fence).
  base::Nanos draw_ending();
  void begin_to_look();
  void look_around();
  void forget_the_gone(std::uint32_t by, std::uint32_t of);
  void forget(std::uint32_t by, std::uint32_t of);
  void forget_items(std::uint32_t by, std::uint32_t of, std::uint64_t is);
  void note_lost_shards(std::uint32_t node);
  // The items in this memory that slots of the shard name, by their keys and those words.
  template <class What>
  void for_each_item(const memory::RegionMap::Shard& shard, const Memory& of, What what) const;
  void note_lost_items(const Lost& lost);
  void note_forgotten(const memory::RegionMap::Shard& shard, const Lost& lost);
  [[nodiscard]] bool moves(const memory::RegionMap::Shard& shard) const;
  void note_lost(const std::string& key, base::Nanos since, bool certainly);

  Scene& scene_;
  const Subject& subject_;
  const std::function<void(std::uint32_t node)> end_sessions_;
  std::vector<Host> hosts_;  // by node
  std::map<Incarnation, Lost> lost_;
  std::uint64_t incarnations_;
  bool looks_around_ = false;
};

}  // namespace loch::sim
