// The part of the suite that compares over TCP: Loch's lochd, Redis and memcached on one core, and one client
// on another.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bench/clock.h"
#include "bench/libfabric_reads.h"
#include "bench/suite.h"
#include "lab/process.h"

namespace loch::bench {
namespace {

constexpr std::uint32_t outstanding = 32;
// So few that a session remembers where all of them are.
constexpr std::uint64_t known_keys = 1'000;
constexpr double idle_seconds_max = 3;

// What has to be reached.
constexpr double raw_reads_min = 2'500'000;  // a second, `outstanding` at a time
constexpr double idle_us_max = 1'000;        // in a second: a thousandth of a core
constexpr double as_fast = 1;
constexpr double twice_as_fast = 2;

constexpr const char* raw_read = "raw read of 8 B";
constexpr const char* many_raw_reads = "32 raw reads of 8 B";
constexpr std::uint32_t word_bytes = sizeof(std::uint64_t);

constexpr Mix gets{.name = "get"};
constexpr Mix puts{.name = "put", .read = 0, .update = 100};

struct Measured {
  const char* name;
  Act act;
  Mix mix{};  // of Act::mix, which is one operation at a time
  std::uint64_t keys = known_keys;
  double rate_min = 0;       // as a multiple of each peer's; 0: no target
  double processor_min = 0;  // memcached's processor time as a multiple of Loch's; 0: no target
  bool has_floor = true;
};

constexpr std::array<Measured, 8> with_small_values = {{
    {.name = "get, known keys", .act = Act::mix, .mix = gets, .rate_min = as_fast, .processor_min = 2},
    {.name = "get, any keys", .act = Act::mix, .mix = gets, .keys = 0},
    {.name = "put, known keys", .act = Act::mix, .mix = puts, .rate_min = as_fast},
    {.name = "put, any keys", .act = Act::mix, .mix = puts, .keys = 0},
    {.name = "32 gets, known keys", .act = Act::multi_gets, .rate_min = twice_as_fast, .processor_min = 2},
    {.name = "32 gets, any keys",
     .act = Act::multi_gets,
     .keys = 0,
     .rate_min = twice_as_fast,
     .processor_min = 2},
    {.name = "32 puts, known keys", .act = Act::multi_puts, .rate_min = twice_as_fast},
    {.name = "32 puts, any keys", .act = Act::multi_puts, .keys = 0, .rate_min = twice_as_fast},
}};
// What each client does first, as one that has run for long has done: it gets all items once.
constexpr Measured first_gets{.name = "32 gets, new keys", .act = Act::read_back};
// While others compute on the same cores. Of the floor, whose ends only look and yield, that would tell how
// the kernel takes turns.
constexpr std::array<Measured, 2> with_busy_cores = {{
    {.name = "get, busy cores", .act = Act::mix, .mix = gets, .has_floor = false},
    {.name = "32 gets, busy cores", .act = Act::multi_gets, .has_floor = false},
}};
constexpr std::array<Measured, 2> with_large_values = {{
    {.name = "get of 16 KiB", .act = Act::mix, .mix = gets, .processor_min = 1},
    {.name = "32 gets of 16 KiB", .act = Act::multi_gets, .processor_min = 1},
}};

struct Member {
  std::string kind;  // "redis"
  std::uint32_t subject;
};

// Loch first, if it is there.
std::vector<Member> members(const Bench& bench, bool large) {
  std::vector<Member> found;
  for (const char* kind : {"loch", "redis", "memcached"}) {
    if (const auto subject = bench.subject(over_tcp(kind, large))) found.push_back({kind, *subject});
  }
  return found;
}

Task on_two_cores(Task task) {
  task.server_cores = Cores::first;
  task.cores = Cores::second;
  return task;
}

Task task_of(const Bench& bench, const Measured& measured, const Member& member) {
  Task task = on_two_cores(bench.task(measured.act, member.subject));
  task.mix = measured.mix;
  task.latencies = measured.act == Act::mix;
  task.batch = outstanding;
  if (measured.keys != 0) task.items = std::min(task.items, measured.keys);
  return task;
}

// The network's floor, a member of each comparison: what has to go there and come back for the operations of
// a row whoever answers them, and nothing else.
const Member bare_tcp{.kind = "tcp", .subject = no_subject};

Task floor_task(const Bench& bench, std::uint32_t batch, std::uint64_t request_bytes,
                std::uint64_t reply_bytes) {
  Task task = on_two_cores(bench.task(Act::exchanges));
  task.batch = batch;
  task.request_bytes = request_bytes;
  task.reply_bytes = reply_bytes;
  return task;
}

// A key there and its value back; or both there, and a byte that says so back.
Task floor_task_of(const Bench& bench, const Measured& measured, const Dataset& items) {
  const bool is_put = measured.act == Act::multi_puts || measured.mix.update != 0;
  const std::uint32_t batch = measured.act == Act::mix ? 1 : outstanding;
  if (is_put) return floor_task(bench, batch, items.key_bytes() + items.value_bytes(), 1);
  return floor_task(bench, batch, items.key_bytes(), items.value_bytes());
}

void report_rate(Report& report, const Measured& measured, const Member& member, const Series& own,
                 const Series* floor, const Series* loch) {
  Figure figure{.section = "network", .name = measured.name, .subject = member.kind, .value = own.ns()};
  if (floor != nullptr) figure.floor_ratio = rate_ratio(own, *floor);
  if (own.reads.count() != 0) figure.reads = latency_of(own.reads);
  if (own.writes.count() != 0) figure.writes = latency_of(own.writes);
  if (loch != nullptr) {
    const double times = rate_ratio(own, *loch);
    figure.peer_ratios[member.kind] = times;
    if (measured.rate_min > 0) figure.target = at_least(times, measured.rate_min);
  }
  report.figures.push_back(std::move(figure));
}

void report_processor(Report& report, const Measured& measured, const Member& member, const Series& own,
                      const Series* loch) {
  Figure figure{.section = "network processor",
                .name = measured.name,
                .subject = member.kind,
                .value = median(own.server_ns),
                .unit = "processor ns"};
  if (loch != nullptr) {
    const double times = median_ratio(loch->server_ns, own.server_ns);
    figure.peer_ratios[member.kind] = times;
    if (measured.processor_min > 0 && member.kind == "memcached")
      figure.target = at_least(times, measured.processor_min);
  }
  report.figures.push_back(std::move(figure));
}

Result<void> compare(Bench& bench, std::span<const Measured> rows, const std::vector<Member>& members) {
  const Dataset& items = bench.at(members.front().subject).dataset();
  std::vector<Planned> planned;
  for (const Measured& row : rows) {
    if (row.has_floor) planned.push_back({.task = floor_task_of(bench, row, items)});
    for (const Member& member : members) planned.push_back({.task = task_of(bench, row, member)});
  }
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  std::size_t next = 0;
  for (const Measured& row : rows) {
    const Series* const floor = row.has_floor ? &(*series)[next++] : nullptr;
    if (floor != nullptr) report_rate(bench.report(), row, bare_tcp, *floor, floor, nullptr);
    const Series* const loch = members.front().kind == "loch" ? &(*series)[next] : nullptr;
    for (const Member& member : members) {
      const Series& own = (*series)[next++];
      const Series* const compared = &own == loch ? nullptr : loch;
      report_rate(bench.report(), row, member, own, floor, compared);
      report_processor(bench.report(), row, member, own, compared);
    }
  }
  return {};
}

Result<void> get_all_once(Bench& bench, const std::vector<Member>& members) {
  const Dataset& items = bench.at(members.front().subject).dataset();
  const Planned floor_planned{.task = floor_task_of(bench, first_gets, items)};
  const auto floor = bench.alternate(std::span(&floor_planned, 1));
  if (!floor) return std::unexpected(floor.error());
  report_rate(bench.report(), first_gets, bare_tcp, floor->front(), &floor->front(), nullptr);
  std::vector<Series> series;
  for (const Member& member : members) {
    Task task = task_of(bench, first_gets, member);
    task.last = items.items();
    const auto lap = bench.run_once(task);
    if (!lap) return std::unexpected(lap.error());
    series.push_back({.rates = {1e9 / lap->ns_per_operation()}});
    report_rate(bench.report(), first_gets, member, series.back(), &floor->front(),
                series.size() > 1 && members.front().kind == "loch" ? &series.front() : nullptr);
  }
  return {};
}

// The same reads as Loch's `outstanding` at a time, of as much memory.
Result<Task> libfabric_task(Bench& bench, std::uint32_t loch) {
  const auto memory = bench.memory(loch);
  if (!memory) return std::unexpected(memory.error());
  Task task = on_two_cores(bench.task(Act::libfabric_reads));
  task.batch = outstanding;
  task.region_bytes = memory->raw_bytes;
  return task;
}

// Reads of words, one at a time and many: the floor's, then Loch's; and libfabric's of many, if there is any.
Result<void> measure_raw_reads(Bench& bench, std::uint32_t loch) {
  std::vector<Planned> planned;
  for (const std::uint32_t batch : {1u, outstanding}) {
    planned.push_back({.task = floor_task(bench, batch, word_bytes, word_bytes)});
    planned.push_back({.task = on_two_cores(bench.task(Act::raw_reads, loch))});
    planned.back().task.batch = batch;
  }
  const auto libfabric = find_libfabric();
  if (libfabric) {
    const auto task = libfabric_task(bench, loch);
    if (!task) return std::unexpected(task.error());
    planned.push_back({.task = *task});
  } else {
    bench.report().notes.push_back(fmt::format("libfabric is left out: {}", libfabric.error().detail));
  }
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  const auto add = [&](const char* name, const char* subject, std::size_t own,
                       std::size_t floor_of_row) -> Figure& {
    Figure figure{.section = "network", .name = name, .subject = subject, .value = (*series)[own].ns()};
    figure.floor_ratio = rate_ratio((*series)[own], (*series)[floor_of_row]);
    if ((*series)[own].reads.count() != 0) figure.reads = latency_of((*series)[own].reads);
    bench.report().figures.push_back(std::move(figure));
    return bench.report().figures.back();
  };
  add(raw_read, "tcp", 0, 0);
  add(raw_read, "loch", 1, 0);
  add(many_raw_reads, "tcp", 2, 2);
  const Series& many = (*series)[3];
  add(many_raw_reads, "loch", 3, 2).target =
      Target{fmt::format(">= {:.1f} M/s", raw_reads_min / 1e6), many.rate() >= raw_reads_min};
  if (libfabric)
    add(many_raw_reads, "libfabric", 4, 2).peer_ratios = {{"libfabric", rate_ratio((*series)[4], many)}};
  return {};
}

Result<void> measure_with_busy_cores(Bench& bench, const std::vector<Member>& members) {
  std::vector<lab::Process> computing;
  for (const Cores cores : {Cores::first, Cores::second}) {
    auto started = lab::Process::start({.words = {"/bin/sh", "-c", "while :; do :; done"}});
    if (!started) return std::unexpected(std::move(started.error()));
    confine(started->id(), cores);
    computing.push_back(std::move(*started));
  }
  return compare(bench, with_busy_cores, members);
}

// All servers sleep at the same time, each with a client that has connected and does nothing.
void measure_idle(Bench& bench, const std::vector<Member>& members) {
  // A short run is short here too.
  const double idle_seconds = std::min(idle_seconds_max, 6 * bench.settings().seconds);
  std::vector<std::uint64_t> before_ns;
  for (const Member& member : members)
    before_ns.push_back(processor_time_ns(bench.at(member.subject).server()));
  sleep_for(idle_seconds);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::uint64_t used_ns = processor_time_ns(bench.at(members[i].subject).server()) - before_ns[i];
    const double used_us = static_cast<double>(used_ns) / 1e3 / idle_seconds;
    Figure figure{.section = "network processor",
                  .name = "idle",
                  .subject = members[i].kind,
                  .value = used_us,
                  .unit = "us/s"};
    if (members[i].kind == "loch")
      figure.target = Target{fmt::format("<= {} us/s", idle_us_max), used_us <= idle_us_max};
    bench.report().figures.push_back(std::move(figure));
  }
}

Result<void> start_all(Bench& bench, const std::vector<Member>& members) {
  for (const Member& member : members) {
    if (auto started = bench.start(member.subject); !started) return started;
    if (auto loaded = bench.load_by_one(member.subject); !loaded) return loaded;
  }
  return {};
}

}  // namespace

