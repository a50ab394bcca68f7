#include "sim/run/store_player.h"

#include <array>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/opening.h"
#include "memory/testing/store_readers.h"
#include "sim/value.h"

namespace loch::sim {
namespace {

constexpr std::size_t batch_max = 6;

template <class T>
Result<void> just_the_error(Result<T>& result) {
  if (result) return {};
  return std::unexpected(std::move(result.error()));
}

// What a player that may only read does instead.
Act to_read(Act what) {
  switch (what) {
    case Act::put:
    case Act::insert:
    case Act::replace:
    case Act::remove:
      return Act::get;
    case Act::multi_put:
      return Act::multi_get;
    case Act::collect:
      return Act::exists;
    default:
      return what;
  }
}

}  // namespace

StorePlayer::StorePlayer(Scene& scene, std::uint32_t number, std::uint32_t acts, Place place)
    : Player(scene, number, acts, place) {
  const bool reads_only = place == Place::remote && acts != 0 &&
                          (base::mix(scene.setup.seed ^ number << 8) & 0xffff) < scene.setup.reader_chance;
  if (reads_only) shared_fabric()->only_read(memory::fake::readers_of(scene.region_map(), Atomics::device));
  auto memory = memory::StoreMemory::attach(shared_fabric(), scene.region_map());
  const auto is_excused = [&](Errc code) {
    return code == Errc::timed_out || (code == Errc::unavailable && scene.absences != 0);
  };
  if (!memory && is_excused(memory.error().code)) return;
  LOCH_CHECK(memory.has_value());
  const auto nodes = static_cast<std::uint32_t>(scene.region_map().nodes.size());
  auto opened = client::Client::open(
      *memory, {.timeout_ns = scene.setup.timeout_ns,
                .cache_bytes = scene.setup.cache_bytes,
                .locations = &locations_,
                .placement = {.policy = number % 2 == 0 ? memory::Placement::Policy::spread
                                                        : memory::Placement::Policy::local,
                              .node = number % nodes}});
  if (opened) client_ = std::move(*opened);
  if (!opened && !is_excused(opened.error().code))
    scene.fail_with(fmt::format("player {} could not open the store: {}", number, opened.error().message()));
}

bool StorePlayer::is_behind() const {
  const memory::Attachment& attachment = client_->attachment();
  if (shared_fabric()->has_broken_way() || attachment.is_behind()) return true;
  return attachment.newest_epoch() > attachment.region_map().epoch;
}

// As a client does that meets a shard on its way: what it has done is over, and its host is to know.
coro::Task<void> StorePlayer::act(Act what) {
  met_move_ = false;
  co_await begin(what);
  if (!met_move_) co_return;
  constexpr base::Nanos pause_max_ns = 5 * base::millisecond_ns;
  fabric::Endpoint& endpoint = client_->attachment().endpoint();
  co_await endpoint.sleep_until(endpoint.now() + 1 + random().below(pause_max_ns));
  [[maybe_unused]] const auto fresh = co_await client_->attachment().refresh();
}

// Notes whether the key's shard is on its way.
Result<void> StorePlayer::note(Result<void> result) {
  met_move_ = met_move_ || (!result && result.error().code == Errc::moved);
  return result;
}

coro::Task<void> StorePlayer::begin(Act what) {
  switch (reads_only() ? to_read(what) : what) {
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

PutOptions StorePlayer::draw_options() {
  const std::uint32_t chance = scene().setup.mortal_chance;
  if (chance == 0 || random().below(fabric::sim::Network::always) >= chance) return {};
  constexpr std::uint64_t lives_max_ms = 200;
  return {.time_to_live = std::chrono::milliseconds(1 + random().below(lives_max_ms))};
}

coro::Task<void> StorePlayer::get(std::string key) {
  const auto asked = ask(Kind::get, key);
  std::string value;
  const auto result = co_await client_->get(key, &value);
  told_value(asked, note(result), value);
}

coro::Task<void> StorePlayer::exists(std::string key) {
  const auto asked = ask(Kind::exists, key);
  auto result = co_await client_->exists(key);
  if (result && !*result) result = fail(Errc::not_found, "exists");
  told(asked, note(just_the_error(result)));
}

void StorePlayer::note_mortal(Recorder::Index asked, PutOptions options) {
  if (options.time_to_live)
    scene().recorder.make_mortal(asked, known_at(scene().now()) + client::nanos(*options.time_to_live));
}

void StorePlayer::note_end(Recorder::Index asked, PutOptions options) {
  if (options.time_to_live && !silent())
    scene().recorder.make_dead(asked, clock() + client::nanos(*options.time_to_live));
}

coro::Task<void> StorePlayer::write(Recorder::Index asked, client::Write what) {
  note_mortal(asked, what.options);
  const bool remote = shared_fabric()->remote();
  if (!remote) note_end(asked, what.options);
  auto result = co_await client_->put(what);
  // Its life began meanwhile.
  if (remote) note_end(asked, what.options);
  told(asked, note(just_the_error(result)));
}

coro::Task<void> StorePlayer::put(std::string key, Kind kind) {
  const ValueId id = scene().recorder.new_value();
  const std::string value = make_new_value(id);
  const PutOptions options = draw_options();
  const auto asked = ask(kind, key, id);
  co_await write(asked, kind == Kind::insert ? client::insertion(key, value, options)
                                             : client::Write{.key = key, .value = value, .options = options});
}

coro::Task<void> StorePlayer::replace(std::string key) {
  const auto looked = ask(Kind::get, key);
  auto item = co_await client_->read(key);
  told_value(looked, note(just_the_error(item)), item ? std::string_view(item->value) : "");
  const Operation seen = scene().recorder.history()[looked];
  if (!item || seen.outcome != Outcome::ok) co_return;
  if (scene().setup.removes_versions && random().below(2) == 0) {
    const auto asked = ask(Kind::remove_version, key, no_value, seen.found);
    const auto result = co_await client_->remove(key, item->version.token);
    co_return told(asked, note(result));
  }
  const ValueId id = scene().recorder.new_value();
  const std::string value = make_new_value(id);
  const PutOptions options = draw_options();
  const auto asked = ask(Kind::replace, key, id, seen.found);
  co_await write(asked, client::replacement(key, value, item->version, options));
}

coro::Task<void> StorePlayer::remove(std::string key) {
  const auto asked = ask(Kind::remove, key);
  const auto result = co_await client_->remove(key);
  told(asked, note(result));
}

coro::Task<void> StorePlayer::multi_get() {
  std::array<std::string, batch_max> keys;
  std::array<Lookup, batch_max> lookups;
  std::array<Recorder::Index, batch_max> asked{};
  const std::size_t count = 1 + random().below(batch_max);
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = draw_key();
    lookups[i].key = keys[i];
    asked[i] = ask(Kind::get, keys[i]);
  }
  co_await client_->multi_get({lookups.data(), count});
  for (std::size_t i = 0; i < count; ++i) told_value(asked[i], note(lookups[i].result), lookups[i].value);
}

coro::Task<void> StorePlayer::multi_put() {
  std::array<std::string, batch_max> keys;
  std::array<std::string, batch_max> values;
  std::array<Assignment, batch_max> assignments;
  std::array<Recorder::Index, batch_max> asked{};
  const std::size_t count = 1 + random().below(batch_max);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueId id = scene().recorder.new_value();
    keys[i] = draw_key();
    values[i] = make_new_value(id);
    // Of many that differ in their ends, under way together, the checker would have to try all orders.
    const PutOptions options = i + 1 == count ? draw_options() : PutOptions{};
    assignments[i] = {.key = keys[i], .value = values[i], .options = options};
    asked[i] = ask(Kind::put, keys[i], id);
    note_mortal(asked[i], assignments[i].options);
  }
  co_await client_->multi_put({assignments.data(), count});
  for (std::size_t i = 0; i < count; ++i) {
    // Its life began meanwhile.
    note_end(asked[i], assignments[i].options);
    told(asked[i], note(assignments[i].result));
  }
}

bool StorePlayer::is_excused(Errc code) {
  return code == Errc::timed_out || code == Errc::moved || fenced() ||
         (code == Errc::corrupt && scene().recorder.damages() != 0) ||
         (code == Errc::unavailable && scene().absences != 0);
}

// Each item that is visited was there at some moment of the walk; what is always there is visited, and once.
coro::Task<void> StorePlayer::walk() {
  const base::Nanos began = scene().now();
  std::map<std::string, int, std::less<>> visits;
  std::vector<std::pair<std::string, ValueId>> seen;
  const std::function<bool(const Entry&)> visit = [&](const Entry& entry) {
    ++visits[std::string(entry.key)];
    const auto found = scene().recorder.identify(entry.key, entry.value, known_at(began));
    if (!found.wrong.empty()) {
      scene().fail_with(fmt::format("player {}, walking: {}", number(), found.wrong));
      return false;
    }
    seen.emplace_back(entry.key, found.id);
    return true;
  };
  const auto result = co_await client_->for_each(&visit);
  if (silent()) co_return;
  for (const auto& [key, id] : seen) {
    const auto index = scene().recorder.invoke(number(), Kind::get, key, began);
    scene().recorder.respond(index, Outcome::ok, scene().now(), id);
  }
  if (!result) {
    if (!is_excused(result.error().code))
      scene().fail_with(fmt::format("player {}, walking: {}", number(), result.error().message()));
    co_return;
  }
  for (const std::string& key : scene().kept) {
    if (!scene().lost.contains(key) && visits[key] != 1 && (visits[key] == 0 || !scene().has_copied))
      scene().fail_with(fmt::format("player {}, walking: visited '{}' {} times", number(), key, visits[key]));
  }
}

// A part, as puts do that find no memory, and then all.
coro::Task<void> StorePlayer::collect() {
  auto room = co_await client_->make_room(clock() + base::second_ns);
  Result<void> result = just_the_error(room);
  if (result) {
    auto collected = co_await client_->collect();
    result = just_the_error(collected);
  }
  if (silent() || result || is_excused(result.error().code)) co_return;
  scene().fail_with(fmt::format("player {}: collect: {}", number(), result.error().message()));
}

Result<void> StorePlayer::put_at_once(std::string_view key, std::string_view value) {
  auto done = client_->run(client_->put({.key = key, .value = value}));
  return just_the_error(done);
}

Stats StorePlayer::totals() {
  auto totals = client_->run(client_->totals());
  if (!totals)
    scene().fail_with(fmt::format("what was counted can not be read: {}", totals.error().message()));
  return totals.value_or(Stats{});
}

void StorePlayer::judge() {
  judge_memory();
  if (scene().violation.empty()) judge_keys();
}

// Clears up after the dead; then everything is accounted for.
void StorePlayer::judge_memory() {
  for (int round = 0; round < 2; ++round) {
    const auto collected = client_->run(client_->collect());
    if (!collected) return scene().fail_with(fmt::format("collect: {}", collected.error().message()));
    scene().let_pass(2 * scene().setup.geometry.expiry_ns);
  }
  const auto report = client_->run(client_->check());
  if (report && scene().recorder.damages() != 0) {
    if (report->items_unaccounted != 0 || report->slots_pending != 0)
      scene().fail_with(fmt::format("not in order: {} items unaccounted for, {} slots pending",
                                    report->items_unaccounted, report->slots_pending));
    return;
  }
  if (!report) return scene().fail_with(fmt::format("check: {}", report.error().message()));
  if (report->items_unaccounted + report->items_corrupt + report->slots_corrupt + report->slots_pending ==
          0 &&
      report->findings.empty())
    return;
  std::string text = fmt::format(
      "not in order: {} items unaccounted for, {} corrupt, {} slots corrupt, {} pending",
      report->items_unaccounted, report->items_corrupt, report->slots_corrupt, report->slots_pending);
  for (const std::string& finding : report->findings) text += "\n  " + finding;
  scene().fail_with(std::move(text));
}

// Every key is read, and a walk and a count agree with that.
void StorePlayer::judge_keys() {
  std::map<std::string, std::string> there;
  std::vector<std::string> keys = scene().keys;
  keys.insert(keys.end(), scene().kept.begin(), scene().kept.end());
  for (const std::string& key : keys) {
    const base::Nanos now = scene().now();
    const auto asked = scene().recorder.invoke(number(), Kind::get, key, now);
    std::string value;
    const auto result = client_->run(client_->get(key, &value));
    if (!result && scene().recorder.is_damaged(key) && result.error().code == Errc::corrupt) {
      scene().recorder.forget(asked);
      continue;
    }
    if (!result && result.error().code != Errc::not_found)
      return scene().fail_with(fmt::format("at the end, get {}: {}", key, result.error().message()), key);
    ValueId id = no_value;
    if (result) {
      const auto found = scene().recorder.identify(key, value, known_at(now));
      if (!found.wrong.empty()) return scene().fail_with("at the end, " + found.wrong, key);
      id = found.id;
      there[key] = value;
    }
    scene().recorder.respond(asked, result ? Outcome::ok : Outcome::not_found, scene().now(), id);
  }
  std::map<std::string, std::string> visited;
  const std::function<bool(const Entry&)> visit = [&](const Entry& entry) {
    if (!visited.emplace(entry.key, entry.value).second)
      scene().fail_with(fmt::format("at the end, '{}' is visited twice", entry.key));
    return true;
  };
  if (const auto walked = client_->run(client_->for_each(&visit)); !walked)
    return scene().fail_with(fmt::format("at the end, walking: {}", walked.error().message()));
  if (scene().recorder.damages() != 0) return;  // what is damaged may be visited and counted, or not
  if (visited != there)
    return scene().fail_with(
        fmt::format("at the end, {} keys are found and {} are visited", there.size(), visited.size()));
  const auto count = client_->run(client_->count());
  if (!count) return scene().fail_with(fmt::format("at the end, count: {}", count.error().message()));
  if (*count != there.size())
    scene().fail_with(fmt::format("at the end, {} keys are found and {} counted", there.size(), *count));
}

}  // namespace loch::sim
