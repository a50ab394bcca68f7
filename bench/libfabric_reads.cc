#include "bench/libfabric_reads.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sched.h>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "bench/child.h"
#include "bench/clock.h"
#include "bench/libfabric_end.h"

namespace loch::bench {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);
constexpr std::uint64_t timeout_ns = 10 * base::second_ns;  // of a read, and of all that comes before

// What an end tells the process that made it.
struct News {
  LibfabricEnd::Address target{};
  Lap lap{};
};
using End = Child<News>;

std::unexpected<Error> system_failure(const char* step) {
  return fail(Errc::io, "bench", fmt::format("libfabric: {}: {}", step, std::strerror(errno)));
}

// Each word holds its place, so the reader knows what it has to get. Both ends look again and again, and let
// others run between two looks, as the ends of Loch's connections do.
Result<void> serve(const LibfabricReads& reads, const End::Tell& tell) {
  if (reads.network_namespace >= 0 && ::setns(reads.network_namespace, CLONE_NEWNET) != 0)
    return system_failure("setns");
  confine(0, reads.target_cores);
  std::vector<std::uint64_t> words(reads.region_bytes / word_bytes);
  for (std::size_t place = 0; place < words.size(); ++place) words[place] = place;
  auto end = LibfabricEnd::open(LibfabricEnd::Side::target, reads.host, reads.outstanding);
  if (!end) return std::unexpected(std::move(end.error()));
  if (auto lent = end->lend(words); !lent) return lent;
  const auto address = end->address();
  if (!address) return std::unexpected(address.error());
  tell({.target = *address});
  const auto served_ns = static_cast<std::uint64_t>(reads.seconds * 1e9) + 2 * timeout_ns;
  for (const std::uint64_t end_ns = now_ns() + served_ns; now_ns() < end_ns;) {
    if (auto looked = end->poll(); !looked) return std::unexpected(std::move(looked.error()));
    ::sched_yield();
  }
  return {};
}

// A read that is posted again as soon as it has completed.
struct Read {
  std::uint64_t place = 0;
  std::uint64_t word = 0;
};

class Reader {
 public:
  // Reads `reads` at a time, which outlive the end.
  Reader(LibfabricEnd& end, std::uint64_t words, std::span<Read> reads)
      : end_(end), words_(words), reads_(reads), random_(reads.size()) {}

  // The first read also connects, so it is no part of any measurement.
  Result<Lap> run(double seconds) {
    idle_ = {&reads_.front()};
    if (auto connected = lap(0); !connected) return connected;
    idle_.clear();
    for (Read& read : reads_) idle_.push_back(&read);
    return lap(seconds);
  }

 private:
  // Posts those that are idle again and again for so long, at least once, and waits for the last.
  Result<Lap> lap(double seconds) {
    const auto wanted_ns = static_cast<std::uint64_t>(seconds * 1e9);
    const std::uint64_t start_ns = now_ns();
    std::uint64_t last_ns = start_ns;
    std::size_t posted = 0;
    Lap lap;
    for (bool is_over = false; posted != 0 || !is_over;) {
      if (!is_over) {
        const auto more = post();
        if (!more) return std::unexpected(more.error());
        posted += *more;
      }
      const auto done = take();
      if (!done) return std::unexpected(done.error());
      posted -= *done;
      lap.operations += *done;
      const std::uint64_t now = now_ns();
      if (*done != 0) last_ns = now;
      if (*done == 0) ::sched_yield();
      if (now - last_ns > timeout_ns)
        return fail(Errc::timed_out, "bench", "libfabric: a read is not answered");
      is_over = lap.operations != 0 && now - start_ns >= wanted_ns;
    }
    lap.elapsed_ns = last_ns - start_ns;
    return lap;
  }

  // As many as libfabric takes now.
  Result<std::size_t> post() {
    std::size_t posted = 0;
    for (; !idle_.empty(); ++posted) {
      Read& read = *idle_.back();
      read.place = random_.below(words_);
      read.word = ~read.place;
      const auto taken = end_.read(read.place * word_bytes, read.word, &read);
      if (!taken) return std::unexpected(taken.error());
      if (!*taken) break;
      idle_.pop_back();
    }
    return posted;
  }

  Result<std::size_t> take() {
    const auto completed = end_.poll();
    if (!completed) return std::unexpected(completed.error());
    for (const fi_cq_entry& entry : *completed) {
      auto* const read = static_cast<Read*>(entry.op_context);
      if (read->word != read->place)
        return fail(Errc::corrupt, "bench", "libfabric: a word is not what was put");
      idle_.push_back(read);
    }
    return completed->size();
  }

  LibfabricEnd& end_;
  std::uint64_t words_;
  std::span<Read> reads_;
  std::vector<Read*> idle_;
  base::Random random_;
};

Result<void> read(const LibfabricReads& reads, const LibfabricEnd::Address& target, const End::Tell& tell) {
  std::vector<Read> posted(reads.outstanding);
  auto end = LibfabricEnd::open(LibfabricEnd::Side::reader, reads.host, reads.outstanding);
  if (!end) return std::unexpected(std::move(end.error()));
  if (auto known = end->read_from(target); !known) return known;
  const auto lap = Reader(*end, reads.region_bytes / word_bytes, posted).run(reads.seconds);
  if (!lap) return std::unexpected(lap.error());
  tell({.lap = *lap});
  return {};
}

}  // namespace

Result<void> find_libfabric() {
  const auto child = End::start("libfabric", [](const End::Tell& tell) -> Result<void> {
    if (const auto calls = LibfabricCalls::load(); !calls) return std::unexpected(calls.error());
    tell({});
    return {};
  });
  if (!child) return std::unexpected(child.error());
  if (const auto heard = child->hear(timeout_ns); !heard) return std::unexpected(heard.error());
  return {};
}

Result<Lap> run_libfabric_reads(const LibfabricReads& reads) {
  const auto target = End::start("libfabric", [&](const End::Tell& tell) { return serve(reads, tell); });
  if (!target) return std::unexpected(target.error());
  const auto lent = target->hear(timeout_ns);
  if (!lent) return std::unexpected(lent.error());
  const auto reader =
      End::start("libfabric", [&](const End::Tell& tell) { return read(reads, lent->target, tell); });
  if (!reader) return std::unexpected(reader.error());
  const auto heard = reader->hear(static_cast<std::uint64_t>(reads.seconds * 1e9) + 3 * timeout_ns);
  if (!heard) return std::unexpected(heard.error());
  return heard->lap;
}

}  // namespace loch::bench
