// What tests do to the network of nodes.sh. Nodes have their numbers there, from 1 on.
#pragma once

#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

namespace loch::tests {

inline void change_network(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}
// Takes the node's cable out of the bridge, and puts it back.
inline void cut_off(int node) { change_network(fmt::format("ip link set v{} nomaster", node)); }
inline void join_again(int node) { change_network(fmt::format("ip link set v{} master br0", node)); }
// Of what goes to the node, from now on.
inline void lose(int node, int percent) {
  change_network(fmt::format("tc qdisc replace dev v{} root netem loss {}%", node, percent));
}

}  // namespace loch::tests
