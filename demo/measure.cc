#include "demo/measure.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <random>
#include <unistd.h>

#include "bench/clock.h"
#include "lab/interrupt.h"

namespace loch::demo {
namespace {

constexpr std::size_t batch_max = 64;

std::uint64_t end_after(double seconds) {
  return bench::now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
}

std::unexpected<Error> not_its_source(std::string_view subject, const Package& package) {
  return fail(Errc::corrupt, "measure",
              fmt::format("{}: the value of {} is not its source", subject, package.key));
}

Result<bench::Histogram> measure_gets(std::string_view subject, bench::Session& session,
                                      const Packages& packages, double seconds) {
  bench::Histogram histogram;
  std::mt19937_64 random(1);
  std::string value;
  for (const std::uint64_t end_ns = end_after(seconds); bench::now_ns() < end_ns;) {
    const Package& package = packages[random() % packages.size()];
    const std::uint64_t before_ns = bench::now_ns();
    const auto got = session.get(package.key, value);
    histogram.record(bench::now_ns() - before_ns);
    if (!got) return std::unexpected(got.error());
    if (value != package.stanza) return not_its_source(subject, package);
  }
  return histogram;
}

Result<bench::Histogram> measure_multi_gets(const bench::Subject& subject, bench::Session& session,
                                            const Packages& packages, double seconds) {
  const std::size_t batch = std::min(subject.batch(), batch_max);
  std::vector<Lookup> lookups(batch);
  std::array<std::size_t, batch_max> records{};
  bench::Histogram histogram;
  std::mt19937_64 random(2);
  for (const std::uint64_t end_ns = end_after(seconds); bench::now_ns() < end_ns;) {
    for (std::size_t i = 0; i < batch; ++i) {
      records[i] = random() % packages.size();
      lookups[i].key = packages[records[i]].key;
    }
    const std::uint64_t before_ns = bench::now_ns();
    session.multi_get(lookups);
    histogram.record((bench::now_ns() - before_ns) / batch);
    for (std::size_t i = 0; i < batch; ++i) {
      if (!lookups[i].result) return std::unexpected(lookups[i].result.error());
      if (lookups[i].value != packages[records[i]].stanza)
        return not_its_source(subject.name(), packages[records[i]]);
    }
  }
  return histogram;
}

Result<bench::Histogram> measure_puts(bench::Session& session, const Packages& packages, double seconds) {
  bench::Histogram histogram;
  std::mt19937_64 random(3);
  for (const std::uint64_t end_ns = end_after(seconds); bench::now_ns() < end_ns;) {
    const Package& package = packages[random() % packages.size()];
    const std::uint64_t before_ns = bench::now_ns();
    const auto put = session.put(package.key, package.stanza);
    histogram.record(bench::now_ns() - before_ns);
    if (!put) return std::unexpected(put.error());
  }
  return histogram;
}

Result<void> load(bench::Session& session, const Packages& packages) {
  std::vector<Assignment> assignments;
  for (std::size_t begin = 0; begin < packages.size(); begin += batch_max) {
    if (lab::interrupted()) return fail(Errc::cancelled, "load", "interrupted");
    assignments.clear();
    for (std::size_t i = begin; i < std::min(begin + batch_max, packages.size()); ++i) {
      assignments.push_back({.key = packages[i].key, .value = packages[i].stanza});
    }
    session.multi_put(assignments);
    for (const Assignment& assignment : assignments) {
      if (!assignment.result) return assignment.result;
    }
  }
  return {};
}

Result<Measured> measure_session(bench::Subject& subject, bench::Session& session, const Packages& packages,
                                 double seconds) {
  if (auto loaded = load(session, packages); !loaded) return std::unexpected(loaded.error());
  Measured measured{.subject = std::string(subject.name()), .batch = std::string(subject.batches().gets)};
  const auto memory = session.memory();  // before the puts leave old values behind
  if (!memory) return std::unexpected(memory.error());
  const double above = static_cast<double>(memory->used_bytes) - static_cast<double>(packages.bytes());
  measured.overhead_bytes = above / static_cast<double>(packages.size());
  auto gets = measure_gets(subject.name(), session, packages, seconds);
  if (!gets) return std::unexpected(gets.error());
  auto multi_gets = measure_multi_gets(subject, session, packages, seconds);
  if (!multi_gets) return std::unexpected(multi_gets.error());
  auto puts = measure_puts(session, packages, seconds);
  if (!puts) return std::unexpected(puts.error());
  measured.gets = *gets;
  measured.multi_gets = *multi_gets;
  measured.puts = *puts;
  return measured;
}

// The median of laps, since other programs may disturb some.
template <class RunLap>
double median_ns(RunLap run_lap) {
  std::array<double, 7> laps_ns{};
  for (double& lap_ns : laps_ns) lap_ns = run_lap().ns_per_operation();
  std::ranges::sort(laps_ns);
  return laps_ns[laps_ns.size() / 2];
}

}  // namespace

Result<Measured> measure(bench::Subject& subject, const Packages& packages, double seconds) {
  if (auto started = subject.start(); !started) return std::unexpected(started.error());
  Result<Measured> measured = fail(Errc::unavailable, "measure");
  if (auto session = subject.open(); session) {
    measured = measure_session(subject, **session, packages, seconds);
  } else {
    measured = std::unexpected(session.error());
  }
  subject.stop();  // after its session
  return measured;
}

Result<OneAtATime> measure_one_at_a_time(bench::Session& session, const Packages& packages, double seconds) {
  const auto gets = measure_gets("loch", session, packages, seconds);
  if (!gets) return std::unexpected(gets.error());
  const auto puts = measure_puts(session, packages, seconds);
  if (!puts) return std::unexpected(puts.error());
  return OneAtATime{.gets = *gets, .puts = *puts};
}

Result<MachineFloor> measure_floor(const std::string& folder, std::uint64_t bytes, std::size_t record_bytes,
                                   double seconds) {
  const std::string path = folder + "/floor";
  auto floor = bench::Floor::create(path, bytes, 1);
  ::unlink(path.c_str());
  if (!floor) return std::unexpected(floor.error());
  MachineFloor measured{.bytes = floor->bytes()};
  measured.read_ns = median_ns([&] { return floor->independent_reads(seconds / 14, 1); });
  measured.copy_ns = median_ns([&] { return floor->copies(seconds / 14, 1, record_bytes); });
  return measured;
}

}  // namespace loch::demo
