// A store of a cluster: several hosts in one process, each with its own folder, and clients by sockets.
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <loch/loch.h>

#include "base/testing/comes_true.h"
#include "fabric/host.h"
#include "fabric/remote/remote_fabric.h"
#include "memory/layout.h"
#include "net/credentials.h"
#include "server/keeper.h"
#include "server/member.h"
#include "server/neighbours.h"
#include "server/testing/cluster_node.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using fake::Node;
using fake::store_name;
using testing::HasSubstr;

class ClusterStore : public testing::Test {
 public:
  ClusterStore(const ClusterStore&) = delete;
  ClusterStore& operator=(const ClusterStore&) = delete;
  ~ClusterStore() override {
    if (HasFailure()) fmt::print("the store could not be opened at last: {}\n", why_not_);
    nodes_.clear();
    ::unlink(cluster_file().c_str());
    ::rmdir(folder_.c_str());
  }

 protected:
  ClusterStore() {
    std::string pattern = "/dev/shm/loch-cluster.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  [[nodiscard]] std::string cluster_file() const { return folder_ + "/cluster.toml"; }

  void add_nodes(std::size_t count) {
    std::ofstream file(cluster_file());
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      nodes_.push_back(std::make_unique<Node>(name, folder_ + "/" + name, "file:" + cluster_file()));
      file << fmt::format("[[node]]\nname = \"{}\"\naddress = \"{}\"\n", name, nodes_[i]->address().text());
    }
  }
  void start_all() {
    for (const auto& node : nodes_) ASSERT_NO_FATAL_FAILURE(node->start());
  }
  [[nodiscard]] std::string url() const {
    std::string hosts;
    for (const auto& node : nodes_) hosts += (hosts.empty() ? "" : ",") + node->address().text();
    return fmt::format("tcp://{}/{}", hosts, store_name);
  }
  Result<Store> open(Options options = {}) const {
    options.mode = Options::Mode::attach;
    auto store = Store::open(url(), options);
    if (!store) why_not_ = store.error().message();
    return store;
  }
  static Options put_at(Placement placement, const std::string& node = {}) {
    Options options;
    options.placement = placement;
    options.placement_node = node;
    return options;
  }
  static std::string key(int i) { return fmt::format("key{}", i); }
  static std::string value(int i) { return fmt::format("value {} {}", i, std::string(i % 500, 'x')); }
  static void fill(Store& store, int count) {
    for (int i = 0; i < count; ++i) {
      const auto put = store.put(key(i), value(i));
      ASSERT_TRUE(put.has_value()) << put.error().message();
    }
  }

  std::string folder_;
  mutable std::string why_not_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

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
  nodes_[1]->start();
  EXPECT_TRUE(comes_true([&] { return reader.count().value_or(0) == count; }));
  for (int i = 0; i < count; ++i) EXPECT_EQ(reader.get(key(i)).value(), value(i));
}

// Once all hosts have ended its session, they say so for it.
TEST_F(ClusterStore, AReaderThatIsTakenForDeadLeavesNothing) {
  add_nodes(2);
  for (const auto& node : nodes_) node->silence_max_ns = 400 * base::millisecond_ns;
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
  for (int i = 0; i < count; ++i) {
    const auto got = store.get(key(i));
    if (got) {
      ++there;
      EXPECT_EQ(*got, value(i));
      EXPECT_TRUE(store.put(key(i), value(i + 7)).has_value());
    } else {
      ++unavailable;
      EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
      EXPECT_THAT(got.error().message(), HasSubstr(nodes_[1]->address().text()));
      EXPECT_FALSE(store.put(key(i), "lost").has_value());
    }
  }
  EXPECT_GT(there, count / 2);
  EXPECT_GT(unavailable, count / 6);
  EXPECT_EQ(store.count().error().code, Errc::unavailable);

  nodes_[1]->start();
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  int changed = 0;
  for (int i = 0; i < count; ++i) {
    const auto got = store.get(key(i));
    ASSERT_TRUE(got.has_value()) << got.error().message();
    changed += *got == value(i + 7) ? 1 : 0;
    EXPECT_TRUE(*got == value(i) || *got == value(i + 7));
  }
  EXPECT_EQ(changed, there);
}

