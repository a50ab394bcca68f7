// The standard suite's own part: loading, the floor, one process of Loch, large values, an idle store.
#include "bench/suite.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace loch::bench {
namespace {

// What has to be reached with keys of 16 B, values of 64 B and at least 10 million items.
constexpr double dependent_get_floors_max = 3.2;
constexpr double get_floors_max = 9;
constexpr double multi_get_floors_max = 5;
constexpr double multi_put_floors_max = 12;
constexpr double large_copy_share_min = 0.7;
constexpr double overhead_bytes_max = 72;
constexpr double idle_us_max = 100;  // in a second, beyond what sleeping itself takes
constexpr double idle_seconds_max = 1;

struct Measured {
  Act act;
  const char* name;
  Act floor;
  double floors_max;  // 0: no target
};

constexpr std::array<Measured, 5> measured = {{
    {Act::dependent_gets, "get, dependent", Act::floor_dependent, dependent_get_floors_max},
    {Act::gets, "get", Act::floor_independent, get_floors_max},
    {Act::multi_gets, "multi_get", Act::floor_independent, multi_get_floors_max},
    {Act::puts, "put", Act::floor_independent, 0},
    {Act::multi_puts, "multi_put", Act::floor_independent, multi_put_floors_max},
}};

struct FloorMeasured {
  Act act;
  const char* name;
};

constexpr std::array<FloorMeasured, 4> floors = {{
    {Act::floor_independent, "independent read"},
    {Act::floor_dependent, "dependent read"},
    {Act::floor_compare_swap, "compare-swap"},
    {Act::harness, "harness"},
}};

std::size_t place_of(Act floor) {
  return static_cast<std::size_t>(std::ranges::find(floors, floor, &FloorMeasured::act) - floors.begin());
}

// Loads Loch; its memory is taken at the number of items that the peers have, and at its own.
Result<std::uint64_t> load_loch(Bench& bench) {
  const auto loch = bench.subject("loch");
  const auto& settings = bench.settings();
  const std::uint64_t item_bytes = settings.key_bytes + settings.value_bytes;
  if (!loch) return settings.items * (item_bytes + 64);  // what a store would take, for the floor
  if (auto started = bench.start(*loch); !started) return std::unexpected(std::move(started.error()));
  const std::uint64_t first = std::min(settings.items_of_peers(), settings.items);
  std::uint64_t held_bytes = 0;
  for (const auto& [from, to] : {std::pair{std::uint64_t{0}, first}, std::pair{first, settings.items}}) {
    if (from == to) continue;
    if (auto loaded = bench.load(*loch, from, to); !loaded) return std::unexpected(std::move(loaded.error()));
    const auto memory = bench.memory(*loch);
    if (!memory) return std::unexpected(memory.error());
    report_memory(bench, "loch", to, *memory);
    held_bytes = memory->held_bytes;
  }
  return held_bytes;
}

void report_floor(Bench& bench, const std::vector<Series>& series) {
  for (std::size_t i = 0; i < floors.size(); ++i) {
    bench.report().figures.push_back({.section = "floor",
                                      .name = floors[i].name,
                                      .subject = "machine",
                                      .value = series[i].ns(),
                                      .floor_ratio = rate_ratio(series[i], series[0])});
  }
}

}  // namespace

void report_memory(Bench& bench, std::string_view subject, std::uint64_t items, const MemoryUse& memory) {
  const auto& settings = bench.settings();
  const auto count = static_cast<double>(items);
  const auto payload = static_cast<double>(settings.key_bytes + settings.value_bytes);
  const double held = static_cast<double>(memory.held_bytes) / count - payload;
  const double used = static_cast<double>(memory.used_bytes) / count - payload;
  Figure figure{.section = "memory",
                .name = fmt::format("{} items, held", items),
                .subject = std::string(subject),
                .value = held,
                .unit = "B/item"};
  if (subject == "loch" && items == settings.items) figure.target = at_most(held, overhead_bytes_max);
  bench.report().figures.push_back(figure);
  figure.name = fmt::format("{} items, in use", items);
  figure.value = used;
  figure.target.reset();
  bench.report().figures.push_back(figure);
}

std::string large_size_text(const Settings& settings) {
  return fmt::format("{} KiB", settings.large_value_bytes >> 10);
}

Result<void> run_suite(Bench& bench) {
  if (auto done = run_loch(bench); !done) return done;
  if (bench.settings().suite == "workload") {
    for (const char* name : {"loch", "lmdb", "redis", "memcached"}) {
      const auto subject = bench.subject(name);
      if (!subject) continue;
      const bool peer = bench.at(*subject).name() != "loch";
      if (peer) {
        if (auto started = bench.start(*subject); !started) return started;
        if (auto loaded = bench.load(*subject, 0, bench.settings().items_of_peers()); !loaded) return loaded;
      }
      if (auto done = run_mix(bench, *subject, bench.settings().mix, bench.settings().processes, true); !done)
        return done;
      if (peer) bench.stop(*subject);
    }
    return {};
  }
  using Section = Result<void> (*)(Bench&);
  constexpr std::array<std::pair<const char*, Section>, 7> sections = {{
      {"large", run_large},
      {"idle", run_idle},
      {"simulator", run_simulator},
      {"processes", run_processes},
      {"ycsb", run_ycsb},
      {"peers", run_peers},
      {"network", run_network},
  }};
  for (const auto& [name, run] : sections) {
    if (!bench.settings().wants(name)) continue;
    if (auto done = run(bench); !done) return done;
  }
  return {};
}

