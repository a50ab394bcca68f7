// What hosts that come, leave or are lost have of shards.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/testing/comes_true.h"
#include "cluster/changes.h"
#include "memory/attachment.h"
#include "server/testing/moving_cluster.h"

namespace loch::server {
namespace {

using base::fake::comes_true;
using cluster::ClusterMap;
using fake::store_name;

class HandingOver : public fake::MovingCluster {
 protected:
  [[nodiscard]] std::ptrdiff_t homes_on(std::uint32_t node) const {
    return std::ranges::count_if(map_.read().map.shards,
                                 [node](const ClusterMap::Shard& shard) { return shard.home.node == node; });
  }
  [[nodiscard]] std::ptrdiff_t moves_to(std::uint32_t node) const {
    return std::ranges::count_if(map_.read().map.shards, [node](const ClusterMap::Shard& shard) {
      return shard.next && shard.next->node == node;
    });
  }
  // How many maps clients go by while the first host gives away its four shards.
  std::uint64_t maps_of_a_drain() {
    begin(2);
    EXPECT_TRUE(comes_true([&] { return is_whole(); }));
    change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
    const std::uint64_t before = map_.read().map.epoch;
    EXPECT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
    return map_.read().map.epoch - before;
  }
};

// Receive: a host has given away two shards, but nobody could be told of it; then the host that one of them
// went to is down. Expect: the other one is where it went, for that asks nothing of the host that is down.
TEST_F(HandingOver, AShardThatHasLeftNeedsNoOtherHosts) {
  begin(3, 4);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  std::vector<std::string> keys;  // of the shard that goes to one that stays
  {
    Options options;
    options.mode = Options::Mode::attach;
    options.placement = Placement::by_key;  // not on the one that is down then
    auto store = Store::open(url(0), options).value();
    const std::uint64_t seed = attach(0)->nodes().front().session->geometry().hash_seed;
    for (int i = 0; keys.size() < 20; ++i) {
      const std::string key = fmt::format("key{}", i);
      if (hash::shard_of(hash::Key::of(key, seed).hash, 4) == 3) keys.push_back(key);
    }
    for (const std::string& key : keys) ASSERT_TRUE(store.put(key, "value").has_value());
  }
  map_.refuse_arrivals(true);
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] { return count(0, true, hash::ShardStage::left) == 2; }));
  nodes_[2]->stop();
  nodes_[0]->stop();
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  map_.refuse_arrivals(false);
  ASSERT_TRUE(comes_true([&] { return homes_on(0) == 1; }));
  EXPECT_TRUE(comes_true([&] { return count(1, true, hash::ShardStage::open) == 2; }));
  auto store = open(1).value();
  for (const std::string& key : keys) EXPECT_TRUE(store.get(key).has_value());
}

// Receive: shards that are more than may be closed at once. Expect: one after the other.
TEST_F(HandingOver, ShardsGoAFewAtATime) {
  bytes_together_ = 1;
  EXPECT_EQ(maps_of_a_drain(), 4U);
}

// Receive: small ones. Expect: clients are told of them once.
TEST_F(HandingOver, SmallShardsGoTogether) { EXPECT_EQ(maps_of_a_drain(), 1U); }

std::atomic<int> closings = 0;

// Receive: a host that joins without memory for a shard, and another one that has some. Expect: no shard is
// closed for the first, those of the second go there; and those of the first when it has memory.
TEST_F(HandingOver, ShardsStayOpenWhileTheirNewHomeHasNoRoom) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  closings = 0;
  base::set_fault_hook([](const char* name) {
    if (std::string_view(name) == "handover.after_close") ++closings;
  });
  ASSERT_NO_FATAL_FAILURE(join("c", 4096));
  ASSERT_TRUE(comes_true([&] { return moves_to(2) == 2; }));
  const int reads_before = map_.reads();
  constexpr int six_looks_of_each = 18;
  ASSERT_TRUE(comes_true([&] { return map_.reads() >= reads_before + six_looks_of_each; }));
  EXPECT_EQ(closings, 0);
  ASSERT_NO_FATAL_FAILURE(join("d"));
  EXPECT_TRUE(comes_true([&] { return shards_of("d") == 2; }));
  EXPECT_GE(closings, 2);
  nodes_[2]->stop();
  nodes_[2]->lose_memory();
  nodes_[2]->config().stores.front().max_bytes.reset();
  ASSERT_NO_FATAL_FAILURE(nodes_[2]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("c") == 2; }));
  nodes_.clear();
  base::set_fault_hook(nullptr);
}

// Receive: a host without memory for the shards that are to come is to leave again. Expect: they stay, and it
// is drained.
TEST_F(HandingOver, AHostWithoutRoomForWhatComesIsDrained) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  ASSERT_NO_FATAL_FAILURE(join("c", 4096));
  ASSERT_TRUE(comes_true([&] { return moves_to(2) == 2; }));
  change([](const ClusterMap& map) { return cluster::draining(map, "c"); });
  EXPECT_TRUE(comes_true([&] { return state_of("c") == ClusterMap::NodeState::drained; }));
  EXPECT_EQ(shards_of("a"), 4);
  EXPECT_EQ(shards_of("b"), 4);
  EXPECT_TRUE(is_whole());
}

