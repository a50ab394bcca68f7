// The same of a cluster that is kept by a real ZooKeeper: hosts join it, are drained and removed, and are
// lost for good, while clients work.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/testing/comes_true.h"
#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "cluster/zookeeper_session.h"
#include "lab/process.h"
#include "lab/zookeeper_server.h"
#include "memory/layout.h"
#include "tests/cluster/cluster_processes.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

using cluster::ClusterMap;

// Longer than ZooKeeper, too, lets a host be silent.
constexpr milliseconds beyond_all_patience(cluster::ZooKeeperSession::timeout_ns / base::millisecond_ns +
                                           1'000);
static_assert(beyond_all_patience > beyond_silence);
// Where a host is lost in the midst of a move: an operation waits so long for the move first.
constexpr milliseconds time_max_of_moves = worker_time_max + worker_timeout;
// Of a value that has a block to itself.
constexpr std::size_t large_bytes = 1'000'000;

class ChangingCluster : public ClusterProcesses {
 protected:
  std::string coordinator() override {
    zookeeper_.emplace(lab::Hosts::address_of_switch());
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

  static std::string name_of(Host host) { return lab::Hosts::name(host); }
  static net::HostPort address_of(Host host) {
    return {.host = lab::Hosts::address(host), .port = std::to_string(fabric::default_port)};
  }
  [[nodiscard]] ClusterMap map() { return asked_->read_map().value().map; }
  void change(const std::function<Result<ClusterMap>(const ClusterMap&)>& how) {
    const auto changed = cluster::change_map(*asked_, how);
    ASSERT_TRUE(changed.has_value()) << changed.error().message();
  }
  void await_map(const char* what, const std::function<bool(const ClusterMap&)>& condition) {
    ASSERT_TRUE(base::fake::comes_true([&] { return condition(map()); }, patience)) << what;
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
    await_its_part(host);
  }
  // It has joined, and gets shards, and at once new items: those of keys that are at home there.
  void await_its_part(Host host) {
    await_map("a host that joined got no shards",
              [host](const ClusterMap& map) { return has_its_share(map, host); });
    constexpr int puts_max = 64;  // a quarter of the keys are at home there
    int puts = 0;
    for (; puts < puts_max && large_items_on(host) == 0; ++puts) {
      const auto put = store().put(fmt::format("large-{}", puts), std::string(large_bytes, 'l'));
      ASSERT_TRUE(put.has_value()) << put.error().message();
    }
    EXPECT_GT(large_items_on(host), 0) << "no new item was put on a host that joined";
    for (int i = 0; i < puts; ++i) EXPECT_TRUE(store().remove(fmt::format("large-{}", i)).has_value());
  }
  // As the descriptors of its blocks say, in its first data region.
  [[nodiscard]] int large_items_on(Host host) {
    const ClusterMap now = map();
    const auto region = now.nodes.at(now.find(name_of(host)).value()).data.front();
    std::ifstream file(folder() / name_of(host) / "loch.test" / fmt::format("region.{}", region),
                       std::ios::binary);
    std::vector<memory::BlockDescriptor> blocks(memory::blocks_in_region_max);
    file.read(reinterpret_cast<char*>(blocks.data()),
              static_cast<std::streamsize>(blocks.size() * sizeof blocks[0]));
    EXPECT_GT(file.gcount(), 0) << "it has no data region";
    return static_cast<int>(std::ranges::count_if(blocks, [](const memory::BlockDescriptor& block) {
      return memory::LeaseWord::decode(block.lease).state == memory::BlockState::large_head;
    }));
  }
  void drain(Host host) {
    change([host](const ClusterMap& map) { return cluster::draining(map, name_of(host)); });
  }
  static std::vector<std::string> fault(const std::string& point, const std::string& action) {
    return {fmt::format("LOCH_FAULT={}:{}", point, action)};
  }
  // Its lochd stops at that point, when it hands over shards.
  void begin_to_drain(Host host, const std::string& stops_at) {
    kill_lochd(host);
    start_lochd(host, fault(stops_at, "stop"));
    drain(host);
    await_own_stop(host);
  }
  void await_drained(Host host) {
    await_map("a host was not drained", [host](const ClusterMap& map) { return is_drained(map, host); });
  }
  void remove(Host host, bool lost) {
    change([host, lost](const ClusterMap& map) { return cluster::without_node(map, name_of(host), lost); });
  }
  // What `loch cluster` prints, which has to end well.
  std::string command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {LOCH_TEST_COMMAND, "cluster"});
    auto loch = lab::Process::start({.words = arguments,
                                     .log = folder() / fmt::format("command-{}", ++commands_),
                                     .environment = {"LOCH_COORDINATOR=" + zookeeper_->url()}})
                    .value();
    EXPECT_EQ(loch.wait(patience), lab::Ending{.exit_code = 0})
        << fmt::format("{}: {}", fmt::join(arguments, " "), loch.output());
    return loch.output();
  }
  // What `loch cluster status` says of a host; null, if nothing.
  nlohmann::json status(Host host) {
    const auto status = nlohmann::json::parse(command({"status", "--json"}), nullptr, false);
    EXPECT_TRUE(status.is_object());
    for (const auto& node : status.value("nodes", nlohmann::json::array())) {
      if (node.value("name", "") == name_of(host)) return node;
    }
    return nullptr;
  }

  std::optional<lab::ZooKeeperServer> zookeeper_;

 private:
  std::unique_ptr<cluster::Coordinator> asked_;
  int commands_ = 0;
};

