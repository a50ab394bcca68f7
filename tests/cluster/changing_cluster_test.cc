// The same of a cluster that is kept by a real ZooKeeper: hosts join it, are drained and removed, and are
// lost for good, while clients work.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <signal.h>
#include <thread>

#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/cluster/zookeeper_server.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

using cluster::ClusterMap;
using std::chrono::steady_clock;

class ChangingCluster : public ClusterProcesses {
 protected:
  std::string coordinator() override {
    zookeeper_.emplace(bench::Hosts::address_of_switch());
    asked_ = cluster::Coordinator::open(zookeeper_->url()).value();
    std::vector<cluster::NewNode> nodes;
    for (const Host host : {a, b, c}) nodes.push_back({.name = name_of(host), .at = address_of(host)});
    must(asked_->write_map(cluster::first_map(nodes, 16).value(), 0));
    return zookeeper_->url();
  }
  void TearDown() override {
    ClusterProcesses::TearDown();
    asked_.reset();
    zookeeper_.reset();
  }

  static std::string name_of(Host host) { return bench::Hosts::name(host); }
  static net::HostPort address_of(Host host) {
    return {.host = bench::Hosts::address(host), .port = std::to_string(fabric::default_port)};
  }
  [[nodiscard]] ClusterMap map() { return asked_->read_map().value().map; }
  void change(const std::function<Result<ClusterMap>(const ClusterMap&)>& how) {
    const auto changed = cluster::change_map(*asked_, how);
    ASSERT_TRUE(changed.has_value()) << changed.error().message();
  }
  void await_map(const char* what, const std::function<bool(const ClusterMap&)>& condition) {
    const auto deadline = steady_clock::now() + patience;
    while (!condition(map())) {
      ASSERT_LT(steady_clock::now(), deadline) << what;
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  static bool has_its_share(const ClusterMap& map, Host host) {
    const auto node = map.find(name_of(host));
    const auto homes = std::ranges::count_if(
        map.shards, [&](const ClusterMap::Shard& shard) { return node && shard.home.node == *node; });
    const bool none_moves = std::ranges::none_of(
        map.shards, [](const ClusterMap::Shard& shard) { return shard.next.has_value(); });
    return homes >= 4 && none_moves;
  }
  static bool is_drained(const ClusterMap& map, Host host) {
    const auto node = map.find(name_of(host));
    return node && map.nodes[*node].state == ClusterMap::NodeState::drained;
  }
  void join(Host host) {
    start_lochd(host);
    change(
        [host](const ClusterMap& map) { return cluster::with_node(map, name_of(host), address_of(host)); });
    await_map("a host that joined got no shards",
              [host](const ClusterMap& map) { return has_its_share(map, host); });
  }
  void drain(Host host) {
    change([host](const ClusterMap& map) { return cluster::draining(map, name_of(host)); });
  }
  void await_drained(Host host) {
    await_map("a host was not drained", [host](const ClusterMap& map) { return is_drained(map, host); });
  }
  void remove(Host host, bool lost) {
    change([host, lost](const ClusterMap& map) { return cluster::without_node(map, name_of(host), lost); });
  }

  std::optional<ZooKeeperServer> zookeeper_;

 private:
  std::unique_ptr<cluster::Coordinator> asked_;
};

// Receive: a fourth host, and the first one leaves. Expect: nothing is lost, and nobody waits for long.
TEST_F(ChangingCluster, HostsJoinAndAreDrained) {
  auto crew = start_crew();
  join(d);
  await_recovery(crew);
  EXPECT_EQ(quiet_keys_left(), quiet_keys);
  drain(a);
  await_drained(a);
  EXPECT_EQ(quiet_keys_left(), quiet_keys);
  remove(a, false);
  // As long as those who are still there may take to learn of it.
  std::this_thread::sleep_for(milliseconds(2'000));
  kill_lochd(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_keys_left(), quiet_keys);
  finish_all(crew);
  expect_in_order();
}

// Receive: hosts that give away what they have are killed or told to end meanwhile, and so are those that get
// it; and ZooKeeper is killed. Expect: they end when they are told to, and go on with it afterwards.
TEST_F(ChangingCluster, HostsEndWhileTheyAreDrained) {
  auto crew = start_crew();
  drain(a);
  for (const Host host : {a, b, c}) {
    std::this_thread::sleep_for(milliseconds(120));
    kill_lochd(host);
    start_lochd(host);
    std::this_thread::sleep_for(milliseconds(120));
    end_lochd(host);
    start_lochd(host);
  }
  EXPECT_FALSE(is_drained(map(), a)) << "it was drained before all of that";
  zookeeper_->kill();
  std::this_thread::sleep_for(milliseconds(1'000));
  zookeeper_->start();
  await_drained(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_keys_left(), quiet_keys);
  finish_all(crew);
  expect_in_order();
}

// Receive: a host that is lost for good, and another one in its place. Expect: what it had is gone, and
// nothing else.
TEST_F(ChangingCluster, AHostIsLostForGood) {
  auto crew = start_crew();
  const std::uint64_t lost_at_ns = now_ns();
  kill_lochd(b);
  lose_memory(b);
  remove(b, true);
  await_recovery(crew);
  note_loss(lost_at_ns, now_ns());
  const std::uint64_t left = quiet_keys_left();
  EXPECT_GT(left, 0U);
  EXPECT_LT(left, quiet_keys);
  join(e);
  await_recovery(crew);
  EXPECT_EQ(quiet_keys_left(), left);
  finish_all(crew);
  expect_in_order();
}

}  // namespace
}  // namespace loch::tests
