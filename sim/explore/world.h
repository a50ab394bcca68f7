// World: one store and the clients of a scenario, made anew for every run. Nothing happens by itself: a
// client's operation on a slot waits until `take` picks it, so a run is repeated by its choices.
//
// Time stands still: nothing expires, no memory is reused, no deadline passes. A client that dies keeps its
// entry in the registry and is not present any more; so does one that was stopped for repeating an operation
// too often.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hash/index.h"
#include "hash/rules.h"
#include "memory/store_memory.h"
#include "sim/explore/actor.h"
#include "sim/explore/fabric.h"
#include "sim/explore/monitor.h"
#include "sim/explore/scenario.h"

namespace loch::explore {

// What may happen next: a word of a client's batch is carried out, a client begins its next operation, or it
// dies.
struct Choice {
  static constexpr std::uint8_t begin = ExploredPort::words_max;
  static constexpr std::uint8_t crash = 15;
  std::uint8_t code = 0;

  static Choice of(unsigned client, unsigned what) { return {static_cast<std::uint8_t>(client << 4 | what)}; }
  [[nodiscard]] unsigned client() const { return code >> 4; }
  [[nodiscard]] unsigned what() const { return code & 15; }
};

class World {
 public:
  explicit World(Scenario scenario);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Back to the beginning of the scenario.
  void reset();
  [[nodiscard]] std::vector<Choice> choices() const;
  void take(Choice choice);

  // Two runs with the same hash go on alike: slots, directory, what each client has seen since it can
  // remember, and what answers are still possible. Nonces and items are renamed in the order of their
  // appearance.
  [[nodiscard]] std::uint64_t hash() const;

  // The rules that hold in every state; and that a client which comes now, with all others stopped, can work.
  // The second ends the run: `reset` follows.
  void check_state();
  void probe();
  // What was found wrong first; empty if nothing was.
  [[nodiscard]] const std::string& violation() const { return violation_; }

  // Told of every step in words, if set.
  std::function<void(const std::string&)> trace;
  // All slots that are not as at the beginning of time, and the directory, in words.
  [[nodiscard]] std::string describe() const;

 private:
  friend class Actor;

  void build();
  void prepare_keys();
  void prepare_index();
  void write_initial_slots();
  void place_initial_items(Actor& setter);
  void wait_for_all_slots();
  std::unique_ptr<Actor> make_actor(unsigned number);
  void after_step(unsigned client, ScriptOp op);
  void settle(Actor& actor, unsigned client, ScriptOp op);
  bool run_alone(Actor& actor, ScriptOp op);
  void probe_growth(Actor& fresh);
  void check_key(unsigned key);
  void check_moves();
  void fail_with(std::string what);
  void say(const std::function<std::string()>& text) const;

  [[nodiscard]] hash::Directory directory() const;
  [[nodiscard]] hash::SlotWord slot(hash::SlotNumber number) const;
  [[nodiscard]] hash::SlotNumber slot_count() const;
  [[nodiscard]] ValueId value_of(hash::SlotWord word) const;
  [[nodiscard]] int key_of(hash::SlotWord word) const;
  [[nodiscard]] std::string word_text(hash::SlotWord word) const;
  [[nodiscard]] std::string slot_text(hash::SlotNumber number) const;
  [[nodiscard]] std::uint64_t presence_bits() const;
  [[nodiscard]] std::uint64_t growth_word() const;
  // What is there now is the initial state.
  void keep(fabric::Address at, std::size_t bytes);

  const Scenario scenario_;
  std::array<std::string, keys_max> key_names_;
  std::vector<bool> waits_;  // by slot
  bool all_at_once_ = false;
  std::shared_ptr<fabric::fake::MemoryStore> store_;
  std::shared_ptr<ExploredFabric> fabric_;
  std::shared_ptr<memory::StoreMemory> memory_;
  struct Kept {
    fabric::Address at;
    std::vector<std::byte> bytes;
  };
  std::vector<Kept> initial_;  // of the memory
  std::array<ValueId, keys_max> initial_values_{};

  std::vector<std::unique_ptr<Actor>> actors_;
  Monitor monitor_;
  unsigned crashes_ = 0;
  int just_begun_ = -1;
  std::string violation_;
};

}  // namespace loch::explore