// Receive: a host is to leave, of whose shards some are to go to one that has no memory for them. Expect:
// they go to others.
TEST_F(HandingOver, ShardsOfAHostThatLeavesGoWhereThereIsRoom) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  {
    auto store = open(0).value();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.put(fmt::format("key{}", i), "value").has_value());
  }
  ASSERT_NO_FATAL_FAILURE(join("c", 4096));
  ASSERT_TRUE(comes_true([&] { return moves_to(2) == 2; }));
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  EXPECT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
  EXPECT_EQ(homes_on(1), 8);
  auto store = open(1).value();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(store.get(fmt::format("key{}", i)).has_value()) << i;
}

std::atomic<bool> lags = false;

// One that is behind as long as it lags.
class LaggingCoordinator final : public cluster::Coordinator {
 public:
  explicit LaggingCoordinator(fake::Map& map) : newest_(map) {}
  Result<cluster::Versioned> read_map() override {
    if (!lags) last_ = newest_.read_map();
    return last_;
  }
  [[nodiscard]] bool may_change() const override { return true; }
  Result<void> write_map(const ClusterMap& map, std::uint64_t version) override {
    return newest_.write_map(map, version);
  }
  Result<void> announce(const cluster::Present& self) override { return newest_.announce(self); }
  Result<std::vector<cluster::Present>> present() override { return newest_.present(); }
  void wait_for_change(std::uint64_t /*version*/, base::Nanos at_most_ns) override {
    newest_.wait_for_change(0, std::min(at_most_ns, 50 * base::millisecond_ns));
  }

 private:
  fake::SharedCoordinator newest_;
  Result<cluster::Versioned> last_;
};

// Receive: a host is to leave, of whose shards some are to go to one that does not learn of it. Expect: the
// others go, and these when it has learned of it.
TEST_F(HandingOver, AHostThatLagsHoldsUpItsOwnShardsAlone) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  lags = false;
  fake::Node& c = add_host("c");
  c.make_coordinator = [&] { return std::make_unique<LaggingCoordinator>(map_); };
  ASSERT_NO_FATAL_FAILURE(c.start());
  change([&](const ClusterMap& map) { return cluster::with_node(map, "c", c.address()); });
  ASSERT_TRUE(comes_true([&] { return shards_of("c") == 2; }));
  lags = true;
  change([](const ClusterMap& map) { return cluster::draining(map, "b"); });
  EXPECT_TRUE(comes_true([&] { return homes_on(0) == 4; }));
  EXPECT_EQ(moves_to(2), 2);
  EXPECT_EQ(homes_on(1), 2);
  lags = false;
  EXPECT_TRUE(comes_true([&] { return state_of("b") == ClusterMap::NodeState::drained; }));
  EXPECT_EQ(homes_on(2), 4);
}

std::function<void()> after_close;  // called there, by the mover

// Receive: a host that was killed when it had closed shards, for a host that has no memory for them; and
// another one that has some. Expect: when those of the second are closed, those of the first are open again.
TEST_F(HandingOver, ShardsThatWereClosedInVainAreOpenedBeforeOthersMove) {
  begin(1);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  ASSERT_NO_FATAL_FAILURE(join("c", 4096));
  ASSERT_TRUE(comes_true([&] { return moves_to(1) == 4; }));
  nodes_[0]->stop();
  ASSERT_NO_FATAL_FAILURE(join("d"));
  ASSERT_EQ(close_shards(0), 8U);
  std::vector<std::size_t> closed;
  base::set_fault_hook([](const char* name) {
    if (std::string_view(name) == "handover.after_close" && after_close) after_close();
  });
  after_close = [&] { closed.push_back(count_closed(0)); };
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("d") >= 1; }));
  nodes_.clear();
  after_close = {};
  base::set_fault_hook(nullptr);
  ASSERT_FALSE(closed.empty());
  EXPECT_EQ(closed.front(), 1U);
}

std::function<void()> after_slots;  // likewise

