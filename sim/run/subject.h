// Subject: the store that a run is of. That of this project; or a specimen that is known to be wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "sim/run/player.h"
#include "sim/run/setup.h"

namespace loch::sim {

class Subject {
 public:
  virtual ~Subject() = default;

  // What a new store consists of.
  [[nodiscard]] virtual fabric::Plan plan() const = 0;
  // The keys that all acts are on.
  [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
  virtual std::unique_ptr<Player> make_player(Scene& scene, std::uint32_t number, std::uint32_t acts,
                                              Player::Place place) const = 0;
  // One that moves about what a store of a cluster has; null if there is none.
  virtual std::unique_ptr<Player> make_mover(Scene& /*scene*/, std::uint32_t /*number*/,
                                             std::uint32_t /*acts*/) const {
    return nullptr;
  }
  // Of a cluster: a node has nothing any more, and begins anew as another incarnation.
  virtual void make_node(Scene& /*scene*/, std::uint32_t /*node*/, std::uint64_t /*incarnation*/) const {}
  // Of a cluster: the home of a shard makes it, if it has lost it before it learned that it is the home.
  virtual void tend_shard(Scene& /*scene*/, std::uint32_t /*shard*/) const {}
  // Of a cluster: where the key's slots are.
  [[nodiscard]] virtual std::uint32_t shard_of(const Scene& /*scene*/, const std::string& /*key*/) const {
    return 0;
  }
  // Fault::Kind::flip. Of a store that says nothing of damage: nothing happens.
  virtual void flip_a_bit(Scene& /*scene*/) const {}

  // For stories: whether an operation is on what belongs to `key` ...
  [[nodiscard]] virtual bool concerns(const Scene& scene, const std::string& key,
                                      const fabric::Operation& operation) const = 0;
  // ... what is at a place, and what a word there says.
  [[nodiscard]] virtual std::string place_text(fabric::Address at) const = 0;
  [[nodiscard]] virtual std::string word_text(fabric::Address at, std::uint64_t word) const = 0;
};

// "PREFIX0" and so on.
std::vector<std::string> numbered_keys(std::string_view prefix, std::uint32_t count);

// The one that a setup is of. `setup` outlives it.
std::unique_ptr<Subject> make_subject(const Setup& setup);

}  // namespace loch::sim
