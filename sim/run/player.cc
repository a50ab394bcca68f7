#include "sim/run/player.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "hash/slot.h"
#include "sim/value.h"

namespace loch::sim {
namespace {

// How much the clock of a player's host gains or loses.
std::int64_t drift_ppm(const Setup& setup, std::uint32_t number) {
  base::Random random(base::mix(setup.seed + 2) + number);
  const auto most = static_cast<std::uint64_t>(setup.drift_ppm_max);
  return static_cast<std::int64_t>(random.below(2 * most + 1)) - setup.drift_ppm_max;
}

// What an answer says of the operation. Nothing for what a store must not answer.
std::optional<Outcome> outcome_of(Kind kind, const Result<void>& result) {
  if (result) return Outcome::ok;
  switch (result.error().code) {
    case Errc::not_found:
      return Outcome::not_found;
    case Errc::exists:
      return Outcome::exists;
    case Errc::changed:
      return Outcome::changed;
    case Errc::no_space:
      return changes(kind) ? std::optional(Outcome::failed) : std::nullopt;
    case Errc::moved:
      return Outcome::failed;
    case Errc::timed_out:
    case Errc::unavailable:
      return changes(kind) ? Outcome::unknown : Outcome::failed;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Scene::change_map(fabric::ClusterMap map) {
  cluster = std::move(map);
  if (!say) return;
  constexpr std::array states = {"serves", "leaves", "is drained", "is gone"};
  std::string text = fmt::format("map of epoch {}:", cluster.epoch);
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node)
    text += fmt::format(" {} {} {},", node, cluster.nodes[node].name,
                        states[static_cast<std::size_t>(cluster.nodes[node].state)]);
  text += " shards on";
  for (const auto& [home, next] : cluster.shards)
    text += next ? fmt::format(" {}->{}", home.node, next->node) : fmt::format(" {}", home.node);
  say({}, text);
}

bool Scene::names(std::uint32_t node) const {
  const memory::RegionMap map = region_map();
  for (const memory::RegionMap::Shard& shard : map.shards) {
    const std::uint64_t bytes = store->memory().length_bytes(shard.index);
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const hash::SlotWord word{fabric::load_word(store->memory().at({shard.index, at}))};
      if (word.names_item() && map.node_of(word.item().region) == node) return true;
    }
  }
  return false;
}

Player::Player(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place)
    : scene_(scene),
      number_(number),
      acts_left_(acts),
      random_(base::mix(scene.setup.seed) + number),
      fabric_(std::make_shared<fabric::sim::SimFabric>(scene.store, number, place,
                                                       drift_ppm(scene.setup, number))) {
  if (scene.setup.has_barriers && place == Place::host) fabric_->take_part_in_barriers();
  // Where hosts come and go, a number may be that of another one by another map.
  if (scene.setup.nodes_max != 0) fabric_->go_by(scene.cluster);
}

base::Nanos Player::run() {
  if (!opened()) return 0;
  if (!task_) {
    task_.emplace(play(this));
    task_->start();
  }
  coro::RunQueue& queue = endpoint()->queue();
  for (;;) {
    fabric_->deliver();
    const base::Nanos next = queue.run_timers();
    if (queue.idle()) return next;
    while (!stopped() && queue.run_one()) {
    }
    if (stopped()) return 0;
  }
}

void Player::kill() {
  dead_ = true;
  silent_ = true;
  fabric_->kill();
  if (fenced_ || !fabric_->remote()) return;
  // Each host finds out by itself, and then sees to it that nothing comes any more.
  constexpr base::Nanos notice_max_ns = 500 * base::millisecond_ns;
  const std::size_t hosts = std::max<std::size_t>(1, scene_.cluster.nodes.size());
  for (std::uint32_t node = 0; node < hosts; ++node) {
    scene_.store->simulation().after(random_.below(notice_max_ns),
                                     [fabric = fabric_, node] { fabric->fence(node); });
  }
}

void Player::fence(std::uint32_t node) {
  fenced_ = true;
  fabric_->fence(node);
}

void Player::bury() {
  if (!opened()) return;
  fabric_->sever();
  dead_ = false;
  silent_ = true;
  paused_until_ = 0;
  while (task_ && !task_->done()) {
    const base::Nanos next = run();
    if (next != 0) scene_.store->simulation().run_until(fabric_->simulated(next) + scene_.setup.tick_ns);
  }
  close();
}

void Player::fill() {
  for (const std::string& key : scene_.kept) {
    const ValueId id = scene_.recorder.new_value();
    std::string value;
    make_value(id, scene_.setup.value_bytes_min, value);
    const auto asked = ask(Kind::put, key, id);
    const auto done = put_at_once(key, value);
    if (!done) return scene_.fail_with(fmt::format("filling: {}", done.error().message()), key);
    told(asked, done);
  }
}

coro::Task<void> Player::play(Player* self) {
  while (self->acts_left_ > 0 && !self->fenced_ && !self->is_behind()) {
    --self->acts_left_;
    if (self->scene_.setup.think_max_ns != 0) {
      const base::Nanos wait = self->random_.below(self->scene_.setup.think_max_ns);
      co_await self->endpoint()->sleep_until(self->endpoint()->now() + wait);
    }
    co_await self->act(self->draw_act());
    ++self->scene_.acts;
  }
}

Act Player::draw_act() {
  std::uint64_t total = 0;
  for (const std::uint32_t often : scene_.setup.mix) total += often;
  std::uint64_t drawn = random_.below(total);
  for (std::size_t i = 0; i < act_count; ++i) {
    if (drawn < scene_.setup.mix[i]) return static_cast<Act>(i);
    drawn -= scene_.setup.mix[i];
  }
  return Act::get;
}

Recorder::Index Player::ask(Kind kind, const std::string& key, ValueId written, ValueId expected) {
  const auto asked = scene_.recorder.invoke(number_, kind, key, scene_.now(), written, expected);
  tell(asked, "asks");
  return asked;
}

void Player::told(Recorder::Index asked, const Result<void>& result) {
  if (silent_) return;
  const Operation& operation = scene_.recorder.history()[asked];
  auto outcome = outcome_of(operation.kind, result);
  // Whether a write did anything before it met the damage is not told.
  if (!result && result.error().code == Errc::corrupt && scene_.recorder.is_damaged(operation.key))
    outcome = changes(operation.kind) ? Outcome::unknown : Outcome::failed;
  if (outcome == Outcome::changed && scene_.has_copied) outcome = Outcome::failed;
  if (!outcome) {
    return scene_.fail_with(fmt::format("player {}: {} {}: {}", number_, name(operation.kind), operation.key,
                                        result.error().message()),
                            operation.key);
  }
  scene_.recorder.respond(asked, *outcome, scene_.now());
  tell(asked, "learns");
}

void Player::told_value(Recorder::Index asked, const Result<void>& result, std::string_view value) {
  if (!result) return told(asked, result);
  if (silent_) return;
  const Operation& operation = scene_.recorder.history()[asked];
  const auto found = scene_.recorder.identify(operation.key, value, known_at(operation.invoked_ns));
  if (!found.wrong.empty())
    return scene_.fail_with(fmt::format("player {}: {}", number_, found.wrong), operation.key);
  scene_.recorder.respond(asked, Outcome::ok, scene_.now(), found.id);
  tell(asked, "learns");
}

void Player::tell(Recorder::Index asked, const char* what) const {
  if (!scene_.say) return;
  const Operation& operation = scene_.recorder.history()[asked];
  const std::string line = describe(operation);
  const bool has_answer = operation.outcome != Outcome::unknown;
  scene_.say(operation.key,
             fmt::format("{} {}", what, has_answer ? line : line.substr(0, line.find(" -> "))));
}

std::string Player::make_new_value(ValueId id) {
  const Setup& setup = scene_.setup;
  std::string value;
  make_value(id, setup.value_bytes_min + random_.below(setup.value_bytes_max - setup.value_bytes_min + 1),
             value);
  return value;
}

}  // namespace loch::sim
