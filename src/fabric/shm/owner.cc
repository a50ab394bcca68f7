#include "fabric/shm/owner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>
#include <vector>

namespace loch::fabric::shm {

bool is_of_group(gid_t group) {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  groups.push_back(::getegid());
  return std::ranges::find(groups, group) != groups.end();
}

namespace {

// "ada (1001)"; the number alone, if it has no name.
std::string user_name(uid_t user) {
  std::array<char, 4096> buffer{};
  struct passwd entry{};
  struct passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::to_string(user);
  return fmt::format("{} ({})", entry.pw_name, user);
}

}  // namespace

Result<gid_t> group_id(const std::string& group) {
  if (group.empty()) return no_group;
  // One of many members takes much.
  constexpr std::size_t buffer_bytes_max = std::size_t{1} << 24;
  std::vector<char> buffer(4096);
  struct group entry{};
  struct group* found = nullptr;
  while (::getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < buffer_bytes_max) {
    buffer.resize(2 * buffer.size());
  }
  if (found == nullptr)
    return fail(Errc::invalid_argument, "create", fmt::format("there is no group '{}'", group));
  return entry.gr_gid;
}

Result<void> check_maker(const Folder& folder, bool lends) {
  const auto status = folder.status("open");
  if (!status) return std::unexpected(status.error());
  const uid_t maker = status->st_uid;
  if (maker == ::geteuid() || maker == 0 || is_of_group(status->st_gid)) return {};
  return fail(Errc::permission, "open",
              fmt::format("{} was made by user {}, who has all that is put there; if that is meant, {}",
                          folder.path(), user_name(maker),
                          lends ? "take it out of lochd.toml, or say mode = \"666\" there"
                                : "open it with Mode::attach (loch: --no-create)"));
}

}  // namespace loch::fabric::shm
