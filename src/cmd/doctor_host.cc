// cmd/doctor: the processor, the clock, the limits of this process, and how this program was built.
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include <loch/devices.h>

#include "cmd/doctor.h"

namespace loch::cmd {
namespace {

// The words after "flags" (x86) or "Features" (arm) of the first processor.
std::set<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return flags;
  }
  return {};
}

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown model";
}

// Nothing where there is no limit.
std::optional<std::uint64_t> limit_of(__rlimit_resource resource) {
  struct rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

bool has_rdma_device() { return ::access("/sys/class/infiniband", F_OK) == 0; }

double clock_read_ns() {
  constexpr int reads = 10'000;
  const auto start = std::chrono::steady_clock::now();
  auto end = start;
  for (int i = 0; i < reads; ++i) end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count() / reads;
}

}  // namespace

Finding probe_processor() {
  return judge_processor(processor_model(), ::sysconf(_SC_NPROCESSORS_ONLN), processor_flags());
}

Finding probe_clock_source() {
  return judge_clock_source(first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
                            clock_read_ns());
}

Finding probe_locked_memory() { return judge_locked_memory(lockable_bytes(), has_rdma_device()); }

Finding probe_open_files() { return judge_open_files(limit_of(RLIMIT_NOFILE)); }

Finding probe_address_space() {
  return judge_address_space(limit_of(RLIMIT_AS), first_line("/proc/sys/vm/overcommit_memory"));
}

Finding probe_file_size() { return judge_file_size(limit_of(RLIMIT_FSIZE)); }

Finding probe_build() {
  Finding finding{.subject = "build"};
  constexpr std::string_view sanitizers = LOCH_SANITIZERS;
  finding.found = fmt::format("loch {}, clang {}, {}", LOCH_VERSION, __clang_version__, LOCH_BUILD_TYPE);
  std::string slow;
#if !defined(__OPTIMIZE__)
  slow += " not optimized";
#endif
#if defined(LOCH_FAULT_POINTS)
  slow += " fault points";
#endif
  if (!sanitizers.empty()) slow += " sanitizers";
  if (!slow.empty()) {
    finding.status = Status::warn;
    finding.found += fmt::format(";{}: for tests, not for measuring", slow);
    finding.mend = "cmake --preset release && cmake --build --preset release";
  }
  return finding;
}

}  // namespace loch::cmd
