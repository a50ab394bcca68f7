#include "bench/machine.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace loch::bench {
namespace {

#ifndef LOCH_VERSION
#define LOCH_VERSION "unknown"
#endif
#ifndef LOCH_COMMIT
#define LOCH_COMMIT ""
#endif
#ifndef LOCH_BUILD_TYPE
#define LOCH_BUILD_TYPE "unknown"
#endif

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The text after the colon of the first line that starts with `name`.
std::string field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto text = line.find_first_not_of(" \t", line.find(':') + 1);
    return text == std::string::npos ? "" : line.substr(text);
  }
  return "";
}

// The choice in "always [madvise] never".
std::string chosen(const char* path) {
  const std::string line = first_line(path);
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return "not offered";
  return line.substr(begin + 1, end - begin - 1);
}

}  // namespace

Machine describe_machine(const std::string& folder) {
  Machine machine;
  machine.processor = field("/proc/cpuinfo", "model name");
  if (machine.processor.empty()) machine.processor = "unknown processor";
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0)
    machine.cores = static_cast<std::uint32_t>(CPU_COUNT(&cores));
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) {
    machine.cache_bytes = static_cast<std::uint64_t>(bytes);
  }
  machine.memory_bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  struct statvfs system{};
  if (statvfs(folder.c_str(), &system) == 0) machine.shared_bytes = system.f_bavail * system.f_frsize;
  utsname names{};
  if (uname(&names) == 0) machine.kernel = fmt::format("{} {}", names.sysname, names.release);
  machine.huge_pages = chosen("/sys/kernel/mm/transparent_hugepage/enabled");
  machine.huge_pages_shared = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::string load = first_line("/proc/loadavg");
  machine.load = load.substr(0, load.find(' ', load.find(' ', load.find(' ') + 1) + 1));
  return machine;
}

std::string describe_build() {
  const char* const given = std::getenv("LOCH_COMMIT");
  const std::string commit = given != nullptr && *given != '\0' ? given : LOCH_COMMIT;
  return fmt::format("{} (commit {}, {})", LOCH_VERSION, commit.empty() ? "unknown" : commit,
                     LOCH_BUILD_TYPE);
}

bool built_for_speed() {
#if defined(__OPTIMIZE__) && !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  return true;
#else
  return false;
#endif
}

}  // namespace loch::bench