// Receive: a fourth host, and the first one leaves, as `loch cluster` has it. Expect: nothing is lost, and
// nobody waits for long; and the command says what has become of it.
TEST_F(ChangingCluster, HostsJoinAndAreDrained) {
  auto crew = start_crew();
  start_lochd(d);
  EXPECT_EQ(status(d), nullptr);
  command({"add", name_of(d) + "=" + address_of(d).text()});
  await_its_part(d);
  const auto joined = status(d);
  EXPECT_EQ(joined.value("state", ""), "serves");
  EXPECT_EQ(joined.value("present", false), true);
  EXPECT_EQ(joined.value("address", ""), address_of(d).text());
  EXPECT_GE(joined.value("shards", 0), 4);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  command({"drain", name_of(a), "--wait"});
  const auto left = status(a);
  EXPECT_EQ(left.value("state", ""), "drained");
  EXPECT_EQ(left.value("shards", -1), 0);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  command({"remove", name_of(a)});
  EXPECT_EQ(status(a), nullptr);
  const std::uint64_t epoch_without_it = map().epoch;
  for (const Host host : {b, c, d}) await_epoch(host, epoch_without_it);
  kill_lochd(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  finish_all(crew);
  expect_in_order();
}

// Receive: a host that gives away its shards is killed at one point of their handover after the other, and
// told to end in the midst of it; so are those that get them; and ZooKeeper is killed. Expect: they end when
// they are told to, and go on with it afterwards.
TEST_F(ChangingCluster, HostsEndWhileOneIsDrained) {
  auto crew = start_crew();
  begin_to_drain(a, "handover.after_close");
  kill_lochd(b);
  continue_lochd(a);
  end_lochd(a);
  // As long as another host is down no shard moves.
  start_lochd(a, fault("handover.after_close", "kill"));
  start_lochd(b);
  await_own_kill(a);
  end_lochd(c);
  start_lochd(a, fault("handover.after_slots", "kill"));
  start_lochd(c);
  await_own_kill(a);
  kill_lochd(c);
  start_lochd(a, fault("handover.after_left", "kill"));
  start_lochd(c);
  await_own_kill(a);
  EXPECT_FALSE(is_drained(map(), a));
  start_lochd(a);
  zookeeper_->kill();
  for_a_while(milliseconds(1'000));
  zookeeper_->start();
  await_drained(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  finish_all(crew);
  expect_in_order();
}

// Receive: a host is stopped while it gives away what it has, for so long that its clients, the other hosts
// and ZooKeeper take it for dead; then it goes on, while one that is to get it is stopped. Expect: nothing
// that comes too late is done, nothing is lost, and in the end it is drained.
TEST_F(ChangingCluster, HostsAreStoppedWhileOneIsDrained) {
  auto crew = start_crew();
  begin_to_drain(a, "handover.after_slots");
  for_a_while(beyond_all_patience);
  stop_lochd(b);
  continue_lochd(a);
  for_a_while(beyond_silence);
  EXPECT_FALSE(is_drained(map(), a));
  continue_lochd(b);
  await_drained(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  finish_all(crew, time_max_of_moves);
  expect_in_order();
}

// Receive: a host is cut off from the others and from ZooKeeper while it gives away what it has. Expect: the
// same.
TEST_F(ChangingCluster, AHostIsCutOffWhileItIsDrained) {
  auto crew = start_crew();
  begin_to_drain(a, "handover.after_close");
  must(hosts().cut_off(a));
  continue_lochd(a);
  for_a_while(beyond_all_patience);
  expect_some_quiet_out_of_reach();
  EXPECT_FALSE(is_drained(map(), a));
  must(hosts().join_again(a));
  await_drained(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  finish_all(crew, time_max_of_moves);
  expect_in_order();
}

// Receive: a host that is lost for good, and another one in its place. Expect: what it had is gone, and
// nothing else.
TEST_F(ChangingCluster, AHostIsLostForGood) {
  auto crew = start_crew();
  const std::uint64_t lost_at_ns = now_ns();
  kill_lochd(b);
  lose_memory(b);
  const Items within_reach = expect_some_quiet_out_of_reach();
  remove(b, true);
  await_recovery(crew);
  note_loss(lost_at_ns);
  expect_lost_all_but(within_reach);
  const Items left = quiet_items();
  join(e);
  await_recovery(crew);
  EXPECT_EQ(quiet_items(), left);
  finish_all(crew);
  expect_in_order();
}

}  // namespace
}  // namespace loch::tests
