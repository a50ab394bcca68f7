// bench/libfabric_reads: reads of 8 bytes over TCP as libfabric does them, by its provider "tcp;ofi_rxm", for
// Loch's (raw_reads.h) to be compared with.
//
// libfabric is optional. Each end is a child that loads it by itself: among what it loads are libraries for
// devices, and nothing of theirs is to be in a process that measures something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <loch/error.h>

#include "bench/cores.h"
#include "bench/lap.h"

namespace loch::bench {

struct LibfabricReads {
  std::string host;            // the target's address
  int network_namespace = -1;  // in which the target is; -1: that of the caller
  Cores target_cores = Cores::all;
  double seconds = 1;
  std::size_t outstanding = 1;     // reads at a time
  std::uint64_t region_bytes = 0;  // of the memory that is read, a word or more
};

// Whether libfabric can be had. Errors: not_found, saying what is missing.
Result<void> find_libfabric();

// Reads words of a region at the target from the calling thread's network and cores, and checks each of them.
// For a process of one thread. Errors: not_found as above; io, naming the step that failed; timed_out;
// corrupt when a word is not what it should be.
Result<Lap> run_libfabric_reads(const LibfabricReads& reads);

}  // namespace loch::bench
