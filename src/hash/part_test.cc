// What becomes of a host's part when it goes by another map.
#include "hash/part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "hash/forget.h"
#include "hash/testing/two_nodes.h"

namespace loch::hash::two_nodes {
namespace {

// By which shard 0 is on the second node, in one of its regions.
fabric::ClusterMap map_later(fabric::RegionId index) {
  fabric::ClusterMap map = cluster_map();
  map.shards[0].home = {.node = elsewhere.node, .index = index};
  map.epoch = 2;
  return map;
}

class ClusterPart : public Moving {
 protected:
  Result<void> tend_second(const fabric::ClusterMap& map) { return tend_part(store_->attach(), map, 1); }
  // Shard 0 has been copied to the second node.
  void copy_shard() {
    Handover move = handover();
    ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
    ASSERT_TRUE(mover_->run(move.copy()).has_value());
  }
};

TEST_F(ClusterPart, WhatHasArrivedIsOpened) {
  copy_shard();
  ASSERT_TRUE(tend_second(map_later(elsewhere.index)).has_value());
  EXPECT_EQ(Client(*store_, {}, regions_later()).error_of_get(keys_.front()), Errc{});
}

// Receive: a map that is older than the one before. Expect: the part stays as it is.
TEST_F(ClusterPart, AnOlderMapIsNotGoneBy) {
  copy_shard();
  ASSERT_TRUE(tend_second(map_later(elsewhere.index)).has_value());
  const auto older = tend_second(cluster_map());
  ASSERT_FALSE(older.has_value());
  EXPECT_EQ(older.error().code, Errc::unavailable);
  EXPECT_EQ(Client(*store_, {}, regions_later()).error_of_get(keys_.front()), Errc{});
}

// Receive: other maps of the epoch that the part goes by. Expect: those that have keys, items or shards
// elsewhere are refused, and nothing is changed; names and addresses do not matter, and a later map is gone
// by.
TEST_F(ClusterPart, AnotherMapOfTheSameEpochIsRefused) {
  const fabric::ClusterMap map = cluster_map();
  ASSERT_TRUE(tend_second(map).has_value());
  fabric::ClusterMap renamed = map;
  renamed.nodes[1].name = "z";
  renamed.nodes[1].at = {.host = "10.0.0.9", .port = "7457"};
  renamed.nodes[1].state = fabric::ClusterMap::NodeState::leaves;
  renamed.shards[1].next = {.node = 1, .index = fabric::index_region_of(1, 1)};
  EXPECT_TRUE(tend_second(renamed).has_value());
  fabric::ClusterMap other_home = map;
  other_home.shards[3].home.node = 1;
  fabric::ClusterMap other_regions = map;
  std::swap(other_regions.nodes[0].data, other_regions.nodes[1].data);
  fabric::ClusterMap fewer_shards = map;
  fewer_shards.shards.resize(2);
  fabric::ClusterMap more_nodes = map;
  more_nodes.nodes.push_back({.name = "c", .at = {}, .data = {6}});
  for (const fabric::ClusterMap& other : {other_home, other_regions, fewer_shards, more_nodes}) {
    const auto refused = tend_second(other);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::incompatible);
    EXPECT_THAT(refused.error().detail, testing::HasSubstr("was made by another list of hosts"));
  }
  EXPECT_TRUE(tend_second(map).has_value());
  copy_shard();
  EXPECT_TRUE(tend_second(map_later(elsewhere.index)).has_value());
}

// Receive: a part that was made before digests were noted. Expect: it goes by the map that comes, and by no
// other one of that epoch from then on.
TEST_F(ClusterPart, WhatHasNotedNothingIsNotRefused) {
  ASSERT_TRUE(tend_second(cluster_map()).has_value());
  std::byte* digest = store_->at({regions().nodes[1].control, memory::map_digest_offset});
  ASSERT_NE(fabric::load_word(digest), 0U);
  fabric::store_word(digest, 0);
  fabric::ClusterMap other = cluster_map();
  other.nodes[1].data.push_back(7);
  EXPECT_TRUE(tend_second(other).has_value());
  EXPECT_FALSE(tend_second(cluster_map()).has_value());
}

// Receive: a shard that was copied, with the time that its items go by, and begins anew in the other region,
// since the host that it was on is lost. Expect: whoever opened it before goes by the same time as who does
// later.
TEST_F(ClusterPart, AShardThatBeginsAnewHasOneTimeForAll) {
  constexpr base::Nanos ahead_ns = 100 * base::second_ns;
  std::byte* latest = store_->at({regions().nodes[0].control, memory::latest_offset});
  fabric::store_word(latest, fabric::load_word(latest) + ahead_ns);
  const base::Nanos first_time = fabric::load_word(latest);
  copy_shard();
  const fabric::ClusterMap map = map_later(fabric::index_region_of(0));
  const memory::RegionMap regions = memory::RegionMap::of_cluster(map);
  Client before(*store_, {}, regions);
  ASSERT_TRUE(tend_second(map).has_value());
  Client later(*store_, {}, regions);
  EXPECT_EQ(later.error_of_get(keys_.front()), Errc::not_found);
  const auto time_of = [](Client& client) {
    return client.run((*client.shards().table_of(0))->slots().read_time()).value();
  };
  EXPECT_EQ(time_of(before), time_of(later));
  EXPECT_GE(time_of(later), first_time);
}

// Receive: a shard that is on its way here, whose directory tells of more slots, as it had here before.
// Expect: what is there is forgotten.
TEST_F(ClusterPart, WhatIsNotThereYetIsNotForgotten) {
  copy_shard();
  fabric::ClusterMap map = cluster_map();
  map.shards[0].next = elsewhere;
  const auto there = IndexPlace::of(memory::RegionMap::shard_at(0, elsewhere), regions().nodes[1]);
  const Directory larger{.level = first_level + 1, .stage = ShardStage::left};
  fabric::store_word(store_->at(there.directory()), larger.encode());
  const auto forgotten = forget_node(store_->attach(), map, elsewhere.node, 0);
  ASSERT_TRUE(forgotten.has_value()) << forgotten.error().message();
  EXPECT_GT(*forgotten, 0U);
}

}  // namespace
}  // namespace loch::hash::two_nodes
