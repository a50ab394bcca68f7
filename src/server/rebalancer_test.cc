// Hosts that join a cluster and leave it while clients work.
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <mutex>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/testing/comes_true.h"
#include "client/impl.h"
#include "cluster/changes.h"
#include "server/testing/moving_cluster.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using cluster::ClusterMap;
using fake::Node;
using fake::store_name;
using testing::IsSupersetOf;
using RebalancerTest = fake::MovingCluster;

// Clients that put and get keys of their own, and know what each has to be.
class Workers {
 public:
  Workers(const std::function<Result<Store>()>& open, int count) : epochs_(static_cast<std::size_t>(count)) {
    for (int number = 0; number < count; ++number)
      threads_.emplace_back([this, open, number] { work(open, number); });
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  // The earliest of the cluster's map that one of them goes by; 0: of one that has not begun.
  [[nodiscard]] std::uint64_t epoch() const {
    const std::scoped_lock lock(mutex_);
    return std::ranges::min(epochs_);
  }
  // What went wrong first.
  [[nodiscard]] std::string trouble() const {
    const std::scoped_lock lock(mutex_);
    return trouble_;
  }

  static constexpr int keys = 50;
  static std::string key(int worker, int number) { return fmt::format("key {} of {}", number, worker); }

 private:
  void work(const std::function<Result<Store>()>& open, int worker) {
    auto store = open();
    if (!store) return note(store.error().message());
    std::vector<std::string> values(keys);
    for (int round = 0; !stop_ && trouble().empty(); ++round) {
      for (int i = 0; i < keys && !stop_; ++i) {
        const std::string next =
            fmt::format("{} {}", round, std::string(static_cast<std::size_t>(i) * 20, 'v'));
        // Now and then a key is not there for a while.
        const bool goes = (round + i) % 7 == 0 && !values[static_cast<std::size_t>(i)].empty();
        if (goes) {
          if (const auto removed = store->remove(key(worker, i)); !removed)
            return note(removed.error().message());
        } else if (const auto put = store->put(key(worker, i), next); !put) {
          return note(put.error().message());
        }
        values[static_cast<std::size_t>(i)] = goes ? "" : next;
        const int other = (i * 7 + round) % keys;
        const auto got = store->get(key(worker, other));
        const std::string& expected = values[static_cast<std::size_t>(other)];
        if (!got && got.error().code != Errc::not_found) return note(got.error().message());
        if (got.value_or("") != expected)
          return note(fmt::format("key {} is '{}', not '{}'", other, got.value_or("not there"), expected));
        ++done_;
      }
      const std::uint64_t epoch = store->impl().memory()->region_map().epoch;
      const std::scoped_lock lock(mutex_);
      epochs_[static_cast<std::size_t>(worker)] = epoch;
    }
  }
  void note(const std::string& what) {
    const std::scoped_lock lock(mutex_);
    if (trouble_.empty()) trouble_ = what;
  }

  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> done_ = 0;
  mutable std::mutex mutex_;
  std::string trouble_;
  std::vector<std::uint64_t> epochs_;
  std::vector<std::thread> threads_;
};

// Receive: a cluster of two hosts, to which a third comes, and which the first leaves, while clients work.
// Expect: each has its share of the shards; whoever leaves has nothing any more; and no client notices.
TEST_F(RebalancerTest, HostsJoinAndLeaveWhileClientsWork) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  Workers workers([url = url(1)] { return open(url); }, 3);
  Node& third = add_host("c");
  ASSERT_NO_FATAL_FAILURE(third.start());
  change([&](const ClusterMap& map) { return cluster::with_node(map, "c", third.address()); });
  EXPECT_TRUE(comes_true([&] { return shards_of("c") >= 2; })) << workers.trouble();
  EXPECT_GE(shards_of("a"), 2);
  const std::uint64_t before = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > before + 200 || !workers.trouble().empty(); }));
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  EXPECT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }))
      << workers.trouble();
  EXPECT_EQ(shards_of("a"), 0);
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  EXPECT_TRUE(comes_true([&] { return !open(0); }));
  nodes_[0]->stop();
  const std::uint64_t without = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > without + 200 || !workers.trouble().empty(); }));
  workers.stop();
  EXPECT_EQ(workers.trouble(), "");
  auto store = open(1).value();
  ASSERT_TRUE(store.collect().has_value());
  const auto report = store.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt, 0U) << testing::PrintToString(report->findings);
}

