#include "fabric/shm/shm.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <grp.h>
#include <mutex>
#include <sstream>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "fabric/shm/file.h"

namespace loch::fabric::shm {
namespace {

constexpr const char* store_prefix = "loch.";
constexpr const char* private_prefix = ".loch.";
constexpr std::uint64_t creator_lock_byte = std::uint64_t{1} << 40;  // of `present`, beyond every client

std::string store_path(const std::string& name, const Access& access) {
  return access.directory + "/" + store_prefix + name;
}

std::string device_atomics_path(const std::string& folder) { return folder + "/device-atomics"; }

// By client number, what other hosts of a cluster know the session by that has it.
std::string sessions_path(const std::string& folder) { return folder + "/sessions"; }
constexpr std::streamsize session_record_bytes = 64;

std::string region_path(const std::string& folder, RegionId region) {
  return fmt::format("{}/region.{}", folder, region);
}

// True if the lock of one byte was got (`want_lock`), or could be got (not `want_lock`).
bool lock_byte(int fd, std::uint64_t byte, bool want_lock) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  if (want_lock) return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

class ShmFabric final : public Fabric {
 public:
  ShmFabric(std::string folder, Atomics atomics, bool huge_pages, FileDescriptor present)
      : folder_(std::move(folder)),
        atomics_(atomics),
        huge_pages_(huge_pages),
        present_(std::move(present)) {}

  std::unique_ptr<Port> connect() override;

  Result<void> extend(RegionId region, std::uint64_t length_bytes) override {
    int file = -1;
    Result<const FileMapping*> mapping = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      auto opened = open_region(region, true);
      if (!opened) return std::unexpected(std::move(opened.error()));
      file = (*opened)->file.get();
      mapping = mapping_of(**opened, region, length_bytes);
      if (!mapping) return std::unexpected(std::move(mapping.error()));
    }
    // Without the lock: it takes long, and a region stays open once it is.
    return reserve(file, length_bytes, huge_pages_ ? *mapping : nullptr, region_path(folder_, region));
  }

  Result<Mapping> map(RegionId region) {
    const std::scoped_lock lock(mutex_);
    auto opened = open_region(region, false);
    if (!opened) return std::unexpected(std::move(opened.error()));
    const std::uint64_t length = length_of(**opened);
    const auto mapping = mapping_of(**opened, region, length);
    if (!mapping) return std::unexpected(mapping.error());
    return Mapping{(*mapping)->base(), std::min(length, (*mapping)->reserved_bytes())};
  }

  [[nodiscard]] Atomics atomics() const override { return atomics_; }

  Result<bool> claim_presence(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    // The description's own locks do not stand against itself.
    if (std::ranges::find(held_, client) != held_.end()) return false;
    if (!lock_byte(present_.get(), client, true)) {
      if (errno == EAGAIN || errno == EACCES) return false;
      return system_error("open", errno, folder_ + "/present");
    }
    held_.push_back(client);
    return true;
  }

  void release_presence(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    std::erase(held_, client);
    struct flock unlock{};
    unlock.l_type = F_UNLCK;
    unlock.l_whence = SEEK_SET;
    unlock.l_start = static_cast<off_t>(client);
    unlock.l_len = 1;
    ::fcntl(present_.get(), F_OFD_SETLK, &unlock);
  }

  bool present(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::find(held_, client) != held_.end() || !lock_byte(present_.get(), client, false);
  }

