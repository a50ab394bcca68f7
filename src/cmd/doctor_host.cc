// cmd/doctor: the processor, the clock, the limits of this process, and how this program was built.
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/doctor.h"
#include "cmd/units.h"

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

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : human_bytes(static_cast<std::uint64_t>(limit));
}

rlim_t limit_of(__rlimit_resource resource) {
  struct rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
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
  Finding finding{.subject = "processor"};
  const auto flags = processor_flags();
  finding.found = fmt::format("{}, {} online", processor_model(), ::sysconf(_SC_NPROCESSORS_ONLN));
  if (!flags.contains("sse4_2")) {
    finding.status = Status::fail;
    finding.found += "; no SSE 4.2, whose CRC32C Loch sums items up with";
    finding.mend =
        "in a virtual machine pass the host's processor through (-cpu host); else use another host";
    return finding;
  }
  std::string missing;
  for (const char* flag : {"constant_tsc", "nonstop_tsc"}) {
    if (!flags.contains(flag)) missing += fmt::format("{}{}", missing.empty() ? "" : " ", flag);
  }
  if (missing.empty()) {
    finding.found += "; SSE 4.2 and a constant clock";
  } else {
    finding.status = Status::warn;
    finding.found += fmt::format("; missing: {}", missing);
    finding.mend =
        "in a virtual machine pass the host's processor through (-cpu host); else waiting for other hosts "
        "costs more";
  }
  return finding;
}

Finding probe_clock_source() {
  Finding finding{.subject = "clock"};
  const auto source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const double read_ns = clock_read_ns();
  finding.found = fmt::format("{}, {:.0f} ns a reading", source.value_or("unknown source"), read_ns);
  if (read_ns > 300) {
    finding.status = Status::warn;
    finding.mend =
        "waiting for other hosts costs more: use tsc or the hypervisor's own clock: echo tsc > "
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  }
  return finding;
}

Finding probe_locked_memory() {
  Finding finding{.subject = "locked memory"};
  const rlim_t limit = limit_of(RLIMIT_MEMLOCK);
  finding.found = limit_text(limit);
  if (!has_rdma_device()) {
    finding.found += "; enough, as only RDMA devices need it and there is none";
  } else if (limit != RLIM_INFINITY) {
    finding.status = Status::warn;
    finding.found += "; an RDMA device locks all memory that it serves";
    finding.mend =
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf, or LimitMEMLOCK=infinity of the unit";
  }
  return finding;
}

Finding probe_open_files() {
  Finding finding{.subject = "open files"};
  const rlim_t limit = limit_of(RLIMIT_NOFILE);
  finding.found = limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
  if (limit != RLIM_INFINITY && limit < 256) {
    finding.status = Status::warn;
    finding.found += "; a store takes a few each";
    finding.mend = "ulimit -n 1024, or LimitNOFILE=1024 of the unit";
  }
  return finding;
}

Finding probe_address_space() {
  Finding finding{.subject = "address space"};
  const rlim_t limit = limit_of(RLIMIT_AS);
  const auto overcommit = first_line("/proc/sys/vm/overcommit_memory");
  finding.found = fmt::format("{}, overcommit_memory {}", limit_text(limit), overcommit.value_or("unknown"));
  if (limit != RLIM_INFINITY) {
    finding.status = Status::warn;
    finding.found += "; a store reserves more addresses than it uses";
    finding.mend = "ulimit -v unlimited, or LimitAS=infinity of the unit";
  }
  return finding;
}

Finding probe_file_size() {
  Finding finding{.subject = "file size"};
  const rlim_t limit = limit_of(RLIMIT_FSIZE);
  finding.found = limit_text(limit);
  if (limit != RLIM_INFINITY) {
    finding.status = Status::warn;
    finding.found += "; a store whose files reach it can not grow, and the process may get SIGXFSZ";
    finding.mend = "ulimit -f unlimited, or LimitFSIZE=infinity of the unit";
  }
  return finding;
}

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
