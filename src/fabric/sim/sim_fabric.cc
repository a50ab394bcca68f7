#include "fabric/sim/sim_fabric.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "fabric/endpoint.h"
#include "fabric/words.h"

namespace loch::fabric::sim {
namespace {

constexpr std::size_t pieces_max = 4;

bool chance(base::Random& random, std::uint32_t of) { return of != 0 && random.below(Network::always) < of; }

base::Nanos delay(base::Random& random, const Network& network) {
  if (chance(random, network.slow_chance)) return random.below(network.slow_max_ns + 1);
  return network.delay_min_ns + random.below(network.delay_max_ns - network.delay_min_ns + 1);
}

}  // namespace

// A batch on its way. Its memory is touched until it has landed, and no longer.
struct Flight {
  std::span<Operation> batch;
  Completion* done = nullptr;
  base::Nanos deadline = 0;
  std::size_t under_way = 0;                // pieces that have not taken effect
  std::vector<std::size_t> under_way_of{};  // of each operation, of those
  std::vector<bool> waits{};                // whether it has not begun, and is to; if the order is kept
  bool answered = true;                     // a reply will come
  bool broken = false;                      // some of it goes to a node that was taken down
  bool refused = false;                     // or whose host has ended the session
  bool expires = false;                     // its end at the deadline is among the events
  bool has_swapped = false;                 // a word
  bool landed = false;

  [[nodiscard]] std::size_t index_of(const Operation& operation) const {
    return static_cast<std::size_t>(&operation - batch.data());
  }
};

class SimPort final : public fake::MemoryPort {
 public:
  explicit SimPort(SimFabric& fabric)
      : MemoryPort(fabric), fabric_(fabric), simulation_(fabric.sim().simulation()) {
    const std::scoped_lock lock(simulation_.guard());
    fabric_.ports_.push_back(this);
    const auto& lines = fabric_.sim().lines_;
    for (std::size_t node = 0; node < lines.size(); ++node)
      began_in_[node] = lines[node].is_down ? not_reached : lines[node].number;
    if (!fabric_.sim().is_cluster) return;
    session_ = std::make_shared<SimSession>(fabric_, reached());
    fabric_.sessions_.push_back(session_);
  }
  ~SimPort() override {
    const std::scoped_lock lock(simulation_.guard());
    for (const auto& flight : flights_) flight->landed = true;
    std::erase(fabric_.ports_, this);
    // The hosts are told so, or see its connections end.
    if (session_ != nullptr && session_->has_failed()) session_->end_everywhere();
  }

  Result<bool> claim_presence(std::uint32_t client) override {
    if (way_to(node_of_client(client)) != Way::whole) return unreached();
    auto claimed = MemoryPort::claim_presence(client);
    if (session_ != nullptr && claimed && *claimed) session_->add(client);
    return claimed;
  }
  void release_presence(std::uint32_t client) override {
    if (session_ != nullptr && (session_->has_failed() || session_->has_ended_at(node_of_client(client))))
      return;  // the hosts do it, when all of them have ended the session
    MemoryPort::release_presence(client);
    if (session_ != nullptr) session_->remove(client);
  }
  [[nodiscard]] bool present(std::uint32_t client) override {
    return way_to(node_of_client(client)) != Way::whole || MemoryPort::present(client);
  }

  Result<Mapping> map(RegionId region) override {
    if (way_to(region) == Way::none) return unreached();
    if (way_to(region) != Way::whole) return Mapping{nullptr, known_lengths_[region]};
    auto mapping = fabric_.map(region);
    if (mapping && (fabric_.remote() || region != mapped_region)) mapping->base = nullptr;
    if (mapping) known_lengths_[region] = mapping->length_bytes;
    return mapping;
  }
  Result<std::uint64_t> length_bytes(RegionId region) override {
    if (way_to(region) != Way::whole) return unreached();
    return MemoryPort::length_bytes(region);
  }

  // What a host adds beforehand is there by the time that anybody asks.
  void extend_soon(RegionId region, std::uint64_t length_bytes) override {
    if (!fabric_.remote() || way_to(region) != Way::whole) return;
    [[maybe_unused]] const auto extended = fabric_.extend(region, length_bytes);
  }

