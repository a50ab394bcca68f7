#include "fabric/shm/shm.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <mutex>
#include <sstream>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/barrier.h"
#include "base/fault.h"
#include "fabric/shm/folder.h"
#include "fabric/shm/fork_watch.h"
#include "fabric/shm/owner.h"

namespace loch::fabric::shm {
namespace {

constexpr const char* store_prefix = "loch.";
constexpr const char* private_prefix = ".loch.";
constexpr std::uint64_t creator_lock_byte = std::uint64_t{1} << 40;  // of `present`, beyond every client

std::string store_path(const std::string& name, const Access& access) {
  return access.directory + "/" + store_prefix + name;
}

// The files of a store's folder.
constexpr const char* present_file = "present";
constexpr const char* device_atomics_file = "device-atomics";
// By client number, what other hosts of a cluster know the session by that has it.
constexpr const char* sessions_file = "sessions";
constexpr std::size_t session_record_bytes = 64;
constexpr std::uint32_t session_records_max = 1U << 16;  // there are fewer clients
std::string region_file(RegionId region) { return fmt::format("region.{}", region); }

struct flock flock_of(std::uint64_t byte, short type) {
  return {.l_type = type, .l_whence = SEEK_SET, .l_start = static_cast<off_t>(byte), .l_len = 1, .l_pid = 0};
}
bool take_byte(int fd, std::uint64_t byte) {
  struct flock lock = flock_of(byte, F_WRLCK);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}
// By another opening of the file; true also if that can not be asked.
bool is_byte_taken(int fd, std::uint64_t byte) {
  struct flock lock = flock_of(byte, F_WRLCK);
  return ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}
void drop_byte(int fd, std::uint64_t byte) {
  struct flock lock = flock_of(byte, F_UNLCK);
  ::fcntl(fd, F_OFD_SETLK, &lock);
}

class ShmFabric final : public Fabric, private ForkWatch::Owner {
 public:
  ShmFabric(Folder folder, Atomics atomics, bool huge_pages)
      : folder_(std::move(folder)), atomics_(atomics), huge_pages_(huge_pages) {
    // Also of who has no session, but changes what others say for theirs, as lochd does.
    base::take_part_in_barriers();
  }

  // Before anything else; when it is told of forks.
  Result<void> open_present() {
    const std::scoped_lock lock(mutex_);
    auto present = folder_.open_file(present_file, "open");
    if (!present) return std::unexpected(std::move(present.error()));
    present_ = std::move(*present);
    return {};
  }

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
    return reserve(file, length_bytes, huge_pages_ ? *mapping : nullptr,
                   folder_.path_of(region_file(region)));
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
  [[nodiscard]] bool takes_part_in_barriers() const override { return base::take_part_in_barriers(); }
  bool barrier_for_all() override { return base::barrier_for_all(); }

  Result<bool> claim_presence(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    if (!present_.is_open()) return left_to_parent();
    // The description's own locks do not stand against itself.
    if (std::ranges::find(held_, client) != held_.end()) return false;
    if (!take_byte(present_.get(), client)) {
      if (errno == EAGAIN || errno == EACCES) return false;
      return system_error("open", errno, folder_.path_of(present_file));
    }
    held_.push_back(client);
    return true;
  }

  void release_presence(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    std::erase(held_, client);
    drop_byte(present_.get(), client);
  }

  bool present(std::uint32_t client) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::find(held_, client) != held_.end() || is_byte_taken(present_.get(), client);
  }

  Result<void> note_session(std::uint32_t client, const std::string& session) override {
    const std::scoped_lock lock(mutex_);
    if (!sessions_.is_open()) {
      auto file = folder_.add_file(sessions_file, 0600, no_group, "open");
      if (!file) return std::unexpected(std::move(file.error()));
      sessions_ = std::move(*file);
    }
    std::string record = session;
    record.resize(session_record_bytes, '\0');
    const ssize_t written =
        ::pwrite(sessions_.get(), record.data(), record.size(), static_cast<off_t>(client * record.size()));
    if (written == static_cast<ssize_t>(record.size())) return {};
    return system_error("open", written < 0 ? errno : ENOSPC, folder_.path_of(sessions_file));
  }

