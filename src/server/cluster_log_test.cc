// What a host of a cluster says in its log of what it can not do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "base/testing/comes_true.h"
#include "cluster/changes.h"
#include "server/testing/kept_log.h"
#include "server/testing/moving_cluster.h"

namespace loch::server {
namespace {

using base::fake::comes_true;
using cluster::ClusterMap;
using testing::AllOf;
using testing::HasSubstr;

class ClusterLog : public fake::MovingCluster {
 protected:
  // Of the first host, which is started anew for that.
  void begin_log() {
    nodes_[0]->stop();
    nodes_[0]->log = log_.sink();
    ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  }
  [[nodiscard]] std::string log() const { return log_.text(); }

 private:
  fake::KeptLog log_;
};

// Receive: a host that joins and has no memory for a shard. Expect: the log names that one, and what it has.
TEST_F(ClusterLog, NamesTheHostThatHasNoRoom) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  begin_log();
  ASSERT_NO_FATAL_FAILURE(join("c", 4096));
  EXPECT_TRUE(comes_true([&] { return log().contains("'c' has no room for a shard of store"); })) << log();
  EXPECT_THAT(log(), HasSubstr("of the 4096 that it was created for"));
}

// Receive: a host that joins while another one is down. Expect: the log names that one, and why.
TEST_F(ClusterLog, NamesTheHostThatShardsWaitFor) {
  begin(3);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  begin_log();
  nodes_[2]->stop();
  ASSERT_NO_FATAL_FAILURE(join("d"));
  EXPECT_TRUE(comes_true([&] { return log().contains("move when all hosts can be used"); })) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr(fmt::format("host c ({})", nodes_[2]->address().text())),
                           HasSubstr("Connection refused"), HasSubstr("gone for good")));
}

// Receive: a coordinator that has lost the map. Expect: the log says so, once it can not be a server that is
// behind.
TEST_F(ClusterLog, SaysThatTheMapIsLost) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return is_whole(); }));
  begin_log();
  map_.lose();
  EXPECT_TRUE(comes_true([&] { return log().contains("the coordinator has no map any more"); })) << log();
  EXPECT_TRUE(is_whole()) << "they go on with what they have";
}

}  // namespace
}  // namespace loch::server
