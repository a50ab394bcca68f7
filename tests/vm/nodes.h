// What tests do to the network of nodes.sh. Nodes have their numbers there, from 1 on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lab/process.h"
#include "tests/store_processes.h"

namespace loch::tests {

// After each operation of a worker: the processors are emulated, and all nodes share them.
inline constexpr std::uint64_t think_us = 5'000;

// What it prints.
inline std::string ask_network(const std::string& command) {
  const auto output = std::filesystem::temp_directory_path() / "network.log";
  std::filesystem::remove(output);
  auto shell = lab::Process::start({.words = {"/bin/sh", "-c", command}, .log = output}).value();
  const auto ending = shell.wait(patience);
  EXPECT_TRUE(ending && ending->exit_code == 0) << command << '\n' << shell.output();
  return shell.output();
}
inline void change_network(const std::string& command) { ask_network(command); }
// Takes the node's cable out of the bridge, and puts it back.
inline void cut_off(int node) { change_network(fmt::format("ip link set v{} nomaster", node)); }
inline void join_again(int node) { change_network(fmt::format("ip link set v{} master br0", node)); }
// Of what goes to the node, from now on.
inline void lose(int node, int percent) {
  change_network(fmt::format("tc qdisc replace dev v{} root netem loss {}%", node, percent));
}
// How many packets have been lost so, on the way to all of these nodes.
inline std::uint64_t lost(std::span<const int> nodes) {
  std::uint64_t packets = 0;
  for (const int node : nodes) {
    const std::string text = ask_network(fmt::format("tc -s -j qdisc show dev v{}", node));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    EXPECT_TRUE(json.is_array()) << text;
    for (const auto& queue : json) packets += queue.value("drops", std::uint64_t{0});
  }
  return packets;
}
// How often a node's device was asked once more for what it has executed.
inline std::uint64_t asked_again(int node) {
  const auto path = fmt::format("/sys/class/infiniband/d{}/ports/1/hw_counters/duplicate_request", node);
  std::uint64_t count = 0;
  std::ifstream file(path);
  EXPECT_TRUE(file >> count) << path;
  return count;
}

}  // namespace loch::tests