  [[nodiscard]] Result<NotedSessions> noted_sessions() override {
    NotedSessions noted;
    const auto file = folder_.open_file(sessions_file, "open");
    if (!file && file.error().code == Errc::not_found) return noted;
    if (!file) return std::unexpected(file.error());
    std::string record(session_record_bytes, '\0');
    for (std::uint32_t client = 0; client < session_records_max; ++client) {
      const ssize_t got =
          ::pread(file->get(), record.data(), record.size(), static_cast<off_t>(client * record.size()));
      if (got < 0) return system_error("open", errno, folder_.path_of(sessions_file));
      // The end of the file. Who could note a part of a record alone has given its client no number.
      if (got != static_cast<ssize_t>(record.size())) break;
      if (record.front() != '\0') noted.emplace_back(client, record.substr(0, record.find('\0')));
    }
    return noted;
  }

  [[nodiscard]] bool is_published() const override { return folder_.is_at_path(); }
  [[nodiscard]] Result<void> intact() const override;
  // What was not mapped before it was removed can not be any more.
  [[nodiscard]] std::unexpected<Error> removed() const {
    return fail(Errc::unavailable, "open",
                fmt::format("{} was removed since it was opened; open it again", folder_.path()));
  }
  // In the child of a fork, of the fabric that it got from its parent.
  [[nodiscard]] std::unexpected<Error> left_to_parent() const {
    return fail(Errc::unavailable, "open",
                fmt::format("{} was opened before a fork, by the parent; open it again", folder_.path()));
  }
  [[nodiscard]] std::string location() const override { return folder_.path(); }
  [[nodiscard]] std::uint64_t free_bytes() const override { return free_bytes_at(folder_.path()); }
  [[nodiscard]] std::uint64_t huge_page_bytes() const override;

 private:
  struct Region {
    FileDescriptor file;
    std::deque<FileMapping> mappings;  // all but the last are too short by now; others have addresses in them
  };

  void before_fork() override { mutex_.lock(); }
  // The locks of `present` are those of all that have its description, and would outlive the parent.
  void after_fork(bool in_child) override {
    if (in_child) {
      [[maybe_unused]] const FileDescriptor parents = std::move(present_);
      for (const Region& region : regions_) {
        for (const FileMapping& mapping : region.mappings) mapping.keep_to_this_process(region.file.get());
      }
    }
    mutex_.unlock();
  }

  static std::uint64_t length_of(const Region& region) {
    struct stat stat{};
    return ::fstat(region.file.get(), &stat) == 0 ? static_cast<std::uint64_t>(stat.st_size) : 0;
  }

  Result<Region*> open_region(RegionId id, bool create);
  // One that goes as far as that, if a region may.
  Result<const FileMapping*> mapping_of(Region& region, RegionId id, std::uint64_t length_bytes);

