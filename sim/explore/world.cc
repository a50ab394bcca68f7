#include "sim/explore/world.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

#include "base/check.h"
#include "fabric/endpoint.h"
#include "memory/blocks.h"

namespace loch::explore {

using hash::Directory;
using hash::SlotNumber;
using hash::SlotType;
using hash::SlotWord;

namespace {

constexpr std::uint64_t hash_seed = 42;
// What is saved and restored of the registry: nobody touches more.
constexpr std::size_t client_numbers_used = 16;
constexpr unsigned setter_number = clients_max + 5;  // its values are not those of one who probes

bool fits(const std::string& name, const KeyShape& shape) {
  const std::uint64_t hash = hash::Key::of(name, hash_seed).hash;
  const auto count = static_cast<unsigned>(shape.candidates.size());
  for (unsigned i = 0; i < count; ++i) {
    const std::uint64_t mix = hash::row_mix(hash, i, count);
    if (((mix ^ shape.candidates[i].bits) & shape.candidates[i].known) != 0) return false;
    if (hash::column_of(hash, i) != i) return false;
  }
  return true;
}

}  // namespace

World::World(Scenario scenario) : scenario_(std::move(scenario)) {
  build();
  prepare_keys();
  prepare_index();
  reset();
}

World::~World() { actors_.clear(); }

void World::build() {
  const memory::Geometry geometry{.candidates = scenario_.candidates(), .hash_seed = hash_seed};
  const std::uint64_t rows = std::uint64_t{1} << (base_level + scenario_.growths + 1);
  const std::uint64_t index_bytes = rows * hash::row_bytes;
  store_ = fabric::fake::MemoryStore::create(
      {.regions = {{memory::control_region, memory::control_bytes},
                   {memory::index_region, index_bytes},
                   {memory::first_data_region, (2 + setter_number) * memory::block_bytes}},
       .fill = [&](std::span<const fabric::Mapping> regions) {
         memory::StoreMemory::initialize_control(regions[0].base, geometry);
       }});
  fabric_ = std::make_shared<ExploredFabric>(store_, [this](std::uint64_t offset_bytes) {
    const std::uint64_t number = offset_bytes / sizeof(std::uint64_t);
    return !all_at_once_ && number < waits_.size() && waits_[number];
  });
  auto attached = memory::StoreMemory::attach(fabric_);
  LOCH_CHECK(attached.has_value());
  memory_ = std::move(*attached);
}

// Key strings whose candidates are where the scenario wants them.
void World::prepare_keys() {
  for (unsigned k = 0; k < scenario_.keys.size(); ++k) {
    constexpr int tries_max = 1'000'000;
    for (int i = 0; i < tries_max && key_names_[k].empty(); ++i) {
      std::string name = fmt::format("{}{}", static_cast<char>('a' + k), i);
      if (fits(name, scenario_.keys[k])) key_names_[k] = std::move(name);
    }
    LOCH_CHECK(!key_names_[k].empty());
  }
}

void World::write_initial_slots() {
  fabric::store_word(store_->at(hash::index_of_one_host.directory()),
                     Directory{.level = base_level}.encode());
  const SlotNumber slots = Directory{.level = base_level}.slots();
  for (SlotNumber i = 0; i < slots; ++i) {
    fabric::store_word(store_->at(hash::index_of_one_host.slot(i)), SlotWord::empty(i << 12, base_level).raw);
  }
}

// The store as it is at the beginning of every run.
void World::prepare_index() {
  all_at_once_ = true;
  write_initial_slots();
  for (unsigned k = 0; k < keys_max; ++k) initial_values_[k] = 0;
  {
    const std::unique_ptr<Actor> setter = make_actor(setter_number);
    place_initial_items(*setter);
    if (scenario_.growing) {
      const Directory growing{.level = base_level, .growing = true};
      fabric::store_word(store_->at(hash::index_of_one_host.directory()), growing.encode());
      for (const Place& place : scenario_.split) run_alone(*setter, {Act::split, place.key, place.candidate});
      // Where the next ones who help find a row, or behind all rows.
      const std::uint64_t chunk = scenario_.help ? 0 : directory().rows() / hash::rows_split_at_once + 1;
      fabric::store_word(store_->at(hash::index_of_one_host.split_cursor()),
                         hash::ChunkCursor{.level = base_level, .chunk = chunk}.encode());
    }
  }
  all_at_once_ = false;
  LOCH_CHECK(violation_.empty());
  wait_for_all_slots();
  using memory::control_region;
  keep({control_region, 0}, memory::registry_offset + client_numbers_used * sizeof(memory::ClientEntry));
  keep({control_region, memory::counters_offset}, client_numbers_used * sizeof(memory::ClientCounters));
  keep({memory::index_region, 0}, store_->length_bytes(memory::index_region));
}

void World::keep(fabric::Address at, std::size_t bytes) {
  const std::byte* const from = store_->at(at);
  initial_.push_back({.at = at, .bytes{from, from + bytes}});
}

void World::place_initial_items(Actor& setter) {
  for (const Place& place : scenario_.init) {
    const auto at = hash::Locations::of(hash::Key::of(key_names_[place.key], hash_seed).hash, directory(),
                                        scenario_.candidates());
    run_alone(setter, {Act::put, place.key});
    if (key_of(slot(at.slot[place.candidate])) != place.key) {
      run_alone(setter, {Act::move, place.key, place.candidate});
      // An item that was never moved.
      run_alone(setter, {Act::put, place.key});
    }
    const SlotWord word = slot(at.slot[place.candidate]);
    LOCH_CHECK(word.is(SlotType::committed) && key_of(word) == place.key && word.tag() == 0);
    initial_values_[place.key] = value_of(word);
  }
}

// The slots that a key of the scenario may ever stand in.
void World::wait_for_all_slots() {
  for (unsigned k = 0; k < scenario_.keys.size(); ++k) {
    const std::uint64_t hash = hash::Key::of(key_names_[k], hash_seed).hash;
    for (unsigned level = base_level; level <= base_level + scenario_.growths; ++level) {
      const auto at =
          hash::Locations::of(hash, {.level = static_cast<std::uint8_t>(level)}, scenario_.candidates());
      for (unsigned j = 0; j < at.count; ++j) {
        if (at.slot[j] >= waits_.size()) waits_.resize(at.slot[j] + 1);
        waits_[at.slot[j]] = true;
      }
      // Both halves of a row that is split are the scenario's.
      for (unsigned j = 0; j < at.count && level < base_level + scenario_.growths; ++j) {
        const SlotNumber high = at.slot[j] + at.directory.low_slots();
        if (high >= waits_.size()) waits_.resize(high + 1);
        waits_[high] = true;
      }
    }
  }
}

std::unique_ptr<Actor> World::make_actor(unsigned number) {
  const bool scripted = number < scenario_.scripts.size();
  return std::make_unique<Actor>(
      *this, number, scripted ? scenario_.scripts[number] : std::vector<ScriptOp>{}, scenario_.retries);
}

void World::reset() {
  actors_.clear();
  for (const Kept& kept : initial_) std::ranges::copy(kept.bytes, store_->at(kept.at));
  monitor_ = {};
  for (unsigned k = 0; k < keys_max; ++k) monitor_.set_initial(k, initial_values_[k]);
  crashes_ = 0;
  just_begun_ = -1;
  violation_.clear();
  for (unsigned i = 0; i < scenario_.scripts.size(); ++i) actors_.push_back(make_actor(i));
}

// ---- running

std::vector<Choice> World::choices() const {
  std::vector<Choice> choices;
  for (unsigned c = 0; c < actors_.size(); ++c) {
    const Actor& actor = *actors_[c];
    if (just_begun_ >= 0 && c != static_cast<unsigned>(just_begun_)) continue;
    if (actor.status() == Actor::Status::idle) choices.push_back(Choice::of(c, Choice::begin));
    if (actor.status() != Actor::Status::running) continue;
    for (unsigned i = 0; i < ExploredPort::words_max; ++i) {
      if ((actor.port().waiting() >> i & 1) != 0) choices.push_back(Choice::of(c, i));
    }
    if (crashes_ < scenario_.crashes && just_begun_ < 0) choices.push_back(Choice::of(c, Choice::crash));
  }
  return choices;
}

void World::take(Choice choice) {
  const unsigned c = choice.client();
  Actor& actor = *actors_[c];
  just_begun_ = -1;
  if (choice.what() == Choice::crash) {
    say([&] { return fmt::format("c{} dies in the midst of {}", c, actor.op().text()); });
    ++crashes_;
    actor.stop();
    return;
  }
  const ScriptOp op = actor.op();
  if (choice.what() == Choice::begin) {
    say([&] { return fmt::format("c{} begins {}", c, op.text()); });
    if (op.is_keyed()) monitor_.begin(c, op.act, op.key, actor.written());
    actor.begin();
    // When it begins matters to what it reads of the directory alone; else it begins with its first
    // operation.
    if (!scenario_.directory_changes() && actor.status() == Actor::Status::running)
      just_begun_ = static_cast<int>(c);
  } else {
    const fabric::Operation o = actor.port().words()[choice.what()];
    const SlotNumber number = o.at.offset_bytes / sizeof(std::uint64_t);
    const SlotWord before = slot(number);
    say([&] {
      const std::string who = fmt::format("c{} {}: ", c, op.text());
      if (o.kind == fabric::Operation::Kind::read)
        return fmt::format("{}reads {} = {}", who, slot_text(number), word_text(before));
      return fmt::format(
          "{}CAS {} {} -> {} {}", who, slot_text(number), word_text({o.compare}), word_text({o.operand}),
          before.raw == o.compare ? "ok" : fmt::format("FAILS, there is {}", word_text(before)));
    });
    const Directory directory_before = directory();
    actor.execute(choice.what());
    if (directory() != directory_before) {
      say([&] {
        return fmt::format("   directory: level {}{}", directory().level,
                           directory().growing ? ", growing" : "");
      });
    }
  }
  after_step(c, op);
}

void World::after_step(unsigned client, ScriptOp op) {
  Actor& actor = *actors_[client];
  if (actor.status() == Actor::Status::running) return;
  just_begun_ = -1;
  if (actor.status() == Actor::Status::stopped) {
    say([&] { return fmt::format("c{} has tried too often, and stops", client); });
    return;
  }
  settle(actor, client, op);
}

// An operation has ended.
void World::settle(Actor& actor, unsigned client, ScriptOp op) {
  const Answer answer = actor.answer();
  say([&] {
    constexpr std::array kinds{"nothing", "ok", "not found", "exists", "value", "error"};
    return fmt::format("   => c{} {}: {}{}", client, op.text(), kinds[static_cast<std::size_t>(answer.kind)],
                       answer.kind == Answer::Kind::value ? fmt::format(" x{}", answer.value) : "");
  });
  if (answer.kind == Answer::Kind::error) return fail_with("an error that must not be: " + actor.error());
  if (op.is_keyed() && !monitor_.respond(client, answer)) fail_with("not linearizable");
}

bool World::run_alone(Actor& actor, ScriptOp op) {
  constexpr int steps_max = 4000;
  actor.append(op);
  actor.set_retries(9);
  const unsigned client = actor.number();
  const bool monitored = op.is_keyed() && client < Monitor::participants_max;
  if (monitored) monitor_.begin(client, op.act, op.key, actor.written());
  if (client != setter_number) say([&] { return fmt::format("alone: {}", op.text()); });
  const std::size_t position = actor.position();
  actor.begin();
  for (int step = 0;
       step < steps_max && actor.status() == Actor::Status::running && actor.position() == position; ++step) {
    const auto next = static_cast<unsigned>(std::countr_zero(actor.port().waiting()));
    const fabric::Operation o = actor.port().words()[next];
    const SlotNumber number = o.at.offset_bytes / sizeof(std::uint64_t);
    say([&] {
      return fmt::format("      {} {} = {}{}", o.kind == fabric::Operation::Kind::read ? "reads" : "CAS",
                         slot_text(number), word_text(slot(number)),
                         o.kind == fabric::Operation::Kind::read
                             ? ""
                             : fmt::format(" from {} to {}", word_text({o.compare}), word_text({o.operand})));
    });
    actor.execute(next);
  }
  if (actor.position() == position) {
    fail_with(fmt::format("a fresh {}, with everybody else stopped, does not end", op.text()));
    return false;
  }
  if (monitored) {
    settle(actor, client, op);
  } else if (actor.answer().kind == Answer::Kind::error) {
    fail_with("an error that must not be: " + actor.error());
  }
  return violation_.empty();
}

void World::probe() {
  for (const auto& actor : actors_) {
    if (actor->status() == Actor::Status::running || actor->status() == Actor::Status::idle) actor->stop();
  }
  all_at_once_ = false;
  const auto fresh = make_actor(static_cast<unsigned>(actors_.size()));
  const auto keys = static_cast<std::uint8_t>(scenario_.keys.size());
  for (std::uint8_t k = 0; k < keys; ++k) {
    if (!run_alone(*fresh, {Act::get, k})) return;
  }
  for (std::uint8_t k = 0; k < keys; ++k) {
    if (!run_alone(*fresh, {Act::put, k}) || !run_alone(*fresh, {Act::get, k})) return;
  }
  check_state();
  if (violation_.empty()) probe_growth(*fresh);
}

// A growth that has begun can be finished by one client alone, and no key is lost by it.
void World::probe_growth(Actor& fresh) {
  if (!directory().growing) return;
  constexpr int tries_max = 4;
  for (int i = 0; i < tries_max && directory().growing; ++i) {
    if (!run_alone(fresh, {Act::finish})) return;
  }
  if (directory().growing) return fail_with("the growth can not be finished by a client alone");
  check_state();
  for (std::uint8_t k = 0; k < scenario_.keys.size() && violation_.empty(); ++k) {
    run_alone(fresh, {Act::get, k});
  }
}

void World::fail_with(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

}  // namespace loch::explore
