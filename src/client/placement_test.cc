// Where the options say that new items of a cluster's store are put.
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loch/loch.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/testing/in_child.h"
#include "client/opening.h"
#include "fabric/cluster_map.h"
#include "net/socket.h"
#include "net/testing/name_server.h"

namespace loch::client {
namespace {

using fabric::ClusterMap;
using Policy = memory::Placement::Policy;

ClusterMap::Node node(std::string name, std::string host) {
  return {.name = std::move(name), .at = {.host = std::move(host), .port = "1"}};
}
const ClusterMap::Node gone{.name = {}, .at = {}, .state = ClusterMap::NodeState::gone};
// Of no host.
constexpr const char* elsewhere = "192.0.2.7";

base::Nanos soon() { return base::Clock().now() + net::look_up_max_ns; }

// The node that items are put on by this placement on these nodes; none: that where the key's index is.
std::optional<std::uint32_t> local_node(std::vector<ClusterMap::Node> nodes, const std::string& source = {},
                                        base::Nanos deadline = soon()) {
  Options options;
  options.source_address = source;
  const ClusterMap map{.nodes = std::move(nodes), .shards = {}};
  const auto placement = placement_of(options, &map, deadline);
  EXPECT_TRUE(placement.has_value());
  if (placement->policy == Policy::by_key) return std::nullopt;
  EXPECT_EQ(placement->policy, Policy::local);
  return placement->node;
}

// Receive: a number whose host is gone, before and beside others. Expect: it is never this host's.
TEST(PlacementTest, ANodeThatIsGoneIsNotThisHosts) {
  EXPECT_EQ(local_node({gone, node("a", elsewhere), node("b", "127.0.0.1")}), 2U);
  EXPECT_EQ(local_node({gone, node("a", elsewhere)}), std::nullopt);
  EXPECT_EQ(local_node({gone}), std::nullopt);
  EXPECT_EQ(local_node({gone, node("a", elsewhere), node("b", "192.0.2.8")}, elsewhere), 1U);
  EXPECT_EQ(local_node({gone, node("a", elsewhere)}, "127.0.0.1"), std::nullopt);
}

// Given: a name server that does not answer, if this process may have one of its own. Expect: nobody waits
// for it after the deadline, and an address of this host is found all the same.
TEST(PlacementTest, NamesAreLookedUpUntilTheDeadlineAlone) {
  const std::string said = base::fake::in_child([]() -> std::string {
    const base::FileDescriptor server = net::fake::become_name_server();
    if (!server.is_open()) return "it may have none";
    const base::Nanos deadline = base::Clock().now() + 300 * base::millisecond_ns;
    const auto here = local_node({node("a", "far.example"), node("b", "127.0.0.1")}, {}, deadline);
    if (base::Clock().now() > deadline + 5 * base::second_ns) return "it waited";
    return here == 1U ? "as expected" : "another node";
  });
  if (said == "it may have none") GTEST_SKIP() << "this process may have no network of its own";
  EXPECT_EQ(said, "as expected");
}

TEST(PlacementTest, ANamedNodeIsOneThatTheClusterHas) {
  const ClusterMap map{.nodes = {gone, node("a", elsewhere), gone, node("b", "192.0.2.8")}, .shards = {}};
  Options options;
  options.placement = Placement::node;
  options.placement_node = "b";
  const auto placement = placement_of(options, &map, soon());
  ASSERT_TRUE(placement.has_value());
  EXPECT_EQ(placement->policy, Policy::node);
  EXPECT_EQ(placement->node, 3U);
  options.placement_node = "c";
  const auto refused = placement_of(options, &map, soon());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_NE(refused.error().detail.find("no node 'c'; there are: a, b"), std::string::npos)
      << refused.error().detail;
  options.placement_node.clear();
  EXPECT_FALSE(placement_of(options, &map, soon()).has_value());
  const auto opened = Store::open("tcp://192.0.2.7/name", options);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::invalid_argument);
  EXPECT_NE(opened.error().detail.find("placement_node is empty"), std::string::npos)
      << opened.error().detail;
}

}  // namespace
}  // namespace loch::client