Result<void> run_loch(Bench& bench) {
  const auto held_bytes = load_loch(bench);
  if (!held_bytes) return std::unexpected(held_bytes.error());
  const auto floor = bench.make_floor(*held_bytes);
  if (!floor) return std::unexpected(floor.error());
  bench.report().floor_bytes = floor->held_bytes;
  bench.report().floor_huge_bytes = floor->huge_bytes;

  const auto loch = bench.subject("loch");
  const bool with_loch = loch && bench.settings().wants("loch");
  std::vector<Planned> planned;
  for (const FloorMeasured& each : floors) {
    const Task task = bench.task(each.act, each.act == Act::harness ? 0 : no_subject);
    planned.push_back({.task = task});
  }
  if (with_loch) {
    for (const Measured& each : measured) planned.push_back({.task = bench.task(each.act, *loch)});
  }
  bench.say("measuring the floor{}", with_loch ? " and one process of loch" : "");
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  report_floor(bench, *series);
  if (!with_loch) return {};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Series& own = (*series)[floors.size() + i];
    const double ratio = rate_ratio(own, (*series)[place_of(measured[i].floor)]);
    Figure figure{.section = "loch",
                  .name = measured[i].name,
                  .subject = "loch",
                  .value = own.ns(),
                  .floor_ratio = ratio};
    if (measured[i].floors_max > 0) figure.target = at_most(ratio, measured[i].floors_max);
    bench.report().figures.push_back(std::move(figure));
  }
  return {};
}

Result<void> run_large(Bench& bench) {
  const auto large = bench.subject("loch-large");
  if (!large) return {};
  const auto& settings = bench.settings();
  if (auto loaded = bench.load(*large, 0, settings.large_items); !loaded) return loaded;
  const auto memory = bench.memory(*large);
  if (!memory) return std::unexpected(memory.error());
  const auto floor = bench.make_floor(memory->held_bytes, true);
  if (!floor) return std::unexpected(floor.error());
  Task copying = bench.task(Act::floor_copy);
  copying.copy_bytes = settings.large_value_bytes;
  copying.large_floor = true;
  const std::array<Planned, 3> planned = {
      {{.task = copying}, {.task = bench.task(Act::gets, *large)}, {.task = bench.task(Act::puts, *large)}}};
  bench.say("measuring values of {} B", settings.large_value_bytes);
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  auto& figures = bench.report().figures;
  const std::string size = large_size_text(settings);
  figures.push_back(
      {.section = "floor", .name = "copy of " + size, .subject = "machine", .value = (*series)[0].ns()});
  const double share = rate_ratio((*series)[0], (*series)[1]);
  figures.push_back({.section = "loch",
                     .name = "get of " + size,
                     .subject = "loch",
                     .value = (*series)[1].ns(),
                     .floor_ratio = share > 0 ? 1 / share : 0,
                     .target = at_most(share > 0 ? 1 / share : 0, 1 / large_copy_share_min)});
  figures.back().target->text = fmt::format(">= {:.0f} % of its bytes", large_copy_share_min * 100);
  figures.push_back({.section = "loch",
                     .name = "put of " + size,
                     .subject = "loch",
                     .value = (*series)[2].ns(),
                     .floor_ratio = rate_ratio((*series)[2], (*series)[0])});
  // The peers' values take its place.
  if (auto removed = bench.remove_floor(true); !removed) return removed;
  if (auto done = compare_large(bench, *large); !done) return done;
  bench.stop(*large);
  return {};
}

// Two processes that sleep: one has a store open and has used it, the other never had one.
Result<void> run_idle(Bench& bench) {
  const auto loch = bench.subject("loch");
  if (!loch) return {};
  bench.say("measuring an idle store");
  // A short run is short here too.
  const double idle_seconds = std::min(idle_seconds_max, 2 * bench.settings().seconds);
  const auto without = bench.idle_processor_ns(no_subject, idle_seconds);
  if (!without) return std::unexpected(without.error());
  const auto with = bench.idle_processor_ns(*loch, idle_seconds);
  if (!with) return std::unexpected(with.error());
  const double sleeping_us = static_cast<double>(*without) / 1e3 / idle_seconds;
  const double own_us = std::max(0.0, static_cast<double>(*with) / 1e3 / idle_seconds - sleeping_us);
  bench.report().figures.push_back(
      {.section = "idle",
       .name = "an open store",
       .subject = "loch",
       .value = own_us,
       .unit = "us/s",
       .target = Target{fmt::format("<= {} us/s", idle_us_max), own_us <= idle_us_max}});
  return {};
}

}  // namespace loch::bench