  [[nodiscard]] bool keeps_order() const override { return fabric_.sim().network.keeps_order; }
  [[nodiscard]] OperationCost operation_cost() const override {
    return keeps_order() ? OperationCost::little : OperationCost::message;
  }

  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) override {
    const std::scoped_lock lock(simulation_.guard());
    if (fabric_.severed_) {
      landed_.emplace_back(&done, undone());
      return;
    }
    SimStore& sim = fabric_.sim();
    base::Random& random = simulation_.random();
    auto flight = std::make_shared<Flight>();
    flight->batch = batch;
    flight->under_way_of.resize(batch.size());
    flight->waits.resize(batch.size());
    flight->done = &done;
    flight->deadline = std::max(fabric_.simulated(deadline), simulation_.now());
    flight->answered = !chance(random, sim.network.loss_chance);
    flights_.push_back(flight);
    bool some_are_lost = false;
    for (Operation& operation : batch) {
      ++sim.operations_;
      operation.unreachable = way_to(operation.at.region) == Way::none;
      note_way(*flight, operation);
      if (way_to(operation.at.region) != Way::whole) continue;
      // What is not answered may have been lost on its way there, too; and what is to come behind it.
      const bool is_lost = !flight->answered && random.below(2) == 0;
      some_are_lost = some_are_lost || is_lost;
      if (is_lost) continue;
      if (sim.network.keeps_order) {
        flight->waits[flight->index_of(operation)] = !some_are_lost;
      } else if (!operation.after_previous) {
        start(flight, operation);
      }
    }
    start_those_whose_turn_it_is(flight);
    if (!flight->answered) expire(flight);
    if (flight->under_way == 0 && flight->answered) reply(flight);
  }

  void poll(base::Nanos wait_ns) override {
    {
      const std::scoped_lock lock(simulation_.guard());
      const base::Nanos until = simulation_.now() + until_it_ticks(wait_ns);
      while (landed_.empty() && simulation_.next_at() <= until) simulation_.run_one();
      if (landed_.empty()) simulation_.run_until(until);
    }
    deliver();
  }

  // Tells the owner of what has completed.
  void deliver() {
    for (;;) {
      std::vector<std::pair<Completion*, Result<void>>> landed;
      {
        const std::scoped_lock lock(simulation_.guard());
        landed.swap(landed_);
      }
      if (landed.empty()) return;
      for (auto& [done, outcome] : landed) done->complete(*done, std::move(outcome));
    }
  }

  [[nodiscard]] bool reaches(std::uint32_t node) const { return way_to(node) == Way::whole; }
  [[nodiscard]] bool has_broken_way() const {
    for (std::uint32_t node = 0; node < began_in_.size(); ++node) {
      if (way_to(node) == Way::broken) return true;
    }
    return false;
  }

  void fence() {
    for (const auto& flight : flights_) flight->landed = true;
  }

  void sever() {
    for (const auto& flight : std::exchange(flights_, {})) {
      flight->landed = true;
      landed_.emplace_back(flight->done, cut_off(*flight));
    }
  }

 private:
  static std::unexpected<Error> undone() {
    return fail(Errc::moved, "fabric", "cut off for good before it happened");
  }
  static std::unexpected<Error> cut_off(const Flight& flight) {
    return flight.has_swapped ? fail(Errc::unavailable, "fabric", "cut off for good") : undone();
  }
  static std::unexpected<Error> unreached() { return fail(Errc::unavailable, "fabric", "a node is down"); }

  // Who sees a clock that ticks would ask for the same again and again until it does.
  [[nodiscard]] base::Nanos until_it_ticks(base::Nanos wait_ns) const {
    const base::Nanos to_tick = simulation_.next_tick() - simulation_.now();
    if (fabric_.remote() || wait_ns == 0 || wait_ns >= to_tick) return wait_ns;
    return (to_tick + wait_ns - 1) / wait_ns * wait_ns;
  }

  // ended: by the node's host, which has its memory still.
  enum class Way : std::uint8_t { whole, ended, broken, none };
  [[nodiscard]] Way way_to(std::uint32_t node) const {
    if (began_in_[node] == not_reached) return Way::none;
    if (session_ != nullptr && session_->has_ended_at(node)) return Way::ended;
    return began_in_[node] == fabric_.sim().lines_[node].number ? Way::whole : Way::broken;
  }
  [[nodiscard]] Way way_to(RegionId region) const { return way_to(fabric_.node_of(region)); }
  static constexpr std::uint64_t not_reached = 0;
  [[nodiscard]] bool is_cut(RegionId region, bool SimStore::Cut::* way) const {
    return fabric_.sim().is_cut(fabric_.process(), fabric_.node_of(region), way);
  }

