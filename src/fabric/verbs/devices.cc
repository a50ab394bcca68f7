#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <infiniband/verbs.h>
#include <memory>
#include <net/if.h>
#include <string>
#include <string_view>
#include <sys/resource.h>

#include <loch/devices.h>

#include "fabric/verbs/rdma.h"

namespace loch {
namespace {

using fabric::verbs::bytes_of;
using fabric::verbs::Destroyer;
using DeviceList = std::unique_ptr<ibv_device*, Destroyer<&::ibv_free_device_list>>;
using Context = std::unique_ptr<ibv_context, Destroyer<&::ibv_close_device>>;

std::string address_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* v6 = reinterpret_cast<const in6_addr*>(gid.raw);
  constexpr std::size_t v4_offset = 12;
  if (IN6_IS_ADDR_V4MAPPED(v6)) {
    ::inet_ntop(AF_INET, gid.raw + v4_offset, text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  }
  return text.data();
}

std::string type_text(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "IB";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    default:
      return "RoCE v2";
  }
}

std::vector<RdmaDevice::Gid> gids_of(ibv_context& context, std::uint32_t port) {
  constexpr std::size_t gids_max = 256;
  std::array<ibv_gid_entry, gids_max> entries{};
  const ssize_t count = ::ibv_query_gid_table(&context, entries.data(), entries.size(), 0);
  std::vector<RdmaDevice::Gid> gids;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    if (entry.port_num != port) continue;
    std::array<char, IF_NAMESIZE> interface{};
    if (entry.ndev_ifindex != 0) ::if_indextoname(entry.ndev_ifindex, interface.data());
    gids.push_back({.index = entry.gid_index,
                    .type = type_text(entry.gid_type),
                    .address = address_text(entry.gid),
                    .interface = interface.data()});
  }
  return gids;
}

RdmaDevice::Port port_of(ibv_context& context, std::uint8_t number) {
  RdmaDevice::Port port{.number = number};
  ibv_port_attr attributes{};
  if (::ibv_query_port(&context, number, &attributes) != 0) {
    port.state = "unknown";
    return port;
  }
  port.is_active = attributes.state == IBV_PORT_ACTIVE;
  port.state = port.is_active ? "active" : "down";
  port.link_layer = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
  port.mtu_bytes = bytes_of(attributes.active_mtu);
  port.mtu_max_bytes = bytes_of(attributes.max_mtu);
  port.gids = gids_of(context, number);
  return port;
}

// CAP_IPC_LOCK: whoever has it may lock more than the limit.
bool may_lock_all() {
  constexpr unsigned ipc_lock = 14;
  constexpr std::string_view field = "CapEff:\t";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field)) continue;
    std::uint64_t capabilities = 0;
    std::from_chars(line.data() + field.size(), line.data() + line.size(), capabilities, 16);
    return (capabilities >> ipc_lock & 1) != 0;
  }
  return false;
}

}  // namespace

std::optional<std::uint64_t> lockable_bytes() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!is_limited || may_lock_all()) return std::nullopt;
  return limit.rlim_cur;
}

std::vector<RdmaDevice> rdma_devices() {
  std::vector<RdmaDevice> devices;
  int count = 0;
  const DeviceList list(::ibv_get_device_list(&count));
  for (int i = 0; list != nullptr && i < count; ++i) {
    ibv_device* each = list.get()[i];
    RdmaDevice device{.name = ::ibv_get_device_name(each)};
    const Context context(::ibv_open_device(each));
    ibv_device_attr attributes{};
    const int error = context == nullptr ? errno : ::ibv_query_device(context.get(), &attributes);
    if (error != 0) {
      device.trouble = std::strerror(error);
    } else {
      device.atomicity = fabric::verbs::atomicity_of(attributes.atomic_cap);
      for (std::uint8_t port = 1; port <= attributes.phys_port_cnt; ++port)
        device.ports.push_back(port_of(*context, port));
    }
    devices.push_back(std::move(device));
  }
  std::ranges::sort(devices, {}, &RdmaDevice::name);
  return devices;
}

}  // namespace loch
