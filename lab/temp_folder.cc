#include "lab/temp_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace loch::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "loch-lab.";

std::string lock_of(const std::string& home) { return home + "/lock"; }
std::string folder_of(const std::string& home) { return home + "/files"; }

// A lock if nobody else holds it; else none that is open.
base::FileDescriptor take_lock(const std::string& file, int flags) {
  base::FileDescriptor lock(open(file.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (lock.is_open() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return lock;
}

void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const base::FileDescriptor lock = take_lock(lock_of(entry.path().string()), 0);
    if (lock.is_open()) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Result<TempFolder> TempFolder::make(const std::string& given) {
  std::error_code error;
  const fs::path parent = fs::absolute(given, error).lexically_normal();
  if (error) return fail(Errc::io, "folder", fmt::format("{}: {}", given, error.message()));
  remove_abandoned(parent);
  std::string home = parent / fmt::format("{}XXXXXX", prefix);
  if (mkdtemp(home.data()) == nullptr) {
    return fail(Errc::io, "folder",
                fmt::format("make a folder in {}: {}", parent.string(), std::strerror(errno)));
  }
  // Locked before it has its name: somebody else may be looking for what is abandoned.
  const std::string not_yet = lock_of(home) + ".new";
  base::FileDescriptor lock = take_lock(not_yet, O_CREAT);
  const bool is_locked = lock.is_open() && rename(not_yet.c_str(), lock_of(home).c_str()) == 0;
  if (!is_locked || mkdir(folder_of(home).c_str(), 0700) != 0 || chmod(home.c_str(), 0711) != 0) {
    const int number = errno;
    std::error_code ignored;
    fs::remove_all(home, ignored);
    return fail(Errc::io, "folder", fmt::format("make {}: {}", home, std::strerror(number)));
  }
  return TempFolder(std::move(home), std::move(lock));
}

TempFolder::TempFolder(std::string home, base::FileDescriptor lock)
    : home_(std::move(home)), path_(folder_of(home_)), lock_(std::move(lock)), maker_(getpid()) {}

void TempFolder::keep() {
  unlink(lock_of(home_).c_str());
  lock_ = {};
}

TempFolder::~TempFolder() {
  if (!lock_.is_open() || getpid() != maker_) return;
  std::error_code ignored;
  fs::remove_all(home_, ignored);
}

}  // namespace loch::lab
