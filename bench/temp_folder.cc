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

// The lock of a folder if nobody else holds it, or -1.
int take_lock(const std::string& folder, int flags) {
  const int lock = open((folder + "/" + lock_name).c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  if (lock < 0) return -1;
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  close(lock);
  return -1;
}

void remove_abandoned(const std::string& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const int lock = take_lock(entry.path().string(), 0);
    if (lock < 0) continue;
    fs::remove_all(entry.path(), ignored);
    close(lock);
  }
}

}  // namespace

Result<TempFolder> TempFolder::make(const std::string& parent) {
  remove_abandoned(parent);
  std::string path = fmt::format("{}/{}XXXXXX", parent, prefix);
  if (mkdtemp(path.data()) == nullptr) {
    return fail(Errc::io, "bench", fmt::format("make a folder in {}: {}", parent, std::strerror(errno)));
  }
  const int lock = take_lock(path, O_CREAT);
  if (lock < 0) {
    const int number = errno;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    return fail(Errc::io, "bench", fmt::format("lock {}: {}", path, std::strerror(number)));
  }
  return TempFolder(std::move(path), lock);
}

TempFolder::TempFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock), maker_(getpid()) {}

TempFolder::TempFolder(TempFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)), maker_(other.maker_) {}

TempFolder::~TempFolder() {
  if (lock_ < 0 || getpid() != maker_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace loch::bench
