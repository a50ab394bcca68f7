#include "bench/temp_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace loch::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "loch-bench.";
constexpr const char* lock_name = "lock";

// The lock of a folder if nobody else holds it; else none that is open.
base::FileDescriptor take_lock(const std::string& folder, int flags) {
  base::FileDescriptor lock(open((folder + "/" + lock_name).c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (lock.is_open() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return lock;
}

void remove_abandoned(const std::string& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const base::FileDescriptor lock = take_lock(entry.path().string(), 0);
    if (lock.is_open()) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Result<TempFolder> TempFolder::make(const std::string& parent) {
  remove_abandoned(parent);
  std::string path = fmt::format("{}/{}XXXXXX", parent, prefix);
  if (mkdtemp(path.data()) == nullptr) {
    return fail(Errc::io, "bench", fmt::format("make a folder in {}: {}", parent, std::strerror(errno)));
  }
  base::FileDescriptor lock = take_lock(path, O_CREAT);
  if (!lock.is_open()) {
    const int number = errno;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    return fail(Errc::io, "bench", fmt::format("lock {}: {}", path, std::strerror(number)));
  }
  return TempFolder(std::move(path), std::move(lock));
}

TempFolder::TempFolder(std::string path, base::FileDescriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)), maker_(getpid()) {}

TempFolder::~TempFolder() {
  if (!lock_.is_open() || getpid() != maker_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace loch::bench
