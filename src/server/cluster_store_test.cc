// A store of a cluster: several hosts in one process, each with its own folder, and clients by sockets.
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>

#include "base/testing/comes_true.h"
#include "net/socket.h"
#include "server/testing/fixed_cluster.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using fake::store_name;
using testing::AllOf;
using testing::HasSubstr;
using ClusterStore = fake::FixedCluster;

TEST_F(ClusterStore, IsOneStoreOnAllItsHosts) {
  add_nodes(3);
  start_all();
  auto store = open().value();
  constexpr int count = 500;
  fill(store, count);
  auto other = open(put_at(Placement::spread)).value();
  for (int i = 0; i < count; ++i) {
    const auto got = other.get(key(i));
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(*got, value(i));
  }
  EXPECT_EQ(other.count().value(), std::uint64_t{count});
  for (int i = 0; i < count; i += 2) ASSERT_TRUE(other.put(key(i), value(i + 1)).has_value());
  for (int i = 0; i < count; i += 5) ASSERT_TRUE(store.remove(key(i)).has_value());
  std::map<std::string, std::string> seen;
  const auto walked = store.for_each([&](const Entry& entry) {
    EXPECT_TRUE(seen.emplace(entry.key, entry.value).second) << entry.key;
    return true;
  });
  ASSERT_TRUE(walked.has_value()) << walked.error().message();
  for (int i = 0; i < count; ++i) {
    if (i % 5 == 0) {
      EXPECT_FALSE(seen.contains(key(i)));
    } else {
      EXPECT_EQ(seen[key(i)], value(i % 2 == 0 ? i + 1 : i));
    }
  }
  ASSERT_TRUE(store.collect().has_value());
  const auto report = store.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt + report->items_unaccounted, 0U)
      << testing::PrintToString(report->findings);
}

TEST_F(ClusterStore, AClientThatOnlyReadsIsOneOnAllItsHosts) {
  add_nodes(3);
  start_all();
  Options reads;
  reads.read_only = true;
  // The first client of all: the hosts have not been told of each other yet, and a reader tells them nothing.
  auto reader = open(reads).value();
  EXPECT_EQ(reader.get(key(0)).error().code, Errc::not_found);
  auto store = open(put_at(Placement::spread)).value();
  constexpr int count = 200;
  fill(store, count);
  for (int i = 0; i < count; ++i) {
    const auto got = reader.get(key(i));
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(*got, value(i));
    EXPECT_EQ(reader.put(key(i), "x").error().code, Errc::permission);
  }
  EXPECT_EQ(reader.count().value(), std::uint64_t{count});
  // When a host that was lost is back, it is a reader there, too.
  nodes_[1]->stop();
  EXPECT_EQ(reader.count().error().code, Errc::unavailable);
  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  EXPECT_TRUE(comes_true([&] { return reader.count().value_or(0) == count; }));
  for (int i = 0; i < count; ++i) EXPECT_EQ(reader.get(key(i)).value(), value(i));
}

// Once all hosts have ended its session, they say so for it.
TEST_F(ClusterStore, AReaderThatIsTakenForDeadLeavesNothing) {
  add_nodes(2);
  for (const auto& node : nodes_) node->config().silence_max = 400ms;
  start_all();
  auto store = open().value();
  const auto has_clients = [&](std::uint64_t count) {
    return comes_true([&] { return store.info().value().clients == count; });
  };
  Options reads;
  reads.read_only = true;
  auto reader = open(reads).value();
  EXPECT_TRUE(has_clients(2));
  EXPECT_TRUE(has_clients(1)) << "it says nothing any more";
  EXPECT_EQ(store.collect().value().sessions_reaped, 0U);
  EXPECT_EQ(reader.get(key(0)).error().code, Errc::not_found) << "it goes on";
}

TEST_F(ClusterStore, ItemsArePutWhereTheClientWants) {
  add_nodes(3);
  start_all();
  const auto blocks_of = [&](std::size_t node) {
    struct stat stat{};
    // The node's first data region.
    const std::string path =
        fmt::format("{}/loch.{}/region.{}", nodes_[node]->folder(), store_name, 2 + node);
    return ::stat(path.c_str(), &stat) == 0 ? stat.st_size >> 20 : -1;
  };
  auto to_c = open(put_at(Placement::node, "c")).value();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(to_c.put(key(i), std::string(1'000'000, 'c')).has_value());
  EXPECT_EQ(blocks_of(0), 2);
  EXPECT_EQ(blocks_of(1), 2);
  EXPECT_GE(blocks_of(2), 11);
  auto everywhere = open(put_at(Placement::spread)).value();
  for (int i = 10; i < 22; ++i) ASSERT_TRUE(everywhere.put(key(i), std::string(1'000'000, 's')).has_value());
  EXPECT_GE(blocks_of(0), 5);
  EXPECT_GE(blocks_of(1), 5);
  const auto none = open(put_at(Placement::node, "z"));
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), HasSubstr("a, b, c"));
}

