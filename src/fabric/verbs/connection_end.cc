#include "fabric/verbs/connection_end.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <string_view>

#include "fabric/cluster_map.h"

namespace loch::fabric::verbs {
namespace {

constexpr std::array<std::string_view, 3> atomicities = {"none", "device", "host"};

std::unexpected<Error> makes_no_sense(const char* field) {
  return fail(Errc::corrupt, "verbs",
              fmt::format("what the host says of its end makes no sense: '{}'", field));
}

}  // namespace

Result<ConnectionEnd> connection_end_of(const rdma_cm_id& id) {
  ibv_device_attr device{};
  ibv_port_attr port{};
  int error = ::ibv_query_device(id.verbs, &device);
  if (error == 0) error = ::ibv_query_port(id.verbs, id.port_num, &port);
  const char* name = ::ibv_get_device_name(id.verbs->device);
  if (error != 0)
    return fail(Errc::io, "verbs",
                fmt::format("{} does not say what it can: {}", name, std::strerror(error)));
  return ConnectionEnd{.device = name,
                       .port = id.port_num,
                       .mtu_bytes = bytes_of(port.active_mtu),
                       .atomicity = atomicity_of(device.atomic_cap),
                       .lockable_bytes = lockable_bytes()};
}

net::Message to_message(const ConnectionEnd& end) {
  net::Message message{{"device", end.device},
                       {"device_port", end.port},
                       {"mtu", end.mtu_bytes},
                       {"atomicity", atomicities[static_cast<std::size_t>(end.atomicity)]}};
  if (end.lockable_bytes) message["lockable"] = *end.lockable_bytes;
  return message;
}

Result<ConnectionEnd> connection_end_of(const net::Message& message) {
  ConnectionEnd end{.device = net::text_of(message, "device")};
  // As names of nodes are: people's terminals show it.
  if (!is_node_name(end.device)) return makes_no_sense("device");
  constexpr std::uint64_t number_max = std::numeric_limits<std::uint32_t>::max();
  const std::uint64_t port = net::number_of(message, "device_port").value_or(number_max + 1);
  if (port > number_max) return makes_no_sense("device_port");
  end.port = static_cast<std::uint32_t>(port);
  const std::uint64_t mtu = net::number_of(message, "mtu").value_or(number_max + 1);
  if (mtu > number_max) return makes_no_sense("mtu");
  end.mtu_bytes = static_cast<std::uint32_t>(mtu);
  const auto* atomicity = std::ranges::find(atomicities, net::text_of(message, "atomicity"));
  if (atomicity == atomicities.end()) return makes_no_sense("atomicity");
  end.atomicity = static_cast<RdmaDevice::Atomicity>(atomicity - atomicities.begin());
  end.lockable_bytes = net::number_of(message, "lockable");
  if (message.contains("lockable") && !end.lockable_bytes) return makes_no_sense("lockable");
  return end;
}

}  // namespace loch::fabric::verbs