// Receive: a host is added that nobody has met and that is not there. Expect: clients go on, and others come.
TEST_F(RebalancerTest, AHostIsAddedThatIsNotThere) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  Workers workers([url = url(1)] { return open(url); }, 2);
  EXPECT_TRUE(comes_true([&] { return workers.done() > 50 || !workers.trouble().empty(); }));
  change(
      [](const ClusterMap& map) { return cluster::with_node(map, "c", {.host = "127.0.0.1", .port = "1"}); });
  EXPECT_TRUE(comes_true(
      [&] { return std::ranges::all_of(nodes_, [](const auto& node) { return node->epoch() == 2; }); }));
  EXPECT_TRUE(comes_true([&] { return workers.epoch() == 2 || !workers.trouble().empty(); }));
  const std::uint64_t before = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > before + 200 || !workers.trouble().empty(); }));
  const auto store = open(0);
  EXPECT_TRUE(store.has_value()) << store.error().message();
  workers.stop();
  EXPECT_EQ(workers.trouble(), "");
}

// Receive: the only shard of the index is on a host that is down, and then a client puts items where no new
// ones are to come. Expect: errors, and nothing there.
TEST_F(RebalancerTest, AClientThatReachesOneHostAlone) {
  begin(2, 1);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  ASSERT_EQ(shards_of("a"), 1);
  nodes_[0]->stop();
  auto store = open(1);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const auto got = store->get("key");
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  ASSERT_TRUE(comes_true([&] { return store->put("key", "value").has_value(); }));
  nodes_[1]->stop();
  // A host that can not give away its items as long as another one is down.
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] {
    const auto put = store->put("key", "value");
    return !put && put.error().code == Errc::no_space;
  }));
  EXPECT_TRUE(store->get("key").has_value());
}

// Receive: a host has lost its memory, and comes back when the cluster's key is being replaced. Expect: what
// it makes anew fits what the others have.
TEST_F(RebalancerTest, AHostComesBackUnderAnotherKey) {
  const std::string before = folder_ + "/before";
  const std::string after = folder_ + "/after";
  for (const std::string& file : {before, after}) {
    std::ofstream(file) << std::string(64, file.back());
    ::chmod(file.c_str(), 0600);
  }
  std::vector<cluster::NewNode> first;
  for (const std::string name : {"a", "b"}) {
    Node& node = add_host(name);
    node.config().key_file = before;
    node.config().other_key_file = after;
    first.push_back(new_node(name, node));
  }
  ASSERT_TRUE(map_.write(cluster::first_map(first, 8).value(), 0).has_value());
  for (const auto& node : nodes_) ASSERT_NO_FATAL_FAILURE(node->start());
  Options options;
  options.mode = Options::Mode::attach;
  options.key_file = before;
  ASSERT_TRUE(comes_true([&] { return Store::open(url(0), options).has_value(); }));
  auto store = Store::open(url(1), options).value();
  nodes_[0]->stop();
  nodes_[0]->lose_memory();
  std::swap(nodes_[0]->config().key_file, nodes_[0]->config().other_key_file);
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_TRUE(comes_true([&] { return store.count().has_value(); }));
  const auto opened = Store::open(url(0), options);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
}