// A host that dies takes its own keys along, for a while; the others go on, and it comes back with what it
// had.
TEST_F(ClusterStore, AHostThatDiesMakesItsOwnKeysUnavailable) {
  add_nodes(3);
  start_all();
  auto store = open(put_at(Placement::by_key)).value();
  constexpr int count = 300;
  fill(store, count);
  nodes_[1]->stop();
  int there = 0;
  int unavailable = 0;
  std::string why;
  for (int i = 0; i < count; ++i) {
    const auto got = store.get(key(i));
    if (got) {
      ++there;
      EXPECT_EQ(*got, value(i));
      EXPECT_TRUE(store.put(key(i), value(i + 7)).has_value());
    } else {
      ++unavailable;
      why = got.error().message();
      EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
      EXPECT_THAT(got.error().message(), HasSubstr(nodes_[1]->address().text()));
      EXPECT_FALSE(store.put(key(i), "lost").has_value());
    }
  }
  EXPECT_GT(there, count / 2);
  EXPECT_GT(unavailable, count / 6);
  EXPECT_THAT(why, HasSubstr("can not be reached now: "));
  EXPECT_THAT(why, HasSubstr("Connection refused"));
  EXPECT_EQ(store.count().error().code, Errc::unavailable);
  EXPECT_EQ(store.info().value().hosts, 3U);
  EXPECT_EQ(store.info().value().hosts_away, 1U) << "a part is not told as the whole";

  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  EXPECT_EQ(store.info().value().hosts_away, 0U);
  int changed = 0;
  for (int i = 0; i < count; ++i) {
    const auto got = store.get(key(i));
    ASSERT_TRUE(got.has_value()) << got.error().message();
    changed += *got == value(i + 7) ? 1 : 0;
    EXPECT_TRUE(*got == value(i) || *got == value(i + 7));
  }
  EXPECT_EQ(changed, there);
}

// Receive: clients that begin again and again while a host ends, by a store of their own and as an Async of
// one. Expect: each begins, with the host or without.
TEST_F(ClusterStore, CanBeOpenedWhileAHostDies) {
  add_nodes(3);
  start_all();
  ASSERT_TRUE(comes_true([&] { return open().has_value(); }));
  auto kept = open().value();
  for (int round = 0; round < 20; ++round) {
    fake::Node& ending = *nodes_[round % 2];
    std::atomic<bool> stop = false;
    std::array<std::atomic<int>, 2> opened{};
    const auto open_again_and_again = [&](std::atomic<int>& count, auto open_one) {
      while (!stop) {
        if (const auto one = open_one(); !one) {
          ADD_FAILURE() << "round " << round << ": " << one.error().message();
          return;
        }
        ++count;
      }
    };
    std::thread client([&] { open_again_and_again(opened[0], [&] { return open(); }); });
    std::thread of_a_store([&] { open_again_and_again(opened[1], [&] { return Async::open(kept); }); });
    const auto each_opens = [&](int more) {
      const std::array<int, 2> before = {opened[0], opened[1]};
      return comes_true(
          [&] { return HasFailure() || (opened[0] > before[0] + more && opened[1] > before[1] + more); });
    };
    EXPECT_TRUE(each_opens(round % 3));
    ending.stop();
    EXPECT_TRUE(each_opens(round % 5 == 0 ? 1 : 0));
    stop = true;
    client.join();
    of_a_store.join();
    ASSERT_NO_FATAL_FAILURE(ending.start());
    ASSERT_TRUE(comes_true([&] {
      auto store = open();
      return store && store->count();
    }));
    if (HasFailure()) break;
  }
}

