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
  if (written != no_value) written_[written].key = key;
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
                      .invoked_ns = dying_at});
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

void Recorder::damage(std::string_view key) {
  damaged_.emplace(key);
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

std::vector<Operation> Recorder::timeless_history() const {
  std::vector<Operation> history = history_;
  std::erase_if(history, [this](const Operation& operation) { return is_damaged(operation.key); });
  std::map<std::string_view, std::vector<Written>> ends;
  for (const auto& [id, value] : written_) {
    if (value.dying_at != lives_on) ends[value.key].push_back(value);
  }
  for (Operation& operation : history) {
    if (operation.outcome != Outcome::ok) continue;
    const base::Nanos asked_at = operation.invoked_ns / tick_ns_ * tick_ns_ - lag_ns_;
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