  const Folder folder_;
  const Atomics atomics_;
  const bool huge_pages_;
  mutable std::mutex mutex_;
  FileDescriptor present_;   // not open in the child of a fork
  FileDescriptor sessions_;  // once something is noted
  std::vector<std::uint32_t> held_;
  std::array<Region, region_count_max> regions_;
  const ForkWatch fork_watch_{this};
};

// All memory is mapped, so there is nothing to post: an address that is not mapped is a bad one.
class ShmPort final : public Port {
 public:
  explicit ShmPort(ShmFabric& fabric) : fabric_(fabric) {}
  Result<Mapping> map(RegionId region) override { return fabric_.map(region); }
  void post(std::span<Operation> batch, base::Nanos /*deadline*/, Completion& done) override {
    if (!fabric_.is_published()) return done.complete(done, fabric_.removed());
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
  if (!present_.is_open()) return left_to_parent();
  Region& region = regions_[id];
  if (region.file.is_open()) return &region;
  // A region that is added later gets the mode and group of the store's other files.
  struct stat first{};
  if (::fstat(present_.get(), &first) != 0) return system_error("open", errno, folder_.path());
  auto file = create ? folder_.add_file(region_file(id), first.st_mode & 0777, first.st_gid, "extend")
                     : folder_.open_file(region_file(id), "open");
  if (!file && !is_published()) return removed();
  if (!file) return std::unexpected(std::move(file.error()));
  region.file = std::move(*file);
  return &region;
}

Result<const FileMapping*> ShmFabric::mapping_of(Region& region, RegionId id, std::uint64_t length_bytes) {
  if (!region.mappings.empty()) {
    const FileMapping& last = region.mappings.back();
    if (length_bytes <= last.reserved_bytes() || last.reserved_bytes() == region_bytes_max) return &last;
  }
  // As much as the file system can hold. If it was made larger since, or does not say, all that a region may
  // have.
  std::uint64_t reserved = region_bytes_max;
  struct statvfs fs{};
  if (::fstatvfs(present_.get(), &fs) != 0) return system_error("open", errno, folder_.path());
  const std::uint64_t fs_bytes = static_cast<std::uint64_t>(fs.f_blocks) * fs.f_frsize;
  constexpr std::uint64_t reserve_unit = std::uint64_t{1} << 30;
  if (region.mappings.empty() && fs_bytes != 0 && fs_bytes < region_bytes_max)
    reserved = (std::max(fs_bytes, length_bytes) + reserve_unit - 1) / reserve_unit * reserve_unit;
  auto mapping = FileMapping::map(region.file.get(), std::min(reserved, region_bytes_max),
                                  folder_.path_of(region_file(id)));
  if (!mapping) return std::unexpected(std::move(mapping.error()));
  if (huge_pages_) mapping->want_huge_pages();
  return &region.mappings.emplace_back(std::move(*mapping));
}

Result<void> ShmFabric::intact() const {
  if (!any_range_lost()) return {};
  const std::scoped_lock lock(mutex_);
  for (std::size_t id = 0; id < regions_.size(); ++id) {
    if (std::ranges::none_of(regions_[id].mappings, &FileMapping::is_lost)) continue;
    return fail(
        Errc::corrupt, "store",
        fmt::format("{} is shorter than what was mapped of it: somebody truncated it; what is left of the "
                    "store can be opened anew",
                    folder_.path_of(region_file(static_cast<RegionId>(id)))));
  }
  return {};
}

std::uint64_t ShmFabric::huge_page_bytes() const {
  // The entries of this process's map that belong to our files.
  const std::string regions = folder_.path_of("region.");
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  std::uint64_t total = 0;
  bool ours = false;
  while (std::getline(smaps, line)) {
    if (line.find('-') < line.find(' ')) ours = line.find(regions) != std::string::npos;
    constexpr std::string_view field = "ShmemPmdMapped:";
    if (ours && line.starts_with(field))
      total += std::strtoull(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  return total;
}

// Removes what creators and destroyers left that died: private folders whose lock nobody holds. A folder that
// is younger than the grace may belong to somebody who has not locked it yet.
void remove_leftovers(const Access& access) {
  constexpr time_t grace_s = 10;
  const auto names = names_in(access.directory, "create");
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(private_prefix)) continue;
    const auto folder = Folder::open(access.directory + "/" + name, "create");
    if (!folder) continue;
    const auto status = folder->status("create");
    const bool may_remove = status && (status->st_uid == ::geteuid() || ::geteuid() == 0);
    if (!may_remove || ::time(nullptr) - status->st_mtime < grace_s) continue;
    const auto present = folder->open_file(present_file, "create");
    const bool is_left =
        present ? !is_byte_taken(present->get(), creator_lock_byte) : present.error().code == Errc::not_found;
    if (is_left) folder->remove();
  }
}

// A new folder that is not published; removed again unless it is.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make(const std::string& name, const Access& access, const char* operation) {
    std::string path = access.directory + "/" + private_prefix + name + ".XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return system_error(operation, errno, access.directory);
    auto folder = Folder::open(path, operation);
    if (!folder) return std::unexpected(std::move(folder.error()));
    return PrivateFolder(std::move(*folder));
  }
  PrivateFolder(PrivateFolder&& other) noexcept : folder_(std::exchange(other.folder_, std::nullopt)) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder() {
    if (folder_) folder_->remove();
  }
  const Folder& operator*() const { return *folder_; }
  const Folder* operator->() const { return &*folder_; }
  void published() { folder_.reset(); }

