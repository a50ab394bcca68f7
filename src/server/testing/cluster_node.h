// Node: what lochd is made of, on one host of a cluster; several of them in one process.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include <loch/loch.h>

#include "fabric/host.h"
#include "net/testing/reserved_port.h"
#include "server/keeper.h"
#include "server/member.h"
#include "server/neighbours.h"
#include "server/rebalancer.h"

namespace loch::server::fake {

inline constexpr const char* store_name = "store";

// What lochd is made of, on one host of the cluster.
class Node {
 public:
  Node(std::string name, std::string folder, std::string coordinator) : folder_(std::move(folder)) {
    config_.directory = folder_;
    config_.huge_pages = false;
    config_.listen = {address()};
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
    const fabric::Access access{.directory = folder_, .huge_pages = false, .lends = true};
    auto options = Member::options_of(config_, access);
    ASSERT_TRUE(options.has_value()) << options.error().message();
    auto member = make_coordinator ? Member::join(std::move(*options), make_coordinator())
                                   : Member::join(std::move(*options));
    ASSERT_TRUE(member.has_value()) << member.error().message();
    member_ = std::move(*member);
    keeper_ = std::make_unique<Keeper>(access, [this](const auto& store) { return member_->node_of(store); });
    auto host = fabric::Host::start(
        {.listen = {address()},
         .open_store = [this](const std::string& store) { return keeper_->open(store); },
         .cluster_of = [this](const std::string& store) { return member_->cluster_of(store); },
         .readers = keeper_->readers(),
         .silence_max_ns = silence_max_ns});
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
    if (member_->coordinator().may_change())
      rebalancer_ = std::make_unique<Rebalancer>(fabric::Access{}, *member_, *host_, bytes_together);
    if (!sees_its_neighbours) return;
    neighbours_ = std::make_unique<Neighbours>(
        Neighbours::Options{.here = access, .others = {}, .stores = {store_name}}, *member_, *host_);
  }
  void stop() {
    rebalancer_.reset();
    neighbours_.reset();
    host_.reset();
    keeper_.reset();
    member_.reset();
  }
  // As a host that was switched off does.
  void lose_memory() {
    Options options;
    options.directory = folder_;
    for (const Config::Store& store : config_.stores)
      std::ignore = Store::destroy(fmt::format("shm://{}", store.name), options);
  }

  [[nodiscard]] const net::HostPort& address() const { return port_.at(); }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] fabric::Host& host() { return *host_; }
  // That it goes by.
  [[nodiscard]] fabric::ClusterMap map() const { return member_->now().map.map; }
  [[nodiscard]] std::uint64_t epoch() const { return map().epoch; }
  base::Nanos silence_max_ns = 10 * base::second_ns;
  bool sees_its_neighbours = false;
  std::uint64_t bytes_together = Rebalancer::usual_bytes_together;
  std::function<std::unique_ptr<cluster::Coordinator>()>
      make_coordinator{};  // instead of the one that is named
  Config& config() { return config_; }

 private:
  Config config_;
  const std::string folder_;
  const net::fake::ReservedPort port_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<fabric::Host> host_;
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<Rebalancer> rebalancer_;
};

}  // namespace loch::server::fake
