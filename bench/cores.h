// bench/cores: which processors a process runs on.
#pragma once

#include <sys/types.h>

namespace loch::bench {

// Keeps all threads of a process (0: this one) on one core, the first that the benchmark may use, or lets
// them run on every core that it may use. Best effort: where the kernel refuses, they run where they did.
void confine(pid_t process, bool to_one_core);

}  // namespace loch::bench
