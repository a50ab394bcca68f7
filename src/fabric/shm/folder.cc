#include "fabric/shm/folder.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include "base/random.h"

namespace loch::fabric::shm {
namespace {

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Of the directory that has this name in the one that is open; `path` is for the error.
Result<std::vector<std::string>> names_at(int directory, const char* name, const std::string& path,
                                          const char* operation) {
  struct Closes {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const int descriptor = ::openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, Closes> open(descriptor < 0 ? nullptr : ::fdopendir(descriptor));
  if (open == nullptr) return system_error(operation, errno, path);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view found = entry->d_name;
    if (found != "." && found != "..") names.emplace_back(found);
  }
  return names;
}

}  // namespace

Result<Folder> Folder::open(std::string path, const char* operation) {
  FileDescriptor descriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!descriptor.is_open()) return system_error(operation, errno, path);
  return Folder(std::move(path), std::move(descriptor));
}

bool Folder::is_at_path() const {
  struct stat ours{};
  struct stat found{};
  return ::fstat(descriptor_.get(), &ours) == 0 && ::lstat(path_.c_str(), &found) == 0 &&
         is_same(ours, found);
}

bool Folder::has(const std::string& file) const {
  struct stat found{};
  return ::fstatat(descriptor_.get(), file.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Folder::may_have(const std::string& file) const { return has(file) || errno == EACCES; }

Result<struct stat> Folder::status(const char* operation) const {
  struct stat found{};
  if (::fstat(descriptor_.get(), &found) != 0) return system_error(operation, errno, path_);
  return found;
}

Result<FileDescriptor> Folder::open_file(const std::string& file, const char* operation) const {
  // Not to wait for the other end, if somebody has put a pipe there.
  constexpr int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  FileDescriptor descriptor(::openat(descriptor_.get(), file.c_str(), flags));
  if (!descriptor.is_open()) return system_error(operation, errno, path_of(file));
  struct stat found{};
  if (::fstat(descriptor.get(), &found) != 0) return system_error(operation, errno, path_of(file));
  if (!S_ISREG(found.st_mode))
    return fail(Errc::incompatible, operation, fmt::format("{} is no plain file", path_of(file)));
  return descriptor;
}

Result<FileDescriptor> Folder::create_file(const std::string& file, mode_t mode, gid_t group,
                                           const char* operation) const {
  FileDescriptor descriptor(
      ::openat(descriptor_.get(), file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!descriptor.is_open() ||
      (group != no_group && ::fchown(descriptor.get(), static_cast<uid_t>(-1), group) != 0) ||
      ::fchmod(descriptor.get(), mode) != 0) {
    return system_error(operation, errno, path_of(file));
  }
  return descriptor;
}

Result<FileDescriptor> Folder::add_file(const std::string& file, mode_t mode, gid_t group,
                                        const char* operation) const {
  if (has(file)) return open_file(file, operation);
  const std::string unnamed = fmt::format(".{}.{:x}", file, base::system_seed());
  auto made = create_file(unnamed, mode, no_group, operation);
  if (!made) return made;
  // Who is not of the group has files of his own group in the store; their mode is the store's.
  [[maybe_unused]] const int group_set = ::fchown(made->get(), static_cast<uid_t>(-1), group);
  const int linked = ::linkat(descriptor_.get(), unnamed.c_str(), descriptor_.get(), file.c_str(), 0);
  const int error_number = errno;
  ::unlinkat(descriptor_.get(), unnamed.c_str(), 0);
  // Somebody else may have been first.
  if (linked != 0 && error_number != EEXIST) return system_error(operation, error_number, path_of(file));
  // By its own name, which is then that of its mappings.
  return open_file(file, operation);
}

Result<void> Folder::set_access(mode_t mode, gid_t group, const char* operation) const {
  // Ours only says which folder it is, and the kernel changes nothing by such a descriptor.
  const FileDescriptor self(::openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!self.is_open() || (group != no_group && ::fchown(self.get(), static_cast<uid_t>(-1), group) != 0) ||
      ::fchmod(self.get(), mode) != 0) {
    return system_error(operation, errno, path_);
  }
  return {};
}

void Folder::remove() const {
  if (!is_at_path()) return;
  if (const auto names = names_at(descriptor_.get(), ".", path_, "destroy"))
    for (const std::string& name : *names) ::unlinkat(descriptor_.get(), name.c_str(), 0);
  ::rmdir(path_.c_str());
}

Result<std::vector<std::string>> names_in(const std::string& directory, const char* operation) {
  return names_at(AT_FDCWD, directory.c_str(), directory, operation);
}

}  // namespace loch::fabric::shm
