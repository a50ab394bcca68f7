// cmd/doctor: what is made of what was read of this host: when a finding is OK, and how to mend it when not.
#include <algorithm>
#include <fmt/format.h>

#include <loch/devices.h>

#include "cmd/doctor.h"
#include "cmd/units.h"

namespace loch::cmd {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

std::string limit_text(std::optional<std::uint64_t> limit_bytes) {
  return limit_bytes ? human_bytes(*limit_bytes) : "unlimited";
}

const char* atomicity_text(RdmaDevice::Atomicity atomicity) {
  switch (atomicity) {
    case RdmaDevice::Atomicity::none:
      return "no atomics";
    case RdmaDevice::Atomicity::device:
      return "atomics against its own alone";
    case RdmaDevice::Atomicity::host:
      return "atomics against the processor's too";
  }
  return "";
}

}  // namespace

Finding judge_space(const std::string& directory, Space space) {
  constexpr std::uint64_t usable_bytes_min = 16 * mib;  // a store that holds a little
  constexpr std::uint64_t ample_bytes_min = 256 * mib;
  Finding finding{.subject = "space"};
  if (space.total_bytes == 0) {  // a tmpfs of size=0
    finding.found = "no limit of the file system's";
    return finding;
  }
  finding.found = fmt::format("{} free of {}", human_bytes(space.free_bytes), human_bytes(space.total_bytes));
  if (space.free_bytes < usable_bytes_min) {
    finding.status = Status::fail;
  } else if (space.free_bytes < ample_bytes_min) {
    finding.status = Status::warn;
  }
  if (finding.status != Status::ok) {
    finding.mend = fmt::format(
        "mount -o remount,size=8G {} (in a container: --shm-size=8g), or destroy stores: loch ls -l; loch rm",
        directory);
  }
  return finding;
}

Finding judge_memory(const std::string& directory, Space space, std::uint64_t available_bytes,
                     std::optional<std::uint64_t> group_limit_bytes) {
  Finding finding{.subject = "memory"};
  finding.found = fmt::format("{} available", human_bytes(available_bytes));
  if (group_limit_bytes)
    finding.found += fmt::format(", limit of the control group {}", human_bytes(*group_limit_bytes));
  const std::uint64_t backing = std::min(group_limit_bytes.value_or(available_bytes), available_bytes);
  if (backing < space.free_bytes / 4 * 3) {
    finding.status = Status::warn;
    finding.found += fmt::format(": less than the {} free in {}", human_bytes(space.free_bytes), directory);
    finding.mend =
        "give each store a limit (loch create --max-bytes) or make the directory smaller (mount -o size=)";
  }
  return finding;
}

Finding judge_swap(std::uint64_t total_bytes) {
  Finding finding{.subject = "swap", .found = "none"};
  if (total_bytes == 0) return finding;
  finding.status = Status::warn;
  finding.found =
      fmt::format("{}: items may be swapped out and take milliseconds to read", human_bytes(total_bytes));
  finding.mend = "swapoff -a, or vm.swappiness=1, or memory.swap.max=0 for the control group";
  return finding;
}

Finding judge_huge_pages(const std::string& kernel, const std::optional<std::string>& shmem_enabled,
                         const std::string& problem) {
  Finding finding{.subject = "huge pages"};
  finding.found = fmt::format("kernel {}, shmem_enabled: {}", kernel, shmem_enabled.value_or("not there"));
  if (problem.empty()) {
    finding.found += "; MADV_COLLAPSE works, tried on 4 MiB";
    return finding;
  }
  finding.status = Status::warn;
  finding.found += fmt::format("; {}", problem);
  finding.mend =
      "a tmpfs on a kernel from 6.1 on with transparent huge pages, or as root: "
      "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled (random reads cost about half as much "
      "again "
      "on small pages)";
  return finding;
}

