// Node: what lochd is made of, on one host of a cluster; several of them in one process.
#pragma once

#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include <loch/loch.h>

#include "fabric/host.h"
#include "net/testing/reserved_port.h"
#include "server/daemon.h"

namespace loch::server::fake {

inline constexpr const char* store_name = "store";

// What lochd is made of, on one host of the cluster.
class Node {
 public:
  Node(std::string name, std::string folder, std::string coordinator) : folder_(std::move(folder)) {
    config_.directory = folder_;
    config_.huge_pages = false;
    config_.listen = {address()};
    config_.open_to_all = true;
    config_.cluster = {.coordinator = std::move(coordinator), .node = std::move(name)};
    Config::Store store;
    store.name = store_name;
    store.of_cluster = true;
    config_.stores.push_back(store);
    ::mkdir(folder_.c_str(), 0700);
  }
  ~Node() {
    stop();
    lose_memory();
    ::rmdir(folder_.c_str());
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void start() {
    auto daemon = Daemon::start(config_, {.log = log,
                                          .coordinator = make_coordinator ? make_coordinator() : nullptr,
                                          .sees_its_neighbours = sees_its_neighbours,
                                          .bytes_together = bytes_together});
    ASSERT_TRUE(daemon.has_value()) << daemon.error().message();
    daemon_ = std::move(*daemon);
  }
  void stop() { daemon_.reset(); }
  // As a host that was switched off does.
  void lose_memory() {
    Options options;
    options.directory = folder_;
    for (const Config::Store& store : config_.stores)
      std::ignore = Store::destroy(fmt::format("shm://{}", store.name), options);
  }

  [[nodiscard]] const net::HostPort& address() const { return port_.at(); }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] fabric::Host& host() { return daemon_->host(); }
  // That it goes by.
  [[nodiscard]] fabric::ClusterMap map() const { return daemon_->member().now().map.map; }
  [[nodiscard]] std::uint64_t epoch() const { return map().epoch; }
  bool sees_its_neighbours = false;
  std::uint64_t bytes_together = Rebalancer::usual_bytes_together;
  std::function<std::unique_ptr<cluster::Coordinator>()>
      make_coordinator{};  // instead of the one that is named
  std::function<void(fabric::Host::Level, const std::string&)> log{};
  Config& config() { return config_; }

 private:
  Config config_;
  const std::string folder_;
  const net::fake::ReservedPort port_;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace loch::server::fake