  void note_session(std::uint32_t client, const std::string& session) override {
    const std::scoped_lock lock(mutex_);
    const FileDescriptor file(::open(sessions_path(folder_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    std::string record = session;
    record.resize(session_record_bytes, '\0');
    // What can not be noted is not fenced should lochd die before the session does.
    [[maybe_unused]] const ssize_t written =
        ::pwrite(file.get(), record.data(), record.size(), static_cast<off_t>(client * record.size()));
  }

  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> noted_sessions() override {
    std::vector<std::pair<std::uint32_t, std::string>> noted;
    std::ifstream file(sessions_path(folder_), std::ios::binary);
    std::string record(session_record_bytes, '\0');
    for (std::uint32_t client = 0; file.read(record.data(), session_record_bytes); ++client) {
      if (record.front() != '\0') noted.emplace_back(client, record.substr(0, record.find('\0')));
    }
    return noted;
  }

  [[nodiscard]] bool is_published() const override {
    struct stat ours{};
    struct stat found{};
    return ::fstat(present_.get(), &ours) == 0 && ::stat((folder_ + "/present").c_str(), &found) == 0 &&
           ours.st_dev == found.st_dev && ours.st_ino == found.st_ino;
  }
  [[nodiscard]] std::string location() const override { return folder_; }
  [[nodiscard]] std::uint64_t free_bytes() const override { return free_bytes_at(folder_); }
  [[nodiscard]] std::uint64_t huge_page_bytes() const override;

 private:
  struct Region {
    FileDescriptor file;
    std::deque<FileMapping> mappings;  // all but the last are too short by now; others have addresses in them
  };

  static std::uint64_t length_of(const Region& region) {
    struct stat stat{};
    return ::fstat(region.file.get(), &stat) == 0 ? static_cast<std::uint64_t>(stat.st_size) : 0;
  }

  Result<Region*> open_region(RegionId id, bool create);
  // One that goes as far as that, if a region may.
  Result<const FileMapping*> mapping_of(Region& region, RegionId id, std::uint64_t length_bytes);

  const std::string folder_;
  const Atomics atomics_;
  const bool huge_pages_;
  const FileDescriptor present_;
  std::mutex mutex_;
  std::vector<std::uint32_t> held_;
  std::array<Region, region_count_max> regions_;
};

// All memory is mapped, so there is nothing to post: an address that is not mapped is a bad one.
class ShmPort final : public Port {
 public:
  explicit ShmPort(ShmFabric& fabric) : fabric_(fabric) {}
  Result<Mapping> map(RegionId region) override { return fabric_.map(region); }
  void post(std::span<Operation> batch, base::Nanos /*deadline*/, Completion& done) override {
    for (Operation& operation : batch) operation.bad_address = true;
    done.complete(done, {});
  }
  Result<bool> claim_presence(std::uint32_t client) override { return fabric_.claim_presence(client); }
  void release_presence(std::uint32_t client) override { fabric_.release_presence(client); }
  bool present(std::uint32_t client) override { return fabric_.present(client); }
  void poll(base::Nanos wait_ns) override {
    const timespec wait{.tv_sec = static_cast<time_t>(wait_ns / base::second_ns),
                        .tv_nsec = static_cast<long>(wait_ns % base::second_ns)};
    ::nanosleep(&wait, nullptr);
  }

 private:
  ShmFabric& fabric_;
};

std::unique_ptr<Port> ShmFabric::connect() { return std::make_unique<ShmPort>(*this); }

Result<ShmFabric::Region*> ShmFabric::open_region(RegionId id, bool create) {
  Region& region = regions_[id];
  if (region.file.is_open()) return &region;
  const std::string path = region_path(folder_, id);
  // A region that is added later gets the mode and group of the store's other files.
  struct stat first{};
  if (::fstat(present_.get(), &first) != 0) return system_error("open", errno, folder_);
  const mode_t mode = first.st_mode & 0777;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), mode));
  if (!file.is_open()) return system_error("open", errno, path);
  if (create) {
    // Only the owner can, and needs to: the umask may have narrowed the mode.
    [[maybe_unused]] const int mode_set = ::fchmod(file.get(), mode);
    [[maybe_unused]] const int group_set = ::fchown(file.get(), static_cast<uid_t>(-1), first.st_gid);
  }
  region.file = std::move(file);
  return &region;
}

Result<const FileMapping*> ShmFabric::mapping_of(Region& region, RegionId id, std::uint64_t length_bytes) {
  if (!region.mappings.empty()) {
    const FileMapping& last = region.mappings.back();
    if (length_bytes <= last.reserved_bytes() || last.reserved_bytes() == region_bytes_max) return &last;
  }
  const std::string path = region_path(folder_, id);
  // As much as the file system can hold. If it was made larger since, or does not say, all that a region may
  // have.
  std::uint64_t reserved = region_bytes_max;
  struct statvfs fs{};
  if (::statvfs(folder_.c_str(), &fs) != 0) return system_error("open", errno, folder_);
  const std::uint64_t fs_bytes = static_cast<std::uint64_t>(fs.f_blocks) * fs.f_frsize;
  constexpr std::uint64_t reserve_unit = std::uint64_t{1} << 30;
  if (region.mappings.empty() && fs_bytes != 0 && fs_bytes < region_bytes_max)
    reserved = (std::max(fs_bytes, length_bytes) + reserve_unit - 1) / reserve_unit * reserve_unit;
  auto mapping = FileMapping::map(region.file.get(), std::min(reserved, region_bytes_max), path);
  if (!mapping) return std::unexpected(std::move(mapping.error()));
  if (huge_pages_) mapping->want_huge_pages();
  return &region.mappings.emplace_back(std::move(*mapping));
}

std::uint64_t ShmFabric::huge_page_bytes() const {
  // The entries of this process's map that belong to our files.
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  std::uint64_t total = 0;
  bool ours = false;
  while (std::getline(smaps, line)) {
    if (line.find('-') < line.find(' ')) ours = line.find(folder_) != std::string::npos;
    constexpr std::string_view field = "ShmemPmdMapped:";
    if (ours && line.starts_with(field))
      total += std::strtoull(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  return total;
}

void remove_folder(const std::string& folder) {
  if (DIR* directory = ::opendir(folder.c_str()); directory != nullptr) {
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view file = entry->d_name;
      if (file != "." && file != "..") ::unlink((folder + "/" + entry->d_name).c_str());
    }
    ::closedir(directory);
  }
  ::rmdir(folder.c_str());
}

// Removes what creators and destroyers left that died: private folders whose lock nobody holds. A folder that
// is younger than the grace may belong to somebody who has not locked it yet.
void remove_leftovers(const Access& access) {
  constexpr time_t grace_s = 10;
  DIR* directory = ::opendir(access.directory.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (!std::string_view(entry->d_name).starts_with(private_prefix)) continue;
    const std::string folder = access.directory + "/" + entry->d_name;
    struct stat stat{};
    if (::stat(folder.c_str(), &stat) != 0 || !S_ISDIR(stat.st_mode) ||
        ::time(nullptr) - stat.st_mtime < grace_s) {
      continue;
    }
    const FileDescriptor present(::open((folder + "/present").c_str(), O_RDWR | O_CLOEXEC));
    if (present.is_open() && !lock_byte(present.get(), creator_lock_byte, false)) continue;
    remove_folder(folder);
  }
  ::closedir(directory);
}

Result<gid_t> group_id(const std::string& group) {
  if (group.empty()) return static_cast<gid_t>(-1);
  std::array<char, 4096> buffer{};
  struct group entry{};
  struct group* found = nullptr;
  ::getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr)
    return fail(Errc::invalid_argument, "create", fmt::format("there is no group '{}'", group));
  return entry.gr_gid;
}

// A folder that is not published; removed again unless it is.
class PrivateFolder {
 public:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder() {
    if (!published_) remove_folder(path_);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  void published() { published_ = true; }

 private:
  std::string path_;
  bool published_ = false;
};

Result<FileDescriptor> create_file(const std::string& path, mode_t mode, gid_t group) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return system_error("create", errno, path);
  if (group != static_cast<gid_t>(-1) && ::fchown(file.get(), static_cast<uid_t>(-1), group) != 0) {
    return system_error("create", errno, path);
  }
  if (::fchmod(file.get(), mode) != 0) return system_error("create", errno, path);
  return file;
}

// Fills `folder` with the regions of `plan`.
Result<void> build(const std::string& folder, const Plan& plan, mode_t mode, gid_t group) {
  std::vector<FileMapping> mappings;
  std::vector<Mapping> filled;
  for (const Plan::Region& region : plan.regions) {
    const std::string path = region_path(folder, region.id);
    auto file = create_file(path, mode, group);
    if (!file) return std::unexpected(std::move(file.error()));
    if (auto done = reserve(file->get(), region.length_bytes, nullptr, path); !done) return done;
    auto mapping = FileMapping::map(file->get(), region.length_bytes, path);
    if (!mapping) return std::unexpected(std::move(mapping.error()));
    filled.push_back({mapping->base(), region.length_bytes});
    mappings.push_back(std::move(*mapping));
  }
  if (plan.atomics == Atomics::device) {
    if (auto file = create_file(device_atomics_path(folder), mode, group); !file)
      return std::unexpected(std::move(file.error()));
  }
  plan.fill(filled);
  return {};
}

}  // namespace

