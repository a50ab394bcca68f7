#include "fabric/verbs/connection_end.h"

#include <gtest/gtest.h>
#include <string>

namespace loch::fabric::verbs {
namespace {

ConnectionEnd some_end() {
  return {.device = "mlx5_0",
          .port = 2,
          .mtu_bytes = 4096,
          .atomicity = RdmaDevice::Atomicity::device,
          .lockable_bytes = 8'388'608};
}

TEST(ConnectionEnd, IsWhatTheHostSaysOfIt) {
  EXPECT_EQ(connection_end_of(to_message(some_end())), some_end());
  ConnectionEnd other = some_end();
  other.atomicity = RdmaDevice::Atomicity::none;
  other.lockable_bytes.reset();
  EXPECT_EQ(connection_end_of(to_message(other)), other);
}

// Receive: what no host says of its end. Expect: an error that names the field.
TEST(ConnectionEnd, OfAHostThatLiesIsNone) {
  const auto fault_of = [](const char* field, const net::Message& value) {
    net::Message message = to_message(some_end());
    message[field] = value;
    const auto end = connection_end_of(message);
    if (end) return std::string("none");
    EXPECT_EQ(end.error().code, Errc::corrupt);
    return end.error().detail.substr(end.error().detail.rfind(' ') + 1);
  };
  EXPECT_EQ(fault_of("device", "\x1b[2J"), "'device'");
  EXPECT_EQ(fault_of("device", std::string(65, 'a')), "'device'");
  EXPECT_EQ(fault_of("device", ""), "'device'");
  EXPECT_EQ(fault_of("device_port", std::uint64_t{1} << 32), "'device_port'");
  EXPECT_EQ(fault_of("device_port", -1), "'device_port'");
  EXPECT_EQ(fault_of("mtu", "4096"), "'mtu'");
  EXPECT_EQ(fault_of("mtu", std::uint64_t{1} << 32), "'mtu'");
  EXPECT_EQ(fault_of("atomicity", "some"), "'atomicity'");
  EXPECT_EQ(fault_of("lockable", "all"), "'lockable'");
  EXPECT_FALSE(connection_end_of(net::Message::object()).has_value());
}

}  // namespace
}  // namespace loch::fabric::verbs
