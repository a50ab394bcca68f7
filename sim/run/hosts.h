// Hosts: what the hosts of a simulated store do by themselves, as lochds do. Each tells the time to those who
// can not see its clock. One that loses its memory comes back without, as another incarnation; each of the
// others finds that out, ends all sessions of the store with it, forgets what it knew of the former one, and
// serves again (server/neighbours.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  // Fault::Kind::amnesia. Comes back after that time; if it is away, nothing happens.
  void lose_memory(std::uint32_t node, base::Nanos away_ns);
  // Those that are away come back at once.
  void return_all();
  // All are there, know each other as what they are, and hold on to nothing of a session that has ended.
  [[nodiscard]] bool are_settled() const;

 private:
  // What a node had when it lost it.
  struct Lost {
    base::Nanos at_ns = 0;
    std::map<fabric::RegionId, fabric::fake::MemoryStore::Taken> data{};
  };
  using Incarnation = std::pair<std::uint32_t, std::uint64_t>;  // of a node

  [[nodiscard]] fabric::sim::Simulation& simulation() const { return scene_.store->simulation(); }
  // Of a node, as another one knows it.
  [[nodiscard]] std::uint64_t incarnation(std::uint32_t by, std::uint32_t of) const;
  [[nodiscard]] bool answers(std::uint32_t node) const;
  [[nodiscard]] bool is_mistaken(std::uint32_t by, std::uint32_t of) const;
  void tell_time(std::uint32_t node);
  void come_back(std::uint32_t node);
  void look_around();
  void forget(std::uint32_t by, std::uint32_t of);
  void forget_items(std::uint32_t by, std::uint32_t of);
  void note_lost_shards(std::uint32_t node);
  void note_lost_items(const memory::RegionMap::Shard& shard, const Lost& lost);
  [[nodiscard]] bool moves(const memory::RegionMap::Shard& shard) const;
  void note_lost(const std::string& key, base::Nanos since, bool certainly);

  Scene& scene_;
  const Subject& subject_;
  const std::function<void(std::uint32_t node)> end_sessions_;
  const memory::RegionMap first_map_;
  std::vector<base::Nanos> ahead_ns_;  // how far each node's clock is ahead of the simulation's
  std::map<Incarnation, Lost> lost_;
  std::uint64_t incarnations_;
  bool looks_around_ = false;
};

}  // namespace loch::sim
