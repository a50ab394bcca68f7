// bench/cores: which processors a process runs on.
#pragma once

#include <cstdint>
#include <sched.h>
#include <string_view>
#include <sys/types.h>

namespace loch::bench {

// Of those that the benchmark may use.
enum class Cores : std::uint8_t {
  all,
  first,
  second,  // none of the first one's core, if there is one; else another one; else the first
};

// The processors of `allowed` that are wanted. `siblings` are the hardware threads of its first one's core.
cpu_set_t choose(const cpu_set_t& allowed, const cpu_set_t& siblings, Cores wanted);
// As the kernel lists processors: "0-3,8".
cpu_set_t parse_processors(std::string_view text);
// Whether `first` and `second` share a core, and so its parts.
[[nodiscard]] bool cores_are_siblings();

// Keeps all threads of a process (0: this one) on these cores. Best effort: where the kernel refuses, they
// run where they did.
void confine(pid_t process, Cores wanted);

}  // namespace loch::bench
