// The RDMA devices of this host, as far as people want to know of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loch {

struct RdmaDevice {
  // Of its atomics: none; atomic against each other; atomic against the processor's too.
  enum class Atomicity : std::uint8_t { none, device, host };

  struct Gid {
    std::uint32_t index = 0;
    std::string type{};       // "IB", "RoCE v1" or "RoCE v2"
    std::string address{};    // as an IPv6 or IPv4 address
    std::string interface{};  // of the network; empty on InfiniBand
  };
  struct Port {
    std::uint32_t number = 0;
    bool is_active = false;
    std::string state{};       // "active", "down"
    std::string link_layer{};  // "Ethernet", "InfiniBand"
    std::uint32_t mtu_bytes = 0;
    std::uint32_t mtu_max_bytes = 0;
    std::vector<Gid> gids{};
  };

  std::string name{};
  std::string trouble{};  // why it can not be used by this process; empty if it can
  Atomicity atomicity = Atomicity::none;
  std::vector<Port> ports{};
};

// Sorted by name; empty where there is none.
std::vector<RdmaDevice> rdma_devices();

}  // namespace loch