 private:
  explicit PrivateFolder(Folder folder) : folder_(std::move(folder)) {}

  std::optional<Folder> folder_;
};

// Fills `folder` with the regions of `plan`.
Result<void> build(const Folder& folder, const Plan& plan, mode_t mode, gid_t group) {
  std::vector<FileMapping> mappings;
  std::vector<Mapping> filled;
  for (const Plan::Region& region : plan.regions) {
    const std::string path = folder.path_of(region_file(region.id));
    auto file = folder.create_file(region_file(region.id), mode, group, "create");
    if (!file) return std::unexpected(std::move(file.error()));
    if (auto done = reserve(file->get(), region.length_bytes, nullptr, path); !done) return done;
    auto mapping = FileMapping::map(file->get(), region.length_bytes, path);
    if (!mapping) return std::unexpected(std::move(mapping.error()));
    filled.push_back({mapping->base(), region.length_bytes});
    mappings.push_back(std::move(*mapping));
  }
  if (plan.atomics == Atomics::device) {
    if (auto file = folder.create_file(device_atomics_file, mode, group, "create"); !file)
      return std::unexpected(std::move(file.error()));
  }
  plan.fill(filled);
  return {};
}

std::unexpected<Error> no_store(const char* operation, const std::string& name, const Access& access) {
  return fail(Errc::not_found, operation,
              fmt::format("there is no store '{}' in {}", name, access.directory));
}

// Whether something else has the name of a store. What is not at its path any more may have been one.
bool is_other_than_store(const std::string& path) {
  if (const auto folder = Folder::open(path, "open"))
    return !folder->may_have(present_file) && folder->is_at_path();
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && !S_ISDIR(found.st_mode);
}

std::unexpected<Error> other_than_store(Errc code, const char* operation, const std::string& path) {
  return fail(code, operation,
              fmt::format("{} is there, and is no store; remove it by hand if nobody needs it", path));
}

std::unexpected<Error> name_taken(const std::string& path) {
  if (is_other_than_store(path)) return other_than_store(Errc::exists, "create", path);
  return fail(Errc::exists, "create", fmt::format("{} is there already", path));
}

}  // namespace

Result<std::shared_ptr<Fabric>> attach(const std::string& name, const Access& access) {
  const std::string path = store_path(name, access);
  auto folder = Folder::open(path, "open");
  if (folder && access.not_of_others) {
    if (auto may_trust = check_maker(*folder, access.lends); !may_trust)
      return std::unexpected(std::move(may_trust.error()));
  }
  auto present = folder ? folder->open_file(present_file, "open") : std::unexpected(folder.error());
  if (!present && is_other_than_store(path)) return other_than_store(Errc::io, "open", path);
  if (!present && present.error().code == Errc::not_found) return no_store("open", name, access);
  if (!present) return std::unexpected(std::move(present.error()));
  if (!access.lends && !folder->has(region_file(0))) {
    return fail(
        Errc::incompatible, "open",
        fmt::format("'{0}' is this host's part of a cluster's store; open it as tcp://HOST/{0}, where "
                    "HOST is any of the cluster's",
                    name));
  }
  const bool is_of_device = folder->has(device_atomics_file);
  if (is_of_device && !access.lends) {
    return fail(
        Errc::incompatible, "open",
        fmt::format(
            "the words of '{0}' are changed by an RDMA device, not by this host's processor; open it as "
            "verbs://HOST/{0}, where lochd lends it",
            name));
  }
  LOCH_FAULT_POINT("session.store_found");
  auto fabric = std::make_shared<ShmFabric>(
      std::move(*folder), is_of_device ? Atomics::device : Atomics::processor, access.huge_pages);
  // Anew: what a child of a fork by another thread has a copy of by now would keep this process's locks.
  if (auto opened = fabric->open_present(); !opened) return std::unexpected(std::move(opened.error()));
  return fabric;
}

