// demo/measure: one process alone on the loaded records: Loch and, where they are installed, its peers, all
// through bench/subject, on the same keys and values; and the machine's floor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <loch/loch.h>

#include "bench/floor.h"
#include "bench/histogram.h"
#include "bench/subject.h"
#include "demo/packages.h"

namespace loch::demo {

struct Measured {
  std::string subject;            // "loch", "redis"
  bench::Histogram gets{};        // one at a time
  bench::Histogram multi_gets{};  // a key's share of a call
  bench::Histogram puts{};        // of keys that are there
  std::string batch{};            // "16 keys"
  double overhead_bytes = 0;      // of memory in use, an item, above its key and value
};

// Starts a subject, loads all records into it, reads and writes random records for `seconds` each way, and
// checks every value that is read. Errors: what the subject reports; corrupt if a value is not its source.
Result<Measured> measure(bench::Subject& subject, const Packages& packages, double seconds);

// The same of a store that is loaded already, without batches.
struct OneAtATime {
  bench::Histogram gets{};
  bench::Histogram puts{};
};
Result<OneAtATime> measure_one_at_a_time(bench::Session& session, const Packages& packages, double seconds);

// Medians: what one access to the machine's memory takes, over as much memory as the store has.
struct MachineFloor {
  double read_ns = 0;       // an independent random read of 64 bytes
  double copy_ns = 0;       // a copy of as many bytes as an average record has, from a random place
  std::uint64_t bytes = 0;  // of the memory that was read
};
Result<MachineFloor> measure_floor(const std::string& folder, std::uint64_t bytes, std::size_t record_bytes,
                                   double seconds);

}  // namespace loch::demo
