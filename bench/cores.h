// bench/cores: which processors a process runs on.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace loch::bench {

// Of those that the benchmark may use.
enum class Cores : std::uint8_t {
  all,
  first,
  second,  // the first if there is no other
};

// Keeps all threads of a process (0: this one) on these cores. Best effort: where the kernel refuses, they
// run where they did.
void confine(pid_t process, Cores wanted);

}  // namespace loch::bench