Result<std::shared_ptr<Fabric>> create(const std::string& name, const Access& access, const Plan& plan) {
  const auto group = group_id(access.group);
  if (!group) return std::unexpected(group.error());
  const std::string folder = store_path(name, access);
  if (struct stat found{}; ::lstat(folder.c_str(), &found) == 0) return name_taken(folder);
  remove_leftovers(access);

  auto building = PrivateFolder::make(name, access, "create");
  if (!building) return std::unexpected(std::move(building.error()));
  const Folder& made = **building;
  const mode_t mode = access.file_mode & 0666;
  const auto present = made.create_file(present_file, mode, *group, "create");
  if (!present && present.error().code == Errc::permission && *group != no_group && !is_of_group(*group)) {
    return fail(Errc::permission, "create",
                fmt::format("the files of '{}' can not be given to group '{}', which this process is not in; "
                            "`id -Gn` lists its groups, a new one from the next login on",
                            name, access.group));
  }
  if (!present) return std::unexpected(present.error());
  take_byte(present->get(), creator_lock_byte);
  if (auto done = build(made, plan, mode, *group); !done) return std::unexpected(std::move(done.error()));

  // Who may read the files may enter the folder; who may write them may add regions to it.
  const mode_t folder_mode = mode | 0700 | ((mode & 0444) >> 2);
  if (auto set = made.set_access(folder_mode, *group, "create"); !set)
    return std::unexpected(std::move(set.error()));
  if (::rename(made.path().c_str(), folder.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) return name_taken(folder);
    return system_error("create", errno, folder);
  }
  building->published();
  Access lends = access;
  lends.lends = true;
  return attach(name, lends);
}

Result<void> destroy(const std::string& name, const Access& access) {
  const std::string folder = store_path(name, access);
  // What is no store is not ours to remove.
  if (is_other_than_store(folder)) return other_than_store(Errc::io, "destroy", folder);
  if (const auto there = Folder::open(folder, "destroy")) {
    const auto present = there->open_file(present_file, "destroy");
    if (!present && present.error().code == Errc::not_found) return no_store("destroy", name, access);
  }
  // Renaming over an empty folder takes the store out of sight in one step.
  const auto empty = PrivateFolder::make(name, access, "destroy");
  if (!empty) return std::unexpected(empty.error());
  const std::string path = (*empty)->path();
  if (::rename(folder.c_str(), path.c_str()) != 0) {
    if (errno == ENOENT) return no_store("destroy", name, access);
    return system_error("destroy", errno, folder);
  }
  const auto unpublished = Folder::open(path, "destroy");
  if (!unpublished) return std::unexpected(unpublished.error());
  unpublished->remove();
  return {};
}

Result<std::vector<std::string>> list(const Access& access) {
  const auto entries = names_in(access.directory, "list");
  if (!entries) return entries;
  std::vector<std::string> names;
  for (const std::string& entry : *entries) {
    if (!entry.starts_with(store_prefix)) continue;
    std::string name = entry.substr(std::string_view(store_prefix).size());
    if (!is_store_name(name)) continue;
    const auto folder = Folder::open(access.directory + "/" + entry, "list");
    // One that we may not look into is a store of others; who opens it is told so.
    if (folder && folder->may_have(present_file)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace loch::fabric::shm
