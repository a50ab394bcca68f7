// The parts of the suite that compare: with the peers, with several processes, and over YCSB's mixes.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "bench/suite.h"

namespace loch::bench {
namespace {

constexpr double scaling_min = 1.85;
constexpr double mix_seconds_factor = 4;  // a mix is run once, and as long as so many rounds

struct Compared {
  Act act;
  const char* name;
};

constexpr std::array<Compared, 4> compared = {
    {{Act::gets, "get"}, {Act::multi_gets, "multi_get"}, {Act::puts, "put"}, {Act::multi_puts, "multi_put"}}};

struct PeerTarget {
  const char* peer;
  Act act;
  double times_min;
};

constexpr std::array<PeerTarget, 4> peer_targets = {{{"lmdb", Act::gets, 8},
                                                     {"redis", Act::gets, 50},
                                                     {"redis", Act::multi_gets, 12},
                                                     {"memcached", Act::multi_gets, 12}}};

std::optional<double> floor_ns(Bench& bench) {
  const Figure* floor = bench.report().find("floor", "independent read", "machine");
  if (floor == nullptr || floor->value <= 0) return std::nullopt;
  return floor->value;
}

std::optional<double> over_floor(Bench& bench, double ns) {
  const auto floor = floor_ns(bench);
  if (!floor) return std::nullopt;
  return ns / *floor;
}

Figure peer_figure(Bench& bench, std::uint32_t peer, const Compared& each, const Series& series) {
  Figure figure{.section = "peers",
                .name = each.name,
                .subject = std::string(bench.at(peer).name()),
                .value = series.ns(),
                .floor_ratio = over_floor(bench, series.ns())};
  if (each.act == Act::multi_gets) figure.name = fmt::format("multi_get: {}", bench.at(peer).batches().gets);
  if (each.act == Act::multi_puts) figure.name = fmt::format("multi_put: {}", bench.at(peer).batches().puts);
  return figure;
}

// How many times as fast Loch is, at the peer's figure and at its own.
void note_ratio(Bench& bench, const Compared& each, double times, Figure& figure) {
  figure.peer_ratios[figure.subject] = times;
  for (const PeerTarget& target : peer_targets) {
    if (figure.subject == target.peer && each.act == target.act)
      figure.target = at_least(times, target.times_min);
  }
  for (Figure& own : bench.report().figures) {
    if (own.section == "loch" && own.name == each.name) own.peer_ratios[figure.subject] = times;
  }
}

// One process of each, in alternating rounds. Where a peer has a server, it depends on the machine whether a
// call is faster to the same core or to another one; both are measured, and the better one is the peer's
// figure.
Result<void> compare(Bench& bench, std::uint32_t peer) {
  const auto loch = bench.subject("loch");
  const bool has_server = bench.at(peer).server() != 0;
  std::vector<Planned> planned;
  for (const Compared& each : compared) {
    Task task = bench.task(each.act, peer);
    planned.push_back({.task = task});
    task.cores = task.server_cores = Cores::first;
    if (has_server) planned.push_back({.task = task});
    if (loch) planned.push_back({.task = bench.task(each.act, *loch)});
  }
  bench.say("measuring {}", bench.at(peer).name());
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  std::size_t next = 0;
  for (const Compared& each : compared) {
    const Series* best = &(*series)[next++];
    if (has_server) {
      const Series& confined = (*series)[next++];
      const bool better = confined.rate() > best->rate();
      if (better) best = &confined;
      if (each.act == Act::gets) bench.set_confined(peer, better);
    }
    Figure figure = peer_figure(bench, peer, each, *best);
    if (loch) note_ratio(bench, each, rate_ratio(*best, (*series)[next++]), figure);
    bench.report().figures.push_back(std::move(figure));
  }
  return {};
}

// A server's resident set against the files of the store, and what each counts as in use: less on both
// counts.
void compare_memory(Bench& bench, const std::string& peer) {
  const std::uint64_t items = bench.settings().items_of_peers();
  for (const char* kind : {"held", "in use"}) {
    const std::string name = fmt::format("{} items, {}", items, kind);
    const Figure* own = bench.report().find("memory", name, "loch");
    for (Figure& figure : bench.report().figures) {
      if (own == nullptr || figure.section != "memory" || figure.name != name || figure.subject != peer)
        continue;
      figure.target =
          Target{.text = fmt::format("> loch's {:.1f}", own->value), .met = figure.value > own->value};
    }
  }
}

Result<void> run_peer(Bench& bench, std::uint32_t peer) {
  const std::string name(bench.at(peer).name());
  if (auto started = bench.start(peer); !started) return started;
  if (auto loaded = bench.load(peer, 0, bench.settings().items_of_peers()); !loaded) return loaded;
  const auto memory = bench.memory(peer);
  if (!memory) return std::unexpected(memory.error());
  report_memory(bench, name, bench.settings().items_of_peers(), *memory);
  if (name != "lmdb") compare_memory(bench, name);
  if (auto done = compare(bench, peer); !done) return done;
  if (bench.settings().wants("ycsb")) {
    for (const char* mix : {"a", "b", "c", "d", "f"}) {
      if (auto done = run_mix(bench, peer, *find_mix(mix), 1); !done) return done;
    }
  }
  bench.stop(peer);
  return {};
}

}  // namespace

Result<void> run_peers(Bench& bench) {
  for (const std::uint32_t peer : bench.peers()) {
    if (auto done = run_peer(bench, peer); !done) return done;
  }
  return {};
}

Result<void> run_processes(Bench& bench) {
  const auto loch = bench.subject("loch");
  const std::uint32_t processes = bench.settings().processes;
  if (!loch || processes < 2) return {};
  if (bench.report().machine.cores < processes) {
    bench.report().notes.push_back(fmt::format("{} processes against one are left out: there are {} cores",
                                               processes, bench.report().machine.cores));
    return {};
  }
  const auto mix_on = [&](const char* name, Distribution distribution) {
    Task task = bench.task(Act::mix, *loch);
    task.mix = *find_mix(name);
    task.mix.distribution = distribution;
    return task;
  };
  const std::array<std::pair<std::string, Task>, 4> tasks = {{
      {"read-only, uniform", mix_on("read-only", Distribution::uniform)},
      {"read-only, zipf", mix_on("read-only", Distribution::zipf)},
      {"95-5, zipf", mix_on("95-5", Distribution::zipf)},
      {"floor: independent read", bench.task(Act::floor_independent)},
  }};
  std::vector<Planned> planned;
  for (const auto& [name, task] : tasks) {
    planned.push_back({.task = task, .processes = 1});
    planned.push_back({.task = task, .processes = processes});
  }
  bench.say("measuring {} processes against one", processes);
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool floor = tasks[i].second.act == Act::floor_independent;
    const double scaling = rate_ratio((*series)[2 * i], (*series)[2 * i + 1]);
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const Series& own = (*series)[2 * i + side];
      Figure figure{.section = "processes",
                    .name = tasks[i].first,
                    .subject = floor ? "machine" : "loch",
                    .processes = planned[2 * i + side].processes,
                    .value = own.ns(),
                    .floor_ratio = rate_ratio(own, (*series)[2 * (tasks.size() - 1) + side])};
      if (side == 1) figure.scaling = scaling;
      if (side == 1 && !floor && processes == 2) figure.target = at_least(scaling, scaling_min);
      bench.report().figures.push_back(std::move(figure));
    }
  }
  return {};
}

