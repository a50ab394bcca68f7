// The RDMA devices of this host, as far as people want to know of them.
#pragma once

#include <cstdint>
#include <optional>
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
[[nodiscard]] std::vector<RdmaDevice> rdma_devices();

// How much memory this process may have its devices lock, in bytes; nothing: any amount.
[[nodiscard]] std::optional<std::uint64_t> lockable_bytes();

// The connection of a session of this process with one host, over RDMA, as each of its two ends tells of
// itself.
struct RdmaConnection {
  struct End {
    std::string device{};
    std::uint32_t port = 0;
    std::uint32_t mtu_bytes = 0;  // that the port is set to
    RdmaDevice::Atomicity atomicity = RdmaDevice::Atomicity::none;
    std::optional<std::uint64_t> lockable_bytes{};  // of the process; as above
    bool operator==(const End&) const = default;
  };
  std::string host{};  // "10.0.0.1:7457"
  End here{};
  End there{};
  std::uint32_t packet_bytes = 0;  // what travels in one packet, at most: the path's MTU
  std::uint32_t reads_max = 0;     // READs and atomics that may be under way
  bool device_changes = false;     // the store's words; else the host's processor does
};

}  // namespace loch
