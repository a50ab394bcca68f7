// What hosts know of each other, and forget when one has lost its memory or is gone.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "base/testing/comes_true.h"
#include "cluster/changes.h"
#include "hash/forget.h"
#include "server/testing/fixed_cluster.h"
#include "server/testing/kept_log.h"
#include "server/testing/moving_cluster.h"

namespace loch::server {
namespace {

using base::fake::comes_true;
using cluster::ClusterMap;
using fake::store_name;
using testing::IsSupersetOf;
using Forgetting = fake::MovingCluster;

// Its memory is gone, and what the others have of it says nothing any more.
class LostMemory : public fake::FixedCluster, public testing::WithParamInterface<std::size_t> {
 protected:
  // A client of three hosts that hold these many keys of its own.
  Store begin(int count, bool see_their_neighbours) {
    add_nodes(3);
    for (const auto& node : nodes_) node->sees_its_neighbours = see_their_neighbours;
    start_all();
    Store store = open(put_at(Placement::spread)).value();
    fill(store, count);
    return store;
  }
  void lose_it() {
    nodes_[GetParam()]->stop();
    nodes_[GetParam()]->lose_memory();
  }
  void come_back() { ASSERT_NO_FATAL_FAILURE(nodes_[GetParam()]->start()); }
  // The keys that are there, each with its value; of the others it is `code` that is said.
  static std::set<int> find(Store& store, int count, Errc code, const std::set<int>& changed = {}) {
    std::set<int> found;
    for (int i = 0; i < count; ++i) {
      const auto got = store.get(key(i));
      if (got) {
        found.insert(i);
        EXPECT_EQ(*got, value(changed.contains(i) ? i + 7 : i));
      } else {
        EXPECT_EQ(got.error().code, code) << got.error().message();
      }
    }
    return found;
  }
};

TEST_P(LostMemory, AHostWithoutItIsNotTakenForTheOneItWas) {
  begin(100, false);
  lose_it();
  ASSERT_NO_FATAL_FAILURE(come_back());
  auto store = open().value();
  int unavailable = 0;
  for (int i = 0; i < 100; ++i) {
    const auto got = store.get(key(i));
    if (got) {
      EXPECT_EQ(*got, value(i));
    } else {
      ++unavailable;
      EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
    }
  }
  EXPECT_GT(unavailable, 30);
}
INSTANTIATE_TEST_SUITE_P(Nodes, LostMemory, testing::Values(0, 1, 2));

// The others forget what it had, and nothing else, and it serves again.
TEST_P(LostMemory, AHostWithoutItServesAgainWhenTheOthersHaveForgotten) {
  constexpr int count = 200;
  auto store = begin(count, true);
  lose_it();
  const std::set<int> elsewhere = find(store, count, Errc::unavailable);
  ASSERT_NO_FATAL_FAILURE(come_back());
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  const std::set<int> left = find(store, count, Errc::not_found);
  EXPECT_GT(elsewhere.size(), count / 4U);
  EXPECT_THAT(left, IsSupersetOf(elsewhere));
  EXPECT_GT(left.size(), count / 4U);
  EXPECT_LT(left.size(), count * 3 / 4U);
  EXPECT_EQ(store.count().value(), left.size());
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(key(i), value(i + 1));
    ASSERT_TRUE(put.has_value()) << put.error().message();
  }
  EXPECT_EQ(store.count().value(), std::uint64_t{count});
  // What was named by the index that is lost is nobody's any more.
  ASSERT_TRUE(store.collect().has_value());
  const auto report = store.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt + report->items_unaccounted, 0U)
      << testing::PrintToString(report->findings);
}

// Receive: the others are away when a host comes back without its memory, and a client puts there what it
// can. Expect: that stays when the others are there again, and what these had.
TEST_P(LostMemory, AHostWithoutItServesWhileTheOthersAreAway) {
  constexpr int count = 200;
  std::set<int> elsewhere;
  {
    auto store = begin(count, true);
    lose_it();
    elsewhere = find(store, count, Errc::unavailable);
  }
  for (const auto& node : nodes_) node->stop();
  ASSERT_NO_FATAL_FAILURE(come_back());
  auto store = open(put_at(Placement::by_key)).value();
  std::set<int> changed;
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(key(i), value(i + 7));
    if (put) {
      changed.insert(i);
    } else {
      EXPECT_EQ(put.error().code, Errc::unavailable) << put.error().message();
    }
  }
  EXPECT_GT(changed.size(), 30U);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != GetParam()) ASSERT_NO_FATAL_FAILURE(nodes_[i]->start());
  }
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  const std::set<int> left = find(store, count, Errc::not_found, changed);
  EXPECT_GT(elsewhere.size(), count / 4U);
  EXPECT_THAT(left, IsSupersetOf(elsewhere));
  EXPECT_THAT(left, IsSupersetOf(changed));
  EXPECT_GT(left.size(), count / 2U);
}