// Its memory is gone, and what the others have of it says nothing any more.
class LostMemory : public ClusterStore, public testing::WithParamInterface<std::size_t> {
 protected:
  // A client of three hosts that hold these many keys of its own.
  Store begin(int count, bool see_their_neighbours) {
    add_nodes(3);
    for (const auto& node : nodes_) node->sees_its_neighbours = see_their_neighbours;
    start_all();
    Store store = open(put_at(Placement::spread)).value();
    fill(store, count);
    return store;
  }
  void come_back_without_it() {
    nodes_[GetParam()]->stop();
    nodes_[GetParam()]->lose_memory();
    nodes_[GetParam()]->start();
  }
  // How many keys are not there; the others have their values.
  static int count_lost(Store& store, int count, const std::set<int>& changed = {}) {
    int lost = 0;
    for (int i = 0; i < count; ++i) {
      const auto got = store.get(key(i));
      if (got) {
        EXPECT_EQ(*got, value(changed.contains(i) ? i + 7 : i));
        continue;
      }
      EXPECT_EQ(got.error().code, Errc::not_found) << got.error().message();
      EXPECT_FALSE(changed.contains(i)) << key(i);
      ++lost;
    }
    return lost;
  }
};

TEST_P(LostMemory, AHostWithoutItIsNotTakenForTheOneItWas) {
  begin(100, false);
  come_back_without_it();
  auto store = open().value();
  int unavailable = 0;
  for (int i = 0; i < 100; ++i) {
    const auto got = store.get(key(i));
    if (got) {
      EXPECT_EQ(*got, value(i));
    } else {
      ++unavailable;
      EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
    }
  }
  EXPECT_GT(unavailable, 30);
}
INSTANTIATE_TEST_SUITE_P(Nodes, LostMemory, testing::Values(0, 1, 2));

// The others forget what it had, and it serves again.
TEST_P(LostMemory, AHostWithoutItServesAgainWhenTheOthersHaveForgotten) {
  constexpr int count = 200;
  auto store = begin(count, true);
  come_back_without_it();
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  const int lost = count_lost(store, count);
  EXPECT_GT(lost, count / 4);
  EXPECT_LT(lost, count * 3 / 4);
  EXPECT_EQ(store.count().value(), static_cast<std::uint64_t>(count - lost));
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(key(i), value(i + 1));
    ASSERT_TRUE(put.has_value()) << put.error().message();
  }
  EXPECT_EQ(store.count().value(), std::uint64_t{count});
  // What was named by the index that is lost is nobody's any more.
  ASSERT_TRUE(store.collect().has_value());
  const auto report = store.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt + report->items_unaccounted, 0U)
      << testing::PrintToString(report->findings);
}

// Receive: the others are away when a host comes back without its memory, and a client puts there what it
// can. Expect: that stays when the others are there again.
TEST_P(LostMemory, AHostWithoutItServesWhileTheOthersAreAway) {
  constexpr int count = 200;
  begin(count, true);
  for (const auto& node : nodes_) node->stop();
  come_back_without_it();
  auto store = open(put_at(Placement::by_key)).value();
  std::set<int> changed;
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(key(i), value(i + 7));
    if (put) {
      changed.insert(i);
    } else {
      EXPECT_EQ(put.error().code, Errc::unavailable) << put.error().message();
    }
  }
  EXPECT_GT(changed.size(), 30U);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (i != GetParam()) nodes_[i]->start();
  }
  ASSERT_TRUE(comes_true([&] { return store.count().has_value(); }));
  EXPECT_LT(count_lost(store, count, changed), count / 2);
}

