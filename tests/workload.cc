#include "tests/workload.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "sim/value.h"

namespace loch::tests {
namespace {

using sim::Kind;
using sim::Outcome;
using sim::ValueId;

constexpr std::size_t batch_max = 8;
constexpr std::uint64_t iterate_one_in = 10;
constexpr std::uint64_t collect_one_in = 10;
// Of the writes, one in so many is of a value that lives up to so long: a few ticks of the store's clock.
constexpr std::uint64_t mortal_one_in = 10;
constexpr std::uint64_t lives_max_ms = 20;

// How often each operation is done, of about 100, in the order of `Mix`.
constexpr std::size_t step_count = 10;
constexpr std::array<std::array<unsigned, step_count>, 5> weights = {{
    // get view exists put insert replace remove multi_get multi_put multi_remove
    {56, 8, 8, 8, 4, 4, 4, 8, 0, 0},
    {14, 4, 2, 32, 10, 16, 10, 4, 6, 2},
    {14, 2, 4, 0, 42, 2, 28, 2, 0, 2},
    {10, 2, 2, 14, 36, 4, 20, 4, 4, 1},
    {2, 0, 0, 2, 0, 96, 0, 0, 0, 0},
}};

base::Nanos lives_ns(const PutOptions& options) {
  return static_cast<base::Nanos>(std::chrono::nanoseconds(options.time_to_live.value()).count());
}

}  // namespace

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000) + static_cast<std::uint64_t>(now.tv_nsec);
}

std::vector<std::string> numbered_keys(std::string_view prefix, std::uint64_t count) {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back(fmt::format("{}-{}", prefix, i));
  return keys;
}

// An operation that was begun.
struct Workload::Call {
  std::uint64_t sequence = 0;
  std::uint64_t began_ns = 0;
  std::uint64_t waited_ns = 0;  // until then
};

// A write that was begun.
struct Workload::Write {
  Call call;
  PutOptions options;
  std::uint64_t end = 0;  // of its value, in the history; 0: it lives until it is removed
};

Workload::Workload(Store& store, sim::HistoryWriter& history, const WorkloadOptions& options)
    : store_(store),
      history_(history),
      options_(options),
      random_(options.seed),
      schedule_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
  constexpr std::array<Step, step_count> steps = {&Workload::get,       &Workload::view,
                                                  &Workload::exists,    &Workload::put,
                                                  &Workload::insert,    &Workload::read_and_replace,
                                                  &Workload::remove,    &Workload::multi_get,
                                                  &Workload::multi_put, &Workload::multi_remove};
  const auto& often = weights[static_cast<std::size_t>(options.mix)];
  for (std::size_t i = 0; i < step_count; ++i) steps_.insert(steps_.end(), often[i], steps[i]);
  if (options.iterate) steps_.push_back(&Workload::iterate);
  if (options.collect) steps_.push_back(&Workload::collect);
}

Summary Workload::run(const std::atomic<bool>& stop) {
  const std::uint64_t began_ns = now_ns();
  const auto duration_ns =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(options_.duration_max).count());
  const auto within = [](std::uint64_t value, std::uint64_t limit) { return limit == 0 || value < limit; };
  while (!stop.load(std::memory_order_relaxed) && within(summary_.operations, options_.operations_max) &&
         within(now_ns() - began_ns, duration_ns)) {
    (this->*steps_[random_.below(steps_.size())])();
    note_ends();
    if (options_.think.count() != 0) std::this_thread::sleep_for(options_.think);
  }
  return summary_;
}

