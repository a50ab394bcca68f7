#include "sim/run/player.h"

#include <array>
#include <fmt/format.h>
#include <map>

#include "base/check.h"
#include "sim/value.h"

namespace loch::sim {
namespace {

// How much the clock of a player's host gains or loses.
std::int64_t drift_ppm(const Setup& setup, std::uint32_t number) {
  base::Random random(base::mix(setup.seed + 2) + number);
  const auto most = static_cast<std::uint64_t>(setup.drift_ppm_max);
  return static_cast<std::int64_t>(random.below(2 * most + 1)) - setup.drift_ppm_max;
}

constexpr std::size_t batch_max = 6;

// What an answer says of the operation. Nothing for what a store must not answer.
std::optional<Outcome> outcome_of(Kind kind, const Result<void>& result) {
  if (result) return Outcome::ok;
  const bool writes = kind != Kind::get && kind != Kind::exists;
  switch (result.error().code) {
    case Errc::not_found:
      return Outcome::not_found;
    case Errc::exists:
      return Outcome::exists;
    case Errc::changed:
      return Outcome::changed;
    case Errc::no_space:
      return writes ? std::optional(Outcome::failed) : std::nullopt;
    case Errc::timed_out:
    case Errc::unavailable:
      return writes ? Outcome::unknown : Outcome::failed;
    default:
      return std::nullopt;
  }
}

template <class T>
Result<void> just_the_error(Result<T>& result) {
  if (result) return {};
  return std::unexpected(std::move(result.error()));
}

}  // namespace

Player::Player(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place)
    : scene_(scene),
      number_(number),
      acts_left_(acts),
      random_(base::mix(scene.setup.seed) + number),
      fabric_(std::make_shared<fabric::sim::SimFabric>(scene.store, number, place,
                                                       drift_ppm(scene.setup, number))) {
  auto memory = memory::StoreMemory::attach(fabric_);
  if (!memory && memory.error().code == Errc::timed_out) return;
  LOCH_CHECK(memory.has_value());
  auto opened = client::Client::open(
      *memory, {.timeout_ns = scene.setup.timeout_ns, .cache_bytes = scene.setup.cache_bytes});
  if (opened) client_ = std::move(*opened);
  if (!opened && opened.error().code != Errc::timed_out)
    scene_.fail_with(fmt::format("player {} could not open the store: {}", number, opened.error().message()));
}

base::Nanos Player::run() {
  if (client_ == nullptr) return 0;
  if (!task_) {
    task_.emplace(play(this));
    task_->start();
  }
  coro::RunQueue& queue = client_->session().endpoint().queue();
  for (;;) {
    fabric_->deliver();
    const base::Nanos next = queue.run_timers();
    if (queue.idle()) return next;
    while (!stopped() && queue.run_one()) {
    }
    if (stopped()) return 0;
  }
}

void Player::fence() {
  fenced_ = true;
  acts_left_ = 0;
  fabric_->sever();
  fabric::sim::Simulation& simulation = scene_.store->simulation();
  const base::Nanos under_way = scene_.store->network.delay_min_ns + 2;
  simulation.after(under_way, [store = scene_.store, client = client_->session().client()] {
    store->memory().kill(client);
  });
}

void Player::kill() {
  dead_ = true;
  silent_ = true;
  fabric_->kill();
  const std::uint32_t client = client_->session().client();
  if (fenced_) return;
  if (!fabric_->remote()) return scene_.store->memory().kill(client);
  // The host finds out, sees to it that nothing comes any more, and then says so.
  fabric::sim::Simulation& simulation = scene_.store->simulation();
  constexpr base::Nanos notice_max_ns = 500 * base::millisecond_ns;
  simulation.after(random_.below(notice_max_ns),
                   [&simulation, store = scene_.store, fabric = fabric_, client] {
                     fabric->fence();
                     const base::Nanos under_way = store->network.delay_min_ns + 2;
                     simulation.after(under_way, [store, client] { store->memory().kill(client); });
                   });
}

void Player::bury() {
  if (client_ == nullptr) return;
  fabric_->sever();
  dead_ = false;
  silent_ = true;
  paused_until_ = 0;
  while (task_ && !task_->done()) {
    const base::Nanos next = run();
    if (next != 0) scene_.store->simulation().run_until(fabric_->simulated(next) + scene_.setup.tick_ns);
  }
  client_.reset();
}

coro::Task<void> Player::play(Player* self) {
  while (self->acts_left_ > 0) {
    --self->acts_left_;
    if (self->scene_.setup.think_max_ns != 0) {
      const base::Nanos wait = self->random_.below(self->scene_.setup.think_max_ns);
      fabric::Endpoint& endpoint = self->client_->session().endpoint();
      co_await endpoint.sleep_until(endpoint.now() + wait);
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

coro::Task<void> Player::act(Act what) {
  switch (what) {
    case Act::get:
      return get(draw_key());
    case Act::exists:
      return exists(draw_key());
    case Act::put:
      return put(draw_key(), Kind::put);
    case Act::insert:
      return put(draw_key(), Kind::insert);
    case Act::replace:
      return replace(draw_key());
    case Act::remove:
      return remove(draw_key());
    case Act::multi_get:
      return multi_get();
    case Act::multi_put:
      return multi_put();
    case Act::walk:
      return walk();
    case Act::collect:
      return collect();
  }
  return collect();
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
    outcome =
        operation.kind == Kind::get || operation.kind == Kind::exists ? Outcome::failed : Outcome::unknown;
  if (!outcome) {
    return scene_.fail_with(fmt::format("player {}: {} {}: {}", number_, name(operation.kind), operation.key,
                                        result.error().message()));
  }
  scene_.recorder.respond(asked, *outcome, scene_.now());
  tell(asked, "learns");
}

void Player::told_value(Recorder::Index asked, const Result<void>& result, std::string_view value) {
  if (!result) return told(asked, result);
  if (silent_) return;
  const Operation& operation = scene_.recorder.history()[asked];
  const base::Nanos asked_at = operation.invoked_ns / scene_.setup.tick_ns * scene_.setup.tick_ns;
  const auto found = scene_.recorder.identify(operation.key, value, asked_at - lag());
  if (!found.wrong.empty()) return scene_.fail_with(fmt::format("player {}: {}", number_, found.wrong));
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

PutOptions Player::draw_options() {
  const std::uint32_t chance = scene_.setup.mortal_chance;
  if (chance == 0 || random_.below(fabric::sim::Network::always) >= chance) return {};
  constexpr std::uint64_t lives_max_ms = 200;
  return {.time_to_live = std::chrono::milliseconds(1 + random_.below(lives_max_ms))};
}

coro::Task<void> Player::get(std::string key) {
  const auto asked = ask(Kind::get, key);
  std::string value;
  const auto result = co_await client_->get(key, &value);
  told_value(asked, result, value);
}

coro::Task<void> Player::exists(std::string key) {
  const auto asked = ask(Kind::exists, key);
  auto result = co_await client_->exists(key);
  if (result && !*result) result = fail(Errc::not_found, "exists");
  told(asked, just_the_error(result));
}

coro::Task<void> Player::put(std::string key, Kind kind) {
  const ValueId id = scene_.recorder.new_value();
  const std::string value = make_new_value(id);
  const PutOptions options = draw_options();
  const auto asked = ask(kind, key, id);
  const auto lives_ns = static_cast<base::Nanos>(options.time_to_live.count()) * base::millisecond_ns;
  if (lives_ns != 0) scene_.recorder.make_mortal(asked, clock() - lag() + lives_ns);
  if (lives_ns != 0 && !fabric_->remote()) scene_.recorder.make_dead(asked, clock() + lives_ns);
  const bool inserts = kind == Kind::insert;
  auto result =
      co_await client_->put(key, value, options, inserts ? hash::Condition::absent : hash::Condition::none, 0,
                            inserts ? "insert" : "put");
  // Its life began meanwhile.
  if (lives_ns != 0 && fabric_->remote() && !silent_) scene_.recorder.make_dead(asked, clock() + lives_ns);
  told(asked, just_the_error(result));
}

coro::Task<void> Player::replace(std::string key) {
  const auto looked = ask(Kind::get, key);
  auto item = co_await client_->read(key);
  told_value(looked, item ? Result<void>{} : Result<void>(std::unexpected(item.error())),
             item ? std::string_view(item->value) : "");
  const Operation seen = scene_.recorder.history()[looked];
  if (!item || seen.outcome != Outcome::ok) co_return;
  const ValueId id = scene_.recorder.new_value();
  const std::string value = make_new_value(id);
  const auto asked = ask(Kind::replace, key, id, seen.found);
  auto result =
      co_await client_->put(key, value, {}, hash::Condition::version, item->version.token, "replace");
  told(asked, just_the_error(result));
}

coro::Task<void> Player::remove(std::string key) {
  const auto asked = ask(Kind::remove, key);
  const auto result = co_await client_->remove(key);
  told(asked, result);
}

coro::Task<void> Player::multi_get() {
  std::array<std::string, batch_max> keys;
  std::array<Lookup, batch_max> lookups;
  std::array<Recorder::Index, batch_max> asked{};
  const std::size_t count = 1 + random_.below(batch_max);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = draw_key();
    lookups[i].key = keys[i];
    asked[i] = ask(Kind::get, keys[i]);
  }
  co_await client_->multi_get({lookups.data(), count});
  for (std::size_t i = 0; i < count; ++i) told_value(asked[i], lookups[i].result, lookups[i].value);
}

coro::Task<void> Player::multi_put() {
  std::array<std::string, batch_max> keys;
  std::array<std::string, batch_max> values;
  std::array<Assignment, batch_max> assignments;
  std::array<Recorder::Index, batch_max> asked{};
  const std::size_t count = 1 + random_.below(batch_max);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueId id = scene_.recorder.new_value();
    keys[i] = draw_key();
    values[i] = make_new_value(id);
    assignments[i] = {.key = keys[i], .value = values[i]};
    asked[i] = ask(Kind::put, keys[i], id);
  }
  co_await client_->multi_put({assignments.data(), count});
  for (std::size_t i = 0; i < count; ++i) told(asked[i], assignments[i].result);
}

// Each item that is visited was there at some moment of the walk; what is always there is visited, and once.
coro::Task<void> Player::walk() {
  const base::Nanos began = scene_.now();
  const base::Nanos began_at = clock();
  std::map<std::string, int, std::less<>> visits;
  std::vector<std::pair<std::string, ValueId>> seen;
  const std::function<bool(const Entry&)> visit = [&](const Entry& entry) {
    ++visits[std::string(entry.key)];
    const auto found = scene_.recorder.identify(entry.key, entry.value, began_at - lag());
    if (!found.wrong.empty()) {
      scene_.fail_with(fmt::format("player {}, walking: {}", number_, found.wrong));
      return false;
    }
    seen.emplace_back(entry.key, found.id);
    return true;
  };
  const auto result = co_await client_->for_each(&visit);
  if (silent_) co_return;
  for (const auto& [key, id] : seen) {
    const auto index = scene_.recorder.invoke(number_, Kind::get, key, began);
    scene_.recorder.respond(index, Outcome::ok, scene_.now(), id);
  }
  if (!result) {
    if (result.error().code != Errc::timed_out && !fenced_)
      scene_.fail_with(fmt::format("player {}, walking: {}", number_, result.error().message()));
    co_return;
  }
  for (const std::string& key : scene_.kept) {
    if (visits[key] != 1)
      scene_.fail_with(fmt::format("player {}, walking: visited '{}' {} times", number_, key, visits[key]));
  }
}

coro::Task<void> Player::collect() {
  const auto result = co_await client_->collect();
  const auto is_excused = [this](Errc code) {
    return code == Errc::timed_out || fenced_ || (code == Errc::corrupt && scene_.recorder.damages() != 0);
  };
  if (silent_ || result || is_excused(result.error().code)) co_return;
  scene_.fail_with(fmt::format("player {}: collect: {}", number_, result.error().message()));
}

}  // namespace loch::sim
