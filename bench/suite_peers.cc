// The parts of the suite that compare: with the peers, with several processes, and over YCSB's mixes.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/suite.h"

namespace loch::bench {
namespace {

constexpr double scaling_min = 1.85;
constexpr double mix_seconds_factor = 4;  // a mix is run once, and as long as so many rounds
// As one of the mixes of several processes against one, of a peer.
constexpr double peer_mix_seconds_factor = 2;

struct Compared {
  Act act;
  std::string name;
  std::string floor;  // the name of the floor's figure
};

// A peer's figures, and Loch's of the same.
struct Contest {
  std::uint32_t peer;
  std::string name;  // of the peer in the report
  std::optional<std::uint32_t> loch;
  std::vector<Compared> all;
};

std::vector<Compared> compared() {
  const std::string independent = "independent read";
  return {{Act::dependent_gets, "get, dependent", "dependent read"},
          {Act::gets, "get", independent},
          {Act::multi_gets, "multi_get", independent},
          {Act::puts, "put", independent},
          {Act::multi_puts, "multi_put", independent}};
}

constexpr const char* floor_of_processes = "floor: independent read";
constexpr std::array<std::pair<const char*, Distribution>, 3> process_mixes = {
    {{"read-only", Distribution::uniform}, {"read-only", Distribution::zipf}, {"95-5", Distribution::zipf}}};

std::string mix_name(const Mix& mix) {
  return fmt::format("{}, {}", mix.name, loch::bench::name(mix.distribution));
}

Mix process_mix(const std::pair<const char*, Distribution>& named) {
  Mix mix = *find_mix(named.first);
  mix.distribution = named.second;
  return mix;
}

struct PeerTarget {
  const char* peer;
  const char* name;  // of Loch's figure
  double times_min;
};

constexpr std::array<PeerTarget, 4> peer_targets = {
    {{"lmdb", "get", 8}, {"redis", "get", 50}, {"redis", "multi_get", 12}, {"memcached", "multi_get", 12}}};

std::optional<double> times_of(const Figure* floor, double ns) {
  if (floor == nullptr || floor->value <= 0) return std::nullopt;
  return ns / floor->value;
}

Figure peer_figure(Bench& bench, const Contest& contest, const Compared& each, const Series& series) {
  Figure figure{.section = "peers",
                .name = each.name,
                .subject = contest.name,
                .value = series.ns(),
                .floor_ratio = times_of(bench.report().find("floor", each.floor, "machine"), series.ns())};
  const Batches batches = bench.at(contest.peer).batches();
  if (each.act == Act::multi_gets) figure.name = fmt::format("multi_get: {}", batches.gets);
  if (each.act == Act::multi_puts) figure.name = fmt::format("multi_put: {}", batches.puts);
  return figure;
}

// How many times as fast Loch is, at the peer's figure and at its own.
void note_ratio(Bench& bench, const Compared& each, double times, Figure& figure) {
  figure.peer_ratios[figure.subject] = times;
  for (const PeerTarget& target : peer_targets) {
    if (figure.subject == target.peer && each.name == target.name)
      figure.target = at_least(times, target.times_min);
  }
  for (Figure& own : bench.report().figures) {
    if (own.section == "loch" && own.name == each.name) own.peer_ratios[figure.subject] = times;
  }
}

// Where a peer has a server, it depends on the machine whether a call is faster to the same core, to another
// one, or where the kernel puts both.
constexpr std::array<Where, 3> wheres = {{{},
                                          {.client = Cores::first, .server = Cores::first},
                                          {.client = Cores::second, .server = Cores::first}}};

// One process of each, in alternating rounds. The best place is the peer's figure.
Result<void> compare(Bench& bench, const Contest& contest) {
  const auto loch = contest.loch;
  const std::size_t places = bench.at(contest.peer).server() != 0 ? wheres.size() : 1;
  std::vector<Planned> planned;
  for (const Compared& each : contest.all) {
    for (const Where& where : std::span(wheres).first(places)) {
      planned.push_back({.task = bench.task(each.act, contest.peer)});
      where.apply_to(planned.back().task);
    }
    if (loch) planned.push_back({.task = bench.task(each.act, *loch)});
  }
  bench.say("measuring {}", bench.at(contest.peer).name());
  const auto series = bench.alternate(planned);
  if (!series) return std::unexpected(series.error());
  std::size_t next = 0;
  for (const Compared& each : contest.all) {
    const auto best = std::ranges::max_element(std::span(*series).subspan(next, places), {}, &Series::rate);
    const auto where = static_cast<std::size_t>(best - std::span(*series).subspan(next).begin());
    if (each.act == Act::gets) bench.set_where(contest.peer, wheres[where]);
    next += places;
    Figure figure = peer_figure(bench, contest, each, *best);
    if (loch) note_ratio(bench, each, rate_ratio(*best, (*series)[next++]), figure);
    bench.report().figures.push_back(std::move(figure));
  }
  return {};
}

// The mixes of several processes against one, as Loch has been measured at them.
Result<void> compare_processes(Bench& bench, std::uint32_t peer) {
  const std::string name(bench.at(peer).name());
  const double seconds = bench.settings().seconds * peer_mix_seconds_factor;
  for (const auto& named : process_mixes) {
    const Mix mix = process_mix(named);
    double rate_of_one = 0;
    for (const std::uint32_t processes : {std::uint32_t{1}, bench.settings().processes}) {
      Figure* own = nullptr;
      for (Figure& other : bench.report().figures) {
        const bool same =
            other.section == "processes" && other.name == mix_name(mix) && other.processes == processes;
        if (same && other.subject == "loch") own = &other;
      }
      if (own == nullptr) continue;
      bench.say("measuring {} on {}, {} process{}", mix_name(mix), name, processes,
                processes == 1 ? "" : "es");
      const auto sum = bench.mixed(peer, mix, processes, seconds, false);
      if (!sum) return std::unexpected(sum.error());
      Figure figure{.section = "processes",
                    .name = mix_name(mix),
                    .subject = name,
                    .processes = processes,
                    .value = sum->rate > 0 ? 1e9 / sum->rate : 0};
      figure.floor_ratio =
          times_of(bench.report().find("processes", floor_of_processes, "machine", processes), figure.value);
      if (own->value > 0) own->peer_ratios[name] = figure.peer_ratios[name] = figure.value / own->value;
      if (processes == 1) rate_of_one = sum->rate;
      if (processes != 1 && rate_of_one > 0) figure.scaling = sum->rate / rate_of_one;
      bench.report().figures.push_back(std::move(figure));
    }
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

// YCSB's mixes, by one process and by several. What a peer's operations take with several processes is not
// asked for one by one: that would be a run more of each.
Result<void> run_mixes(Bench& bench, std::uint32_t subject) {
  std::vector<std::uint32_t> counts = {1};
  if (bench.settings().processes > 1) counts.push_back(bench.settings().processes);
  for (const std::uint32_t processes : counts) {
    const bool latencies = processes == 1 || bench.at(subject).name() == "loch";
    for (const char* mix : {"a", "b", "c", "d", "f"}) {
      if (auto done = run_mix(bench, subject, *find_mix(mix), processes, latencies); !done) return done;
    }
  }
  return {};
}

Result<void> run_peer(Bench& bench, std::uint32_t peer) {
  const std::string name(bench.at(peer).name());
  if (auto started = bench.start(peer); !started) return started;
  if (auto loaded = bench.load(peer, 0, bench.settings().items_of_peers()); !loaded) return loaded;
  const auto memory = bench.memory(peer);
  if (!memory) return std::unexpected(memory.error());
  report_memory(bench, name, bench.settings().items_of_peers(), *memory);
  if (name != "lmdb") compare_memory(bench, name);
  const Contest contest{.peer = peer, .name = name, .loch = bench.subject("loch"), .all = compared()};
  if (auto done = compare(bench, contest); !done) return done;
  if (bench.settings().wants("processes")) {
    if (auto done = compare_processes(bench, peer); !done) return done;
  }
  if (bench.settings().wants("ycsb")) {
    if (auto done = run_mixes(bench, peer); !done) return done;
  }
  bench.stop(peer);
  return {};
}

}  // namespace

std::optional<double> over_floor(const Report& report, double ns, std::uint32_t processes) {
  if (processes == 1) return times_of(report.find("floor", "independent read", "machine"), ns);
  return times_of(report.find("processes", floor_of_processes, "machine", processes), ns);
}

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
  std::vector<std::pair<std::string, Task>> tasks;
  for (const auto& named : process_mixes) {
    Task task = bench.task(Act::mix, *loch);
    task.mix = process_mix(named);
    tasks.emplace_back(mix_name(task.mix), task);
  }
  tasks.emplace_back(floor_of_processes, bench.task(Act::floor_independent));
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
  return loch ? run_mixes(bench, *loch) : Result<void>{};
}

Result<void> compare_large(Bench& bench, std::uint32_t loch) {
  const std::string size = large_size_text(bench.settings());
  for (const std::uint32_t kind : bench.peers()) {
    const std::string name(bench.at(kind).name());
    const auto peer = bench.subject(name + "-large");
    if (!peer) continue;
    if (auto started = bench.start(*peer); !started) return started;
    if (auto loaded = bench.load(*peer, 0, bench.settings().large_items); !loaded) return loaded;
    const std::string floor = "copy of " + size;
    const Contest contest{
        .peer = *peer,
        .name = name,
        .loch = loch,
        .all = {{Act::gets, "get of " + size, floor}, {Act::puts, "put of " + size, floor}}};
    if (auto done = compare(bench, contest); !done) return done;
    bench.stop(*peer);
  }
  return {};
}

Result<void> run_mix(Bench& bench, std::uint32_t subject, const Mix& mix, std::uint32_t processes,
                     bool latencies) {
  const std::string name(bench.at(subject).name());
  const double seconds = bench.settings().seconds * mix_seconds_factor;
  bench.say("measuring workload {} on {}, {} process{}", mix.name, name, processes,
            processes == 1 ? "" : "es");
  const auto rate = bench.mixed(subject, mix, processes, seconds, false);
  if (!rate) return std::unexpected(rate.error());
  const double ns = rate->rate > 0 ? 1e9 / rate->rate : 0;
  Figure figure{.section = "ycsb",
                .name = mix_name(mix),
                .subject = name,
                .processes = processes,
                .value = ns,
                .floor_ratio = over_floor(bench.report(), ns, processes)};
  if (latencies) {
    const auto timed = bench.mixed(subject, mix, processes, seconds, true);
    if (!timed) return std::unexpected(timed.error());
    if (timed->reads.count() != 0) figure.reads = latency_of(timed->reads);
    if (timed->writes.count() != 0) figure.writes = latency_of(timed->writes);
  }
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