// Receive: a client does nothing while a host leaves, and comes back when nobody is left who knows that one.
// Expect: it finds the store.
TEST_F(RebalancerTest, AClientThatWasIdleWhileAHostLeft) {
  begin(3);
  const std::string all_hosts =
      fmt::format("tcp://{},{},{}/{}", nodes_[0]->address().text(), nodes_[1]->address().text(),
                  nodes_[2]->address().text(), store_name);
  ASSERT_TRUE(comes_true([&] { return open(all_hosts).has_value(); }));
  auto store = open(all_hosts).value();
  constexpr int count = 20;
  for (int i = 0; i < count; ++i) ASSERT_TRUE(store.put(fmt::format("key{}", i), "value").has_value());
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  ASSERT_TRUE(comes_true([&] { return !knows(1, 0) && !knows(2, 0); }));
  const auto refused = open(0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unavailable) << refused.error().message();
  nodes_[0]->stop();
  nodes_[1]->host().end_idle(store_name, 0);
  nodes_[2]->host().end_idle(store_name, 0);
  EXPECT_TRUE(comes_true([&] { return store.get("key0").has_value(); }));
  for (int i = 0; i < count; ++i) EXPECT_TRUE(store.get(fmt::format("key{}", i)).has_value()) << i;
}

std::atomic<const char*> point = nullptr;  // the first who comes there does this
std::function<void()> at_point;

// Receive: a host that is stopped while it gives away its shards, and then its items, at one point after the
// other. Expect: it goes on where it was.
TEST_F(RebalancerTest, GoesOnWhereItWasStopped) {
  base::set_fault_hook([](const char* name) {
    const char* wanted = point;
    if (wanted != nullptr && std::string_view(name) == wanted && point.exchange(nullptr) != nullptr)
      at_point();
  });
  bytes_together_ = 1;  // one shard after the other
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  {
    auto store = open(1).value();
    for (int i = 0; i < 300; ++i)
      ASSERT_TRUE(store.put(fmt::format("key{}", i), fmt::format("value{}", i)).has_value());
  }
  nodes_[0]->stop();
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  std::vector<const char*> points(base::handover_points().begin(), base::handover_points().end());
  points.push_back("swap.before_cas");  // of an item that is copied
  for (const char* each : points) {
    SCOPED_TRACE(each);
    std::latch is_there(1);
    std::latch goes_on(1);
    at_point = [&] {
      map_.refuse_changes(true);  // so it is not done with it before it is stopped
      is_there.count_down();
      goes_on.wait();
    };
    point = each;
    ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
    EXPECT_TRUE(comes_true([&] { return is_there.try_wait(); })) << "it did not come there";
    std::thread stopping([&] { nodes_[0]->stop(); });
    goes_on.count_down();
    stopping.join();
    point = nullptr;
    EXPECT_EQ(state_of("a"), ClusterMap::NodeState::leaves);
    map_.refuse_changes(false);
  }
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  ASSERT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
  {
    auto store = open(1).value();
    for (int i = 0; i < 300; ++i)
      EXPECT_EQ(store.get(fmt::format("key{}", i)).value_or(""), fmt::format("value{}", i));
  }
  nodes_.clear();
  base::set_fault_hook(nullptr);
}

