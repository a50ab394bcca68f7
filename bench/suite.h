// bench/suite: which measurements a run takes, and which targets they have to meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <loch/error.h>

#include "bench/bench.h"

namespace loch::bench {

// The suite that the settings name; its figures go to the bench's report. Errors: of the first measurement
// that failed.
Result<void> run_suite(Bench& bench);

// The sections of the standard suite, in this order: all but the first need the first, and the peers' YCSB
// figures are compared with Loch's.
Result<void> run_loch(Bench& bench);       // loading, the floor, one process of Loch, memory
Result<void> run_large(Bench& bench);      // large values against a copy
Result<void> run_idle(Bench& bench);       // a store that is open and not used
Result<void> run_simulator(Bench& bench);  // the simulator's rate
Result<void> run_processes(Bench& bench);  // several processes against one
Result<void> run_ycsb(Bench& bench);
Result<void> run_peers(Bench& bench);    // each peer against Loch, its memory and its YCSB figures
Result<void> run_network(Bench& bench);  // Loch and the peers that have a server, over TCP

// What the section "network" measures: each subject that has a server, with two data sets.
inline constexpr std::uint64_t network_large_value_bytes = 16 << 10;
std::uint64_t network_large_items(const Settings& settings);
std::string over_tcp(std::string_view subject, bool large);  // its name in the list of subjects

// The large values of each peer that has any, beside Loch's, which are loaded.
Result<void> compare_large(Bench& bench, std::uint32_t loch);
std::string large_size_text(const Settings& settings);  // of a large value: "128 KiB"

// Throughput of one mix on one subject, and latencies if they are asked for, as a figure of the section
// "ycsb"; with how it compares to Loch's, if that was measured before.
Result<void> run_mix(Bench& bench, std::uint32_t subject, const Mix& mix, std::uint32_t processes,
                     bool latencies);

// How many times the time of the floor's independent reads `ns` is, with as many processes. None if the floor
// of as many was not measured: that of several is of the section "processes".
std::optional<double> over_floor(const Report& report, double ns, std::uint32_t processes);

// Adds the figures of a subject's memory for `items` items.
void report_memory(Bench& bench, std::string_view subject, std::uint64_t items, const MemoryUse& memory);

}  // namespace loch::bench