// Receive: clients that begin again and again while a host ends. Expect: each begins, with the host or
// without.
TEST_F(ClusterStore, CanBeOpenedWhileAHostDies) {
  add_nodes(3);
  start_all();
  ASSERT_TRUE(comes_true([&] { return open().has_value(); }));
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> stop = false;
    std::atomic<int> opened = 0;
    std::thread client([&] {
      while (!stop) {
        if (const auto store = open(); !store) {
          ADD_FAILURE() << "round " << round << ": " << store.error().message();
          return;
        }
        ++opened;
      }
    });
    EXPECT_TRUE(comes_true([&] { return opened > round % 3; }));
    nodes_[1]->stop();
    const int before = opened;
    EXPECT_TRUE(comes_true([&] { return opened > before + 1 || HasFailure(); }));
    stop = true;
    client.join();
    ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
    ASSERT_TRUE(comes_true([&] { return open().has_value() && open()->count().has_value(); }));
    if (HasFailure()) break;
  }
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

TEST_F(ClusterStore, HostsThatDoNotAgreeAreRefused) {
  add_nodes(2);
  nodes_[0]->start();
  std::ofstream(cluster_file(), std::ios::app) << "[[node]]\nname = \"c\"\naddress = \"127.0.0.1:1\"\n";
  nodes_[1]->start();
  const auto opened = open();
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::incompatible);
  EXPECT_THAT(opened.error().message(), HasSubstr("does not say of the cluster what the others say"));
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

// ---- fencing

// A session that one host has taken for dead has ended on all before the first gives away what it had.
class Fencing : public ClusterStore {
 protected:
  Fencing() {
    add_nodes(2);
    nodes_[0]->silence_max_ns = base::second_ns;
    nodes_[1]->silence_max_ns = 3'600 * base::second_ns;
    start_all();
  }
  Result<std::shared_ptr<fabric::remote::RemoteFabric>> way_to(std::size_t node) {
    return fabric::remote::RemoteFabric::attach(
        {.scheme = "tcp", .host = nodes_[node]->address(), .store = store_name});
  }
  // Reads a word of the node's control region.
  static Result<void> touch(fabric::Port& port, std::uint32_t node) {
    struct Done : fabric::Completion {
      std::optional<Result<void>> outcome;
    } done;
    done.complete = [](fabric::Completion& self, Result<void> outcome) {
      static_cast<Done&>(self).outcome = std::move(outcome);
    };
    std::uint64_t word = 0;
    fabric::Operation operation{.at = {fabric::control_region_of(node), 0},
                                .local = reinterpret_cast<std::byte*>(&word),
                                .length_bytes = sizeof word};
    port.post({&operation, 1}, base::Clock().now() + base::second_ns, done);
    while (!done.outcome) port.poll(base::millisecond_ns);
    return std::move(*done.outcome);
  }
};

TEST_F(Fencing, EndsASessionOnAllHostsBeforeItsNumberIsFree) {
  const auto a = way_to(0).value();
  const auto b = way_to(1).value();
  const auto at_a = a->connect("0123456789abcdef").value();
  const auto at_b = b->connect("0123456789abcdef").value();
  const auto other = b->connect("fedcba9876543210").value();
  ASSERT_TRUE(at_a->claim_presence(7).value());
  ASSERT_TRUE(at_b->claim_presence(9).value());
  ASSERT_TRUE(touch(*at_b, 1).has_value());
  const auto watcher = way_to(0).value();
  const auto watching = watcher->connect("watcher").value();
  // It is silent towards `a` alone.
  ASSERT_TRUE(comes_true([&] { return !watching->present(7) || !touch(*at_b, 1).has_value(); }));
  EXPECT_FALSE(touch(*at_b, 1).has_value()) << "b has not ended it";
  EXPECT_TRUE(touch(*other, 1).has_value()) << "b has ended another";
  EXPECT_TRUE(comes_true([&] { return !watching->present(7); }));
  const auto watching_b = b->connect("watcher").value();
  EXPECT_TRUE(comes_true([&] { return !watching_b->present(9); }));
}