// Receive: a host that is lost for good. Expect: its shards begin anew elsewhere, what it had is gone, and
// all the rest is there; and a new host takes its place.
TEST_F(RebalancerTest, AHostThatIsLostIsDoneWithout) {
  begin(3);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  constexpr int count = 300;
  const auto key = [](int i) { return fmt::format("key{}", i); };
  const auto value = [](int i) { return fmt::format("value{}", i); };
  // The keys that are there, each with its value, and whether of all others it is `code` that is said.
  const auto look = [&](Store& store, Errc code) {
    std::pair<std::set<int>, bool> seen = {{}, true};
    for (int i = 0; i < count; ++i) {
      const auto got = store.get(key(i));
      if (got) {
        EXPECT_EQ(*got, value(i));
        seen.first.insert(i);
      } else if (got.error().code != code) {
        seen.second = false;
      }
    }
    return seen;
  };
  std::set<int> elsewhere;
  {
    auto store = open(0).value();
    for (int i = 0; i < count; ++i) ASSERT_TRUE(store.put(key(i), value(i)).has_value());
    nodes_[2]->stop();
    elsewhere = look(store, Errc::unavailable).first;
  }
  EXPECT_GT(elsewhere.size(), count / 4U);
  nodes_[2]->lose_memory();
  change([](const ClusterMap& map) { return cluster::without_node(map, "c", true); });
  std::set<int> left;
  EXPECT_TRUE(comes_true([&] {
    auto store = open(0);
    if (!store) return false;
    const auto [there, is_told_of_all] = look(*store, Errc::not_found);
    left = there;
    return is_told_of_all;
  }));
  EXPECT_THAT(left, IsSupersetOf(elsewhere));
  EXPECT_GT(left.size(), count / 4U);
  EXPECT_LT(left.size(), count * 3 / 4U);
  ASSERT_NO_FATAL_FAILURE(join("d"));
  EXPECT_TRUE(comes_true([&] { return shards_of("d") >= 2; }));
  auto store = open(0).value();
  EXPECT_EQ(look(store, Errc::not_found), std::pair(left, true));
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(key(i), value(i));
    ASSERT_TRUE(put.has_value()) << put.error().message();
  }
  EXPECT_EQ(look(store, Errc::not_found).first.size(), std::size_t{count});
}

// Receive: a host that runs is removed, once drained and once as lost, and added again. Expect: it makes its
// part anew, and has its share of the shards; and a client that has the store open goes on.
TEST_F(RebalancerTest, AHostThatWasRemovedComesBack) {
  begin(3);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  auto store = open(0).value();
  for (const bool lost : {false, true}) {
    SCOPED_TRACE(lost);
    if (!lost) {
      change([](const ClusterMap& map) { return cluster::draining(map, "c"); });
      ASSERT_TRUE(comes_true([&] { return state_of("c") == ClusterMap::NodeState::drained; }));
    }
    change([&](const ClusterMap& map) { return cluster::without_node(map, "c", lost); });
    change([&](const ClusterMap& map) { return cluster::with_node(map, "c", nodes_[2]->address()); });
    EXPECT_TRUE(comes_true([&] { return shards_of("c") >= 2; }));
    EXPECT_TRUE(comes_true([&] { return store.put("key", "value").has_value() && is_whole(); }));
  }
  EXPECT_EQ(store.get("key").value_or(""), "value");
}

// Receive: a host that is to be drained, and is removed as lost as soon as it has announced what it gives
// away. Expect: it goes on without a part, and is a host again when it is added.
TEST_F(RebalancerTest, AHostIsRemovedWhileItAnnouncesMoves) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  map_.change_what_is_announced(
      [](const ClusterMap& map) { return cluster::without_node(map, "b", true).value(); });
  change([](const ClusterMap& map) { return cluster::draining(map, "b"); });
  ASSERT_TRUE(comes_true([&] { return !map_.read().map.find("b"); }));
  change([&](const ClusterMap& map) { return cluster::with_node(map, "b", nodes_[1]->address()); });
  EXPECT_TRUE(comes_true([&] { return shards_of("b") >= 2 && is_whole(); }));
}

coro::Task<Result<std::uint64_t>> read_word(fabric::Endpoint* endpoint, fabric::Address at) {
  co_return co_await endpoint->read_word(at);
}

