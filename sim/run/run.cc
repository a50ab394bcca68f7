#include "sim/run/run.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fault.h"
#include "memory/session.h"
#include "sim/linearizability.h"
#include "sim/run/hosts.h"
#include "sim/run/moving_player.h"
#include "sim/run/operator.h"
#include "sim/run/subject.h"

namespace loch::sim {
namespace {

using base::millisecond_ns;
using base::second_ns;
using fabric::sim::SimStore;
using fabric::sim::Simulation;

// What a run may take once nothing goes wrong any more, and in all.
constexpr base::Nanos calm_max_ns = 3'600 * second_ns;
constexpr std::uint64_t events_max = 30'000'000;
constexpr std::size_t players_max = 2'000;  // those that took another's place with them

std::shared_ptr<SimStore> make_store(const Setup& setup, const Subject& subject) {
  auto store = std::make_shared<SimStore>(
      std::make_shared<Simulation>(base::mix(setup.seed + 1), setup.tick_ns), subject.plan(),
      fabric::fake::MemoryStore::Limits{.free_bytes = setup.free_bytes});
  store->network = setup.network;
  store->is_cluster = setup.shards != 0;
  return store;
}

class World {
 public:
  World(const Setup& setup, const Listener& listener)
      : setup_(setup),
        listener_(listener),
        subject_(make_subject(setup)),
        scene_{.setup = setup,
               .store = make_store(setup, *subject_),
               .keys = subject_->keys(),
               .cluster = setup.shards == 0 ? fabric::ClusterMap{} : cluster_of(setup),
               .kept = numbered_keys("kept", setup.kept_keys)} {
    scene_.on_arrival = [this](std::uint32_t shard) { subject_->tend_shard(scene_, shard); };
    scene_.gives_away = [this](std::uint32_t node) {
      return std::ranges::any_of(players_, [node](const auto& player) { return player->moves_from(node); });
    };
    scene_.tell_host = [this](std::uint32_t node, base::Nanos wait_ns) { hosts_.tell(node, wait_ns); };
    if (listener_.line) {
      scene_.store->on_effect = [this](std::uint32_t process, const fabric::Operation& operation) {
        tell(process, operation);
      };
      scene_.say = [this](const std::string& key, const std::string& what) {
        if (key.empty() || listener_.only_key.empty() || key == listener_.only_key) say(what);
      };
    }
    if (setup.shards == 0) {
      for (std::uint32_t region = 0; region < nodes_.size(); ++region)
        nodes_[region] = region / 2 % setup.nodes;
    }
    scene_.store->is_gone = [this](std::uint32_t node) {
      const auto& nodes = scene_.cluster.nodes;
      return node < nodes.size() && nodes[node].state == fabric::ClusterMap::NodeState::gone;
    };
    scene_.store->node_of = [this](fabric::RegionId region) {
      return nodes_[region] = scene_.cluster.node_of(region).value_or(nodes_[region]);
    };
    passed_.resize(setup.faults.size());
    outcomes_.begun.resize(setup.faults.size());
  }

  Outcomes play();
  // A client comes to a fault point.
  void pass(const char* point);

