// The real loch, about the hosts of clusters: of a fixed list, and of a real ZooKeeper.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>

#include "cluster/changes.h"
#include "cluster/coordinator.h"
#include "lab/zookeeper_server.h"
#include "tests/cli/run.h"

namespace loch::cli {
namespace {

using cluster::ClusterMap;
using testing::AllOf;
using testing::HasSubstr;

class ClusterCommand : public CliTest {
 protected:
  [[nodiscard]] Outcome about(const std::string& coordinator, Arguments arguments,
                              RunOptions options = {}) const {
    arguments.insert(arguments.begin(), "cluster");
    options.variables.push_back("LOCH_COORDINATOR=" + coordinator);
    return loch(std::move(arguments), options);
  }
};

TEST_F(ClusterCommand, AFixedListHasAStatusAndNoChanges) {
  const std::string list = "file:" + write_file("cluster.toml",
                                                "shards = 8\n"
                                                "[[node]]\nname = \"a\"\naddress = \"10.0.0.1\"\n"
                                                "[[node]]\nname = \"b\"\naddress = \"10.0.0.2:8000\"\n");
  const Outcome status = about(list, {"status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_EQ(status.out,
            "NAME  ADDRESS        STATE   LOCHD  SHARDS  COMING  GOING  REGIONS\n"
            "a     10.0.0.1:7457  serves  -           4       0      0       63\n"
            "b     10.0.0.2:8000  serves  -           4       0      0       63\n"
            "epoch 1, 8 shards, a fixed list\n");
  const auto parsed = json({"cluster", "status", "--coordinator", list});
  EXPECT_EQ(parsed["may_change"], false);
  EXPECT_EQ(parsed["nodes"][1]["present"], nullptr);
  for (const Arguments& change : {Arguments{"add", "c=10.0.0.3"}, Arguments{"drain", "a"},
                                  Arguments{"remove", "a", "--lost", "--yes"}}) {
    const Outcome outcome = about(list, change);
    EXPECT_EQ(outcome.exit_code, 1) << change.front();
    EXPECT_THAT(outcome.err, HasSubstr("is fixed; a cluster that changes is kept by ZooKeeper"));
  }
}

TEST_F(ClusterCommand, BadCommandLinesAreUsageAndSayWhatIsWrong) {
  const std::pair<Arguments, std::string> cases[] = {
      {{"cluster"}, "subcommand"},
      {{"cluster", "list"}, "unknown command 'list'; there are: status, add, drain, remove"},
      {{"cluster", "status"}, "LOCH_COORDINATOR"},
      {{"cluster", "status", "--coordinator", "oracle:7"}, "zookeeper://HOST:PORT"},
      {{"cluster", "status", "--coordinator", "zookeeper://u:secret@h"}, "under a path"},
      {{"cluster", "add", "--coordinator", "file:/x"}, "HOSTS"},
      {{"cluster", "add", "a", "--coordinator", "file:/x"}, "NODE=ADDRESS"},
      {{"cluster", "add", "a=h:x", "--coordinator", "file:/x"}, "h:x"},
      {{"cluster", "add", "a=h", "--regions", "0", "--coordinator", "file:/x"}, "--regions"},
      {{"cluster", "drain", "a", "--at-most", "1m", "--coordinator", "file:/x"}, "--wait"},
      {{"cluster", "status", "--timeout", "1s", "--coordinator", "file:/x"}, "--at-most"},
      {{"cluster", "status", "--coordinator", "zookeeper://user:secret"}, "USER:PASSWORD@"},
  };
  for (const auto& [arguments, said] : cases) {
    const Outcome outcome = run(arguments, {.variables = {"LOCH_COORDINATOR="}});
    EXPECT_EQ(outcome.exit_code, 2) << said << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(said), testing::Not(HasSubstr("secret"))));
  }
  const Outcome missing = run({"cluster", "status", "--coordinator", "file:/no/such/list"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/list"));
}

// A cluster from its first hosts to the loss of one.
TEST_F(ClusterCommand, AClusterOfZooKeeperGrowsAndShrinks) {
  const lab::ZooKeeperServer server;
  const auto said = [&](Arguments arguments, int exit_code, RunOptions options = {}) {
    const Outcome outcome = about(server.url(), arguments, std::move(options));
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments.front() << ": " << outcome.err;
    return outcome.out + outcome.err;
  };
  const auto coordinator = cluster::Coordinator::open(server.url()).value();
  const auto change = [&](const std::function<ClusterMap(const ClusterMap&)>& how) {
    const auto read = coordinator->read_map().value();
    EXPECT_TRUE(coordinator->write_map(how(read.map), read.version).has_value());
  };

  // Receive: hosts that are there before there is a cluster. Expect: what to do about them.
  ASSERT_TRUE(coordinator->announce({.name = "d", .at = {.host = "10.0.0.4", .port = "7457"}}).has_value());
  EXPECT_THAT(said({"status"}, 3), AllOf(HasSubstr("there is no cluster yet"),
                                         HasSubstr("waits: loch cluster add d=10.0.0.4:7457")));
  said({"drain", "a"}, 3);
  EXPECT_THAT(said({"add", "a=10.0.0.1", "--shards", "3"}, 2), HasSubstr("1, 2, 4"));
  EXPECT_THAT(said({"add", "a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3", "--shards", "8"}, 0),
              HasSubstr("'a' is expected at 10.0.0.1:7457"));
  EXPECT_THAT(said({"add", "a=10.0.0.9"}, 1), HasSubstr("'a' serves already, at 10.0.0.1:7457"));
  EXPECT_THAT(said({"add", "e=10.0.0.9", "--shards", "8"}, 2), HasSubstr("first hosts alone"));
  EXPECT_THAT(said({"status"}, 0), HasSubstr("waits: loch cluster add d=10.0.0.4:7457"));
  EXPECT_THAT(said({"add", "d=10.0.0.4:7458"}, 2),
              HasSubstr("listens at 10.0.0.4:7457, not at 10.0.0.4:7458"));
  EXPECT_THAT(said({"add", "e=10.0.0.1"}, 2), HasSubstr("nodes 'a' and 'e' are both at 10.0.0.1:7457"));
  EXPECT_EQ(said({"add", "d=10.0.0.4", "--regions", "4", "--json"}, 0), "{\"epoch\":2,\"nodes\":[\"d\"]}\n")
      << "its lochd is there";
  const auto status = nlohmann::json::parse(said({"status", "--json"}, 0));
  EXPECT_EQ(status["epoch"], 2);
  EXPECT_EQ(status["nodes"][3], (nlohmann::json{{"name", "d"},
                                                {"number", 3},
                                                {"address", "10.0.0.4:7457"},
                                                {"state", "serves"},
                                                {"present", true},
                                                {"present_at", "10.0.0.4:7457"},
                                                {"shards", 0},
                                                {"shards_coming", 0},
                                                {"shards_going", 0},
                                                {"regions", 4}}));
  EXPECT_TRUE(status["waiting"].empty());

  for (const Arguments& what : {Arguments{"add", "e=10.0.0.5"}, Arguments{"drain", "b"},
                                Arguments{"remove", "b", "--lost", "--yes"}}) {
    Arguments read_only = what;
    read_only.emplace_back("--read-only");
    EXPECT_THAT(said(read_only, 1), HasSubstr("--read-only")) << what.front();
  }
  EXPECT_THAT(said({"drain", "x"}, 4), HasSubstr("no node 'x'"));
  EXPECT_EQ(nlohmann::json::parse(said({"drain", "x", "--json"}, 4))["error"]["code"], "not_found");
  EXPECT_THAT(said({"drain", "b", "--wait", "--at-most", "300ms"}, 1),
              AllOf(HasSubstr("b: 3 shards left"), HasSubstr("not drained after")));
  EXPECT_THAT(said({"status"}, 0), HasSubstr("b     10.0.0.2:7457  leaves  absent "));
  EXPECT_THAT(said({"remove", "b"}, 1), HasSubstr("drain it first"));
  Running waits({"cluster", "drain", "b", "--wait", "--json", "--coordinator", server.url()}, true);
  ASSERT_TRUE(waits.await("3 shards left")) << waits.output();
  change([](const ClusterMap& map) { return cluster::with_moves_announced(map, 1); });
  EXPECT_THAT(said({"status"}, 0), HasSubstr("3       0      3        2\n"));
  change([](const ClusterMap& map) { return cluster::with_moves_done(map, 1, {1, 4}); });
  ASSERT_TRUE(waits.await("b: 1 shard left")) << waits.output();
  change([](const ClusterMap& map) { return cluster::with_moves_done(map, 1, {7}); });
  ASSERT_TRUE(waits.await("no shards left, items move")) << waits.output();
  change([](ClusterMap map) {
    map.shards[0].next = {.node = 1, .index = fabric::index_region_of(0, 1)};
    return map;
  });
  ASSERT_TRUE(waits.await("b: 1 shard on the way there")) << waits.output();
  change([](const ClusterMap& map) { return cluster::with_moves_taken_back(map, 0, {0}); });
  change([](const ClusterMap& map) { return cluster::drained(map, "b").value(); });
  EXPECT_EQ(waits.wait(), 0) << waits.output();
  const std::uint64_t epoch = coordinator->read_map().value().map.epoch;
  const std::string drained = fmt::format(R"({{"epoch":{},"node":"b","drained":true}})", epoch);
  EXPECT_THAT(waits.output(), HasSubstr(drained));
  EXPECT_EQ(said({"drain", "b", "--wait", "--quiet"}, 0), "");
  EXPECT_EQ(said({"drain", "b", "--json"}, 0), drained + "\n");
  EXPECT_EQ(said({"remove", "b", "--json"}, 0), fmt::format("{{\"epoch\":{},\"node\":\"b\"}}\n", epoch + 1));
  EXPECT_THAT(said({"status"}, 0), HasSubstr("1 node gone"));

  // Receive: the loss of one. Expect: a question, and nothing without an answer.
  EXPECT_THAT(said({"remove", "c", "--lost"}, 2), HasSubstr("--yes"));
  Running asks({"cluster", "remove", "c", "--lost", "--coordinator", server.url()}, true);
  ASSERT_TRUE(asks.await("[y/N]")) << asks.output();
  EXPECT_THAT(asks.output(), HasSubstr("Abandon node 'c' at 10.0.0.3:7457: all items there"));
  asks.type("n\n");
  EXPECT_EQ(asks.wait(), 1);
  EXPECT_TRUE(coordinator->read_map().value().map.find("c").has_value());
  said({"remove", "c", "--lost", "--yes"}, 0);
  EXPECT_FALSE(coordinator->read_map().value().map.find("c").has_value());
  said({"remove", "c", "--lost", "--yes"}, 4);
  EXPECT_THAT(said({"drain", "a"}, 0), "");
  EXPECT_THAT(said({"drain", "d"}, 1), HasSubstr("only one that serves"));
  EXPECT_THAT(said({"add", "a=10.0.0.1", "--regions", "7"}, 0), HasSubstr("'a' has 2 regions"));
  Running stays({"cluster", "drain", "a", "--wait", "--coordinator", server.url()}, true);
  ASSERT_TRUE(stays.await("left")) << stays.output();
  stays.send_signal(SIGINT);
  EXPECT_EQ(stays.wait(), 128 + SIGINT);
}

TEST_F(ClusterCommand, WithoutZooKeeperItSaysSoInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = about("zookeeper://me:secret@127.0.0.1:1/loch", {"status"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ZooKeeper at 127.0.0.1:1"), testing::Not(HasSubstr("secret"))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

}  // namespace
}  // namespace loch::cli
