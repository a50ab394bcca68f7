#include "sim/run/recorder.h"

#include <algorithm>
#include <fmt/format.h>

#include "sim/value.h"

namespace loch::sim {

Recorder::Index Recorder::invoke(std::uint64_t client, Kind kind, std::string_view key, base::Nanos now,
                                 ValueId written, ValueId expected) {
  history_.push_back({.client = client,
                      .key = std::string(key),
                      .kind = kind,
                      .written = written,
                      .expected = expected,
                      .invoked_ns = now});
  if (written != no_value) written_[written] = {.key = std::string(key), .by = history_.size() - 1};
  return history_.size() - 1;
}

void Recorder::respond(Index index, Outcome outcome, base::Nanos now, ValueId found) {
  Operation& operation = history_[index];
  operation.outcome = outcome;
  operation.found = found;
  operation.responded_ns = outcome == Outcome::unknown ? never_ns : now;
}

void Recorder::make_mortal(Index index, base::Nanos dying_at) {
  const Operation put = history_[index];
  written_[put.written].dying_at = dying_at;
  history_.push_back({.client = put.client,
                      .key = put.key,
                      .kind = Kind::expire,
                      .expected = put.written,
                      .invoked_ns = std::max(dying_at, put.invoked_ns)});
}

void Recorder::make_dead(Index index, base::Nanos dead_at) {
  written_[history_[index].written].dead_at = dead_at;
}

void Recorder::lose(std::string_view key, base::Nanos since, base::Nanos until) {
  history_.push_back({.key = std::string(key),
                      .kind = Kind::erase,
                      .outcome = until == never_ns ? Outcome::unknown : Outcome::ok,
                      .invoked_ns = since,
                      .responded_ns = until});
}

void Recorder::damage(std::string_view key, base::Nanos now) {
  damaged_.try_emplace(std::string(key), now);
  ++damages_;
}

Recorder::Found Recorder::identify(std::string_view key, std::string_view value, base::Nanos asked_at) const {
  const auto id = read_value(value);
  if (!id)
    return {.wrong = fmt::format("under '{}' there is a value that nobody wrote: {}", key, id.error())};
  const auto written = written_.find(*id);
  if (written == written_.end())
    return {.wrong = fmt::format("under '{}' there is value {}, which nobody wrote", key, *id)};
  if (written->second.key != key) {
    return {.wrong = fmt::format("under '{}' there is value {}, which was written under '{}'", key, *id,
                                 written->second.key)};
  }
  if (asked_at >= written->second.dead_at) {
    return {.wrong = fmt::format("under '{}' there is value {} still, whose time is over", key, *id)};
  }
  return {.id = *id};
}

base::Nanos Recorder::lag_at(base::Nanos now) const {
  base::Nanos lag_ns = 0;
  for (const Lag& lag : lags_) lag_ns += lag.since <= now ? lag.ns : 0;
  return lag_ns;
}

base::Nanos Recorder::known_by(base::Nanos time) const {
  const base::Nanos told_at = (time + tick_ns_ - 1) / tick_ns_ * tick_ns_;
  base::Nanos by = told_at;
  while (by < told_at + lag_at(by)) by = told_at + lag_at(by);
  return by;
}

std::optional<Operation> Recorder::before_damage(Operation operation, base::Nanos damaged_at) {
  if (operation.responded_ns < damaged_at || operation.outcome == Outcome::failed) return operation;
  if (!changes(operation.kind)) return std::nullopt;
  operation.outcome = Outcome::unknown;
  operation.responded_ns = never_ns;
  return operation;
}

std::vector<Operation> Recorder::timeless_history() const {
  std::map<std::string_view, std::vector<Written>> ends;
  for (const auto& [id, value] : written_) {
    if (value.dying_at != lives_on) ends[value.key].push_back(value);
  }
  std::vector<Operation> history;
  history.reserve(history_.size());
  for (Operation operation : history_) {
    if (operation.kind == Kind::expire) {
      const Written& value = written_.at(operation.expected);
      const Operation& put = history_[value.by];
      if (put.outcome == Outcome::ok && value.dead_at != lives_on) {
        operation.outcome = Outcome::ok;
        operation.responded_ns = std::max(put.responded_ns, known_by(value.dead_at));
      }
    }
    const auto damaged = damaged_.find(operation.key);
    if (damaged == damaged_.end()) {
      history.push_back(std::move(operation));
    } else if (auto counts = before_damage(std::move(operation), damaged->second)) {
      history.push_back(*std::move(counts));
    }
  }
  for (Operation& operation : history) {
    if (operation.outcome != Outcome::ok) continue;
    const base::Nanos asked_at = known_at(operation.invoked_ns, lag_at(operation.responded_ns));
    const auto ends_meanwhile = [&](const Written& value) {
      return value.dying_at != lives_on && value.dead_at > asked_at &&
             value.dying_at <= operation.responded_ns;
    };
    if (operation.kind == Kind::replace || operation.kind == Kind::remove_version) {
      const auto expected = written_.find(operation.expected);
      if (expected == written_.end() || !ends_meanwhile(expected->second)) continue;
      operation.kind = operation.kind == Kind::replace ? Kind::put : Kind::erase;
      operation.expected = no_value;
    } else if (operation.kind == Kind::remove) {
      const auto of_key = ends.find(operation.key);
      // Whether the value was there still, it does not tell; that none is afterwards, it does.
      if (of_key != ends.end() && std::ranges::any_of(of_key->second, ends_meanwhile))
        operation.kind = Kind::erase;
    }
  }
  return history;
}

}  // namespace loch::sim