// Given: a host that ended, and at its address something that takes connections and never answers. Receive:
// the first calls of many threads after that, at once. Expect: they wait for it together, and not for each
// other's waiting as well.
TEST_F(ClusterStore, ASilentHostHoldsUpAllThreadsNoLongerThanOne) {
  add_nodes(2);
  start_all();
  auto store = open(put_at(Placement::by_key)).value();
  constexpr int threads_count = 48;
  constexpr auto longest = std::chrono::seconds(12);  // one by one they take 48
  std::barrier all_together(threads_count + 1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < threads_count; ++thread) {
    threads.emplace_back([&, thread] {
      const auto own_key = [&](int i) { return key(10 * thread + i); };
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(store.put(own_key(i), "v").has_value());
      all_together.arrive_and_wait();
      all_together.arrive_and_wait();
      for (int i = 0; i < 10; ++i) {
        const auto began = std::chrono::steady_clock::now();
        const auto got = store.get(own_key(i));
        EXPECT_TRUE(got || got.error().code == Errc::unavailable) << got.error().message();
        EXPECT_LT(std::chrono::steady_clock::now() - began, longest);
      }
    });
  }
  all_together.arrive_and_wait();
  nodes_[1]->stop();
  const auto silent = net::listen(nodes_[1]->address());
  EXPECT_TRUE(silent.has_value()) << silent.error().message();
  all_together.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ClusterStore, OneHostOfTheListIsEnoughToFindTheOthers) {
  add_nodes(3);
  start_all();
  EXPECT_TRUE(open().has_value());  // all of them have met
  nodes_[0]->stop();
  auto store = open().value();  // whose URL names the dead one first
  int done = 0;
  for (int i = 0; i < 100; ++i) done += store.put(key(i), value(i)).has_value() ? 1 : 0;
  EXPECT_GT(done, 30);
  Options options;
  options.mode = Options::Mode::attach;
  const std::string by_one = fmt::format("tcp://{}/{}", nodes_[2]->address().text(), store_name);
  auto same = Store::open(by_one, options).value();
  int found = 0;
  for (int i = 0; i < 100; ++i) found += same.get(key(i)).has_value() ? 1 : 0;
  EXPECT_EQ(found, done);
  const auto info = same.info();
  ASSERT_TRUE(info.has_value()) << info.error().message();
}

// Receive: hosts that take connections and never answer. Expect: all of them together are waited for as long
// as one, and the error says that it was all.
TEST_F(ClusterStore, AListOfSilentHostsIsWaitedForAsLongAsOne) {
  std::string hosts;
  std::vector<net::Listener> silent;
  for (int host = 0; host < 8; ++host) {
    silent.push_back(net::listen({.host = "127.0.0.1", .port = "0"}).value());
    hosts += fmt::format("{}127.0.0.1:{}", host == 0 ? "" : ",", silent.back().port);
  }
  const auto began = std::chrono::steady_clock::now();
  const auto store = Store::open(fmt::format("tcp://{}/{}", hosts, store_name));
  constexpr auto longest = std::chrono::seconds(15);  // one by one they take 40
  EXPECT_LT(std::chrono::steady_clock::now() - began, longest);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, Errc::timed_out);
  EXPECT_THAT(store.error().message(), HasSubstr("none of the 8 hosts answers"));
}

TEST_F(ClusterStore, HostsThatDoNotAgreeAreRefused) {
  add_nodes(2);
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  std::ofstream(cluster_file(), std::ios::app) << "[[node]]\nname = \"c\"\naddress = \"127.0.0.1:1\"\n";
  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  const auto opened = open();
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::incompatible);
  EXPECT_THAT(opened.error().message(), HasSubstr("does not say of the cluster what the others say"));
}

// Receive: all hosts are stopped, and the list has one more when they start. Expect: they refuse it, and say
// what to do; by the former one all keys are there.
TEST_F(ClusterStore, AnotherListIsRefusedByWhatTheFormerHasMade) {
  constexpr int count = 100;
  add_nodes(2);
  start_all();
  {
    auto store = open().value();
    fill(store, count);
  }
  for (const auto& node : nodes_) node->stop();
  const auto length = std::filesystem::file_size(cluster_file());
  std::ofstream(cluster_file(), std::ios::app) << "[[node]]\nname = \"c\"\naddress = \"127.0.0.1:1\"\n";
  for (const auto& node : nodes_) {
    const auto started = Daemon::start(node->config(), {});
    ASSERT_FALSE(started.has_value());
    EXPECT_EQ(started.error().code, Errc::incompatible);
    EXPECT_THAT(started.error().message(),
                AllOf(HasSubstr("was made by another list of hosts"),
                      HasSubstr(fmt::format("loch --directory {} rm store", node->folder()))));
  }
  std::filesystem::resize_file(cluster_file(), length);
  start_all();
  auto store = open().value();
  for (int i = 0; i < count; ++i) EXPECT_EQ(store.get(key(i)).value_or("not there"), value(i));
}

TEST_F(ClusterStore, APartOfItIsNoStoreOfItsOwn) {
  add_nodes(2);
  start_all();
  Options options;
  options.directory = nodes_[0]->folder();
  options.mode = Options::Mode::attach;
  const auto opened = Store::open(fmt::format("shm://{}", store_name), options);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message(), HasSubstr("part of a cluster's store"));
}

}  // namespace
}  // namespace loch::server
