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

// How often each operation is done, of about 100, in the order of `Mix`.
constexpr std::size_t step_count = 9;
constexpr std::array<std::array<unsigned, step_count>, 5> weights = {{
    // get view exists put insert replace remove multi_get multi_put
    {56, 8, 8, 8, 4, 4, 4, 8, 0},
    {14, 4, 2, 32, 10, 16, 12, 4, 6},
    {14, 2, 4, 0, 42, 2, 34, 2, 0},
    {10, 2, 2, 14, 36, 4, 24, 4, 4},
    {2, 0, 0, 2, 0, 96, 0, 0, 0},
}};

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

Workload::Workload(Store& store, sim::HistoryWriter& history, const WorkloadOptions& options)
    : store_(store),
      history_(history),
      options_(options),
      random_(options.seed),
      schedule_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
  constexpr std::array<Step, step_count> steps = {
      &Workload::get,    &Workload::view,      &Workload::exists,
      &Workload::put,    &Workload::insert,    &Workload::read_and_replace,
      &Workload::remove, &Workload::multi_get, &Workload::multi_put};
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

Workload::Call Workload::begin(Kind kind, std::string_view key, ValueId written, ValueId expected) {
  const std::uint64_t waited_ns = waited_for_processor_ns();
  const std::uint64_t at_ns = now_ns();
  const auto sequence =
      history_.invoke({.kind = kind, .key = key, .written = written, .expected = expected, .at_ns = at_ns});
  if (!sequence) throw Trouble{Failure::history_lost, sequence.error().detail};
  ++summary_.operations;
  return {.sequence = *sequence, .began_ns = at_ns, .waited_ns = waited_ns};
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
  const auto responded =
      history_.respond({.sequence = call.sequence, .outcome = outcome, .found = found, .at_ns = at_ns});
  if (!responded) throw Trouble{Failure::history_lost, responded.error().detail};
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
  const Call call = begin(Kind::put, key, make_next_value(value_));
  end(call, outcome_of(store_.put(key, value_)));
}

void Workload::insert() {
  const std::string& key = random_key();
  const Call call = begin(Kind::insert, key, make_next_value(value_));
  end(call, outcome_of(store_.insert(key, value_)));
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
  const Call replacing = begin(Kind::replace, key, make_next_value(value_), expected);
  end(replacing, outcome_of(store_.replace(key, value_, item->version)));
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
  std::vector<Call> calls;
  for (std::size_t i = 0; i < count; ++i) {
    calls.push_back(begin(Kind::put, keys[i], make_next_value(values[i])));
    assignments[i].key = keys[i];
    assignments[i].value = values[i];
  }
  store_.multi_put(assignments);
  for (std::size_t i = 0; i < count; ++i) end(calls[i], outcome_of(assignments[i].result));
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
