// bench/machine: what a benchmark ran on, as its header shows it.
#pragma once

#include <cstdint>
#include <string>

#include <loch/error.h>

namespace loch::bench {

struct Machine {
  std::string processor;           // "Intel(R) Xeon(R) Processor"
  std::uint32_t cores = 0;         // that this process may run on
  std::uint64_t cache_bytes = 0;   // of the last level; 0: not known
  std::uint64_t memory_bytes = 0;  // of the machine
  std::uint64_t shared_bytes = 0;  // free in the folder of the stores
  std::string kernel;              // "Linux 6.1.0"
  std::string huge_pages;          // the kernel's setting for anonymous memory: "madvise"
  std::string huge_pages_shared;   // and for files in memory: "never"
  std::string load;  // averages of the run queue over 1, 5 and 15 minutes, before the run and after
};

Machine describe_machine(const std::string& folder);

// What was built: "0.1.0 (commit 1a2b3c4, Release)". The environment's LOCH_COMMIT goes before the one of the
// build.
std::string describe_build();
[[nodiscard]] bool built_for_speed();  // false with sanitizers or without optimization

}  // namespace loch::bench
