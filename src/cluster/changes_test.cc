#include "cluster/changes.h"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace loch::cluster {
namespace {

using fabric::index_region_of;
using testing::ElementsAre;
using testing::HasSubstr;
using NodeState = ClusterMap::NodeState;

net::HostPort at(int number) { return {.host = fmt::format("10.0.0.{}", number), .port = "7457"}; }

ClusterMap map_of(std::size_t nodes, std::uint32_t shards, std::uint32_t regions = usual_regions) {
  std::vector<NewNode> list;
  for (std::size_t i = 0; i < nodes; ++i)
    list.push_back({.name = fmt::format("n{}", i), .at = at(static_cast<int>(i)), .regions = regions});
  return first_map(list, shards).value();
}
std::vector<std::uint32_t> homes_of(const ClusterMap& map) {
  std::vector<std::uint32_t> homes;
  for (const auto& shard : map.shards) homes.push_back(shard.home.node);
  return homes;
}
std::vector<std::uint32_t> all_shards(const ClusterMap& map) {
  std::vector<std::uint32_t> all(map.shards.size());
  std::ranges::generate(all, [next = 0U]() mutable { return next++; });
  return all;
}

TEST(Changes, TheFirstMapSpreadsShardsInTurn) {
  const ClusterMap map = map_of(3, 8);
  EXPECT_THAT(homes_of(map), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
  EXPECT_THAT(map.nodes[0].data, ElementsAre(2, 3));
  EXPECT_THAT(map.nodes[2].data, ElementsAre(6, 7));
  EXPECT_EQ(map.epoch, 1U);
  EXPECT_EQ(map.flaw(), std::nullopt);
}

TEST(Changes, AFirstMapThatCanNotBeIsAnError) {
  const auto error_of = [](const std::vector<NewNode>& nodes, std::uint32_t shards) {
    const auto map = first_map(nodes, shards);
    return map ? "no error" : map.error().message();
  };
  const NewNode a{.name = "a", .at = at(1)};
  EXPECT_THAT(error_of({}, 4), HasSubstr("1 to 64 nodes, not 0"));
  EXPECT_THAT(error_of({a, a}, 4), HasSubstr("two nodes are called 'a'"));
  EXPECT_THAT(error_of({a, {.name = "b", .at = at(1)}}, 4),
              HasSubstr("nodes 'a' and 'b' are both at 10.0.0.1:7457"));
  EXPECT_THAT(error_of({a}, 3), HasSubstr("1, 2, 4"));
  EXPECT_THAT(error_of({a}, 0), HasSubstr("1, 2, 4"));
  EXPECT_THAT(error_of({a}, 4'000'000'000), HasSubstr("1, 2, 4"));
  EXPECT_THAT(error_of({{.name = "a", .at = at(1), .regions = 127}}, 4), HasSubstr("126 data regions"));
  EXPECT_THAT(error_of({{.name = "a", .at = at(1), .regions = 0}}, 4), HasSubstr("no data regions"));
  for (const char* name : {"", ".", "..", "a/b", "a b", "ä", "a\x1b[2J"})
    EXPECT_THAT(error_of({{.name = name, .at = at(1)}}, 4), HasSubstr("is no name of a node")) << name;
}

TEST(Changes, AHostIsNotFoundByWhereAllListen) {
  for (const char* host : {"0.0.0.0", "0", "::", "0::0", "*", ""}) {
    const net::HostPort everywhere{.host = host, .port = "7457"};
    EXPECT_TRUE(is_wildcard(everywhere)) << host;
    EXPECT_EQ(first_map({{.name = "a", .at = everywhere}}, 4).error().code, Errc::invalid_argument) << host;
    EXPECT_EQ(with_node(map_of(2, 4), "new", everywhere).error().code, Errc::invalid_argument) << host;
  }
  for (const char* host : {"10.0.0.1", "127.0.0.1", "::1", "host", "0.example.org"})
    EXPECT_FALSE(is_wildcard({.host = host, .port = "7457"})) << host;
}

TEST(Changes, ANewHostHasANumberThatNobodyHadAndNoShards) {
  const ClusterMap map = map_of(2, 4);
  const auto with = with_node(map, "new", at(9), 3);
  ASSERT_TRUE(with.has_value()) << with.error().message();
  EXPECT_EQ(with->epoch, map.epoch + 1);
  EXPECT_EQ(with->find("new"), 2U);
  EXPECT_THAT(with->nodes[2].data, ElementsAre(6, 7, 8));
  EXPECT_EQ(with->nodes[2].at, at(9));
  EXPECT_EQ(with->nodes[2].since, with->epoch);
  EXPECT_EQ(with->shards, map.shards);
  EXPECT_EQ(with_node(*with, "new", at(9)).error().code, Errc::exists);
  EXPECT_EQ(with_node(*with, "none", at(9), 0).error().code, Errc::invalid_argument);
  EXPECT_EQ(with_node(*with, "a/b", at(9)).error().code, Errc::invalid_argument);
}

// Expect: an address is known to be another than where a host listens by its port, and of numbers alone by
// the rest.
TEST(Changes, WhetherAHostMayBeFoundAtAnAddress) {
  const auto may_be = [](const char* listens, const char* at) {
    return may_be_at(net::parse_host_port(listens, 7457).value(), net::parse_host_port(at, 7457).value());
  };
  for (const char* listens : {"10.0.0.1", "0.0.0.0", "[::]", "host"}) {
    EXPECT_TRUE(may_be(listens, "10.0.0.1")) << listens;
    EXPECT_FALSE(may_be(listens, "10.0.0.1:8")) << listens;
    EXPECT_TRUE(may_be(listens, "host")) << listens;
  }
  EXPECT_FALSE(may_be("127.0.0.1", "10.0.0.1"));
  EXPECT_FALSE(may_be("[::1]", "10.0.0.1"));
}

// Receive: a host that was added at a wrong address. Expect: it can be said again as long as it has no
// shards; and no host comes to be where another one is.
TEST(Changes, TheAddressOfAHostWithoutShardsIsCorrected) {
  const ClusterMap map = with_moves_announced(with_node(map_of(2, 8), "new", at(9)).value(), 0);
  const auto with = with_node(map, "new", at(8));
  ASSERT_TRUE(with.has_value()) << with.error().message();
  EXPECT_EQ(with->nodes[2].at, at(8));
  EXPECT_EQ(with->shards, map.shards);
  EXPECT_EQ(with->epoch, map.epoch + 1);
  EXPECT_EQ(with_node(map, "new", at(1)).error().code, Errc::invalid_argument);
  EXPECT_EQ(with_node(draining(map, "n0").value(), "n0", at(1)).error().code, Errc::invalid_argument);
  const auto laden = with_node(map, "n1", at(8));
  ASSERT_FALSE(laden.has_value());
  EXPECT_EQ(laden.error().code, Errc::exists);
  EXPECT_THAT(laden.error().message(), HasSubstr("and has shards; to have it at 10.0.0.8:7457"));
}

TEST(Changes, AHostThatLeavesMayStay) {
  const ClusterMap leaving = draining(map_of(2, 4), "n1").value();
  const ClusterMap stays = with_node(leaving, "n1", at(7)).value();
  EXPECT_EQ(stays.nodes[1].state, NodeState::serves);
  EXPECT_EQ(stays.nodes[1].at, at(7));
  EXPECT_EQ(stays.nodes[1].since, 0U) << "it is the same still";
  EXPECT_EQ(stays.nodes.size(), 2U);
  EXPECT_EQ(stays.epoch, leaving.epoch + 1);
}

TEST(Changes, AHostTakesTheNumberAndTheRegionsOfOneThatIsGoneOnlyIfItMust) {
  // 126 data regions are all taken.
  ClusterMap map = map_of(63, 32);
  EXPECT_EQ(with_node(map, "new", at(99)).error().code, Errc::no_space);
  map = without_node(map, "n5", true).value();
  EXPECT_THAT(map.nodes[5].data, ElementsAre(12, 13));
  EXPECT_EQ(map.nodes[5].state, NodeState::gone);
  EXPECT_EQ(map.nodes[5].since, map.epoch);
  map = with_node(map, "new", at(99), 7).value();
  EXPECT_EQ(map.find("new"), 5U);
  EXPECT_THAT(map.nodes[5].data, ElementsAre(12, 13));
  EXPECT_EQ(map.nodes[5].state, NodeState::serves);
  EXPECT_EQ(map.nodes[5].since, map.epoch);

  map = without_node(map_of(3, 4), "n1", true).value();
  EXPECT_EQ(with_node(map, "new", at(99)).value().find("new"), 3U);

  // All numbers are taken, though there are regions.
  map = map_of(64, 32, 1);
  EXPECT_THAT(with_node(map, "new", at(99)).error().message(), HasSubstr("64 nodes at most"));
  map = without_node(map, "n63", true).value();
  EXPECT_EQ(with_node(map, "new", at(99)).value().find("new"), 63U);
}

TEST(Changes, AHostThatLeavesGivesAwayAllAndGoes) {
  ClusterMap map = map_of(3, 8);
  map = draining(map, "n0").value();
  EXPECT_EQ(map.epoch, 2U);
  EXPECT_TRUE(has_too_many(map, 0));
  EXPECT_EQ(drained(map, "n0").error().code, Errc::invalid_argument);
  EXPECT_EQ(without_node(map, "n0", false).error().code, Errc::invalid_argument);
  EXPECT_EQ(draining(map, "n0").value(), map);

  // Shards 6, 3 and 0; n2 has two, n1 has three.
  map = with_moves_announced(map, 0);
  EXPECT_EQ(map.epoch, 2U);
  EXPECT_EQ(map.flaw(), std::nullopt);
  EXPECT_EQ(map.shards[6].next, (ClusterMap::Place{.node = 2, .index = index_region_of(6, 1)}));
  EXPECT_EQ(map.shards[3].next, (ClusterMap::Place{.node = 1, .index = index_region_of(3, 1)}));
  EXPECT_EQ(map.shards[0].next, (ClusterMap::Place{.node = 2, .index = index_region_of(0, 1)}));
  EXPECT_EQ(with_moves_announced(map, 0), map);
  EXPECT_TRUE(has_too_many(map, 0));

  map = with_moves_done(map, 0, {0, 3, 6, 7, 99});
  EXPECT_EQ(map.epoch, 3U);
  EXPECT_THAT(homes_of(map), ElementsAre(2, 1, 2, 1, 1, 2, 2, 1));
  EXPECT_EQ(map.shards[6].home.index, index_region_of(6, 1));
  EXPECT_FALSE(has_too_many(map, 0));

  map = drained(map, "n0").value();
  EXPECT_EQ(map.epoch, 3U);
  EXPECT_EQ(map.nodes[0].state, NodeState::drained);
  EXPECT_EQ(drained(map, "n0").value(), map);
  map = without_node(map, "n0", false).value();
  EXPECT_EQ(map.epoch, 4U);
  EXPECT_EQ(map.find("n1"), 1U);
  EXPECT_EQ(map.nodes[0],
            (ClusterMap::Node{.name = "", .at = {}, .data = {2, 3}, .state = NodeState::gone, .since = 4}));
  EXPECT_EQ(map.flaw(), std::nullopt);
}

// Receive: a shard on its way to a host that is to leave. Expect: it is not drained before that has come and
// gone again.
TEST(Changes, AHostIsNotDrainedWhileAShardIsOnItsWayThere) {
  ClusterMap map = with_node(map_of(1, 4), "n1", at(1)).value();
  map = with_moves_announced(map, 0);
  map = draining(map, "n1").value();
  EXPECT_EQ(drained(map, "n1").error().code, Errc::invalid_argument);
  map = with_moves_done(map, 0, all_shards(map));
  map = with_moves_done(with_moves_announced(map, 1), 1, all_shards(map));
  EXPECT_EQ(homes_of(map), std::vector<std::uint32_t>(4, 0));
  EXPECT_TRUE(drained(map, "n1").has_value());
}

TEST(Changes, HostsThatHaveMoreGiveAwayToOneThatComes) {
  ClusterMap map = with_node(map_of(2, 8), "n2", at(2)).value();
  ASSERT_TRUE(has_too_many(map, 0));
  map = with_moves_announced(map, 0);
  EXPECT_EQ(map.shards[6].next, (ClusterMap::Place{.node = 2, .index = index_region_of(6, 1)}));
  EXPECT_EQ(map.shards[4].next, std::nullopt) << "node 1 has too many, too, and gives the other one";
  EXPECT_FALSE(has_too_many(map, 0));
  map = with_moves_announced(map, 1);
  EXPECT_EQ(map.shards[7].next->node, 2U);
  EXPECT_EQ(map.shards[5].next, std::nullopt) << "one more than another is not too many";
  for (std::uint32_t node = 0; node < 4; ++node) EXPECT_FALSE(has_too_many(map, node));
}

TEST(Changes, ShardsGoToNoneThatHasNoRoom) {
  const ClusterMap map = draining(map_of(3, 4), "n0").value();
  const ClusterMap to_another = with_moves_announced(map, 0, fabric::node_bit(1));
  EXPECT_EQ(to_another.shards[0].next->node, 2U);
  EXPECT_EQ(to_another.shards[3].next->node, 2U);
  EXPECT_EQ(with_moves_announced(map, 0, fabric::all_nodes), map);
}

TEST(Changes, MovesAreTakenBack) {
  const ClusterMap map = draining(map_of(3, 4), "n0").value();
  const ClusterMap moving = with_moves_announced(map, 0);
  ASSERT_TRUE(moving.shards[0].next && moving.shards[3].next);
  EXPECT_EQ(with_moves_taken_back(moving, 1, {0, 3}), moving) << "they are another's";
  const ClusterMap one_stays = with_moves_taken_back(moving, 0, {3, 2, 32});
  EXPECT_EQ(one_stays.shards[0], moving.shards[0]);
  EXPECT_EQ(one_stays.shards[3], map.shards[3]);
  EXPECT_EQ(one_stays.epoch, map.epoch + 1);
  EXPECT_EQ(with_moves_taken_back(moving, 0, {0, 3}).shards, map.shards);
}

TEST(Changes, TheLastHostThatServesStays) {
  ClusterMap map = map_of(2, 4);
  map = draining(map, "n0").value();
  EXPECT_EQ(draining(map, "n1").error().code, Errc::invalid_argument);
  EXPECT_EQ(without_node(map, "n1", true).error().code, Errc::invalid_argument);
  for (const char* name : {"n7", ""}) {
    EXPECT_EQ(draining(map, name).error().code, Errc::not_found);
    EXPECT_EQ(drained(map, name).error().code, Errc::not_found);
    EXPECT_EQ(without_node(map, name, true).error().code, Errc::not_found);
  }
  EXPECT_EQ(drained(map, "n1").error().code, Errc::invalid_argument);
}

TEST(Changes, ShardsOfAHostThatIsLostBeginAnewOnOthers) {
  ClusterMap map = map_of(3, 8);
  // 7 was to go from n1 to n0, 3 from n0 to n2; 6 is in its second region.
  map.shards[7].next = {.node = 0, .index = index_region_of(7, 1)};
  map.shards[3].next = {.node = 2, .index = index_region_of(3, 1)};
  map.shards[6].home.index = index_region_of(6, 1);
  ASSERT_EQ(map.flaw(), std::nullopt);
  const ClusterMap without = without_node(map, "n0", true).value();
  EXPECT_EQ(without.epoch, map.epoch + 1);
  EXPECT_EQ(without.flaw(), std::nullopt);
  EXPECT_EQ(without.shards[7], (ClusterMap::Shard{.home = map.shards[7].home}));
  // n1 has 1, 4, 7, and n2 has 2, 5 before.
  EXPECT_EQ(without.shards[0].home, (ClusterMap::Place{.node = 2, .index = index_region_of(0, 0)}));
  EXPECT_EQ(without.shards[3].home, (ClusterMap::Place{.node = 1, .index = index_region_of(3, 0)}));
  EXPECT_EQ(without.shards[3].next, std::nullopt);
  EXPECT_EQ(without.shards[6].home, (ClusterMap::Place{.node = 2, .index = index_region_of(6, 1)}));
}

// Whatever happens in whatever order, a map is one that can be, and all shards end up evenly spread.
TEST(Changes, AnyChangesGiveMapsThatCanBe) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::uint32_t>(random() % end); };
  ClusterMap map = map_of(3, 32);
  int names = 0;
  for (int step = 0; step < 2'000; ++step) {
    const std::uint32_t node = below(map.nodes.size());
    const std::string name = map.nodes[node].name;
    const std::uint64_t epoch = map.epoch;
    Result<ClusterMap> next = map;
    switch (below(7)) {
      case 0:
        next = with_node(map, fmt::format("m{}", names), at(100 + names), 1 + below(5));
        ++names;
        break;
      case 1:
        next = draining(map, name);
        break;
      case 2:
        next = drained(map, name);
        break;
      case 3:
        next = without_node(map, name, below(8) == 0);
        break;
      case 4:
        next = with_moves_announced(map, node, below(8) == 0 ? fabric::node_bit(below(map.nodes.size())) : 0);
        break;
      case 5:
        next = with_moves_taken_back(map, node, {below(32), below(32)});
        break;
      default:
        next = with_moves_done(map, node, {below(32), below(32), below(32)});
        break;
    }
    if (!next) continue;
    map = *next;
    ASSERT_EQ(map.flaw(), std::nullopt) << "step " << step;
    ASSERT_TRUE(map.epoch == epoch || map.epoch == epoch + 1);
  }
  for (int round = 0; round < 64; ++round) {
    for (std::uint32_t node = 0; node < map.nodes.size(); ++node)
      map = with_moves_done(with_moves_announced(map, node), node, all_shards(map));
  }
  std::vector<std::size_t> counts;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    EXPECT_FALSE(has_too_many(map, node));
    const auto count = static_cast<std::size_t>(std::ranges::count(homes_of(map), node));
    if (map.nodes[node].state == NodeState::serves) {
      counts.push_back(count);
    } else {
      EXPECT_EQ(count, 0U);
    }
  }
  const auto [least, most] = std::ranges::minmax(counts);
  EXPECT_LE(most - least, 1U);
}

}  // namespace
}  // namespace loch::cluster