std::uint64_t Workload::waited_for_processor_ns() const {
  // "RAN_NS WAITED_NS SLICES", of the thread that opened it.
  std::array<char, 128> text{};
  if (pread(schedule_.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
  char* waited = nullptr;
  std::strtoull(text.data(), &waited, 10);
  return std::strtoull(waited, nullptr, 10);
}

const std::string& Workload::random_key() { return options_.keys[random_.below(options_.keys.size())]; }

ValueId Workload::make_next_value(std::string& into) {
  const ValueId id = (options_.client << 32U) + ++values_made_;
  const std::size_t spread = options_.value_bytes_max - options_.value_bytes_min + 1;
  sim::make_value(id, options_.value_bytes_min + random_.below(spread), into);
  return id;
}

ValueId Workload::check_value(std::string_view key, std::string_view value) {
  const auto id = sim::read_value(value);
  if (!id) throw Trouble{Failure::torn_value, fmt::format("key {} had a value {}", key, id.error())};
  return *id;
}

PutOptions Workload::random_options() {
  if (random_.below(mortal_one_in) != 0) return {};
  return {.time_to_live = std::chrono::milliseconds(1 + random_.below(lives_max_ms))};
}

std::uint64_t Workload::note_beginning(const sim::HistoryWriter::Invocation& invocation) {
  const auto sequence = history_.invoke(invocation);
  if (!sequence) throw Trouble{Failure::history_lost, sequence.error().detail};
  return *sequence;
}

void Workload::note_end(const sim::HistoryWriter::Response& response) {
  const auto noted = history_.respond(response);
  if (!noted) throw Trouble{Failure::history_lost, noted.error().detail};
}

// The time of the history is read after the store's: whoever asks later than that knows that they are over.
void Workload::note_ends() {
  const base::Nanos now = clock_.now();
  const auto to_come = ends_.upper_bound(now);
  for (auto end = ends_.begin(); end != to_come; end = ends_.erase(end)) {
    note_end({.sequence = end->second, .outcome = Outcome::ok, .at_ns = now_ns()});
    ++summary_.values_ended;
  }
}

Workload::Call Workload::begin(Kind kind, std::string_view key, ValueId written, ValueId expected) {
  const std::uint64_t waited_ns = waited_for_processor_ns();
  const std::uint64_t at_ns = now_ns();
  const std::uint64_t sequence =
      note_beginning({.kind = kind, .key = key, .written = written, .expected = expected, .at_ns = at_ns});
  ++summary_.operations;
  return {.sequence = sequence, .began_ns = at_ns, .waited_ns = waited_ns};
}

void Workload::end(const Call& call, Outcome outcome, ValueId found) {
  const std::uint64_t at_ns = now_ns();
  const std::uint64_t took_us = (at_ns - call.began_ns) / 1000;
  summary_.longest_us = std::max(summary_.longest_us, took_us);
  if (took_us > summary_.longest_held_up_us) {
    const std::uint64_t waited_us = (waited_for_processor_ns() - call.waited_ns) / 1000;
    summary_.longest_held_up_us =
        std::max(summary_.longest_held_up_us, took_us - std::min(took_us, waited_us));
  }
  note_end({.sequence = call.sequence, .outcome = outcome, .found = found, .at_ns = at_ns});
}

// A time to live counts from some moment of the call, so the value is there until it has passed since before
// that. The store's clock is never ahead of the history's.
Workload::Write Workload::begin_write(Kind kind, std::string_view key, std::string& into, PutOptions options,
                                      ValueId expected) {
  Write write{.call = {}, .options = options};
  const ValueId written = make_next_value(into);
  if (options.time_to_live) {
    const base::Nanos at_ns = clock_.now() + lives_ns(options);
    write.end = note_beginning({.kind = Kind::expire, .key = key, .expected = written, .at_ns = at_ns});
  }
  write.call = begin(kind, key, written, expected);
  return write;
}

// The value is gone when its time to live has passed since after the call. That of a write without an answer
// may still come, whenever that is.
void Workload::end_write(const Write& write, Outcome outcome) {
  if (write.end != 0 && outcome == Outcome::ok)
    ends_.emplace(clock_.now() + lives_ns(write.options), write.end);
  end(write.call, outcome);
}

Outcome Workload::outcome_of(const Error& error) {
  switch (error.code) {
    case Errc::not_found:
      return Outcome::not_found;
    case Errc::exists:
      return Outcome::exists;
    case Errc::changed:
      return Outcome::changed;
    case Errc::timed_out:
      ++summary_.timed_out;
      return Outcome::unknown;
    case Errc::no_space:
      ++summary_.no_space;
      return Outcome::failed;
    case Errc::unavailable:
      if (!options_.may_be_cut_off) break;
      ++summary_.unavailable;
      // Not one after the other as quickly as they fail: each may have happened, and all have to be told
      // apart.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return Outcome::unknown;
    case Errc::corrupt:
    case Errc::invalid_argument:
    case Errc::incompatible:
    case Errc::permission:
    case Errc::moved:
    case Errc::cancelled:
    case Errc::io:
      break;
  }
  throw Trouble{Failure::store_error, error.message()};
}

void Workload::get() {
  const std::string& key = random_key();
  const Call call = begin(Kind::get, key);
  const Result<void> got = store_.get(key, value_);
  end(call, outcome_of(got), got ? check_value(key, value_) : sim::no_value);
}

// Holds the view while the key is written to, and demands that what it shows stays.
void Workload::view() {
  const std::string& key = random_key();
  const Call call = begin(Kind::get, key);
  const Result<View> view = store_.view(key);
  if (!view) return end(call, outcome_of(view));
  const ValueId id = check_value(key, view->value());
  end(call, Outcome::ok, id);
  put_at(key);
  remove_at(key);
  if (check_value(key, view->value()) == id) return;
  throw Trouble{Failure::torn_value,
                fmt::format("key {}: a view of value {} came to show another one", key, id)};
}

void Workload::exists() {
  const std::string& key = random_key();
  const Call call = begin(Kind::exists, key);
  const Result<bool> there = store_.exists(key);
  end(call, there && !*there ? Outcome::not_found : outcome_of(there));
}

void Workload::put() { put_at(random_key()); }

void Workload::put_at(const std::string& key) {
  const Write write = begin_write(Kind::put, key, value_, random_options());
  end_write(write, outcome_of(store_.put(key, value_, write.options)));
}

void Workload::insert() {
  const std::string& key = random_key();
  const Write write = begin_write(Kind::insert, key, value_, random_options());
  end_write(write, outcome_of(store_.insert(key, value_, write.options)));
}

void Workload::read_and_replace() {
  const std::string& key = random_key();
  const Call reading = begin(Kind::get, key);
  const Result<Item> item = store_.read(key);
  if (!item) return end(reading, outcome_of(item));
  const ValueId expected = check_value(key, item->value);
  end(reading, Outcome::ok, expected);

  if (random_.below(3) == 0) {
    const Call removing = begin(Kind::remove_version, key, sim::no_value, expected);
    return end(removing, outcome_of(store_.remove(key, item->version)));
  }
  const Write replacing = begin_write(Kind::replace, key, value_, random_options(), expected);
  end_write(replacing, outcome_of(store_.replace(key, value_, item->version, replacing.options)));
}

void Workload::remove() { remove_at(random_key()); }

void Workload::remove_at(const std::string& key) {
  const Call call = begin(Kind::remove, key);
  end(call, outcome_of(store_.remove(key)));
}

void Workload::multi_get() {
  const std::size_t count = 1 + random_.below(batch_max);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back(random_key());
  std::vector<Lookup> lookups(count);
  std::vector<Call> calls;
  for (std::size_t i = 0; i < count; ++i) {
    lookups[i].key = keys[i];
    calls.push_back(begin(Kind::get, keys[i]));
  }
  store_.multi_get(lookups);
  for (std::size_t i = 0; i < count; ++i) {
    const Lookup& lookup = lookups[i];
    end(calls[i], outcome_of(lookup.result),
        lookup.result ? check_value(keys[i], lookup.value) : sim::no_value);
  }
}

void Workload::multi_put() {
  const std::size_t count = 1 + random_.below(batch_max);
  std::vector<std::string> keys;
  std::vector<std::string> values(count);
  for (std::size_t i = 0; i < count; ++i) keys.push_back(random_key());
  std::vector<Assignment> assignments(count);
  std::vector<Write> writes;
  for (std::size_t i = 0; i < count; ++i) {
    // Of many that differ in their ends, under way together, the checker would have to try all orders.
    const PutOptions options = i + 1 == count ? random_options() : PutOptions{};
    writes.push_back(begin_write(Kind::put, keys[i], values[i], options));
    assignments[i] = {.key = keys[i], .value = values[i], .options = options};
  }
  store_.multi_put(assignments);
  for (std::size_t i = 0; i < count; ++i) end_write(writes[i], outcome_of(assignments[i].result));
}

void Workload::multi_remove() {
  std::vector<std::string> keys;
  for (std::size_t left = 1 + random_.below(batch_max); left > 0; --left) keys.push_back(random_key());
  std::vector<Removal> removals;
  std::vector<Call> calls;
  for (const std::string& key : keys) {
    removals.push_back({.key = key});
    calls.push_back(begin(Kind::remove, key));
  }
  store_.multi_remove(removals);
  for (std::size_t i = 0; i < keys.size(); ++i) end(calls[i], outcome_of(removals[i].result));
}

// Not in the history: it has no instant. Only what it shows is checked.
void Workload::iterate() {
  if (random_.below(iterate_one_in) != 0) return get();  // it takes long
  ++summary_.operations;
  const Result<void> done = store_.for_each([this](const Entry& entry) {
    check_value(entry.key, entry.value);
    return true;
  });
  if (!done) outcome_of(done);
}

// It changes no key, so it is not in the history.
void Workload::collect() {
  if (random_.below(collect_one_in) != 0) return put();  // it takes long
  ++summary_.operations;
  const Result<Collected> done = store_.collect();
  if (!done) outcome_of(done);
}

}  // namespace loch::tests
