#include "fabric/map_message.h"

#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>

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
    map.nodes.push_back({.name = fmt::format("{:n>{}}", node, node_name_bytes_max),
                         .at = {.host = std::string(net::host_bytes_max, ':'), .port = "65535"},
                         .state = NodeState::drained});
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

}  // namespace
}  // namespace loch::fabric::cluster
