#include "bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "base/hash.h"
#include "bench/clock.h"
#include "bench/cores.h"
#include "bench/dataset.h"
#include "bench/suite.h"

namespace loch::bench {
namespace {

constexpr double share_quiet = 0.97;

Result<std::unique_ptr<Subject>> make_subject(const std::string& kind, Place place, const Dataset& dataset) {
  if (kind == "loch") return make_loch(std::move(place), dataset);
  if (kind == "lmdb") return make_lmdb(std::move(place), dataset);
  if (kind == "redis") return make_redis(std::move(place), dataset);
  if (kind == "memcached") return make_memcached(std::move(place), dataset);
  return fail(Errc::invalid_argument, "bench",
              fmt::format("no subject is called {}; there are loch, lmdb, redis and memcached", kind));
}

// Adds what can be had; the notes say what is left out. Errors: of what was asked for by name.
class Gatherer {
 public:
  Gatherer(Report& report, Subjects& subjects) : report_(report), subjects_(subjects) {}

  Result<void> add(const std::string& kind, Place place, const Dataset& dataset) {
    const std::string name = place.name;
    auto subject = make_subject(kind, std::move(place), dataset);
    if (subject) {
      subjects_.push_back(std::move(*subject));
    } else if (report_.settings.subjects_given) {
      return std::unexpected(std::move(subject.error()));
    } else {
      report_.notes.push_back(fmt::format("{} is left out: {}", name, subject.error().detail));
    }
    return {};
  }

  [[nodiscard]] bool has(std::string_view name) const {
    return std::ranges::any_of(subjects_, [&](const auto& subject) { return subject->name() == name; });
  }