  static constexpr RegionId mapped_region = 0;  // the store's control region

  // Sends an operation's pieces on their way: ranges of its words.
  void start(const std::shared_ptr<Flight>& flight, Operation& operation) {
    base::Random& random = simulation_.random();
    const Network& network = fabric_.sim().network;
    const std::size_t length = operation.length_bytes;
    std::array<std::size_t, pieces_max + 1> cut{0, length};
    std::size_t pieces = 1;
    if (!operation.is_atomic() && length > word_bytes && chance(random, network.tear_chance)) {
      // Words are whole where they lie, and the place need not begin at one.
      const std::size_t skew = operation.at.offset_bytes % word_bytes;
      pieces = 2 + random.below(pieces_max - 1);
      for (std::size_t i = 1; i < pieces; ++i) {
        std::size_t at = random.below((length + skew) / word_bytes + 1) * word_bytes;
        if (operation.settled) at += base::mix(simulation_.now() + i) % word_bytes;
        cut[i] = std::clamp<std::size_t>(at, skew, length + skew) - skew;
      }
      cut[pieces] = length;
      std::sort(cut.begin() + 1, cut.begin() + static_cast<std::ptrdiff_t>(pieces));
    }
    for (std::size_t i = 0; i < pieces; ++i) {
      if (pieces > 1 && cut[i] == cut[i + 1]) continue;
      ++flight->under_way;
      ++flight->under_way_of[flight->index_of(operation)];
      const base::Nanos way = delay(random, network);
      if (simulation_.now() + way >= flight->deadline) expire(flight);
      simulation_.after(way, [this, flight, &operation, from = cut[i], to = cut[i + 1]] {
        if (!flight->landed) arrive(flight, operation, from, to);  // else this port may be gone
      });
    }
  }

  // Of a cluster: the nodes that it has a way to.
  [[nodiscard]] NodeSet reached() const {
    NodeSet reached = 0;
    for (std::uint32_t node = 0; node < began_in_.size(); ++node) {
      const bool is_there = fabric_.store().length_bytes(control_region_of(node)) != 0;
      if (is_there && way_to(node) == Way::whole) reached |= node_bit(node);
    }
    return reached;
  }

  // What comes after an operation that is over.
  void start_next(const std::shared_ptr<Flight>& flight, std::size_t index) {
    for (; index < flight->batch.size() && flight->batch[index].after_previous; ++index) {
      Operation& operation = flight->batch[index];
      operation.bad_address = flight->batch[index - 1].bad_address;
      if (operation.bad_address) continue;
      note_way(*flight, operation);
      if (way_to(operation.at.region) == Way::whole) start(flight, operation);
      return;
    }
  }

  // Where the order is kept: those that nothing before them holds up. What is settled holds up nothing but
  // what comes after it.
  void start_those_whose_turn_it_is(const std::shared_ptr<Flight>& flight) {
    const auto is_over = [&flight](std::size_t i) {
      return !flight->waits[i] && flight->under_way_of[i] == 0;
    };
    NodeSet held_up = 0;
    for (std::size_t i = 0; i < flight->batch.size(); ++i) {
      Operation& operation = flight->batch[i];
      const std::uint32_t node = fabric_.node_of(operation.at.region);
      const bool previous_holds_up = operation.after_previous && !is_over(i - 1) &&
                                     fabric_.node_of(flight->batch[i - 1].at.region) == node;
      if (flight->waits[i] && !previous_holds_up && (held_up & node_bit(node)) == 0) {
        flight->waits[i] = false;
        operation.bad_address = operation.after_previous && flight->batch[i - 1].bad_address;
        if (!operation.bad_address) start(flight, operation);
      }
      if (!operation.settled && !is_over(i)) held_up |= node_bit(node);
    }
  }

