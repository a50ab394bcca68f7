// For tests: a ZooKeeper server as a process of its own (zookeeper.sh), with a folder that is removed at the
// end. The process does not outlive the thread that started it, however that ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "net/testing/reserved_port.h"
#include "tests/process.h"

namespace loch::tests {

class ZooKeeperServer {
 public:
  // On a port of an address of this host. Aborts the test program if it does not serve in time.
  explicit ZooKeeperServer(std::string host = "127.0.0.1");
  ~ZooKeeperServer();
  ZooKeeperServer(const ZooKeeperServer&) = delete;
  ZooKeeperServer& operator=(const ZooKeeperServer&) = delete;

  [[nodiscard]] std::string address() const { return port_.at().text(); }
  // "zookeeper://HOST:PORT/loch"
  [[nodiscard]] std::string url() const { return "zookeeper://" + address() + "/loch"; }

  void kill();
  // How many it has to tell of a change, over all sessions and nodes.
  [[nodiscard]] std::uint64_t watches() const;
  // At the same port, with what it had.
  void start();
  void forget_everything();  // while it is killed
  // It does not answer, and its connections stand.
  void pause();
  void resume();

 private:
  // Until the process is seen so.
  void await(bool (*is_it)(const Ending&));

  const net::fake::ReservedPort port_;
  std::filesystem::path folder_;
  std::optional<Process> process_;
};

}  // namespace loch::tests
