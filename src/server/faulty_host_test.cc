// A store of a cluster one of whose hosts answers, and will not do: the others serve, and the errors of its
// keys say what is wrong with it.
#include <chrono>
#include <cstddef>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

#include <loch/loch.h>

#include "fabric/cluster_map.h"
#include "server/testing/earlier_boot.h"
#include "server/testing/fixed_cluster.h"
#include "server/testing/kept_log.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using fake::store_name;
using testing::AllOf;
using testing::HasSubstr;

class FaultyHost : public fake::FixedCluster {
 protected:
  std::string make_key(const std::string& name) const {
    std::string path = folder_ + "/" + name;
    std::ofstream(path) << std::string(64, name.back());
    ::chmod(path.c_str(), 0600);
    return path;
  }
  // Puts keys where they have their index. Of those that can not be put, the error has to be that of `host`,
  // and say `why`; some can be, and some not.
  void expect_all_but(std::size_t host, const std::string& why, Options options = {}) {
    options.placement = Placement::by_key;
    auto store = open(options);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    const std::string name = fmt::format("host {} ({})", std::string(1, static_cast<char>('a' + host)),
                                         nodes_[host]->address().text());
    int served = 0;
    int refused = 0;
    for (int i = 0; i < 100; ++i) {
      const auto put = store->put(key(i), value(i));
      if (put) {
        ++served;
        EXPECT_EQ(store->get(key(i)), value(i));
        continue;
      }
      ++refused;
      EXPECT_EQ(put.error().code, Errc::unavailable) << put.error().message();
      ASSERT_THAT(put.error().message(), AllOf(HasSubstr(name), HasSubstr(why)));
    }
    EXPECT_GT(served, 10);
    EXPECT_GT(refused, 10);
    EXPECT_EQ(store->info().value().hosts_away, 1U);
  }
};

// Receive: a host that has another key than the others, the last or the first of those that are asked.
TEST_F(FaultyHost, ThatHasAnotherKeyIsDoneWithout) {
  const std::string key_file = make_key("key");
  const std::string other = make_key("other");
  add_nodes(3);
  for (const auto& node : nodes_) node->config().key_file = key_file;
  start_all();
  Options options;
  options.key_file = key_file;
  for (const std::size_t faulty : {2U, 0U}) {
    nodes_[faulty]->stop();
    nodes_[faulty]->config().key_file = other;
    ASSERT_NO_FATAL_FAILURE(nodes_[faulty]->start());
    expect_all_but(faulty, "does not know", options);
    nodes_[faulty]->stop();
    nodes_[faulty]->config().key_file = key_file;
    ASSERT_NO_FATAL_FAILURE(nodes_[faulty]->start());
  }
  // Whom no host lets in is told so, also if one does not answer.
  options.key_file = other;
  EXPECT_EQ(open(options).error().code, Errc::permission);
  nodes_[0]->stop();
  const auto refused = open(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::permission);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("none of the 3 hosts will do"), HasSubstr(nodes_[1]->address().text())));
}

// Receive: a host that is asked first, and has no part of the store any more.
TEST_F(FaultyHost, WhosePartIsGoneIsDoneWithout) {
  add_nodes(3);
  start_all();
  nodes_[0]->lose_memory();
  expect_all_but(0, "there is no store");
}

// Receive: a host that makes its part anew, by a configuration that was changed since the others made theirs.
// Expect: how much each host may hold is its own affair.
TEST_F(FaultyHost, ThatMayHoldAnotherAmountIsNotFaulty) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  add_nodes(2);
  nodes_[0]->config().stores[0].max_bytes = 64 * mib;
  nodes_[1]->config().stores[0].max_bytes = 16 * mib;
  start_all();
  auto store = open(put_at(Placement::node, "b")).value();
  EXPECT_EQ(store.info().value().max_bytes, 64 * mib);
  const std::string large(mib / 2, 'x');
  int count = 0;
  Errc full{};
  for (; count < 100 && full == Errc{}; ++count) {
    const auto put = store.put(key(count), large);
    if (!put) full = put.error().code;
  }
  EXPECT_EQ(full, Errc::no_space) << "it sees to its own limit";
  EXPECT_GT(count, 4);
  EXPECT_LT(count, 32);
}

TEST_F(FaultyHost, WhosePartWasMadeOtherwiseIsDoneWithout) {
  add_nodes(3);
  nodes_[0]->config().stores[0].expiry = 2'000ms;
  start_all();
  expect_all_but(0, "was made with expiry_ms 2000, and others with 1000");
  nodes_[0]->stop();
  nodes_[0]->lose_memory();
  nodes_[0]->config().stores[0].expiry.reset();
  nodes_[0]->config().stores[0].candidates = 4;
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  expect_all_but(0, "was made with candidates 4, and others with 3");
}

// Receive: a part that a reboot has left. Expect: it is made anew, as where a reboot leaves none.
TEST_F(FaultyHost, WhosePartIsOfAnEarlierBootMakesItAnew) {
  const fake::KeptLog log;
  add_nodes(1);
  nodes_[0]->log = log.sink();
  start_all();
  ASSERT_TRUE(open().value().put("key", "value").has_value());
  nodes_[0]->stop();
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_EQ(open().value().get("key"), "value") << "of this boot it stays";
  nodes_[0]->stop();
  ASSERT_NO_FATAL_FAILURE(fake::make_of_earlier_boot(
      fmt::format("{}/loch.{}/region.{}", nodes_[0]->folder(), store_name, fabric::control_region_of(0))));
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_THAT(log.text(), HasSubstr("left by an earlier boot"));
  auto store = open().value();
  EXPECT_EQ(store.get("key").error().code, Errc::not_found);
  EXPECT_TRUE(store.put("key", "value").has_value());
}

}  // namespace
}  // namespace loch::server