// Receive: the same, in one step, where no other number is left for it. Expect: whoever has a session with
// what it had before has none any more.
TEST_F(RebalancerTest, AHostThatHasItsFormerNumberEndsItsSessions) {
  std::vector<cluster::NewNode> first;
  for (const std::string name : {"a", "b"})
    first.push_back({.name = name, .at = add_host(name).address(), .regions = 63});
  ASSERT_TRUE(map_.write(cluster::first_map(first, 8).value(), 0).has_value());
  for (const auto& node : nodes_) ASSERT_NO_FATAL_FAILURE(node->start());
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  const auto attachment = attach(1);
  fabric::Endpoint& endpoint = attachment->endpoint();
  const fabric::Address at{fabric::control_region_of(1), memory::map_epoch_offset};
  ASSERT_TRUE(endpoint.run(read_word(&endpoint, at)).has_value());
  change([&](const ClusterMap& map) {
    return cluster::with_node(cluster::without_node(map, "b", true).value(), "b", nodes_[1]->address());
  });
  ASSERT_EQ(map_.read().map.find("b"), 1U);
  EXPECT_TRUE(comes_true([&] { return nodes_[1]->epoch() >= 3; }));
  EXPECT_FALSE(endpoint.run(read_word(&endpoint, at)).has_value());
}

// Receive: a host that joins while another one is down. Expect: no shard moves, for what it holds may name
// what the other one has lost, until that one is back.
TEST_F(RebalancerTest, ShardsStayWhileAHostIsDown) {
  begin(3);
  ASSERT_TRUE(comes_true([&] {
    auto store = open(0);
    return store && store->count();
  }));
  nodes_[2]->stop();
  ASSERT_NO_FATAL_FAILURE(join("d"));
  // Each of the three looks twice a second.
  const int reads_before = map_.reads();
  constexpr int six_looks_of_each = 18;
  EXPECT_TRUE(comes_true([&] { return map_.reads() >= reads_before + six_looks_of_each; }));
  EXPECT_EQ(shards_of("d"), 0);
  ASSERT_NO_FATAL_FAILURE(nodes_[2]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("d") >= 2; }));
}

// Receive: a host that was killed when it had closed its shards, to give them to another one that was removed
// meanwhile. Expect: they are open again.
TEST_F(RebalancerTest, ShardsThatDoNotMoveAnyMoreAreReopened) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  nodes_[0]->stop();
  ASSERT_EQ(close_shards(0), 4U);
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_EQ(count_closed(0), 0U);
}

// Receive: the same of shards that are to move, and can not as long as a host is down. Expect: they are used
// where they are.
TEST_F(RebalancerTest, ShardsThatCanNotMoveNowAreReopened) {
  begin(3);
  ASSERT_TRUE(comes_true([&] {
    auto store = open(0);
    return store && store->count();
  }));
  nodes_[2]->stop();
  nodes_[0]->stop();
  ASSERT_GE(close_shards(0), 2U);
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("a") == 0 && count_closed(0) == 0; }));
}