std::uint64_t network_large_items(const Settings& settings) {
  return std::max<std::uint64_t>(outstanding, settings.network_items / 128);
}

std::string over_tcp(std::string_view subject, bool large) {
  return fmt::format("{}-tcp{}", subject, large ? "-large" : "");
}

Result<void> run_network(Bench& bench) {
  if (bench.network() == nullptr) return {};
  for (const bool large : {false, true}) {
    const auto taking_part = members(bench, large);
    if (taking_part.empty()) return {};
    bench.say("measuring over {}", bench.network()->text());
    if (auto started = start_all(bench, taking_part); !started) return started;
    const bool with_loch = taking_part.front().kind == "loch";
    if (with_loch && !large) {
      if (auto done = measure_raw_reads(bench, taking_part.front().subject); !done) return done;
    }
    if (!large) {
      if (auto done = get_all_once(bench, taking_part); !done) return done;
    }
    const auto rows = large ? std::span<const Measured>(with_large_values) : with_small_values;
    if (auto done = compare(bench, rows, taking_part); !done) return done;
    if (!large) {
      measure_idle(bench, taking_part);
      if (auto done = measure_with_busy_cores(bench, taking_part); !done) return done;
    }
    for (const Member& member : taking_part) bench.stop(member.subject);
  }
  return {};
}

}  // namespace loch::bench