Result<void> run_ycsb(Bench& bench) {
  const auto loch = bench.subject("loch");
  if (!loch) return {};
  std::vector<std::uint32_t> counts = {1};
  if (bench.settings().processes > 1) counts.push_back(bench.settings().processes);
  for (const std::uint32_t processes : counts) {
    for (const char* mix : {"a", "b", "c", "d", "f"}) {
      if (auto done = run_mix(bench, *loch, *find_mix(mix), processes); !done) return done;
    }
  }
  return {};
}

Result<void> run_mix(Bench& bench, std::uint32_t subject, const Mix& mix, std::uint32_t processes) {
  const std::string name(bench.at(subject).name());
  const double seconds = bench.settings().seconds * mix_seconds_factor;
  bench.say("measuring workload {} on {}, {} process{}", mix.name, name, processes,
            processes == 1 ? "" : "es");
  const auto rate = bench.mixed(subject, mix, processes, seconds, false);
  if (!rate) return std::unexpected(rate.error());
  const auto timed = bench.mixed(subject, mix, processes, seconds, true);
  if (!timed) return std::unexpected(timed.error());
  const double ns = rate->rate > 0 ? 1e9 / rate->rate : 0;
  Figure figure{.section = "ycsb",
                .name = fmt::format("{}, {}", mix.name, loch::bench::name(mix.distribution)),
                .subject = name,
                .processes = processes,
                .value = ns,
                .floor_ratio = over_floor(bench, ns)};
  if (timed->reads.count() != 0) figure.reads = latency_of(timed->reads);
  if (timed->writes.count() != 0) figure.writes = latency_of(timed->writes);
  Figure* own = nullptr;
  for (Figure& other : bench.report().figures) {
    const bool same = other.section == "ycsb" && other.name == figure.name && other.processes == processes;
    if (same && other.subject == "loch") own = &other;
  }
  if (own != nullptr && name != "loch" && own->value > 0) {
    own->peer_ratios[name] = ns / own->value;
    figure.peer_ratios[name] = ns / own->value;
  }
  bench.report().figures.push_back(std::move(figure));
  return {};
}

}  // namespace loch::bench
