// cmd/doctor: memory: the directory of the stores, what is free there, huge pages, and a store that is tried
// out.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cmd/doctor.h"
#include "cmd/units.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // of kernel 6.1; older headers lack it
#endif

namespace loch::cmd {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::size_t huge_page_bytes = 2 * mib;

std::optional<Space> space_of(const std::string& directory) {
  struct statvfs status{};
  if (::statvfs(directory.c_str(), &status) != 0) return std::nullopt;
  return Space{status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize};
}

// A file without a name in the directory; -1 with errno if there can not be one.
int open_nameless(const std::string& directory) {
  return ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

std::string kernel_release() {
  struct utsname system{};
  return ::uname(&system) == 0 ? system.release : "unknown";
}

// The memory limit of this process's control group; nothing if it has none of its own.
std::optional<std::uint64_t> group_limit_bytes() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  std::string path = "/";
  while (std::getline(groups, line)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  for (const std::string& folder : {"/sys/fs/cgroup" + path, std::string("/sys/fs/cgroup")}) {
    const auto limit = first_line(folder + "/memory.max");
    if (limit && *limit != "max") return std::strtoull(limit->c_str(), nullptr, 10);
  }
  return std::nullopt;
}

// Bytes of the mapping at `address` that the kernel holds in huge pages.
std::uint64_t huge_bytes_mapped(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(address));
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    if (line.starts_with(start)) inside = true;
    if (!inside) continue;
    if (line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:")) {
      const std::size_t digits = line.find_first_of("0123456789");
      const std::uint64_t bytes = std::strtoull(line.c_str() + digits, nullptr, 10) * 1024;
      if (bytes > 0) return bytes;
    }
    if (line.starts_with("VmFlags:")) break;
  }
  return 0;
}

// Tries MADV_COLLAPSE on two huge pages of a file mapped at `memory`. Empty if it worked, else why not.
std::string collapse_at(void* memory, std::size_t mapped_bytes, int file) {
  if (::mmap(memory, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    return fmt::format("mmap: {}", std::strerror(errno));
  }
  std::memset(memory, 1, mapped_bytes);
  (void)::madvise(memory, mapped_bytes, MADV_HUGEPAGE);
  if (::madvise(memory, mapped_bytes, MADV_COLLAPSE) != 0) {
    return fmt::format("MADV_COLLAPSE: {}", std::strerror(errno));
  }
  return huge_bytes_mapped(memory) > 0 ? "" : "the kernel left the pages small";
}

// The same on a file in the directory.
std::string try_collapse(const std::string& directory) {
  // A huge page needs an address and an offset in the file that are its multiples: reserve more, use the
  // middle.
  constexpr std::size_t mapped_bytes = 2 * huge_page_bytes;
  constexpr std::size_t reserved_bytes = mapped_bytes + huge_page_bytes;
  const int file = open_nameless(directory);
  if (file < 0) return fmt::format("no file could be made in {}: {}", directory, std::strerror(errno));
  std::string problem;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) {
    problem = fmt::format("mmap: {}", std::strerror(errno));
  } else if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(mapped_bytes)); error != 0) {
    problem = fmt::format("4 MiB could not be had: {}", std::strerror(error));
  } else {
    const auto address = reinterpret_cast<std::uintptr_t>(reserved);
    const std::size_t to_aligned = (huge_page_bytes - address % huge_page_bytes) % huge_page_bytes;
    problem = collapse_at(static_cast<char*>(reserved) + to_aligned, mapped_bytes, file);
  }
  if (reserved != MAP_FAILED) ::munmap(reserved, reserved_bytes);
  ::close(file);
  return problem;
}

// What a process does with a store, on one that is destroyed again. The first error, if any.
Result<void> use_store(const Options& options, const std::string& url) {
  auto store = Store::open(url, options);
  if (!store) return std::unexpected(store.error());
  if (auto put = store->put("key", "value"); !put) return std::unexpected(put.error());
  const auto value = store->get("key");
  if (!value) return std::unexpected(value.error());
  if (*value != "value") return fail(Errc::corrupt, "doctor", "another value was read than was put");
  return store->remove("key");
}

}  // namespace