Finding judge_processor(const std::string& model, long online, const std::set<std::string>& flags) {
  Finding finding{.subject = "processor"};
  finding.found = fmt::format("{}, {} online", model, online);
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

Finding judge_clock_source(const std::optional<std::string>& source, double read_ns) {
  constexpr double read_ns_max = 300;
  Finding finding{.subject = "clock"};
  finding.found = fmt::format("{}, {:.0f} ns a reading", source.value_or("unknown source"), read_ns);
  if (read_ns > read_ns_max) {
    finding.status = Status::warn;
    finding.mend =
        "waiting for other hosts costs more: use tsc or the hypervisor's own clock: echo tsc > "
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  }
  return finding;
}

Finding judge_locked_memory(std::optional<std::uint64_t> limit_bytes, bool has_rdma_device) {
  Finding finding{.subject = "locked memory", .found = limit_text(limit_bytes)};
  if (!has_rdma_device) {
    finding.found += "; enough, as only RDMA devices need it and there is none";
  } else if (limit_bytes) {
    finding.status = Status::warn;
    finding.found += "; an RDMA device locks all memory that it serves";
    finding.mend =
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf, or LimitMEMLOCK=infinity of the unit";
  }
  return finding;
}

Finding judge_open_files(std::optional<std::uint64_t> limit) {
  constexpr std::uint64_t files_min = 256;
  Finding finding{.subject = "open files", .found = limit ? fmt::to_string(*limit) : "unlimited"};
  if (limit && *limit < files_min) {
    finding.status = Status::warn;
    finding.found += "; a store takes a few each";
    finding.mend = "ulimit -n 1024, or LimitNOFILE=1024 of the unit";
  }
  return finding;
}

Finding judge_address_space(std::optional<std::uint64_t> limit_bytes,
                            const std::optional<std::string>& overcommit) {
  Finding finding{.subject = "address space"};
  finding.found =
      fmt::format("{}, overcommit_memory {}", limit_text(limit_bytes), overcommit.value_or("unknown"));
  if (limit_bytes) {
    finding.status = Status::warn;
    finding.found += "; a store reserves more addresses than it uses";
    finding.mend = "ulimit -v unlimited, or LimitAS=infinity of the unit";
  }
  return finding;
}

Finding judge_file_size(std::optional<std::uint64_t> limit_bytes) {
  Finding finding{.subject = "file size", .found = limit_text(limit_bytes)};
  if (limit_bytes) {
    finding.status = Status::warn;
    finding.found += "; a store whose files reach it cannot grow";
    finding.mend = "ulimit -f unlimited, or LimitFSIZE=infinity of the unit";
  }
  return finding;
}

Finding judge_logout(const std::string& directory, const std::optional<Logout>& logout) {
  Finding finding{.subject = "logout", .found = "stores stay"};
  if (!logout || !logout->removes_ipc || logout->is_system_user || logout->lingers) return finding;
  if (directory != "/dev/shm" && !directory.starts_with("/dev/shm/")) return finding;
  finding.status = Status::warn;
  finding.found = "systemd-logind removes this user's stores in /dev/shm when their last session ends";
  finding.mend =
      "loginctl enable-linger (for this user); or RemoveIPC=no in /etc/systemd/logind.conf; or a --directory "
      "on another tmpfs";
  return finding;
}

Finding judge_port(const RdmaDevice& device, const RdmaDevice::Port& port) {
  Finding finding{.subject = fmt::format("RDMA {}/{}", device.name, port.number)};
  const auto address = std::ranges::find_if(port.gids, [](const RdmaDevice::Gid& gid) {
    return gid.type != "RoCE v1" && !gid.address.starts_with("fe80");
  });
  const bool is_ethernet = port.link_layer == "Ethernet";
  finding.found = fmt::format("{}, {}, MTU {} of {}, {}", port.state, port.link_layer, port.mtu_bytes,
                              port.mtu_max_bytes, atomicity_text(device.atomicity));
  if (address != port.gids.end()) {
    finding.found += fmt::format("; GID {} is {} ({}{}{})", address->index, address->address, address->type,
                                 address->interface.empty() ? "" : " at ", address->interface);
  }
  constexpr std::uint32_t good_mtu_bytes = 4'096;
  if (!port.is_active) {
    finding.status = Status::warn;
    finding.mend =
        is_ethernet ? "bring its interface up: ip link set INTERFACE up (`rdma link` names it)"
                    : "look at the cable and at the subnet manager (opensm): it has to be ACTIVE in `ibstat`";
  } else if (device.atomicity == RdmaDevice::Atomicity::none) {
    finding.status = Status::warn;
    finding.mend =
        "it can lend stores of --atomics processor alone; a device with atomics changes stores by itself";
  } else if (is_ethernet && address == port.gids.end()) {
    finding.status = Status::warn;
    finding.mend = "it has no RoCE v2 address: give its interface an IP address (ip addr add)";
  } else if (port.mtu_bytes < good_mtu_bytes && port.mtu_bytes < port.mtu_max_bytes) {
    finding.status = Status::warn;
    finding.mend =
        is_ethernet
            ? "large values travel in small packets: raise the interface's MTU on all hosts and switches "
              "(ip link set INTERFACE mtu 4200)"
            : "large values travel in small packets: raise the MTU in the subnet manager";
  }
  return finding;
}

Finding judge_connection(const RdmaConnection& connection) {
  const auto& [host, here, there, packet_bytes, reads_max, device_changes] = connection;
  Finding finding{.subject = "connection"};
  finding.found =
      fmt::format("{}: {}/{} here with {}/{} there, packets of {} B, {} READs at a time; {} the store", host,
                  here.device, here.port, there.device, there.port, packet_bytes, reads_max,
                  device_changes ? "the devices change" : "lochd's processor changes");
  if (here.mtu_bytes != there.mtu_bytes) {
    // What is longer than the other end, or a switch between them, takes is dropped, and never told of.
    finding.status = packet_bytes > std::min(here.mtu_bytes, there.mtu_bytes) ? Status::fail : Status::warn;
    finding.found += fmt::format("; the MTU is {} here and {} there", here.mtu_bytes, there.mtu_bytes);
    finding.mend =
        "set the same MTU on both hosts and on the switches between them (ip link set INTERFACE mtu 4200)";
  } else if (there.lockable_bytes) {
    finding.status = Status::warn;
    finding.found += fmt::format("; lochd may lock {} there, and has to lock all memory that is used",
                                 limit_text(there.lockable_bytes));
    finding.mend = "LimitMEMLOCK=infinity in lochd's unit there";
  } else if (reads_max == 1) {
    finding.status = Status::warn;
    finding.mend =
        "one of the devices takes no more than one READ at a time (max_qp_rd_atom in `ibv_devinfo "
        "-v`): use another, or newer firmware";
  }
  return finding;
}

}  // namespace loch::cmd