// Receive: calls for many keys of which half are in shards that move, for longer than the calls may take and
// then for a while. Expect: all keys wait at once, and not one after the other; in the first case errors that
// say so, in the second what was asked for, and of a key that is put twice the later value.
TEST_F(RebalancerTest, CallsForManyKeysWaitTogetherForWhatMoves) {
  begin(2);
  Options options;
  options.mode = Options::Mode::attach;
  options.timeout = 400ms;
  std::optional<Store> store;
  ASSERT_TRUE(comes_true([&] {
    auto opened = Store::open(url(0), options);
    if (opened && opened->count()) store.emplace(std::move(*opened));
    return store.has_value();
  }));
  constexpr std::size_t many = 400;
  constexpr std::size_t some = 200;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < many; ++i) keys.push_back(fmt::format("key {}", i));
  std::vector<std::string> others;
  for (std::size_t i = 0; i < many / 2; ++i) others.push_back(fmt::format("other {}", i));
  for (const std::string& key : keys) ASSERT_TRUE(store->put(key, "1").has_value());
  for (const std::string& key : others) ASSERT_TRUE(store->put(key, "1").has_value());
  std::vector<Lookup> lookups;
  std::vector<Assignment> assignments;
  std::vector<Removal> removals;  // of half as many others
  // For so many keys; a quarter of the puts are of keys that were put before.
  const auto ask = [&](const char* value, std::size_t count) {
    const std::size_t different = count * 3 / 4;
    lookups.assign(count, {});
    assignments.assign(count, {});
    removals.assign(count / 2, {});
    for (std::size_t i = 0; i < count; ++i) lookups[i].key = keys[i];
    for (std::size_t i = 0; i < count; ++i)
      assignments[i] = {.key = keys[i % different], .value = i < different ? value : "last"};
    for (std::size_t i = 0; i < count / 2; ++i) removals[i].key = others[i];
    store->multi_get(lookups);
    store->multi_put(assignments);
    store->multi_remove(removals);
  };
  const auto open_shards = [&] {
    change_directories(0, true, [](hash::Directory d) { return d.with_stage(hash::ShardStage::open); });
  };

  ASSERT_EQ(close_shards(0), 4U);
  const auto begun = std::chrono::steady_clock::now();
  ask("2", many);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s) << "one by one it takes a minute and more";
  std::size_t late = 0;
  const auto is_there_or_late = [&](const Result<void>& result) {
    if (result) return;
    EXPECT_EQ(result.error().code, Errc::timed_out) << result.error().message();
    ++late;
  };
  for (const Lookup& one : lookups) is_there_or_late(one.result);
  for (const Assignment& one : assignments) is_there_or_late(one.result);
  EXPECT_GE(late, many / 4);
  late = 0;
  for (const Removal& one : removals) is_there_or_late(one.result);
  EXPECT_GE(late, many / 8);

  std::thread opening([&] {
    std::this_thread::sleep_for(100ms);
    open_shards();
    close_shards(0);
    std::this_thread::sleep_for(100ms);
    open_shards();
  });
  ask("3", some);
  opening.join();
  for (const Lookup& one : lookups) EXPECT_TRUE(one.result.has_value()) << one.result.error().message();
  for (const Assignment& one : assignments)
    EXPECT_TRUE(one.result.has_value()) << one.result.error().message();
  for (const Removal& one : removals)  // some were removed before
    EXPECT_TRUE(one.result || one.result.error().code == Errc::not_found) << one.result.error().message();
  for (std::size_t i = 0; i < some / 2; ++i) EXPECT_FALSE(store->exists(others[i]).value()) << i;
  for (std::size_t i = 0; i < some * 3 / 4; ++i)
    EXPECT_EQ(store->get(keys[i]).value_or("none"), i < some / 4 ? "last" : "3") << i;
}

// Receive: what a move that was given up has left on a host, and then a map of a later epoch. Expect: it is
// void, so that it is not opened when the shard comes to be there.
TEST_F(RebalancerTest, WhatIsLeftOfAMoveThatWasGivenUpIsVoid) {
  begin(2);
  change_directories(1, false, [](hash::Directory d) { return d.arriving(fabric::index_region_of(0)); });
  ASSERT_EQ(count(1, false, hash::ShardStage::arrives), 4U);
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap later = map;
    ++later.epoch;
    return later;
  });
  EXPECT_TRUE(comes_true([&] { return count(1, false, hash::ShardStage::left) == 4; }));
}

// Receive: a map that is older than what this host's part has been, and then none. Expect: a look now and
// then.
TEST_F(RebalancerTest, LooksNowAndThenWhenTheMapIsNoGood) {
  begin(1);
  const auto expect_looks_now_and_then = [&] {
    const auto begun = std::chrono::steady_clock::now();
    const auto passed = [begun] { return std::chrono::steady_clock::now() - begun; };
    const int before = map_.reads();
    EXPECT_TRUE(comes_true([&] { return passed() >= 1s && map_.reads() > before; }));
    const int looks = map_.reads() - before;
    EXPECT_LE(looks, 6 * passed() / 1s) << "six a second";
  };
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap older = map;
    --older.epoch;
    return older;
  });
  expect_looks_now_and_then();
  map_.lose();
  expect_looks_now_and_then();
}

}  // namespace
}  // namespace loch::server