Result<std::shared_ptr<Fabric>> attach(const std::string& name, const Access& access) {
  const std::string folder = store_path(name, access);
  const std::string path = folder + "/present";
  FileDescriptor present(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!present.is_open()) {
    if (errno == ENOENT) {
      return fail(Errc::not_found, "open",
                  fmt::format("there is no store '{}' in {}", name, access.directory));
    }
    return system_error("open", errno, path);
  }
  struct stat stat{};
  if (!access.lends && ::stat(region_path(folder, 0).c_str(), &stat) != 0 && errno == ENOENT) {
    return fail(
        Errc::incompatible, "open",
        fmt::format("'{0}' is this host's part of a cluster's store; open it as tcp://HOST/{0}, where "
                    "HOST is any of the cluster's",
                    name));
  }
  const bool is_of_device = ::stat(device_atomics_path(folder).c_str(), &stat) == 0;
  if (is_of_device && !access.lends) {
    return fail(
        Errc::incompatible, "open",
        fmt::format(
            "the words of '{0}' are changed by an RDMA device, not by this host's processor; open it as "
            "verbs://HOST/{0}, where lochd lends it",
            name));
  }
  return std::make_shared<ShmFabric>(folder, is_of_device ? Atomics::device : Atomics::processor,
                                     access.huge_pages, std::move(present));
}

