// cmd/doctor: whether the stores of a user outlive a logout.
#include <array>
#include <memory>
#include <pwd.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include "cmd/doctor.h"

namespace loch::cmd {
namespace {

constexpr uid_t system_uid_max = 999;  // as systemd and Debian have it
constexpr std::uint64_t patience_us = 2'000'000;

std::string own_name() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return {};
  return found->pw_name;
}

// As logind itself says; nothing where there is none.
std::optional<bool> removes_ipc() {
  sd_bus* opened = nullptr;
  if (sd_bus_open_system(&opened) < 0) return std::nullopt;
  const std::unique_ptr<sd_bus, decltype(&sd_bus_unref)> bus(opened, sd_bus_unref);
  sd_bus_set_method_call_timeout(bus.get(), patience_us);
  int removes = 0;
  const int asked =
      sd_bus_get_property_trivial(bus.get(), "org.freedesktop.login1", "/org/freedesktop/login1",
                                  "org.freedesktop.login1.Manager", "RemoveIPC", nullptr, 'b', &removes);
  if (asked < 0) return std::nullopt;
  return removes != 0;
}

}  // namespace

Finding probe_logout(const std::string& directory) {
  std::optional<Logout> logout;
  if (const auto removes = removes_ipc()) {
    const std::string name = own_name();
    const std::string lingers = "/var/lib/systemd/linger/" + name;
    logout = {.removes_ipc = *removes,
              .is_system_user = ::getuid() <= system_uid_max,
              .lingers = !name.empty() && ::access(lingers.c_str(), F_OK) == 0};
  }
  return judge_logout(directory, logout);
}

}  // namespace loch::cmd
