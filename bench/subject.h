// bench/subject: what is measured: Loch or one of its peers, behind one small interface, so that every driver
// treats all of them alike.
//
// A Subject is made before the workers are forked and holds no connection. The process that runs the
// benchmark starts and stops it; a worker opens a Session of its own. A Session belongs to one thread, and
// ends before its subject stops.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include <loch/error.h>
#include <loch/loch.h>

#include "bench/dataset.h"
#include "bench/histogram.h"
#include "bench/lap.h"
#include "bench/place.h"

namespace loch::bench {

struct MemoryUse {
  std::uint64_t held_bytes = 0;  // what the machine has given: files in memory, or a server's resident set
  std::uint64_t used_bytes = 0;  // what the subject itself counts as in use, its index included
  std::uint64_t huge_bytes = 0;  // of what is held, mapped in pages of 2 MiB (where that is known)
  std::uint64_t raw_bytes = 0;   // of what is held, what raw reads are of
};

class Session {
 public:
  virtual ~Session() = default;

  // One key, one answer. Errors: not_found, and what the subject reports.
  virtual Result<void> get(std::string_view key, std::string& into) = 0;
  // The same of several, one after the other, by calls of the subject and nothing else between them; up to
  // the first that fails, whose error stands in its element.
  virtual void get_each(std::span<Lookup> lookups);
  virtual Result<void> put(std::string_view key, std::string_view value) = 0;

  // Many keys at once, in the best way that the subject offers; each result stands in its element.
  virtual void multi_get(std::span<Lookup> lookups) = 0;
  virtual void multi_put(std::span<Assignment> assignments) = 0;

  virtual Result<MemoryUse> memory() = 0;

  // Beneath keys and values: reads of 8 bytes of the server's memory, `outstanding` at a time; a subject that
  // has no such thing refuses. One at a time, each is recorded in `latencies`.
  virtual Result<Lap> raw_reads(double /*seconds*/, std::size_t /*outstanding*/, Histogram& /*latencies*/) {
    return fail(Errc::invalid_argument, "bench", "this subject has no raw reads");
  }
};

// Session::get_each for a session whose class is known here.
template <class Known>
void get_one_by_one(Known& session, std::span<Lookup> lookups) {
  for (Lookup& lookup : lookups) {
    if (auto got = session.get(lookup.key, lookup.value); !got) [[unlikely]] {
      lookup.result = std::move(got);
      return;
    }
  }
}
inline void Session::get_each(std::span<Lookup> lookups) { get_one_by_one(*this, lookups); }

// What multi_get and multi_put do: "pipeline of 64".
struct Batches {
  std::string_view gets;
  std::string_view puts;
};

class Subject {
 public:
  virtual ~Subject() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual Batches batches() const = 0;
  [[nodiscard]] virtual std::size_t batch() const = 0;  // keys of one multi_get that is measured
  [[nodiscard]] virtual const Dataset& dataset() const = 0;

  virtual Result<void> start() = 0;
  virtual Result<std::unique_ptr<Session>> open() = 0;
  // A shorter way to put all items, before anything is measured; none unless there is one.
  virtual Result<std::unique_ptr<Session>> open_to_load() { return nullptr; }
  virtual void stop() noexcept = 0;  // may be called without a start, and twice

  // The process id of a subject's server while it runs, 0 when there is none.
  [[nodiscard]] virtual pid_t server() const { return 0; }
};

// Errors: invalid_argument when the data set is not for this subject, not_found when its server is not
// installed.
Result<std::unique_ptr<Subject>> make_loch(Place place, const Dataset& dataset);
// A session of a store that is there.
Result<std::unique_ptr<Session>> open_loch(const std::string& url, const Options& options);
Result<std::unique_ptr<Subject>> make_lmdb(Place place, const Dataset& dataset);
Result<std::unique_ptr<Subject>> make_redis(Place place, const Dataset& dataset);
Result<std::unique_ptr<Subject>> make_memcached(Place place, const Dataset& dataset);

}  // namespace loch::bench