// Receive: while the shard of one store is copied, the mover's session of the other is ended, for it was
// silent. Expect: the other store's goes on with another session.
TEST_F(HandingOver, OneStoreTakesLong) {
  const std::string second = "second";
  more_stores_ = {second};
  base::set_fault_hook([](const char* name) {
    if (std::string_view(name) == "handover.after_slots" && after_slots) after_slots();
  });
  begin(2, 2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  int ended = 0;
  after_slots = [&] {
    const auto there =
        fabric::attach(fmt::format("shm://{}", second), {.directory = nodes_[1]->folder(), .lends = true});
    fabric::Endpoint endpoint(*there, (*there)->connect());
    const std::byte* slot = endpoint.mapped({fabric::index_region_of(0, 1), 0}, sizeof(std::uint64_t));
    if (slot != nullptr && fabric::load_word(slot) != 0) return;  // its own is copied
    ended += nodes_[1]->host().pause(second) ? 1 : 0;
  };
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  EXPECT_TRUE(comes_true([&] { return homes_on(0) == 0; }));
  EXPECT_EQ(ended, 1);
  nodes_.clear();
  after_slots = {};
  base::set_fault_hook(nullptr);
}

std::function<void()> after_left;  // likewise

// Receive: the shard of one store has left. Expect: so has the other store's before slots are cleared.
TEST_F(HandingOver, ShardsOfAllStoresLeaveTogether) {
  more_stores_ = {"second"};
  base::set_fault_hook([](const char* name) {
    if (std::string_view(name) == "handover.after_left" && after_left) after_left();
  });
  begin(2, 2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  std::vector<bool> cleared;  // of the first store, when another shard has left
  after_left = [&] {
    const auto here = fabric::attach(fmt::format("shm://{}", store_name),
                                     {.directory = nodes_[0]->folder(), .lends = true});
    fabric::Endpoint endpoint(*here, (*here)->connect());
    const std::byte* slot = endpoint.mapped({fabric::index_region_of(0, 0), 0}, sizeof(std::uint64_t));
    cleared.push_back(slot == nullptr || fabric::load_word(slot) == 0);
  };
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  EXPECT_TRUE(comes_true([&] { return homes_on(0) == 0; }));
  nodes_.clear();
  after_left = {};
  base::set_fault_hook(nullptr);
  ASSERT_GE(cleared.size(), 2U);
  EXPECT_FALSE(cleared[0] || cleared[1]);
}

// Receive: what a host has of shards that are elsewhere, since the cluster did without it for a while; and
// then one of them comes to be there. Expect: it is void, and that one begins anew.
TEST_F(HandingOver, WhatAHostHasOfShardsOfOthersIsVoid) {
  begin(2);
  constexpr std::uint8_t old_level = hash::first_level + 1;
  int number = 0;
  change_directories(1, false, [&](hash::Directory) {
    return hash::Directory{.level = old_level,
                           .stage = number++ % 2 == 0 ? hash::ShardStage::open : hash::ShardStage::leaves};
  });
  ASSERT_EQ(number, 4);
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap later = map;
    ++later.epoch;
    return later;
  });
  EXPECT_TRUE(comes_true([&] { return count(1, false, hash::ShardStage::left) == 4; }));
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap later = map;
    ++later.epoch;
    std::swap(later.shards[0].home.node, later.shards[1].home.node);
    return later;
  });
  EXPECT_TRUE(comes_true([&] { return count(1, true, hash::ShardStage::open) == 4; }));
  change_directories(1, true, [](hash::Directory d) {
    EXPECT_EQ(d.level, hash::first_level);
    return d;
  });
}

// A host on which the sessions of one store do not end in time.
class SlowHost final : public fabric::Host {
 public:
  explicit SlowHost(std::string slow) : slow_(std::move(slow)) {}
  [[nodiscard]] std::vector<std::uint16_t> ports() const override { return {}; }
  [[nodiscard]] Counts counts() const override { return {}; }
  Result<Pause> pause(const std::string& store) override {
    const std::scoped_lock lock(mutex_);
    if (store == slow_) {
      ++refused_;
      return fail(Errc::timed_out, "pause");
    }
    paused_.insert(store);
    return Pause([this, store] {
      const std::scoped_lock resuming(mutex_);
      paused_.erase(store);
    });
  }
  void end_idle(const std::string& /*store*/, base::Nanos /*longer_than_ns*/) override {}
  Result<void> reload() override { return {}; }

  [[nodiscard]] int refused() const {
    const std::scoped_lock lock(mutex_);
    return refused_;
  }
  [[nodiscard]] std::set<std::string> paused() const {
    const std::scoped_lock lock(mutex_);
    return paused_;
  }

 private:
  const std::string slow_;
  mutable std::mutex mutex_;
  int refused_ = 0;
  std::set<std::string> paused_;
};

// Receive: a host is absent from the map so long that its stores are not to be served, and is there again
// before the last of them is paused. Expect: the others are served again.
TEST_F(HandingOver, AHostIsBackBeforeAllItsStoresArePaused) {
  const std::string slow = "slow";
  more_stores_ = {slow};
  const fake::Node& node = add_host("a");
  const auto first = cluster::first_map({new_node("a", node), new_node("b", add_host("b"))}, 2).value();
  ASSERT_TRUE(map_.write(first, 0).has_value());
  auto options = Member::options_of(nodes_[0]->config(),
                                    {.directory = node.folder(), .huge_pages = false, .lends = true});
  ASSERT_TRUE(options.has_value()) << options.error().message();
  const auto member = Member::join(std::move(*options), nodes_[0]->make_coordinator());
  ASSERT_TRUE(member.has_value()) << member.error().message();
  SlowHost host(slow);
  const Rebalancer rebalancer({}, **member, host);
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", true); });
  ASSERT_TRUE(comes_true([&] { return host.refused() > 0; }));
  EXPECT_EQ(host.paused(), std::set<std::string>{store_name});
  change([&](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap back = first;
    back.epoch = map.epoch + 1;
    return back;
  });
  EXPECT_TRUE(comes_true([&] { return host.paused().empty(); }));
}

}  // namespace
}  // namespace loch::server
