#include "bench/driver.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "bench/clock.h"

namespace loch::bench {
namespace {

constexpr std::size_t load_batch_max = 4096;
constexpr std::size_t load_batch_bytes = std::size_t{8} << 20;
// Between two readings of the clock: enough that it does not count, few enough that a loop ends soon after
// its time.
constexpr std::uint64_t steps_between_clocks_max = 64;
constexpr std::uint64_t bytes_between_clocks = std::uint64_t{1} << 20;
// Of values that are checked together: what the nearest cache keeps beside all else.
constexpr std::size_t gets_bytes_max = std::size_t{16} << 10;

std::uint64_t seed_of(const Task& task) { return base::mix(task.seed) + base::mix(task.worker + 1); }

std::size_t slots_of(const Task& task, const Dataset& dataset) {
  if (task.act == Act::multi_gets || task.act == Act::multi_puts || task.act == Act::read_back)
    return task.batch;
  if (task.act == Act::gets)
    return std::clamp<std::size_t>(gets_bytes_max / (1 + dataset.value_bytes()), 1, steps_between_clocks_max);
  if (task.act != Act::load) return 1;
  const std::size_t item_bytes = dataset.key_bytes() + dataset.value_bytes();
  return std::clamp<std::size_t>(load_batch_bytes / item_bytes, 1, load_batch_max);
}

}  // namespace

Driver::Driver(Session& session, const Dataset& dataset, const Task& task, Gathering& gathering,
               Outcome& outcome)
    : session_(session),
      dataset_(dataset),
      task_(task),
      gathering_(gathering),
      outcome_(outcome),
      random_(seed_of(task)),
      chooser_(task.mix.distribution, std::max<std::uint64_t>(1, task.items), task.insert_base),
      room_(dataset, slots_of(task, dataset)),
      version_(seed_of(task)) {}

Result<void> Driver::run() {
  if (!gathering_.arrive(task_.workers)) {
    return fail(Errc::timed_out, "bench", "not all workers came to the start");
  }
  switch (task_.act) {
    case Act::load:
      return load();
    case Act::read_back:
      return read_back();
    case Act::gets:
      return gets();
    case Act::dependent_gets:
      return dependent_gets();
    case Act::multi_gets:
      return multi_gets();
    case Act::puts:
      return puts();
    case Act::multi_puts:
      return multi_puts();
    case Act::mix:
      return mix();
    default:
      return fail(Errc::invalid_argument, "bench", "this act is not one on a subject");
  }
}

// Steps until the time is over. `step` returns false after it has set `failure_`.
template <class Step>
Result<void> Driver::repeat(std::uint64_t operations_a_step, Step step) {
  const std::uint64_t step_bytes = 1 + operations_a_step * dataset_.value_bytes();
  const std::uint64_t stride =
      std::clamp<std::uint64_t>(bytes_between_clocks / step_bytes, 1, steps_between_clocks_max);
  const std::uint64_t start = now_ns();
  const std::uint64_t end = start + static_cast<std::uint64_t>(task_.seconds * 1e9);
  std::uint64_t now = start;
  do {
    for (std::uint64_t i = 0; i < stride; ++i) {
      if (!step()) [[unlikely]]
        return std::unexpected(std::move(failure_));
    }
    outcome_.lap.operations += stride * operations_a_step;
    now = now_ns();
  } while (now < end);
  outcome_.lap.elapsed_ns = now - start;
  return {};
}

Driver::Share Driver::share() const {
  const std::uint64_t count = task_.last - task_.first;
  return {.begin = task_.first + count * task_.worker / task_.workers,
          .end = task_.first + count * (task_.worker + 1) / task_.workers};
}

Result<void> Driver::load() {
  auto [id, end] = share();
  const std::size_t batch = slots_of(task_, dataset_);
  const std::uint64_t start = now_ns();
  outcome_.lap.operations = end - id;
  std::vector<Assignment> assignments;
  while (id < end) {
    assignments.clear();
    const std::uint64_t first = id;
    for (std::size_t slot = 0; slot < batch && id < end; ++slot, ++id) {
      assignments.push_back({.key = room_.key(slot, id), .value = room_.value(slot, id, ++version_)});
    }
    session_.multi_put(assignments);
    for (std::size_t slot = 0; slot < assignments.size(); ++slot) {
      if (!note(first + slot, assignments[slot].result)) return std::unexpected(std::move(failure_));
    }
  }
  outcome_.lap.elapsed_ns = now_ns() - start;
  return {};
}

Result<void> Driver::read_back() {
  auto [id, end] = share();
  std::vector<Lookup> lookups(task_.batch);
  std::vector<std::uint64_t> ids(task_.batch);
  const std::uint64_t start = now_ns();
  outcome_.lap.operations = end - id;
  while (id < end) {
    const std::size_t count = std::min<std::uint64_t>(task_.batch, end - id);
    for (std::size_t slot = 0; slot < count; ++slot) {
      ids[slot] = id++;
      lookups[slot].key = room_.key(slot, ids[slot]);
    }
    session_.multi_get(std::span(lookups).first(count));
    if (!note_values(std::span(lookups).first(count), ids)) return std::unexpected(std::move(failure_));
  }
  outcome_.lap.elapsed_ns = now_ns() - start;
  return {};
}

// The keys are made before the first is asked for, and the answers checked after the last: between two gets
// there is nothing that the processor would have to look past to see the next one.
Result<void> Driver::gets() {
  std::vector<Lookup> lookups(slots_of(task_, dataset_));
  std::vector<std::uint64_t> ids(lookups.size());
  return repeat(lookups.size(), [&] {
    draw_keys(lookups, ids);
    session_.get_each(lookups);
    return note_values(lookups, ids);
  });
}

Result<void> Driver::dependent_gets() {
  // The next item depends on the last value and on a draw: on the value alone, the chain would soon close to
  // a short cycle that fits the cache.
  std::uint64_t id = draw();
  return repeat(1, [&] {
    if (!read(id)) return false;
    id = base::Random(dataset_.word_in(value_) + random_.next()).below(task_.items);
    return true;
  });
}

Result<void> Driver::multi_gets() {
  std::vector<Lookup> lookups(task_.batch);
  std::vector<std::uint64_t> ids(task_.batch);
  return repeat(task_.batch, [&] {
    draw_keys(lookups, ids);
    session_.multi_get(lookups);
    return note_values(lookups, ids);
  });
}

Result<void> Driver::puts() {
  return repeat(1, [this] { return write(draw()); });
}

Result<void> Driver::multi_puts() {
  std::vector<Assignment> assignments(task_.batch);
  std::vector<std::uint64_t> ids(task_.batch);
  return repeat(task_.batch, [&] {
    for (std::size_t slot = 0; slot < assignments.size(); ++slot) {
      ids[slot] = draw();
      assignments[slot].key = room_.key(slot, ids[slot]);
      assignments[slot].value = room_.value(slot, ids[slot], ++version_);
    }
    session_.multi_put(assignments);
    for (std::size_t slot = 0; slot < assignments.size(); ++slot) {
      if (!note(ids[slot], assignments[slot].result)) return false;
    }
    return true;
  });
}

Result<void> Driver::mix() {
  std::uint64_t steps = 0;
  const auto step = [&] {
    if (task_.mix.insert != 0 && steps++ % steps_between_clocks_max == 0) learn_of_inserts();
    const Operation operation = task_.mix.draw(random_);
    if (!task_.latencies) return operate(operation);
    const std::uint64_t start = now_ns();
    if (!operate(operation)) return false;
    (operation == Operation::read ? outcome_.reads : outcome_.writes).record(now_ns() - start);
    return true;
  };
  auto result = repeat(1, step);
  outcome_.inserted = own_inserted_;
  return result;
}

bool Driver::operate(Operation operation) {
  switch (operation) {
    case Operation::read:
      return read(draw());
    case Operation::update:
      return write(draw());
    case Operation::insert:
      return insert();
    case Operation::modify: {
      const std::uint64_t id = draw();
      return read(id) && write(id);
    }
  }
  std::unreachable();
}

bool Driver::read(std::uint64_t id) { return note_value(id, session_.get(room_.key(0, id), value_), value_); }

bool Driver::write(std::uint64_t id) {
  return note(id, session_.put(room_.key(0, id), room_.value(0, id, ++version_)));
}

// The workers take turns with the numbers, so that none has to ask the others for one.
bool Driver::insert() {
  if (!write(task_.insert_base + own_inserted_ * task_.workers + task_.worker)) return false;
  gathering_.set_inserted(task_.worker, ++own_inserted_);
  return true;
}

// Below the slowest worker's count there is no gap.
void Driver::learn_of_inserts() {
  std::uint64_t slowest = gathering_.inserted(0);
  for (std::uint32_t worker = 1; worker < task_.workers; ++worker) {
    slowest = std::min(slowest, gathering_.inserted(worker));
  }
  inserted_ = slowest * task_.workers;
}

void Driver::draw_keys(std::span<Lookup> lookups, std::span<std::uint64_t> ids) {
  for (std::size_t slot = 0; slot < lookups.size(); ++slot) {
    ids[slot] = draw();
    lookups[slot].key = room_.key(slot, ids[slot]);
  }
}

bool Driver::note_values(std::span<const Lookup> lookups, std::span<const std::uint64_t> ids) {
  for (std::size_t slot = 0; slot < lookups.size(); ++slot) {
    if (!note_value(ids[slot], lookups[slot].result, lookups[slot].value)) return false;
  }
  return true;
}

bool Driver::note(std::uint64_t id, const Result<void>& result) {
  if (result) [[likely]]
    return true;
  failure_ = result.error();
  failure_.detail = fmt::format("item {}: {}", id, failure_.message());
  return false;
}

bool Driver::note_value(std::uint64_t id, const Result<void>& result, std::string_view value) {
  if (!note(id, result)) return false;
  if (dataset_.check(id, value)) [[likely]]
    return true;
  failure_ = Error{
      .code = Errc::corrupt,
      .operation = "bench",
      .detail = fmt::format("item {}: a value of {} B that was never written for it", id, value.size())};
  return false;
}

Lap measure_harness(const Dataset& dataset, const Task& task) {
  base::Random random(seed_of(task));
  const ItemChooser chooser(task.mix.distribution, task.items);
  Room room(dataset, 1);
  std::uint64_t right = 0;
  const Lap lap = repeat_for(task.seconds, steps_between_clocks_max, [&] {
    for (std::uint64_t i = 0; i < steps_between_clocks_max; ++i) {
      const std::uint64_t id = chooser.draw(random);
      const auto key = room.key(0, id);
      const auto value = room.value(0, id, i);
      asm volatile("" : : "r"(key.data()), "r"(value.data()) : "memory");  // both are to be made
      right += dataset.check(id, value) ? 1 : 0;
    }
  });
  asm volatile("" : : "r"(right));  // and checked
  return lap;
}

}  // namespace loch::bench
