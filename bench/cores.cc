#include "bench/cores.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sched.h>
#include <sstream>
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

int first_of(const cpu_set_t& cores) {
  int core = 0;
  while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &cores)) ++core;
  return core;
}

cpu_set_t only(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return cores;
}

// Of the first one's core. Empty where the kernel does not tell.
cpu_set_t siblings_of_first() {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", first_of(allowed_cores())));
  std::string line;
  std::getline(file, line);
  return parse_processors(line);
}

}  // namespace

cpu_set_t choose(const cpu_set_t& allowed, const cpu_set_t& siblings, Cores wanted) {
  if (wanted == Cores::all) return allowed;
  const int first = first_of(allowed);
  if (wanted == Cores::first) return only(first);
  cpu_set_t others = allowed;
  CPU_CLR(first, &others);
  cpu_set_t apart = others;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &siblings)) CPU_CLR(core, &apart);
  }
  if (CPU_COUNT(&apart) != 0) return only(first_of(apart));
  return only(CPU_COUNT(&others) != 0 ? first_of(others) : first);
}

cpu_set_t parse_processors(std::string_view text) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::istringstream ranges{std::string(text)};
  for (std::string range; std::getline(ranges, range, ',');) {
    int from = -1;
    int to = -1;
    const int read = std::sscanf(range.c_str(), "%d-%d", &from, &to);
    if (read == 1) to = from;
    for (int core = from; read >= 1 && core >= 0 && core <= to && core < CPU_SETSIZE; ++core)
      CPU_SET(core, &cores);
  }
  return cores;
}

bool cores_are_siblings() {
  const cpu_set_t siblings = siblings_of_first();
  const cpu_set_t second = choose(allowed_cores(), siblings, Cores::second);
  const int core = first_of(second);
  return core != first_of(allowed_cores()) && CPU_ISSET(core, &siblings);
}

void confine(pid_t process, Cores wanted) {
  static const cpu_set_t siblings = siblings_of_first();
  const cpu_set_t cores = choose(allowed_cores(), siblings, wanted);
  const std::string threads = fmt::format("/proc/{}/task", process == 0 ? getpid() : process);
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(threads, ignored)) {
    sched_setaffinity(static_cast<pid_t>(std::atoi(thread.path().filename().c_str())), sizeof cores, &cores);
  }
}

}  // namespace loch::bench