TEST_F(Fencing, KeepsTheNumberWhileAHostCanNotBeAsked) {
  const auto a = way_to(0).value();
  const auto at_a = a->connect("0123456789abcdef").value();
  ASSERT_TRUE(at_a->claim_presence(7).value());
  nodes_[1]->stop();
  const auto watcher = way_to(0).value();
  std::this_thread::sleep_for(2500ms);
  EXPECT_TRUE(watcher->connect("watcher").value()->present(7));
  nodes_[1]->start();
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Receive: a session that began while a host could not be reached, and is silent. Expect: that host is not
// waited for.
TEST_F(Fencing, DoesNotWaitForAHostThatTheSessionDidNotReach) {
  nodes_[1]->stop();
  const auto fabric = fabric::attach(url(), {}).value();
  const auto port = fabric->connect();
  constexpr std::uint32_t client = 7;  // of the first node
  ASSERT_TRUE(port->claim_presence(client).value());
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(watcher->connect("watcher").value()->present(client));
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(client); }));
}

// A host that ends and comes back still sees to the sessions that it had.
TEST_F(Fencing, OutlivesTheHostThatHadTheSession) {
  const auto b = way_to(1).value();
  const auto at_b = b->connect("0123456789abcdef").value();
  nodes_[0]->stop();
  // As if it had been killed while it had the session.
  fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
      .value()
      ->note_session(7, "0123456789abcdef 3");
  ASSERT_TRUE(touch(*at_b, 1).has_value());
  nodes_[0]->start();
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(comes_true([&] { return !touch(*at_b, 1).has_value(); }));
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Receive: a host is killed and comes back while another one is down, which a session that it had did not
// reach. Expect: it does not wait for that one.
TEST_F(Fencing, ANoteSaysWhichHostsTheSessionReached) {
  for (const auto& node : nodes_) node->stop();
  fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
      .value()
      ->note_session(7, "0123456789abcdef 1");
  nodes_[0]->start();
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Expect: no number, and nobody is kept from having it.
TEST_F(Fencing, ASessionThatCanNotBeNotedGetsNoNumber) {
  const std::string notes = fmt::format("{}/loch.{}/sessions", nodes_[0]->folder(), store_name);
  ASSERT_EQ(::mkdir(notes.c_str(), 0700), 0);
  const auto a = way_to(0).value();
  const auto at_a = a->connect("0123456789abcdef").value();
  const auto refused = at_a->claim_presence(7);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("sessions"));
  EXPECT_FALSE(at_a->present(7));
  ASSERT_EQ(::rmdir(notes.c_str()), 0);
  EXPECT_TRUE(at_a->claim_presence(7).value());
}

TEST_F(Fencing, ANameThatIsTooLongToNoteIsRefused) {
  const auto a = way_to(0).value();
  EXPECT_TRUE(a->connect(std::string(fabric::remote::session_name_bytes_max, 's')).has_value());
  const auto refused = a->connect(std::string(fabric::remote::session_name_bytes_max + 1, 's'));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("has at most 32 bytes"));
}

TEST_F(Fencing, IsNotForThoseWhoDoNotKnowTheKey) {
  const auto b = way_to(1).value();
  const auto at_b = b->connect("0123456789abcdef").value();
  const std::string key_file = folder_ + "/key";
  std::ofstream(key_file) << "none of the cluster's";
  ::chmod(key_file.c_str(), 0600);
  const fabric::remote::Target target{.scheme = "tcp",
                                      .host = nodes_[1]->address(),
                                      .store = store_name,
                                      .credentials = net::ClientCredentials::open(key_file, {}).value()};
  const auto fenced =
      fabric::remote::fence(target, "0123456789abcdef", base::Clock().now() + base::second_ns);
  ::unlink(key_file.c_str());
  ASSERT_FALSE(fenced.has_value());
  EXPECT_EQ(fenced.error().code, Errc::permission);
  EXPECT_TRUE(touch(*at_b, 1).has_value());
}

}  // namespace
}  // namespace loch::server
