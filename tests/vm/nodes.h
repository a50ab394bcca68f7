// What tests do to the network of nodes.sh. Nodes have their numbers there, from 1 on.
#pragma once

#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/process.h"
#include "tests/store_processes.h"

namespace loch::tests {

inline void change_network(const std::string& command) {
  Process shell({.program = "/bin/sh",
                 .arguments = {"-c", command},
                 .environment = {},
                 .output = std::filesystem::temp_directory_path() / "network.log"});
  const auto ending = shell.wait(patience);
  ASSERT_TRUE(ending && ending->exit_code == 0) << command << '\n' << shell.output();
}
// Takes the node's cable out of the bridge, and puts it back.
inline void cut_off(int node) { change_network(fmt::format("ip link set v{} nomaster", node)); }
inline void join_again(int node) { change_network(fmt::format("ip link set v{} master br0", node)); }
// Of what goes to the node, from now on.
inline void lose(int node, int percent) {
  change_network(fmt::format("tc qdisc replace dev v{} root netem loss {}%", node, percent));
}

}  // namespace loch::tests
