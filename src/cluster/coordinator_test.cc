#include "cluster/coordinator.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lab/temp_folder.h"

namespace loch::cluster {
namespace {

using testing::HasSubstr;

class FileCoordinatorTest : public testing::Test {
 protected:
  Result<fabric::ClusterMap> read(const std::string& text) {
    std::ofstream(path_) << text;
    auto coordinator = Coordinator::open("file:" + path_);
    if (!coordinator) return std::unexpected(std::move(coordinator.error()));
    auto read = (*coordinator)->read_map();
    if (!read) return std::unexpected(std::move(read.error()));
    return std::move(read->map);
  }
  std::string error_of(const std::string& text) {
    const auto map = read(text);
    return map ? "no error" : map.error().message();
  }

  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const std::string path_ = temp_.path() + "/cluster.toml";
};

constexpr const char* three_nodes = R"(
[[node]]
name = "a"
address = "10.0.0.1"
[[node]]
name = "b"
address = "10.0.0.2:8000"
[[node]]
name = "c"
address = "[fd00::3]:8000"
)";

TEST_F(FileCoordinatorTest, RegionsAndShardsGoToTheNodesInTurn) {
  const auto map = read(three_nodes);
  ASSERT_TRUE(map.has_value()) << map.error().message();
  ASSERT_EQ(map->nodes.size(), 3U);
  EXPECT_EQ(map->nodes[0].at.text(), "10.0.0.1:7457");
  EXPECT_EQ(map->nodes[1].at.text(), "10.0.0.2:8000");
  EXPECT_EQ(map->nodes[2].at.text(), "[fd00::3]:8000");
  EXPECT_EQ(map->nodes[1].data.size(), 42U);
  EXPECT_EQ(map->node_of(2), 0U);
  EXPECT_EQ(map->node_of(3), 1U);
  EXPECT_EQ(map->node_of(127), 2U);
  EXPECT_EQ(map->shards.size(), 16U);
  EXPECT_EQ(map->node_of(fabric::control_region_of(2)), 2U);
  EXPECT_EQ(map->node_of(fabric::control_region_of(3)), std::nullopt);
  EXPECT_EQ(map->node_of(fabric::index_region_of(4)), 1U);
  EXPECT_EQ(map->node_of(fabric::index_region_of(16)), std::nullopt);
  EXPECT_EQ(map->node_of(0), std::nullopt);
  EXPECT_EQ(map->hash_seed, 0U);
  EXPECT_EQ(read(std::string("hash_seed = 7\n") + three_nodes)->hash_seed, 7U);
}

TEST_F(FileCoordinatorTest, WhatCanNotBeIsAnErrorThatNamesTheLine) {
  EXPECT_THAT(error_of(""), HasSubstr("1 to 64 nodes, not 0"));
  EXPECT_THAT(error_of("nodes = 3\n"), HasSubstr("no setting 'nodes'"));
  EXPECT_THAT(error_of("[[node]]\nname = \"a\"\n"), HasSubstr(":1: a node has"));
  EXPECT_THAT(error_of("[[node]]\nname = \"a\"\naddress = \"x\"\nport = 3\n"),
              HasSubstr(":4: there is no setting 'port'"));
  EXPECT_THAT(error_of(std::string("shards = 3\n") + three_nodes), HasSubstr("1, 2, 4"));
  EXPECT_THAT(error_of(std::string("shards = 128\n") + three_nodes), HasSubstr(":1: 'shards'"));
  EXPECT_THAT(error_of("[[node]]\nname = \"a\"\naddress = \"x\"\n[[node]]\nname = \"a\"\naddress = \"y\"\n"),
              HasSubstr("two nodes are called 'a'"));
  EXPECT_THAT(error_of("[[node]]\nname = \"a/b\"\naddress = \"x\"\n"),
              HasSubstr("\"a/b\" is no name of a node"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += fmt::format("[[node]]\nname = \"n{}\"\naddress = \"x\"\n", i);
  EXPECT_THAT(error_of(many), HasSubstr(path_ + ": a cluster has 1 to 64 nodes, not 65"));
  EXPECT_THAT(error_of("[[node]\n"), HasSubstr(":1: "));
  for (const char* seed : {"0", "-3", "\"7\"", "1.5"})
    EXPECT_THAT(error_of(fmt::format("hash_seed = {}\n{}", seed, three_nodes)), HasSubstr(":1: 'hash_seed'"));
}

// Receive: where a host listens, and others would find themselves. Expect: the file, the node and what to
// write instead are named.
TEST_F(FileCoordinatorTest, AHostIsNotFoundByWhereAllListen) {
  for (const char* address : {"*:8000", "0.0.0.0:8000", "[::]:8000"}) {
    EXPECT_THAT(
        error_of(fmt::format("{}[[node]]\nname = \"d\"\naddress = \"{}\"\n", three_nodes, address)),
        testing::AllOf(HasSubstr(fmt::format("{}:11: {} is where node 'd' may listen", path_, address)),
                       HasSubstr("such as 10.0.0.1:8000")));
  }
}

TEST(Coordinator, SaysWhatThereIs) {
  EXPECT_EQ(Coordinator::open("file:").error().code, Errc::invalid_argument);
  EXPECT_THAT(Coordinator::open("oracle:7").error().message(), HasSubstr("file:/etc/loch/cluster.toml"));
  const auto missing = Coordinator::open("file:/nowhere/cluster.toml").value()->read_map();
  EXPECT_EQ(missing.error().code, Errc::not_found);
  const auto folder = Coordinator::open("file:/etc").value()->read_map();
  EXPECT_EQ(folder.error().code, Errc::io);
}

// One whose map others change, so many times.
class SharedCoordinator final : public Coordinator {
 public:
  explicit SharedCoordinator(int changes) : changes_(changes) {}
  Result<Versioned> read_map() override { return now_; }
  [[nodiscard]] bool may_change() const override { return true; }
  Result<void> write_map(const fabric::ClusterMap& map, std::uint64_t version) override {
    if (changes_-- > 0) {
      ++now_.map.epoch;
      ++now_.version;
    }
    if (version != now_.version) return fail(Errc::changed, "cluster");
    now_ = {.map = map, .version = version + 1};
    return {};
  }
  Result<void> announce(const Present& /*self*/) override { return {}; }
  Result<std::vector<Present>> present() override { return std::vector<Present>{}; }
  void wait_for_change(std::uint64_t /*version*/, base::Nanos /*at_most_ns*/) override {}

 private:
  int changes_;
  Versioned now_{.map = {}, .version = 1};
};

// Receive: others change the map meanwhile. Expect: the change is made to what they made of it, unless that
// goes on without end; and none to what is as it is to be.
TEST(Coordinator, TheNewestMapIsChanged) {
  const auto later = [](const fabric::ClusterMap& map) -> Result<fabric::ClusterMap> {
    fabric::ClusterMap later = map;
    later.epoch += 100;
    return later;
  };
  SharedCoordinator shared(3);
  const auto changed = change_map(shared, later);
  ASSERT_TRUE(changed.has_value()) << changed.error().message();
  EXPECT_EQ(changed->map.epoch, 104U);
  EXPECT_EQ(changed->version, 5U);
  const auto same = change_map(shared, [](const auto& map) -> Result<fabric::ClusterMap> { return map; });
  EXPECT_EQ(same.value().version, 5U);
  SharedCoordinator busy(1'000);
  EXPECT_EQ(change_map(busy, later).error().code, Errc::changed);
}

}  // namespace
}  // namespace loch::cluster
