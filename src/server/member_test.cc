// What a host makes of the part that it has, when the cluster has it as another node than before.
#include "server/member.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/endpoint.h"
#include "memory/layout.h"
#include "server/testing/kept_log.h"
#include "server/testing/moving_cluster.h"

namespace loch::server {
namespace {

using cluster::ClusterMap;
using fake::store_name;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

net::HostPort address_of(std::string_view node) {
  return {.host = fmt::format("10.0.0.{}", node.front() - 'a' + 1), .port = "7457"};
}

class MemberTest : public testing::Test {
 protected:
  [[nodiscard]] Member::Options options(const std::string& node) const {
    Config::Store store;
    store.name = store_name;
    store.of_cluster = true;
    return {.cluster = {.coordinator = "shared:", .node = node},
            .at = address_of(node),
            .stores = {store},
            .here = here(),
            .log = log_.sink()};
  }
  [[nodiscard]] fabric::Access here() const {
    return {.directory = temp_.path(), .huge_pages = false, .lends = true};
  }
  // The host, as the cluster's coordinator calls it.
  Result<std::unique_ptr<Member>> join(const std::string& node) {
    return Member::join(options(node), std::make_unique<fake::SharedCoordinator>(map_));
  }
  // Goes by the map as it is now.
  Result<void> follow(Member& member) { return member.adopt(map_.read()); }
  void write(const ClusterMap& map) { ASSERT_TRUE(map_.write(map, map_.read().version).has_value()); }
  // 0: what is here is not that node's part.
  [[nodiscard]] std::uint64_t incarnation_of(std::uint32_t node) const {
    const auto part = fabric::attach("shm://" + std::string(store_name), here());
    if (!part) return 0;
    fabric::Endpoint endpoint(*part, (*part)->connect());
    const std::byte* word = endpoint.mapped(memory::incarnation_at(node, node), sizeof(std::uint64_t));
    return word == nullptr ? 0 : fabric::load_word(word);
  }
  static ClusterMap two_nodes() {
    return cluster::first_map({{.name = "a", .at = address_of("a")}, {.name = "b", .at = address_of("b")}}, 4)
        .value();
  }
  // No regions are left for another node.
  static ClusterMap full_map(const std::vector<std::string>& names) {
    constexpr std::uint32_t regions = fabric::data_regions_end - fabric::first_data_region;
    const auto of_each = regions / static_cast<std::uint32_t>(names.size());
    std::vector<cluster::NewNode> nodes;
    for (const std::string& name : names)
      nodes.push_back({.name = name, .at = address_of(name), .regions = of_each});
    return cluster::first_map(nodes, 4).value();
  }
  static ClusterMap without(const ClusterMap& map, const char* node) {
    return cluster::without_node(map, node, true).value();
  }
  static ClusterMap with(const ClusterMap& map, const char* node) {
    return cluster::with_node(map, node, address_of(node)).value();
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const fake::KeptLog log_;
  fake::Map map_;
};

// Receive: a host that was removed, and is added again, which gives it another number. Expect: it makes its
// part anew, and says so; and whoever has the former one mapped finds no part there any more.
TEST_F(MemberTest, AHostThatWasRemovedMakesItsPartAnew) {
  write(two_nodes());
  const auto member = join("b").value();
  ASSERT_NE(incarnation_of(1), 0U);
  const auto former = fabric::attach("shm://" + std::string(store_name), here()).value();
  fabric::Endpoint endpoint(former, former->connect());
  const std::byte* superblock = endpoint.mapped({fabric::control_region_of(1), 0}, memory::control_bytes);
  ASSERT_EQ(fabric::load_word(superblock), memory::magic);
  write(without(map_.read().map, "b"));
  ASSERT_TRUE(follow(*member).has_value());
  write(with(map_.read().map, "b"));
  const auto followed = follow(*member);
  ASSERT_TRUE(followed.has_value()) << followed.error().message();
  EXPECT_EQ(member->now().node, 2U);
  EXPECT_NE(incarnation_of(2), 0U);
  EXPECT_NE(fabric::load_word(superblock), memory::magic);
  EXPECT_THAT(log_.text(), HasSubstr("left by a node that was removed from the cluster"));
}

// Receive: the same while lochd was down. Expect: the same.
TEST_F(MemberTest, AHostThatWasRemovedWhileItWasDownMakesItsPartAnew) {
  write(two_nodes());
  join("b").value().reset();
  write(with(without(map_.read().map, "b"), "b"));
  const auto member = join("b");
  ASSERT_TRUE(member.has_value()) << member.error().message();
  EXPECT_NE(incarnation_of(2), 0U);
}

// Receive: a host that was removed and gets the number that it had, since there is no other; while it runs,
// and then while lochd is down. Expect: it makes its part anew each time, and by no other map.
TEST_F(MemberTest, AHostThatHasItsFormerNumberMakesItsPartAnew) {
  write(full_map({"a", "b"}));
  auto member = join("b").value();
  std::uint64_t before = incarnation_of(1);
  ASSERT_NE(before, 0U);
  for (const bool is_down : {false, true}) {
    SCOPED_TRACE(is_down);
    if (is_down) member.reset();
    write(with(without(map_.read().map, "b"), "b"));
    ASSERT_EQ(map_.read().map.find("b"), 1U);
    if (is_down) {
      member = join("b").value();
    } else {
      ASSERT_TRUE(follow(*member).has_value());
    }
    const std::uint64_t is = incarnation_of(1);
    EXPECT_NE(is, 0U);
    EXPECT_NE(is, before);
    write(cluster::draining(map_.read().map, "b").value());
    ASSERT_TRUE(follow(*member).has_value());
    write(with(map_.read().map, "b"));
    ASSERT_TRUE(follow(*member).has_value());
    EXPECT_EQ(incarnation_of(1), is) << "it has stayed";
    before = is;
  }
}

// Receive: a host that was removed and has another number, while another host has the one that it had.
// Expect: it makes its part anew.
TEST_F(MemberTest, AHostWhoseFormerNumberIsAnothersMakesItsPartAnew) {
  write(full_map({"a", "b", "d"}));
  join("b").value().reset();
  ASSERT_NE(incarnation_of(1), 0U);
  write(with(without(map_.read().map, "b"), "c"));
  ASSERT_EQ(map_.read().map.find("c"), 1U);
  write(with(without(map_.read().map, "d"), "b"));
  ASSERT_EQ(map_.read().map.find("b"), 2U);
  const auto member = join("b");
  ASSERT_TRUE(member.has_value()) << member.error().message();
  EXPECT_EQ(incarnation_of(1), 0U);
  EXPECT_NE(incarnation_of(2), 0U);
}

// Receive: parts of which nobody knows that they are nobody's: one of a node that the cluster still has,
// under another name in the configuration; and one of a removed node, of another cluster. Expect: an error
// that says what to do, and they stay.
TEST_F(MemberTest, APartThatMayBeSomebodysStays) {
  write(two_nodes());
  join("b").value().reset();
  const std::uint64_t before = incarnation_of(1);
  write(with(map_.read().map, "c"));
  const auto renamed = join("c");
  ASSERT_FALSE(renamed.has_value());
  EXPECT_THAT(renamed.error().message(), AllOf(HasSubstr("is a part of another place in the cluster"),
                                               HasSubstr("loch --directory " + temp_.path() + " rm store")));
  write(with(without(two_nodes(), "b"), "b"));
  const auto of_another = join("b");
  ASSERT_FALSE(of_another.has_value());
  EXPECT_EQ(of_another.error().code, Errc::incompatible) << of_another.error().message();
  EXPECT_EQ(incarnation_of(1), before);
}

// Receive: a part that was made by another hash seed than the cluster has by now. Expect: a warning, for this
// one alone.
TEST_F(MemberTest, AnotherHashSeedIsWarnedOf) {
  ClusterMap map = two_nodes();
  write(map);
  join("b").value().reset();
  join("b").value().reset();
  EXPECT_THAT(log_.text(), Not(HasSubstr("hash_seed")));
  map.hash_seed += 2;
  write(map);
  ASSERT_TRUE(join("b").has_value());
  EXPECT_THAT(log_.text(), HasSubstr("store 'store' was made by another hash_seed or key_file"));
}

// Receive: the map from before the host was removed and added, of a server of the coordinator that is behind.
// Expect: an error that says so, and the part of the newer map stays.
TEST_F(MemberTest, AnOlderMapTakesNoPartAway) {
  const ClusterMap first = without(with(two_nodes(), "c"), "c");
  const ClusterMap later = with(without(first, "b"), "b");
  write(later);
  join("b").value().reset();
  const std::uint32_t number = later.find("b").value();
  const std::uint64_t before = incarnation_of(number);
  ASSERT_NE(before, 0U);
  write(first);
  const auto behind = join("b");
  ASSERT_FALSE(behind.has_value());
  EXPECT_EQ(behind.error().code, Errc::unavailable) << behind.error().message();
  EXPECT_EQ(incarnation_of(number), before);
}

}  // namespace
}  // namespace loch::server
