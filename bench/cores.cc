#include "bench/cores.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <sched.h>
#include <string>
#include <system_error>
#include <unistd.h>

namespace loch::bench {
namespace {

// As they were when the benchmark started.
const cpu_set_t& allowed_cores() {
  static const cpu_set_t cores = [] {
    cpu_set_t found;
    CPU_ZERO(&found);
    sched_getaffinity(0, sizeof found, &found);
    return found;
  }();
  return cores;
}

// The first call has to come before any process is confined.
[[maybe_unused]] const cpu_set_t& at_start = allowed_cores();

}  // namespace

void confine(pid_t process, Cores wanted) {
  cpu_set_t cores = allowed_cores();
  if (wanted != Cores::all) {
    int skipped = wanted == Cores::second && CPU_COUNT(&cores) > 1 ? 1 : 0;
    int core = 0;
    while (core < CPU_SETSIZE - 1 && (!CPU_ISSET(core, &cores) || skipped-- > 0)) ++core;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
  }
  const std::string threads = fmt::format("/proc/{}/task", process == 0 ? getpid() : process);
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(threads, ignored)) {
    sched_setaffinity(static_cast<pid_t>(std::atoi(thread.path().filename().c_str())), sizeof cores, &cores);
  }
}

}  // namespace loch::bench