 private:
  Report& report_;
  Subjects& subjects_;
};

Result<void> add_here(Gatherer& gatherer, const Settings& settings, const std::string& folder) {
  const auto own = Dataset::make(settings.items, settings.key_bytes, settings.value_bytes);
  if (!own) return std::unexpected(own.error());
  const auto of_peers = Dataset::make(settings.items_of_peers(), settings.key_bytes, settings.value_bytes);
  if (!of_peers) return std::unexpected(of_peers.error());
  const auto large = Dataset::make(settings.large_items, settings.key_bytes, settings.large_value_bytes);
  if (!large) return std::unexpected(large.error());
  for (const std::string& kind : settings.subjects) {
    auto added = gatherer.add(kind, {.folder = folder, .name = kind}, kind == "loch" ? *own : *of_peers);
    if (!added) return added;
    const bool with_large = kind == "loch" || (settings.wants("large") && settings.wants("peers"));
    if (!with_large || !gatherer.has(kind)) continue;
    added = gatherer.add(kind, {.folder = folder, .name = kind + "-large"}, *large);
    if (!added) return added;
  }
  return {};
}

Result<void> add_over_tcp(Gatherer& gatherer, const Settings& settings, const std::string& folder,
                          const Network& network) {
  const auto small = Dataset::make(settings.network_items, settings.key_bytes, settings.value_bytes);
  if (!small) return std::unexpected(small.error());
  const auto large =
      Dataset::make(network_large_items(settings), settings.key_bytes, network_large_value_bytes);
  if (!large) return std::unexpected(large.error());
  for (const std::string& kind : settings.subjects) {
    if (kind == "lmdb") continue;  // it has no server
    for (const bool is_large : {false, true}) {
      Place place{
          .folder = folder, .name = over_tcp(kind, is_large), .network = &network, .lochd = settings.lochd};
      if (auto added = gatherer.add(kind, std::move(place), is_large ? *large : *small); !added) return added;
    }
  }
  return {};
}

Sum sum_of(std::span<const Outcome> outcomes) {
  Sum sum;
  for (const Outcome& outcome : outcomes) {
    const double ns = outcome.lap.ns_per_operation();
    sum.rate += ns > 0 ? 1e9 / ns : 0;
    sum.operations += outcome.lap.operations;
    sum.reads.merge(outcome.reads);
    sum.writes.merge(outcome.writes);
  }
  return sum;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Series::rate() const { return median(rates); }

double rate_ratio(const Series& one, const Series& other) { return median_ratio(one.rates, other.rates); }

double median_ratio(const std::vector<double>& one, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < std::min(one.size(), other.size()); ++round) {
    if (one[round] > 0) ratios.push_back(other[round] / one[round]);
  }
  return median(std::move(ratios));
}

Result<Bench> Bench::make(const Settings& settings) {
  Report report;
  report.settings = settings;
  report.machine = describe_machine(settings.directory);
  report.build = describe_build();
  if (!built_for_speed())
    report.notes.emplace_back("this build is not made for speed: its figures mean nothing");

  auto folder = lab::TempFolder::make(settings.directory);
  if (!folder) return std::unexpected(std::move(folder.error()));
  Subjects subjects;
  Gatherer gatherer(report, subjects);
  if (auto added = add_here(gatherer, settings, folder->path()); !added)
    return std::unexpected(std::move(added.error()));
  std::unique_ptr<Network> network;
  if (settings.wants("network")) {
    // Before the workers begin, which are clients.
    network = std::make_unique<Network>(Network::make(folder->path() + "/network.log"));
    report.network = network->text();
    if (cores_are_siblings())
      report.notes.emplace_back(
          "servers and client over TCP are on two hardware threads of one core: there is no other core");
    if (auto added = add_over_tcp(gatherer, settings, folder->path(), *network); !added)
      return std::unexpected(std::move(added.error()));
  }
  const auto make = [&] { return make_work(subjects, folder->path(), network.get()); };
  auto pool = Pool::make(settings.processes, make);
  if (!pool) return std::unexpected(std::move(pool.error()));
  auto forking_pool = Pool::make(1, make);
  if (!forking_pool) return std::unexpected(std::move(forking_pool.error()));
  return Bench(std::move(report), std::move(*folder), std::move(network), std::move(subjects),
               std::move(*pool), std::move(*forking_pool));
}

Bench::Bench(Report report, lab::TempFolder folder, std::unique_ptr<Network> network, Subjects subjects,
             Pool pool, Pool forking_pool)
    : report_(std::move(report)),
      folder_(std::move(folder)),
      network_(std::move(network)),
      subjects_(std::move(subjects)),
      where_(subjects_.size()),
      pool_(std::move(pool)),
      forking_pool_(std::move(forking_pool)) {
  for (const auto& subject : subjects_) next_ids_.push_back(subject->dataset().items());
}

void Bench::tell(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

std::optional<std::uint32_t> Bench::subject(std::string_view name) const {
  const auto found =
      std::ranges::find_if(subjects_, [&](const auto& subject) { return subject->name() == name; });
  if (found == subjects_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - subjects_.begin());
}

std::vector<std::uint32_t> Bench::peers() const {
  std::vector<std::uint32_t> chosen;
  for (const std::string& kind : settings().subjects) {
    const auto found = subject(kind);
    if (found && kind != "loch") chosen.push_back(*found);
  }
  return chosen;
}

Result<void> Bench::start(std::uint32_t subject) { return subjects_[subject]->start(); }

Result<void> Bench::load(std::uint32_t subject, std::uint64_t first, std::uint64_t last) {
  Task loading = task(Act::load, subject);
  loading.first = first;
  loading.last = last;
  return load(loading, pool_.size());
}

Result<void> Bench::load_by_one(std::uint32_t subject) {
  Task loading = task(Act::load, subject);
  loading.last = at(subject).dataset().items();
  return load(loading, 1);
}

Result<void> Bench::load(Task loading, std::size_t workers) {
  const std::uint64_t start_ns = now_ns();
  const auto outcomes = pool_.run(loading, workers);
  if (!outcomes) return std::unexpected(outcomes.error());
  say("loaded {} items into {} in {:.1f} s", loading.last - loading.first, at(loading.subject).name(),
      static_cast<double>(now_ns() - start_ns) / 1e9);
  return {};
}

void Bench::stop(std::uint32_t subject) {
  std::ignore = pool_.run(task(Act::close, subject), pool_.size());
  subjects_[subject]->stop();
}

Result<Lap> Bench::run_once(const Task& task) {
  const auto outcomes = run(task, 1);
  if (!outcomes) return std::unexpected(outcomes.error());
  return outcomes->front().lap;
}

Result<MemoryUse> Bench::memory(std::uint32_t subject) {
  const auto outcomes = pool_.run(task(Act::memory, subject));
  if (!outcomes) return std::unexpected(outcomes.error());
  return outcomes->front().memory;
}

Result<MemoryUse> Bench::make_floor(std::uint64_t bytes, bool large) {
  Task making = task(Act::floor_create);
  making.floor_bytes = bytes;
  making.large_floor = large;
  say("making the floor's memory of {} MiB", bytes >> 20);
  const auto outcomes = pool_.run(making);
  if (!outcomes) return std::unexpected(outcomes.error());
  return outcomes->front().memory;
}

Result<void> Bench::remove_floor(bool large) {
  Task removing = task(Act::floor_close);
  removing.large_floor = large;
  const auto outcomes = pool_.run(removing, pool_.size());
  if (!outcomes) return std::unexpected(outcomes.error());
  return {};
}

Task Bench::task(Act act, std::uint32_t subject) const {
  Task made;
  made.act = act;
  made.subject = subject;
  made.seconds = settings().seconds;
  made.seed = settings().seed;
  if (subject != no_subject) {
    made.items = at(subject).dataset().items();
    made.batch = static_cast<std::uint32_t>(at(subject).batch());
  }
  return made;
}

Result<std::vector<Series>> Bench::alternate(std::span<const Planned> planned) {
  std::vector<Series> series(planned.size());
  for (std::uint64_t round = 0; round < settings().rounds; ++round) {
    if (auto done = run_round(planned, round, series); !done) return std::unexpected(std::move(done.error()));
  }
  return series;
}

Result<std::span<const Outcome>> Bench::run(const Task& task, std::size_t processes) {
  const pid_t server = task.subject == no_subject ? 0 : at(task.subject).server();
  if (server != 0) confine(server, task.server_cores);
  return forks(task.act) ? forking_pool_.run(task) : pool_.run(task, processes);
}

Result<void> Bench::run_round(std::span<const Planned> planned, std::uint64_t round,
                              std::vector<Series>& series) {
  for (std::size_t i = 0; i < planned.size(); ++i) {
    Task task = planned[i].task;
    task.seed = base::mix(settings().seed + round);  // other items in every round, the same in every run
    const pid_t server = task.subject == no_subject ? 0 : at(task.subject).server();
    const std::uint64_t server_before_ns = server == 0 ? 0 : processor_time_ns(server);
    const auto outcomes = run(task, planned[i].processes);
    if (!outcomes) return std::unexpected(outcomes.error());
    const Sum sum = sum_of(*outcomes);
    series[i].reads.merge(sum.reads);
    series[i].writes.merge(sum.writes);
    if (server != 0 && sum.operations != 0) {
      series[i].server_ns.push_back(static_cast<double>(processor_time_ns(server) - server_before_ns) /
                                    static_cast<double>(sum.operations));
    }
    note_share(task, *outcomes);
    series[i].rates.push_back(sum.rate);
  }
  return {};
}

// A task that waits for nobody, or only by looking, uses the processor all the time, unless others want it
// too.
void Bench::note_share(const Task& task, std::span<const Outcome> outcomes) {
  const bool waits = task.subject != no_subject && at(task.subject).server() != 0;
  if (waits && task.act != Act::raw_reads) return;
  if (forks(task.act)) return;  // other processes do it
  for (const Outcome& outcome : outcomes) {
    if (outcome.lap.elapsed_ns == 0) continue;
    shares_.push_back(static_cast<double>(outcome.processor_ns) /
                      static_cast<double>(outcome.lap.elapsed_ns));
  }
}

void Bench::conclude() {
  const double share = median(shares_);
  const std::string load = describe_machine(settings().directory).load;
  report_.machine.load += fmt::format(", after the run {}", load);
  if (shares_.empty() || share >= share_quiet) return;
  report_.notes.push_back(
      fmt::format("others use this machine: a measured process had a processor for {:.0f} % of its time "
                  "(median), so the times "
                  "are too long and the ratios uncertain",
                  share * 100));
}

Result<Sum> Bench::mixed(std::uint32_t subject, const Mix& mix, std::uint32_t processes, double seconds,
                         bool latencies) {
  Task mixing = task(Act::mix, subject);
  mixing.mix = mix;
  mixing.seconds = seconds;
  mixing.latencies = latencies;
  mixing.insert_base = next_ids_[subject];
  if (processes == 1) where_[subject].apply_to(mixing);  // several clients are where the kernel puts them
  const auto outcomes = run(mixing, processes);
  if (!outcomes) return std::unexpected(outcomes.error());
  std::uint64_t inserted_most = 0;
  for (const Outcome& outcome : *outcomes) inserted_most = std::max(inserted_most, outcome.inserted);
  next_ids_[subject] += inserted_most * processes;
  return sum_of(*outcomes);
}

Result<std::uint64_t> Bench::idle_processor_ns(std::uint32_t subject, double seconds) {
  if (subject == no_subject) return processor_time_asleep_ns(seconds);
  Task idling = task(Act::idle, subject);
  idling.seconds = seconds;
  const auto outcomes = pool_.run(idling);
  if (!outcomes) return std::unexpected(outcomes.error());
  return outcomes->front().processor_ns;
}

}  // namespace loch::bench