  void arrive(const std::shared_ptr<Flight>& flight, Operation& operation, std::size_t from, std::size_t to) {
    if (is_cut(operation.at.region, &SimStore::Cut::there)) return expire(flight);
    note_way(*flight, operation);
    if (way_to(operation.at.region) != Way::whole) return end_piece(flight, operation);
    if (fabric_.is_over() || (fabric_.killed_at_ && simulation_.random().below(2) == 0)) return;
    std::byte* at = place_of(operation);
    const bool expects = operation.kind == Operation::Kind::expect;
    operation.bad_address = at == nullptr || (expects && operation.bad_address);
    if (operation.bad_address) return finish(flight, operation);
    flight->has_swapped = flight->has_swapped || operation.is_atomic();
    switch (operation.kind) {
      case Operation::Kind::read:
        fake::MemoryStore::copy_out(operation.local + from, at + from, to - from);
        break;
      case Operation::Kind::write:
        std::memcpy(at + from, operation.local + from, to - from);
        break;
      case Operation::Kind::expect:
        LOCH_CHECK(fabric_.sim().network.keeps_order);
        operation.bad_address = !holds(at + from, operation.local + from, to - from);
        break;
      case Operation::Kind::compare_swap:
      case Operation::Kind::fetch_add:
        return look(flight, operation, at);
    }
    finish(flight, operation);
  }

  // The first half of an atomic: other atomics on the word wait until the second is over.
  void look(const std::shared_ptr<Flight>& flight, Operation& operation, std::byte* at) {
    SimStore& sim = fabric_.sim();
    if (const auto busy = sim.busy_.find(at); busy != sim.busy_.end()) {
      if (busy->second >= flight->deadline) expire(flight);
      simulation_.at(busy->second, [this, flight, &operation] {
        if (!flight->landed) arrive(flight, operation, 0, word_bytes);
      });
      return;
    }
    operation.result = load_word(at);
    const bool is_add = operation.kind == Operation::Kind::fetch_add;
    if (!is_add && operation.result != operation.compare) return finish(flight, operation);
    const std::uint64_t desired = is_add ? operation.result + operation.operand : operation.operand;
    base::Random& random = simulation_.random();
    if (!chance(random, sim.network.gap_chance)) {
      store_word(at, desired);
      return finish(flight, operation);
    }
    const base::Nanos gap = 1 + random.below(sim.network.delay_min_ns + 1);
    sim.busy_[at] = simulation_.now() + gap;
    // It happens also if nobody waits for it any more: it has begun. But not if the node is gone.
    const std::uint32_t node = fabric_.node_of(operation.at.region);
    simulation_.after(gap,
                      [this, &sim, flight, &operation, at, desired, node, line = sim.lines_[node].number] {
                        if (sim.lines_[node].number == line) store_word(at, desired);
                        sim.busy_.erase(at);
                        if (!flight->landed) finish(flight, operation);
                      });
  }

  // A piece has taken effect.
  void finish(const std::shared_ptr<Flight>& flight, const Operation& operation) {
    const SimStore& sim = fabric_.sim();
    simulation_.note(std::uint64_t{operation.at.region} << 56 | operation.at.offset_bytes);
    const bool is_word = operation.kind == Operation::Kind::read && operation.length_bytes == word_bytes;
    simulation_.note(is_word ? load_word(operation.local) : operation.result);
    simulation_.note((std::uint64_t{fabric_.process()} << 48) + simulation_.now());
    if (sim.on_effect) sim.on_effect(fabric_.process(), operation);
    end_piece(flight, operation);
  }

  void end_piece(const std::shared_ptr<Flight>& flight, const Operation& operation) {
    const std::size_t index = flight->index_of(operation);
    if (--flight->under_way_of[index] == 0) {
      if (fabric_.sim().network.keeps_order) {
        start_those_whose_turn_it_is(flight);
      } else {
        start_next(flight, index + 1);
      }
    }
    if (--flight->under_way == 0 && flight->answered) reply(flight);
  }

  void reply(const std::shared_ptr<Flight>& flight) {
    const base::Nanos way = delay(simulation_.random(), fabric_.sim().network);
    if (simulation_.now() + way >= flight->deadline) return expire(flight);
    simulation_.after(way, [this, flight] {
      if (flight->landed) return;
      const bool lost = std::ranges::any_of(flight->batch, [this](const Operation& operation) {
        return is_cut(operation.at.region, &SimStore::Cut::back);
      });
      if (lost) return expire(flight);
      land(flight, outcome_of(*flight));
    });
  }

