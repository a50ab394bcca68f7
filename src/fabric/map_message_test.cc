#include "fabric/map_message.h"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"

namespace loch::fabric::cluster {
namespace {

using testing::HasSubstr;
using NodeState = ClusterMap::NodeState;

// Every name, address and number as long as it may be, and every shard about to move.
ClusterMap largest_map() {
  ClusterMap map;
  map.epoch = std::numeric_limits<std::uint64_t>::max();
  map.hash_seed = std::numeric_limits<std::uint64_t>::max();
  for (std::uint32_t node = 0; node < node_count_max; ++node) {
    std::string host = std::to_string(node);
    host.insert(0, net::host_bytes_max - host.size(), ':');
    map.nodes.push_back({.name = fmt::format("{:n>{}}", node, node_name_bytes_max),
                         .at = {.host = std::move(host), .port = "65535"},
                         .state = NodeState::drained,
                         .since = map.epoch});
  }
  for (unsigned region = first_data_region; region < data_regions_end; ++region)
    map.nodes[region % node_count_max].data.push_back(static_cast<RegionId>(region));
  for (std::uint32_t shard = 0; shard < shard_count_max; ++shard)
    map.shards.push_back({.home = {.node = node_count_max - 1, .index = index_region_of(shard, 0)},
                          .next = {{.node = node_count_max - 1, .index = index_region_of(shard, 1)}}});
  return map;
}

// Expect: a host can tell it, with what else stands in that answer (remote/protocol.h).
TEST(MapMessage, TheLargestMapThatCanBeFitsIntoAMessage) {
  const ClusterMap map = largest_map();
  ASSERT_EQ(map.flaw(), std::nullopt);
  const net::Message message = to_message(map);
  EXPECT_EQ(map_of(message).value(), map);
  constexpr std::size_t besides_bytes = 1'024;
  EXPECT_LE(message.dump().size() + besides_bytes, net::Messages::bytes_max);
}

// Receive: names and addresses that are longer, or that a terminal or a log would act on. Expect: an error,
// in plain text.
TEST(MapMessage, NamesAndAddressesAreNoLongerAndPlain) {
  const auto error_of = [](const char* field, std::string text) {
    net::Message message = to_message(largest_map());
    message["nodes"][0][field] = std::move(text);
    const auto map = map_of(message);
    return map ? "no error" : map.error().detail;
  };
  for (const std::string& name : {std::string(node_name_bytes_max + 1, 'n'), std::string("a\x1b]0;b\x07"),
                                  std::string("a\nb"), std::string("-a"), std::string()}) {
    const std::string error = error_of("name", name);
    EXPECT_THAT(error, HasSubstr("is no name of a node"));
    EXPECT_TRUE(std::ranges::all_of(error, [](char c) { return c >= ' ' && c <= '~'; })) << error;
  }
  for (const std::string& host :
       {std::string(net::host_bytes_max + 1, 'h'), std::string("a\x1b[2J"), std::string("a b")})
    EXPECT_THAT(error_of("at", host), HasSubstr("is no address"));
}

// Two nodes, and two shards of which one moves.
net::Message small_map() {
  ClusterMap map = ClusterMap::spread({{.name = "a", .at = {.host = "10.0.0.1", .port = "7457"}},
                                       {.name = "b", .at = {.host = "10.0.0.2", .port = "7457"}}},
                                      2)
                       .value();
  map.shards[1].next = {.node = 0, .index = index_region_of(1, 1)};
  map.hash_seed = 7;
  return to_message(map);
}

// Receive: maps that can not be. Expect: each is refused, by what is wrong with it.
TEST(MapMessage, WhatCanNotBeIsRefused) {
  using Json = net::Message;
  ASSERT_TRUE(map_of(small_map()).has_value());
  const std::uint64_t wraps = std::uint64_t{1} << 32;  // to node 0
  const struct {
    const char* at;
    Json lie;
    const char* why;
  } lies[] = {
      {"/nodes", Json::array(), "1 to 64 nodes, not 0"},
      {"/nodes", nullptr, "'nodes' is no list"},
      {"/nodes", small_map()["nodes"][0], "'nodes' is no list"},
      {"/nodes/0", 5, "type_error"},
      {"/nodes/1/name", "a", "two nodes are called 'a'"},
      {"/nodes/1/state", "sleeps", "in no state that there is"},
      {"/nodes/1/state", "gone", "a node that is gone has a name"},
      {"/nodes/1/at", "b:port", "is no address"},
      {"/nodes/1/since", -1, "'since'"},
      {"/nodes/1/since", nullptr, "'since'"},
      {"/nodes/1/since", 2U, "node 'b' is there since epoch 2, and the map is of epoch 1"},
      {"/nodes/1/data", Json::array(), "node 'b' has no data regions"},
      {"/nodes/1/data", 3U, "'data' is no list"},
      {"/nodes/1/data/0", 2U, "region 2 is on two nodes"},
      {"/nodes/1/data/1", 3U, "region 3 is on two nodes"},
      {"/nodes/1/data/0", 127U, "the regions of 'b' do not rise"},
      {"/nodes/1/data/0", 1U, "1 is no data region"},
      {"/nodes/1/data/0", 128U, "128 is no data region"},
      {"/nodes/1/data/0", 259U, "259 is no data region"},
      {"/nodes/1/data/0", -3, "a data region is no number"},
      {"/nodes/1/data/0", 3.5, "a data region is no number"},
      {"/nodes/1/data/0", "3", "a data region is no number"},
      {"/shards", Json::array(), "1, 2, 4 ... 32 shards, not 0"},
      {"/shards", nullptr, "'shards' is no list"},
      {"/shards/2", small_map()["shards"][0], "1, 2, 4 ... 32 shards, not 3"},
      {"/shards/0/home", 0U, "a shard is on node"},
      {"/shards/0/home/node", 2U, "a shard is on node 2, which there is not"},
      {"/shards/0/home/node", wraps, "which there is not"},
      {"/shards/0/home/node", ~std::uint64_t{0}, "which there is not"},
      {"/shards/0/home/node", -1, "which there is not"},
      {"/shards/0/home/node", 0.5, "which there is not"},
      {"/shards/1/next/node", 2U, "a shard is on node 2, which there is not"},
      {"/shards/0/home/index", index_region_of(1), "region 193 is not for shard 0"},
      {"/shards/0/home/index", first_data_region, "region 2 is not for shard 0"},
      {"/shards/0/home/index", 256U + index_region_of(0), "is not for shard 0"},
      {"/shards/0/home/index", 192.5, "is not for shard 0"},
      {"/shards/1/next/index", index_region_of(0, 1), "is not for shard 1"},
      {"/shards/1/next/index", index_region_of(1), "shard 1 moves to the region that it is in"},
      {"/epoch", -1, "'epoch'"},
      {"/epoch", nullptr, "'epoch'"},
      {"/hash_seed", "7", "'hash_seed'"},
      {"", nullptr, "'epoch'"},
      {"", Json::array(), "'epoch'"},
  };
  for (const auto& each : lies) {
    Json message = small_map();
    message[Json::json_pointer(each.at)] = each.lie;
    const auto map = map_of(message);
    ASSERT_FALSE(map.has_value()) << each.at << " " << each.lie;
    EXPECT_EQ(map.error().code, Errc::corrupt) << each.at << " " << each.lie;
    EXPECT_THAT(map.error().detail, HasSubstr("this map of the cluster can not be: ")) << each.at;
    EXPECT_THAT(map.error().detail, HasSubstr(each.why)) << each.at << " " << each.lie;
  }
  for (const char* field : {"epoch", "nodes", "shards"}) {
    Json message = small_map();
    message.erase(field);
    EXPECT_FALSE(map_of(message).has_value()) << field;
  }
}

// All places of a message, it itself among them.
std::vector<net::Message*> places_of(net::Message& message) {
  std::vector<net::Message*> places{&message};
  if (message.is_structured()) {
    for (net::Message& child : message) std::ranges::copy(places_of(child), std::back_inserter(places));
  }
  return places;
}

// Receive: maps of which something was changed at random. Expect: they are refused, or taken for just what
// they say.
TEST(MapMessage, AMapIsRefusedOrTakenAtItsWord) {
  const std::uint64_t seed = base::system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  base::Random random(seed);
  net::Message sound = small_map();
  sound["nodes"][0]["data"] = {2U, 4U, 6U};  // fewer places, so that each has its turn
  sound["nodes"][1]["data"] = {3U, 5U, 7U};
  const std::vector<net::Message> others{nullptr,
                                         true,
                                         "",
                                         "b",
                                         "gone",
                                         "10.0.0.1:7457",
                                         net::Message::array(),
                                         net::Message::object(),
                                         -1,
                                         0.5,
                                         1e300,
                                         ~std::uint64_t{0},
                                         std::uint64_t{1} << 32,
                                         std::uint64_t{1} << 8};
  int taken = 0;
  for (int i = 0; i < 2'000; ++i) {
    net::Message message = sound;
    for (std::uint64_t changes = random.below(3) + 1; changes != 0; --changes) {
      const auto places = places_of(message);
      net::Message& place = *places[random.below(places.size())];
      if (place.is_structured() && !place.empty() && random.below(4) == 0) {
        auto child = place.begin();
        std::advance(child, random.below(place.size()));
        place.erase(child);
      } else if (random.below(2) == 0) {
        place = others[random.below(others.size())];
      } else {
        place = net::Message(*places[random.below(places.size())]);
      }
    }
    const auto map = map_of(message);
    if (!map) {
      ASSERT_EQ(map.error().code, Errc::corrupt) << message;
      continue;
    }
    ++taken;
    ASSERT_EQ(map->flaw(), std::nullopt) << message;
    // What it says, in the words of who tells it.
    net::Message told = to_message(*map);
    if (!message.contains("hash_seed")) told.erase("hash_seed");
    for (std::size_t node = 0; node < map->nodes.size(); ++node) {
      net::Message& said = message["nodes"][node];
      told["nodes"][node]["at"] = said["at"];  // null, if it is not there
      if (!said.contains("since")) told["nodes"][node].erase("since");
    }
    ASSERT_EQ(told, message);
  }
  EXPECT_GT(taken, 10) << "of the changes too few are harmless";
}

}  // namespace
}  // namespace loch::fabric::cluster