Finding probe_directory(const std::string& directory) {
  Finding finding{.subject = "directory", .found = directory};
  struct statfs system{};
  if (::statfs(directory.c_str(), &system) != 0) {
    finding.status = Status::fail;
    finding.found += fmt::format(": {}", std::strerror(errno));
    finding.mend = directory == "/dev/shm" ? "mount it: mount -t tmpfs tmpfs /dev/shm"
                                           : "create it, or name another by --directory";
    return finding;
  }
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    finding.status = Status::fail;
    finding.found += fmt::format(": {}", std::strerror(errno));
    finding.mend = fmt::format("chmod 1777 {} (or a directory of your own by --directory)", directory);
    return finding;
  }
  const auto type = static_cast<std::uint64_t>(system.f_type);
  if (type == TMPFS_MAGIC) {
    finding.found += ": tmpfs, writable";
  } else if (type == RAMFS_MAGIC || type == HUGETLBFS_MAGIC) {
    finding.found += ": in memory, writable";
  } else {
    finding.status = Status::warn;
    finding.found +=
        ": writable, but not a file system of memory; the kernel writes the store back to its disk";
    finding.mend = "use /dev/shm or another tmpfs";
  }
  return finding;
}

Finding probe_space(const std::string& directory) {
  const auto space = space_of(directory);
  if (space) return judge_space(directory, *space);
  return {.subject = "space",
          .status = Status::fail,
          .found = fmt::format("unknown: {}", std::strerror(errno)),
          .mend = "see 'directory'"};
}

Finding probe_stores(const Options& options) {
  Finding finding{.subject = "stores"};
  const auto names = Store::list(options);
  if (!names) {
    finding.status = Status::warn;
    finding.found = fmt::format("cannot list them: {}", names.error().message());
    finding.mend = "see 'directory'";
    return finding;
  }
  Options attach = options;
  attach.mode = Options::Mode::attach;
  std::uint64_t bytes = 0;
  std::size_t lent = 0;
  std::vector<std::pair<std::string, Error>> closed;
  for (const std::string& each : *names) {
    auto store = Store::open("shm://" + each, attach);
    auto info = store ? store->info() : Result<Info>(std::unexpected(store.error()));
    if (info) {
      bytes += info->data_bytes + info->index_bytes + info->control_bytes;
    } else if (is_lent_alone(info.error())) {
      ++lent;
    } else {
      closed.emplace_back(each, info.error());
    }
  }
  finding.found = fmt::format("{} take {}", names->size() - lent - closed.size(), human_bytes(bytes));
  if (lent > 0) finding.found += fmt::format("; {} for clients of lochd alone", lent);
  if (!closed.empty()) {
    const auto damaged =
        std::ranges::find_if(closed, [](const auto& each) { return is_damage(each.second); });
    const auto& [name, why] = damaged != closed.end() ? *damaged : closed.front();
    finding.status = Status::warn;
    finding.found += fmt::format("; cannot be opened: {} ({})", name, loch::name(why.code));
    if (closed.size() > 1) finding.found += fmt::format(" and {} more", closed.size() - 1);
    finding.mend = mend_near_store(name, why);
  }
  return finding;
}

Finding probe_memory(const std::string& directory) {
  const auto available = field_of("/proc/meminfo", "MemAvailable");
  const auto space = space_of(directory);
  if (available && space) return judge_memory(directory, *space, *available, group_limit_bytes());
  return {.subject = "memory",
          .status = Status::warn,
          .found = "unknown: /proc/meminfo or the directory cannot be read",
          .mend = "mount /proc"};
}

Finding probe_swap() { return judge_swap(field_of("/proc/meminfo", "SwapTotal").value_or(0)); }

Finding probe_huge_pages(const std::string& directory) {
  return judge_huge_pages(kernel_release(), first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
                          try_collapse(directory));
}

Finding probe_round_trip(const Options& options) {
  Finding finding{.subject = "try-out"};
  if (options.read_only) {
    finding.found = "not tried: --read-only";
    return finding;
  }
  const std::string url = fmt::format("shm://loch-doctor-{}", ::getpid());
  Options create = options;
  create.mode = Options::Mode::create;
  const auto used = use_store(create, url);
  const auto destroyed = Store::destroy(url, options);
  if (used && destroyed) {
    finding.found = "a store was made, written, read and destroyed";
    return finding;
  }
  finding.status = Status::fail;
  finding.found = used ? destroyed.error().message() : used.error().message();
  finding.mend = "fix what else is FAIL here; else report this line";
  return finding;
}

}  // namespace loch::cmd