 private:
  [[nodiscard]] Simulation& simulation() { return scene_.store->simulation(); }
  void fill();
  // Of the players that begin and end a run: nobody has all of a cluster mapped.
  [[nodiscard]] Player::Place observer_place() const {
    return setup_.shards == 0 ? Player::Place::host : Player::Place::remote;
  }
  void join(std::uint32_t acts, Player::Role role = Player::Role::client);
  void join_later(base::Nanos wait_ns, std::uint32_t acts, Player::Role role);
  void join_for(const Player& gone);
  void call_mover();
  // The host of a node takes it for dead; a store of one host has no other.
  void fence(Player& player, std::uint32_t node);
  void fence_later(std::size_t index, const Fault& fault);
  [[nodiscard]] std::uint32_t acts_left_of(const Player& player) const;
  void run_players();
  void run_player(std::size_t index);
  bool is_going_on();
  bool run_until_done(base::Nanos at_most_ns);
  void end_sessions(std::uint32_t node);
  void begin_due_faults();
  void begin(const Fault& fault);
  void calm_down();
  void judge();
  void judge_history();
  void tell(std::uint32_t process, const fabric::Operation& operation);
  void say(const std::string& what) {
    listener_.line(fmt::format("{:>14} {}", simulation().now() - 1'000 * second_ns, what));
  }
  void mark(std::size_t index) { ready_.push_back(index); }
  [[nodiscard]] std::uint32_t number_of(const Fault& fault) const { return first_player_ + fault.player; }
  [[nodiscard]] bool is_from_the_beginning(std::uint32_t number) const {
    return number - first_player_ < setup_.players;
  }

  const Setup& setup_;
  const Listener& listener_;
  std::unique_ptr<Subject> subject_;
  Scene scene_;
  Hosts hosts_{scene_, *subject_, [this](std::uint32_t node) { end_sessions(node); }};
  Operator operator_{scene_, hosts_, [this] { call_mover(); }};
  Outcomes outcomes_;
  // On which node each region is, or was when it was last asked for.
  std::array<std::uint32_t, fabric::region_count_max> nodes_{};
  std::vector<std::unique_ptr<Player>> players_;
  std::vector<base::Nanos> timers_;  // when each player's next one is due, as it is noted
  std::vector<std::size_t> ready_;   // players to run
  std::uint32_t joining_ = 0;        // players that are about to come
  std::uint32_t next_number_ = 1;
  std::uint32_t first_player_ = 1;     // the number of player 0
  std::uint32_t acting_ = 0;           // the number of the player that runs or opens the store; 0: none
  std::vector<std::uint32_t> passed_;  // how often each fault's player has come to its point
  std::uint64_t events_ = 0;
  bool has_mover_ = false;  // who moves things about is there, or about to come
  bool calm_ = false;       // nothing goes wrong any more
  bool over_ = false;       // nobody comes any more
};

thread_local World* world_here = nullptr;

void on_point(const char* point) {
  if (world_here != nullptr) world_here->pass(point);
}

void World::pass(const char* point) {
  outcomes_.points.insert(point);
  if (acting_ == 0) return;
  if (is_from_the_beginning(acting_)) outcomes_.points_of_players.insert(point);
  const bool is_mover = setup_.moves != 0 && acting_ - first_player_ == setup_.players;
  if (is_mover) outcomes_.points_of_mover.insert(point);
  for (std::size_t i = 0; i < setup_.faults.size(); ++i) {
    const Fault& fault = setup_.faults[i];
    const bool is_of_player = fault.kind <= Fault::Kind::partition;
    if (fault.at_point == nullptr || std::string_view(fault.at_point) != point ||
        (is_of_player && number_of(fault) != acting_) || outcomes_.begun[i]) {
      continue;
    }
    if (++passed_[i] != fault.nth) continue;
    outcomes_.begun[i] = true;
    begin(fault);
  }
}

// A player comes: at the beginning, or in place of one that was killed.
void World::join(std::uint32_t acts, Player::Role role) {
  const std::uint32_t number = next_number_++;
  const bool remote = (base::mix(setup_.seed ^ number) & 0xffff) < setup_.remote_chance;
  const std::uint32_t before = std::exchange(acting_, number);  // another may come while this one waits
  auto player =
      role == Player::Role::mover
          ? subject_->make_mover(scene_, number, acts)
          : subject_->make_player(scene_, number, acts, remote ? Player::Place::remote : Player::Place::host);
  acting_ = before;
  if (!player->opened()) return join_later(10 * millisecond_ns, acts, role);
  const std::size_t index = players_.size();
  player->fabric().on_completion = [this, index] { mark(index); };
  players_.push_back(std::move(player));
  timers_.push_back(0);
  mark(index);
}

void World::join_later(base::Nanos wait_ns, std::uint32_t acts, Player::Role role) {
  ++joining_;
  simulation().after(wait_ns, [this, acts, role] {
    --joining_;
    if (!over_) join(acts, role);
  });
}

// Another one goes on with what it had left to do. A client that was fenced has another in its place already;
// a mover has none beside it, as a host moves one shard after the other.
void World::join_for(const Player& gone) {
  if (!gone.was_fenced() || gone.role() == Player::Role::mover)
    join_later(millisecond_ns, acts_left_of(gone), gone.role());
}

void World::fence(Player& player, std::uint32_t node) {
  player.fence(node);
  if (player.role() == Player::Role::client) join_later(millisecond_ns, acts_left_of(player), player.role());
}

// There is something to be moved.
void World::call_mover() {
  if (!calm_ && !std::exchange(has_mover_, true)) join_later(millisecond_ns, 1, Player::Role::mover);
}

// Shards that are on their way are brought there, whoever began that.
std::uint32_t World::acts_left_of(const Player& player) const {
  const bool has_to_settle = player.role() == Player::Role::mover && MovingPlayer::is_unsettled(scene_);
  return std::max(player.acts_left(), has_to_settle ? 1U : 0U);
}

void World::run_players() {
  while (!ready_.empty()) {
    for (const std::size_t index : std::exchange(ready_, {})) run_player(index);
  }
}

void World::run_player(std::size_t index) {
  Player& player = *players_[index];
  if (player.dead() || !player.opened() || player.done()) return;
  if (player.paused_until() > simulation().now()) return;
  acting_ = player.number();
  base::Nanos next = player.run();
  acting_ = 0;
  if (player.dead()) return join_for(player);
  if (player.paused_until() > simulation().now())
    return simulation().at(player.paused_until(), [this, index] { mark(index); });
  if (player.done()) {
    player.leave();
    if (acts_left_of(player) != 0) {
      join_for(player);
    } else if (player.role() == Player::Role::mover && !player.was_fenced()) {
      has_mover_ = false;
    }
    return;
  }
  if (next == 0) return;
  next = player.fabric().simulated(next);
  next = (next + setup_.tick_ns - 1) / setup_.tick_ns * setup_.tick_ns;
  if (timers_[index] == next) return;
  timers_[index] = next;
  simulation().at(next, [this, index] { mark(index); });
}

bool World::is_going_on() {
  return joining_ != 0 ||
         std::ranges::any_of(players_, [](const auto& p) { return !p->dead() && !p->done(); });
}

// Of a cluster: while it does nothing.
void World::fence_later(std::size_t index, const Fault& fault) {
  const base::Nanos wait_ns = simulation().random().below(fault.lasts_ns / 2 + 1);
  simulation().after(wait_ns, [this, index, node = fault.node] {
    Player& player = *players_[index];
    const bool is_there = !player.dead() && !player.done() && !player.was_fenced();
    if (is_there && player.is_attached_to(node)) fence(player, node);
  });
}

// False if it does not come to an end.
bool World::run_until_done(base::Nanos at_most_ns) {
  const base::Nanos end = simulation().now() + at_most_ns;
  run_players();
  while (is_going_on() && scene_.violation.empty()) {
    begin_due_faults();
    if (!simulation().run_one() || simulation().now() > end) return false;
    if (++events_ > events_max || players_.size() > players_max) return false;
    run_players();
  }
  return true;
}

// A host takes all players that are attached to it for dead.
void World::end_sessions(std::uint32_t node) {
  for (std::size_t index = 0; index < players_.size(); ++index) {
    Player& player = *players_[index];
    if (player.dead() || player.done() || player.was_fenced() || !player.is_attached_to(node)) continue;
    fence(player, node);
    mark(index);
  }
}

void World::begin_due_faults() {
  for (std::size_t i = 0; i < setup_.faults.size(); ++i) {
    const Fault& fault = setup_.faults[i];
    if (outcomes_.begun[i] || fault.at_point != nullptr || fault.after_acts > scene_.acts) continue;
    outcomes_.begun[i] = true;
    begin(fault);
  }
}

void World::begin(const Fault& fault) {
  if (listener_.line) say("fault: " + describe(fault));
  SimStore& store = *scene_.store;
  const auto at = std::ranges::find_if(
      players_, [&](const auto& p) { return p->number() == number_of(fault) && !p->dead() && !p->done(); });
  Player* player = at == players_.end() ? nullptr : at->get();
  const auto index = static_cast<std::size_t>(at - players_.begin());
  const auto restore = [&](auto undo) {
    simulation().after(fault.lasts_ns, [this, undo = std::move(undo)] {
      if (!calm_) undo();
    });
  };
  const auto pause = [&] {
    player->pause(fault.lasts_ns);
    if (player->number() != acting_) restore([this, index] { mark(index); });
  };
  const auto cut = [&](SimStore::Cut what) {
    const std::uint64_t number = store.cut(what);
    restore([&store, number] { store.mend(number); });
  };
  switch (fault.kind) {
    case Fault::Kind::kill:
      if (player == nullptr) return;
      player->kill();
      if (player->number() != acting_) join_for(*player);
      return;
    case Fault::Kind::pause:
      if (player == nullptr) return;
      return pause();
    case Fault::Kind::fail:
      return cut({.process = number_of(fault)});
    case Fault::Kind::fence:
      if (player == nullptr || !player->fabric().remote() || player->was_fenced()) return;
      pause();
      return setup_.shards == 0 ? fence(*player, 0) : fence_later(index, fault);
    case Fault::Kind::clock:
      if (player == nullptr) return;
      if (auto* clock = player->fabric().host_clock(); clock != nullptr) clock->jump(fault.jump_ns);
      return mark(index);
    case Fault::Kind::partition:
      return cut({.process = number_of(fault), .node = fault.node, .there = fault.there, .back = fault.back});
    case Fault::Kind::outage:
      return cut({.node = fault.node});
    case Fault::Kind::amnesia:
      hosts_.lose_memory(fault.node, fault.lasts_ns);
      return;
    case Fault::Kind::death:
      return operator_.lose_host(fault.node, fault.lasts_ns);
    case Fault::Kind::drain:
      return operator_.drain(fault.node);
    case Fault::Kind::join:
      return operator_.add_host();
    case Fault::Kind::cut_off:
      return cut({});
    case Fault::Kind::loss:
      store.network.loss_chance = fabric::sim::Network::always / 50;
      return restore([&store] { store.network.loss_chance = 0; });
    case Fault::Kind::slow:
      store.network.slow_chance = fabric::sim::Network::always / 20;
      return restore([this, &store] { store.network.slow_chance = setup_.network.slow_chance; });
    case Fault::Kind::shortage:
      store.memory().set_free_bytes(0);
      return restore([this, &store] { store.memory().set_free_bytes(setup_.free_bytes); });
    case Fault::Kind::flip:
      return subject_->flip_a_bit(scene_);
  }
}

void World::calm_down() {
  calm_ = true;
  SimStore& store = *scene_.store;
  store.mend_all();
  store.network.loss_chance = 0;
  store.network.slow_chance = 0;
  store.memory().set_free_bytes(setup_.free_bytes);
  hosts_.return_all();
}

void World::fill() {
  if (!scene_.kept.empty()) subject_->make_player(scene_, next_number_++, 0, observer_place())->fill();
}

Outcomes World::play() {
  world_here = this;
  const fabric::sim::Network network = scene_.store->network;
  scene_.store->network = {};
  if (setup_.remote_chance != 0) hosts_.keep_time();
  fill();
  scene_.store->network = network;
  first_player_ = next_number_;
  for (std::uint32_t i = 0; i < setup_.players; ++i) join(setup_.acts);
  has_mover_ = setup_.moves != 0;
  if (has_mover_) join(setup_.moves, Player::Role::mover);
  const bool ended = run_until_done(calm_max_ns);
  if (!ended) scene_.fail_with("the players did not come to an end");
  calm_down();
  if (scene_.violation.empty()) judge();
  outcomes_.violation = scene_.violation;
  outcomes_.key = scene_.violation_key;
  outcomes_.operations = scene_.store->operations();
  outcomes_.trace_hash = simulation().trace_hash();
  world_here = nullptr;
  over_ = true;
  for (const auto& player : players_) player->bury();
  return std::move(outcomes_);
}

void World::judge() {
  scene_.let_pass(memory::Session::act_window_ns + second_ns);
  for (int waited = 0; !hosts_.are_settled() || !operator_.is_done(); ++waited) {
    if (waited == 60) return scene_.fail_with("the hosts do not come to know each other again");
    scene_.let_pass(second_ns);
  }
  const auto judge = subject_->make_player(scene_, next_number_++, 0, observer_place());
  if (!judge->opened()) return scene_.fail_with("the store can not be opened");
  judge->judge();
  if (scene_.violation.empty()) judge_history();
  outcomes_.counted = judge->totals();
}

void World::judge_history() {
  const CheckResult result = check_linearizability(scene_.recorder.timeless_history());
  if (result.linearizable()) return;
  scene_.fail_with(fmt::format("key '{}': {}", result.key, name(result.verdict)), result.key);
  outcomes_.history = result.explanation;
}

void World::tell(std::uint32_t process, const fabric::Operation& operation) {
  using Op = fabric::Operation::Kind;
  if (!listener_.only_key.empty() && !subject_->concerns(scene_, listener_.only_key, operation)) return;
  const auto word = [&](std::uint64_t raw) { return subject_->word_text(operation.at, raw); };
  const bool is_word = operation.length_bytes == sizeof(std::uint64_t);
  std::string what;
  switch (operation.kind) {
    case Op::read:
      what = is_word ? fmt::format("read {}", word(fabric::load_word(operation.local)))
                     : fmt::format("read {} B", operation.length_bytes);
      break;
    case Op::write:
      what = is_word ? fmt::format("write {}", word(fabric::load_word(operation.local)))
                     : fmt::format("write {} B", operation.length_bytes);
      break;
    case Op::compare_swap:
      what = operation.result == operation.compare
                 ? fmt::format("{} -> {}", word(operation.compare), word(operation.operand))
                 : fmt::format("{} -> {} fails: {}", word(operation.compare), word(operation.operand),
                               word(operation.result));
      break;
    case Op::fetch_add:
      what = fmt::format("{} + {}", operation.result, operation.operand);
      break;
    case Op::expect:
      what = fmt::format("{} B {}", operation.length_bytes,
                         operation.bad_address ? "are not as expected" : "are as expected");
      break;
  }
  say(fmt::format("client {}, {}: {}", process, subject_->place_text(operation.at), what));
}

}  // namespace

Outcomes run(const Setup& setup, const Listener& listener) {
  static const bool hooked = (base::set_fault_hook(&on_point), true);
  LOCH_CHECK(hooked);
  base::narrowing = setup.narrowing;
  return World(setup, listener).play();
}

Setup minimize(const Setup& failing, std::uint64_t runs_max) {
  Setup least = failing;
  // Whatever is wrong with a smaller one counts.
  const auto fails = [&](const Setup& setup) {
    if (runs_max == 0) return false;
    --runs_max;
    return !run(setup).violation.empty();
  };
  for (bool smaller = true; smaller && runs_max != 0;) {
    smaller = false;
    const auto attempt = [&](auto change) {
      Setup setup = least;
      change(setup);
      if (!fails(setup)) return;
      least = std::move(setup);
      smaller = true;
    };
    for (std::size_t i = least.faults.size(); i > 0; --i) {
      attempt([i](Setup& s) { s.faults.erase(s.faults.begin() + static_cast<std::ptrdiff_t>(i) - 1); });
    }
    if (least.acts > 1) attempt([](Setup& s) { s.acts /= 2; });
    if (least.acts > 1) attempt([](Setup& s) { --s.acts; });
    if (least.players > 1) attempt([](Setup& s) { --s.players; });
    if (least.keys > 1) attempt([](Setup& s) { --s.keys; });
    if (least.kept_keys > 0) attempt([](Setup& s) { s.kept_keys /= 2; });
  }
  return least;
}

}  // namespace loch::sim