Result<std::shared_ptr<Fabric>> create(const std::string& name, const Access& access, const Plan& plan) {
  const auto group = group_id(access.group);
  if (!group) return std::unexpected(group.error());
  const std::string folder = store_path(name, access);
  if (struct stat stat{}; ::stat(folder.c_str(), &stat) == 0) {
    return fail(Errc::exists, "create", fmt::format("{} is there already", folder));
  }
  remove_leftovers(access);

  std::string pattern = access.directory + "/" + private_prefix + name + ".XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return system_error("create", errno, access.directory);
  PrivateFolder building(pattern);
  const mode_t mode = access.file_mode & 0666;
  auto present = create_file(building.path() + "/present", mode, *group);
  if (!present) return std::unexpected(std::move(present.error()));
  lock_byte(present->get(), creator_lock_byte, true);
  if (auto done = build(building.path(), plan, mode, *group); !done) {
    return std::unexpected(std::move(done.error()));
  }

  // Who may read the files may enter the folder; who may write them may add regions to it.
  const mode_t folder_mode = mode | 0700 | ((mode & 0444) >> 2);
  if (*group != static_cast<gid_t>(-1) &&
      ::chown(building.path().c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return system_error("create", errno, building.path());
  }
  if (::chmod(building.path().c_str(), folder_mode) != 0)
    return system_error("create", errno, building.path());
  if (::rename(building.path().c_str(), folder.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) {
      return fail(Errc::exists, "create", fmt::format("{} is there already", folder));
    }
    return system_error("create", errno, folder);
  }
  building.published();
  Access lends = access;
  lends.lends = true;
  return attach(name, lends);
}

Result<void> destroy(const std::string& name, const Access& access) {
  const std::string folder = store_path(name, access);
  std::string pattern = access.directory + "/" + private_prefix + name + ".XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return system_error("destroy", errno, access.directory);
  // Renaming over an empty folder takes the store out of sight in one step.
  if (::rename(folder.c_str(), pattern.c_str()) != 0) {
    const int error_number = errno;
    ::rmdir(pattern.c_str());
    if (error_number == ENOENT) {
      return fail(Errc::not_found, "destroy",
                  fmt::format("there is no store '{}' in {}", name, access.directory));
    }
    return system_error("destroy", error_number, folder);
  }
  remove_folder(pattern);
  return {};
}

Result<std::vector<std::string>> list(const Access& access) {
  DIR* directory = ::opendir(access.directory.c_str());
  if (directory == nullptr) return system_error("list", errno, access.directory);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view file = entry->d_name;
    if (!file.starts_with(store_prefix)) continue;
    if (struct stat stat{};
        ::stat((access.directory + "/" + entry->d_name + "/present").c_str(), &stat) == 0) {
      names.emplace_back(file.substr(std::string_view(store_prefix).size()));
    }
  }
  ::closedir(directory);
  std::ranges::sort(names);
  return names;
}

}  // namespace loch::fabric::shm