  // What a host has answered before it ended the session is answered.
  [[nodiscard]] Result<void> outcome_of(const Flight& flight) const {
    const bool broken =
        flight.broken || std::ranges::any_of(flight.batch, [this](const Operation& operation) {
          return way_to(operation.at.region) == Way::broken;
        });
    if (broken) return unreached();
    if (flight.refused) return cut_off(flight);
    return {};
  }
  void note_way(Flight& flight, const Operation& operation) const {
    const Way way = way_to(operation.at.region);
    flight.broken = flight.broken || way == Way::broken;
    flight.refused = flight.refused || way == Way::ended;
  }

  // Nothing will come back from it.
  void expire(const std::shared_ptr<Flight>& flight) {
    if (std::exchange(flight->expires, true)) return;
    simulation_.at(flight->deadline, [this, flight] {
      if (!flight->landed) land(flight, fail(Errc::timed_out, "fabric", "no answer in time"));
    });
  }

  void land(const std::shared_ptr<Flight>& flight, Result<void> outcome) {
    flight->landed = true;
    if (fabric_.killed_at_) return;  // nobody is there to be told
    if (session_ != nullptr && !outcome) session_->fail();
    std::erase(flights_, flight);
    landed_.emplace_back(flight->done, std::move(outcome));
    if (fabric_.on_completion) fabric_.on_completion();
  }

  SimFabric& fabric_;
  Simulation& simulation_;
  std::shared_ptr<SimSession> session_;                   // null: of a store of one host
  std::array<std::uint64_t, node_count_max> began_in_{};  // which line to each node
  std::array<std::uint64_t, region_count_max> known_lengths_{};
  std::vector<std::shared_ptr<Flight>> flights_;
  std::vector<std::pair<Completion*, Result<void>>> landed_;
};

SimStore::SimStore(std::shared_ptr<Simulation> simulation, const Plan& plan, fake::MemoryStore::Limits limits)
    : simulation_(std::move(simulation)), memory_(fake::MemoryStore::create(plan, limits)) {}

std::uint64_t SimStore::cut(Cut cut) {
  cuts_[++cuts_made_] = cut;
  return cuts_made_;
}

bool SimStore::is_cut(std::uint32_t process, std::uint32_t node, bool Cut::* way) const {
  return std::ranges::any_of(cuts_, [&](const auto& numbered) {
    const Cut& cut = numbered.second;
    return cut.*way && (cut.process == Cut::every || cut.process == process) &&
           (cut.node == Cut::every || cut.node == node);
  });
}

bool SimStore::is_cut_off(std::uint32_t node) const {
  return std::ranges::any_of(cuts_, [node](const auto& numbered) {
    const Cut& cut = numbered.second;
    return cut.process == Cut::every && (cut.node == Cut::every || cut.node == node);
  });
}

void SimStore::take_down(std::uint32_t node) {
  ++lines_[node].number;
  lines_[node].is_down = true;
}

void SimStore::bring_up(std::uint32_t node) {
  lines_[node].is_down = false;
  ++hosts_found_;
}

std::unique_ptr<Port> SimFabric::connect() { return std::make_unique<SimPort>(*this); }

bool SimFabric::has_broken_way() const { return std::ranges::any_of(ports_, &SimPort::has_broken_way); }

bool SimFabric::reaches(std::uint32_t node) const {
  return std::ranges::any_of(ports_, [node](const SimPort* port) { return port->reaches(node); });
}

void SimFabric::deliver() {
  for (SimPort* port : ports_) port->deliver();
}

void SimFabric::kill() {
  const std::scoped_lock lock(sim_->simulation().guard());
  killed_at_ = sim_->simulation().now();
  if (!remote()) release_all_presence();
}

bool SimFabric::is_over() const {
  return killed_at_ && !remote() && sim_->simulation().now() > *killed_at_ + sim_->network.delay_max_ns;
}

void SimFabric::fence(std::uint32_t node) {
  const std::scoped_lock lock(sim_->simulation().guard());
  for (const auto& session : sessions_) session->end_at(node);
  if (sim_->is_cluster) return;
  if (!killed_at_) sever();
  for (SimPort* port : ports_) port->fence();
  // Atomics that have begun come to their end.
  sim_->simulation().after(sim_->network.delay_min_ns + 2,
                           [self = shared_from_this()] { self->release_all_presence(); });
}

void SimFabric::sever() {
  const std::scoped_lock lock(sim_->simulation().guard());
  severed_ = true;
  for (SimPort* port : ports_) port->sever();
}

}  // namespace loch::fabric::sim