coro::Task<Result<std::uint64_t>> read_word(fabric::Endpoint* endpoint, fabric::Address at) {
  co_return co_await endpoint->read_word(at);
}

// Receive: a client is stopped when it has written an item on a host that is lost then, and before a slot
// names it. Expect: its session has ended when the others have forgotten the lost host.
TEST_F(Forgetting, NobodyGoesOnWhoMayNameWhatHasGone) {
  begin(3);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  const auto attachment = attach(0);
  ASSERT_EQ(attachment->nodes().size(), 3U);
  fabric::Endpoint& endpoint = attachment->endpoint();
  nodes_[2]->stop();
  nodes_[2]->lose_memory();
  const fabric::Address at{fabric::control_region_of(0), memory::map_epoch_offset};
  ASSERT_TRUE(endpoint.run(read_word(&endpoint, at)).has_value());
  change([](const ClusterMap& before) { return cluster::without_node(before, "c", true); });
  ASSERT_TRUE(comes_true([&] { return !knows(0, 2); }));
  EXPECT_FALSE(endpoint.run(read_word(&endpoint, at)).has_value());
}

// Receive: a host comes back without its memory, while another one has no client number left, not even for
// itself. Expect: that one forgets nothing yet and leaves its clients alone, until a number is free.
TEST_F(Forgetting, NobodyIsDisturbedWhileNothingCanBeForgotten) {
  begin(2);
  const fake::KeptLog log;
  nodes_[0]->stop();
  nodes_[0]->log = log.sink();
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  const auto attachment = attach(0);
  const auto is_alive = [&] {
    const fabric::Address at{fabric::control_region_of(0), memory::map_epoch_offset};
    return attachment->endpoint().run(read_word(&attachment->endpoint(), at)).has_value();
  };
  const auto here =
      fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
          .value();
  std::vector<std::unique_ptr<memory::Session>> taken;
  ASSERT_TRUE(comes_true([&] {
    while (auto more = hash::open_own_session(here, map_.read().map, 0)) taken.push_back(std::move(*more));
    return taken.size() == memory::client_count_max - 2;  // 0 is nobody, and one is the attachment's
  }));
  fabric::Endpoint endpoint(here, here->connect());
  const std::byte* known = endpoint.mapped(memory::incarnation_at(0, 1), sizeof(std::uint64_t));
  const std::uint64_t before = fabric::load_word(known);
  ASSERT_NE(before, 0U);
  nodes_[1]->stop();
  nodes_[1]->lose_memory();
  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  ASSERT_TRUE(comes_true([&] {
    return !is_alive() || log.text().contains("what was lost can not be forgotten: 1023 clients");
  }));
  EXPECT_TRUE(is_alive());
  EXPECT_EQ(fabric::load_word(known), before);
  taken.pop_back();
  EXPECT_TRUE(comes_true([&] { return fabric::load_word(known) != before; }));
  EXPECT_FALSE(is_alive());
}

// Receive: a host is removed that has given away all that it had. Expect: sessions go on.
TEST_F(Forgetting, AHostThatWasDrainedIsForgottenInPassing) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] { return nodes_[1]->map().nodes[0].state == ClusterMap::NodeState::drained; }));
  const auto attachment = attach(1);
  fabric::Endpoint& endpoint = attachment->endpoint();
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  ASSERT_TRUE(comes_true([&] { return !knows(1, 0); }));
  const fabric::Address at{fabric::control_region_of(1), memory::map_epoch_offset};
  EXPECT_TRUE(endpoint.run(read_word(&endpoint, at)).has_value());
}

// Receive: the same, while this host can not tell whether it names anything there. Expect: it does not say
// that it has forgotten, until it can.
TEST_F(Forgetting, WhatCanNotBeLookedAtMayNameWhatHasGone) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] { return nodes_[1]->map().nodes[0].state == ClusterMap::NodeState::drained; }));
  std::atomic<int> troubles = 0;
  nodes_[1]->stop();
  nodes_[1]->log = [&](fabric::Host::Level, const std::string& text) {
    troubles += text.contains("what was lost can not be forgotten") ? 1 : 0;
  };
  const std::filesystem::path slots =
      fmt::format("{}/loch.{}/region.{}", nodes_[1]->folder(), store_name, fabric::index_region_of(1));
  const std::filesystem::path aside = nodes_[1]->folder() + "/aside";
  std::filesystem::rename(slots, aside);
  std::filesystem::create_directory(slots);
  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  ASSERT_TRUE(comes_true([&] { return nodes_[1]->map().nodes[0].state == ClusterMap::NodeState::drained; }));
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  ASSERT_TRUE(comes_true([&] { return troubles > 0 || !knows(1, 0); }));
  EXPECT_TRUE(knows(1, 0));
  std::filesystem::remove(slots);
  std::filesystem::rename(aside, slots);
  EXPECT_TRUE(comes_true([&] { return !knows(1, 0); }));
  nodes_.clear();  // before what their threads log to
}

}  // namespace
}  // namespace loch::server
