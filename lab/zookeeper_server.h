// lab/zookeeper_server: a real ZooKeeper server (zookeeper.sh), for tests.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lab/process.h"
#include "lab/temp_folder.h"
#include "net/testing/reserved_port.h"

namespace loch::lab {

class ZooKeeperServer {
 public:
  // On a port of an address of this host. Aborts the test program if it does not serve in time.
  explicit ZooKeeperServer(std::string host = "127.0.0.1");

  [[nodiscard]] std::string address() const { return port_.at().text(); }
  // "zookeeper://HOST:PORT/loch"
  [[nodiscard]] std::string url() const { return "zookeeper://" + address() + "/loch"; }

  void kill() { process_->kill(); }
  // How many it has to tell of a change, over all sessions and nodes.
  [[nodiscard]] std::uint64_t watches() const;
  // At the same port, with what it had.
  void start();
  void forget_everything();  // while it is killed
  // It does not answer, and its connections stand.
  void pause();
  void resume() { process_->signal(SIGCONT); }

 private:
  [[nodiscard]] std::string data() const { return folder_.path() + "/data"; }

  const net::fake::ReservedPort port_;
  const TempFolder folder_ = TempFolder::make(std::filesystem::temp_directory_path()).value();
  std::optional<Process> process_;
};

}  // namespace loch::lab
