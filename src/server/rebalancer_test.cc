// Hosts that join a cluster and leave it while clients work: several hosts in one process, whose map is in
// its memory.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/testing/comes_true.h"
#include "cluster/changes.h"
#include "server/testing/cluster_node.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using cluster::ClusterMap;
using fake::Node;
using fake::store_name;

// What all coordinators of a test share.
class Map {
 public:
  [[nodiscard]] cluster::Versioned read() const {
    const std::scoped_lock lock(mutex_);
    ++reads_;
    return map_;
  }
  [[nodiscard]] int reads() const {
    const std::scoped_lock lock(mutex_);
    return reads_;
  }
  // As ZooKeeper that is empty now.
  void lose() {
    const std::scoped_lock lock(mutex_);
    map_ = {};
  }
  Result<void> write(const ClusterMap& map, std::uint64_t version) {
    {
      const std::scoped_lock lock(mutex_);
      if (version != map_.version) return fail(Errc::changed, "cluster");
      map_ = {.map = map, .version = version + 1};
    }
    changed_.notify_all();
    return {};
  }
  void wait(std::uint64_t version, base::Nanos at_most_ns) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(at_most_ns), [&] { return map_.version != version; });
  }

 private:
  mutable std::mutex mutex_;
  mutable int reads_ = 0;
  std::condition_variable changed_;
  cluster::Versioned map_;
};

class SharedCoordinator final : public cluster::Coordinator {
 public:
  explicit SharedCoordinator(Map& map) : map_(map) {}
  Result<cluster::Versioned> read_map() override {
    auto map = map_.read();
    if (map.version == 0) return fail(Errc::not_found, "cluster");
    return map;
  }
  [[nodiscard]] bool may_change() const override { return true; }
  Result<void> write_map(const ClusterMap& map, std::uint64_t version) override {
    return map_.write(map, version);
  }
  Result<void> announce(const cluster::Present& /*self*/) override { return {}; }
  Result<std::vector<cluster::Present>> present() override { return std::vector<cluster::Present>{}; }
  void wait_for_change(std::uint64_t version, base::Nanos at_most_ns) override {
    map_.wait(version, at_most_ns);
  }

 private:
  Map& map_;
};

class RebalancerTest : public testing::Test {
 public:
  RebalancerTest(const RebalancerTest&) = delete;
  RebalancerTest& operator=(const RebalancerTest&) = delete;
  ~RebalancerTest() override {
    nodes_.clear();
    ::rmdir(folder_.c_str());
  }

 protected:
  RebalancerTest() {
    std::string pattern = "/dev/shm/loch-cluster.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }

  Node& add_host(const std::string& name) {
    nodes_.push_back(std::make_unique<Node>(name, folder_ + "/" + name, "shared:"));
    nodes_.back()->make_coordinator = [this] { return std::make_unique<SharedCoordinator>(map_); };
    nodes_.back()->sees_its_neighbours = true;
    return *nodes_.back();
  }
  static cluster::NewNode new_node(const std::string& name, const Node& node) {
    return {.name = name, .at = node.address()};
  }
  // A cluster of these many hosts.
  void begin(std::size_t hosts, std::uint32_t shards = 8) {
    std::vector<cluster::NewNode> first;
    for (std::size_t i = 0; i < hosts; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      first.push_back(new_node(name, add_host(name)));
    }
    ASSERT_TRUE(map_.write(cluster::first_map(first, shards).value(), 0).has_value());
    for (const auto& node : nodes_) ASSERT_NO_FATAL_FAILURE(node->start());
  }
  template <class Change>
  void change(Change change) {
    for (;;) {
      const cluster::Versioned before = map_.read();
      const auto after = change(before.map);
      ASSERT_TRUE(after.has_value()) << after.error().message();
      if (map_.write(*after, before.version)) return;
    }
  }
  [[nodiscard]] std::ptrdiff_t shards_of(const std::string& name) const {
    const ClusterMap map = map_.read().map;
    return std::ranges::count_if(map.shards, [&](const ClusterMap::Shard& shard) {
      return map.nodes[shard.home.node].name == name && !shard.next;
    });
  }
  [[nodiscard]] std::optional<ClusterMap::NodeState> state_of(const std::string& name) const {
    const ClusterMap map = map_.read().map;
    const auto node = map.find(name);
    return node ? std::optional(map.nodes[*node].state) : std::nullopt;
  }
  // Whether a host has met another one, and not forgotten it.
  [[nodiscard]] bool knows(std::uint32_t by, std::uint32_t of) const {
    const auto here = fabric::attach(fmt::format("shm://{}", store_name),
                                     {.directory = nodes_[by]->folder(), .lends = true});
    if (!here) return false;
    fabric::Endpoint endpoint(*here, (*here)->connect());
    const std::byte* word = endpoint.mapped(
        {fabric::control_region_of(by), memory::incarnations_offset + of * sizeof(std::uint64_t)},
        sizeof(std::uint64_t));
    return word != nullptr && fabric::load_word(word) != 0;
  }
  // Has the shards that are at home on a host, or are not, say something else of themselves there; how many
  // do.
  std::size_t change_directories(std::uint32_t of, bool at_home,
                                 const std::function<hash::Directory(hash::Directory)>& how) const {
    const auto here = fabric::attach(fmt::format("shm://{}", store_name),
                                     {.directory = nodes_[of]->folder(), .lends = true});
    if (!here) return 0;
    fabric::Endpoint endpoint(*here, (*here)->connect());
    const auto regions = memory::RegionMap::of_cluster(map_.read().map);
    std::size_t changed = 0;
    for (const auto& shard : regions.shards) {
      if ((shard.home == of) != at_home) continue;
      const auto at = hash::IndexPlace::of(shard, regions.nodes[of]).directory();
      std::byte* word = endpoint.mapped(at, sizeof(std::uint64_t));
      const auto before = hash::Directory::decode(fabric::load_word(word));
      const hash::Directory after = how(before);
      if (after == before) continue;
      fabric::store_word(word, after.encode());
      ++changed;
    }
    return changed;
  }
  std::size_t close_shards(std::uint32_t of) const {
    return change_directories(of, true, [](hash::Directory d) { return d.at(hash::Stage::leaves); });
  }
  [[nodiscard]] std::size_t count_closed(std::uint32_t of) const {
    return count(of, true, hash::Stage::leaves);
  }
  [[nodiscard]] std::size_t count(std::uint32_t of, bool at_home, hash::Stage stage) const {
    std::size_t found = 0;
    change_directories(of, at_home, [&](hash::Directory d) {
      found += d.stage == stage ? 1 : 0;
      return d;
    });
    return found;
  }
  [[nodiscard]] std::string url(std::size_t host) const {
    return fmt::format("tcp://{}/{}", nodes_[host]->address().text(), store_name);
  }
  static Result<Store> open(const std::string& url) {
    Options options;
    options.mode = Options::Mode::attach;
    options.placement = Placement::spread;
    options.timeout = 5s;
    return Store::open(url, options);
  }
  [[nodiscard]] Result<Store> open(std::size_t host) const { return open(url(host)); }

  Map map_;
  std::string folder_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// Clients that put and get keys of their own, and know what each has to be.
class Workers {
 public:
  Workers(const std::function<Result<Store>()>& open, int count) {
    for (int number = 0; number < count; ++number)
      threads_.emplace_back([this, open, number] { work(open, number); });
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  // What went wrong first.
  [[nodiscard]] std::string trouble() const {
    const std::scoped_lock lock(mutex_);
    return trouble_;
  }

  static constexpr int keys = 50;
  static std::string key(int worker, int number) { return fmt::format("key {} of {}", number, worker); }

 private:
  void work(const std::function<Result<Store>()>& open, int worker) {
    auto store = open();
    if (!store) return note(store.error().message());
    std::vector<std::string> values(keys);
    for (int round = 0; !stop_ && trouble().empty(); ++round) {
      for (int i = 0; i < keys && !stop_; ++i) {
        const std::string next =
            fmt::format("{} {}", round, std::string(static_cast<std::size_t>(i) * 20, 'v'));
        // Now and then a key is not there for a while.
        const bool goes = (round + i) % 7 == 0 && !values[static_cast<std::size_t>(i)].empty();
        const auto done = goes ? store->remove(key(worker, i)) : store->put(key(worker, i), next);
        if (!done) return note(done.error().message());
        values[static_cast<std::size_t>(i)] = goes ? "" : next;
        const int other = (i * 7 + round) % keys;
        const auto got = store->get(key(worker, other));
        const std::string& expected = values[static_cast<std::size_t>(other)];
        if (!got && got.error().code != Errc::not_found) return note(got.error().message());
        if (got.value_or("") != expected)
          return note(fmt::format("key {} is '{}', not '{}'", other, got.value_or("not there"), expected));
        ++done_;
      }
    }
  }
  void note(const std::string& what) {
    const std::scoped_lock lock(mutex_);
    if (trouble_.empty()) trouble_ = what;
  }

  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> done_ = 0;
  mutable std::mutex mutex_;
  std::string trouble_;
  std::vector<std::thread> threads_;
};

// Receive: a cluster of two hosts, to which a third comes, and which the first leaves, while clients work.
// Expect: each has its share of the shards; whoever leaves has nothing any more; and no client notices.
TEST_F(RebalancerTest, HostsJoinAndLeaveWhileClientsWork) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  Workers workers([url = url(1)] { return open(url); }, 3);
  Node& third = add_host("c");
  ASSERT_NO_FATAL_FAILURE(third.start());
  change([&](const ClusterMap& map) { return cluster::with_node(map, "c", third.address()); });
  EXPECT_TRUE(comes_true([&] { return shards_of("c") >= 2; })) << workers.trouble();
  EXPECT_GE(shards_of("a"), 2);
  const std::uint64_t before = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > before + 200 || !workers.trouble().empty(); }));
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  EXPECT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }))
      << workers.trouble();
  EXPECT_EQ(shards_of("a"), 0);
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  EXPECT_TRUE(comes_true([&] { return !open(0); }));
  nodes_[0]->stop();
  const std::uint64_t without = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > without + 200 || !workers.trouble().empty(); }));
  workers.stop();
  EXPECT_EQ(workers.trouble(), "");
  auto store = open(1).value();
  ASSERT_TRUE(store.collect().has_value());
  const auto report = store.check();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->items_corrupt + report->slots_corrupt, 0U) << testing::PrintToString(report->findings);
}

// Receive: a host is added that nobody has met and that is not there. Expect: clients go on, and others come.
TEST_F(RebalancerTest, AHostIsAddedThatIsNotThere) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  Workers workers([url = url(1)] { return open(url); }, 2);
  EXPECT_TRUE(comes_true([&] { return workers.done() > 50 || !workers.trouble().empty(); }));
  change(
      [](const ClusterMap& map) { return cluster::with_node(map, "c", {.host = "127.0.0.1", .port = "1"}); });
  EXPECT_TRUE(comes_true(
      [&] { return std::ranges::all_of(nodes_, [](const auto& node) { return node->epoch() == 2; }); }));
  std::this_thread::sleep_for(1s);  // clients learn of it four times a second
  const std::uint64_t before = workers.done();
  EXPECT_TRUE(comes_true([&] { return workers.done() > before + 200 || !workers.trouble().empty(); }));
  const auto store = open(0);
  EXPECT_TRUE(store.has_value()) << store.error().message();
  workers.stop();
  EXPECT_EQ(workers.trouble(), "");
}

// Receive: the only shard of the index is on a host that is down, and then a client puts items where no new
// ones are to come. Expect: errors, and nothing there.
TEST_F(RebalancerTest, AClientThatReachesOneHostAlone) {
  begin(2, 1);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  ASSERT_EQ(shards_of("a"), 1);
  nodes_[0]->stop();
  auto store = open(1);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const auto got = store->get("key");
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code, Errc::unavailable) << got.error().message();
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  ASSERT_TRUE(comes_true([&] { return store->put("key", "value").has_value(); }));
  nodes_[1]->stop();
  // A host that can not give away its items as long as another one is down.
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] {
    const auto put = store->put("key", "value");
    return !put && put.error().code == Errc::no_space;
  }));
  EXPECT_TRUE(store->get("key").has_value());
}

// Receive: a host has lost its memory, and comes back when the cluster's key is another. Expect: what it
// makes anew fits what the others have.
TEST_F(RebalancerTest, AHostComesBackUnderAnotherKey) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  auto store = open(1).value();
  const std::string key_file = folder_ + "/key";
  std::ofstream(key_file) << std::string(64, '7');
  ::chmod(key_file.c_str(), 0600);
  nodes_[0]->stop();
  nodes_[0]->lose_memory();
  nodes_[0]->config().key_file = key_file;
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_TRUE(comes_true([&] { return store.count().has_value(); }));
  const auto opened = open(0);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  ::unlink(key_file.c_str());
}

// Receive: a client does nothing while a host leaves, and comes back when nobody is left who knows that one.
// Expect: it finds the store.
TEST_F(RebalancerTest, AClientThatWasIdleWhileAHostLeft) {
  begin(3);
  const std::string all_hosts =
      fmt::format("tcp://{},{},{}/{}", nodes_[0]->address().text(), nodes_[1]->address().text(),
                  nodes_[2]->address().text(), store_name);
  ASSERT_TRUE(comes_true([&] { return open(all_hosts).has_value(); }));
  auto store = open(all_hosts).value();
  constexpr int count = 20;
  for (int i = 0; i < count; ++i) ASSERT_TRUE(store.put(fmt::format("key{}", i), "value").has_value());
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
  change([](const ClusterMap& map) { return cluster::without_node(map, "a", false); });
  ASSERT_TRUE(comes_true([&] { return !knows(1, 0) && !knows(2, 0); }));
  const auto refused = open(0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unavailable) << refused.error().message();
  nodes_[0]->stop();
  nodes_[1]->host().end_idle(store_name, 0);
  nodes_[2]->host().end_idle(store_name, 0);
  EXPECT_TRUE(comes_true([&] { return store.get("key0").has_value(); }));
  for (int i = 0; i < count; ++i) EXPECT_TRUE(store.get(fmt::format("key{}", i)).has_value()) << i;
}

// Receive: a host that is stopped while it gives its shards away, again and again. Expect: it goes on where
// it was.
TEST_F(RebalancerTest, GoesOnWhereItWasStopped) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(1).has_value(); }));
  {
    auto store = open(1).value();
    for (int i = 0; i < 300; ++i)
      ASSERT_TRUE(store.put(fmt::format("key{}", i), fmt::format("value{}", i)).has_value());
  }
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  for (const auto lasts : {5ms, 20ms, 60ms, 150ms, 400ms}) {
    std::this_thread::sleep_for(lasts);
    nodes_[0]->stop();
    ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  }
  ASSERT_TRUE(comes_true([&] { return state_of("a") == ClusterMap::NodeState::drained; }));
  auto store = open(1).value();
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(store.get(fmt::format("key{}", i)).value_or(""), fmt::format("value{}", i));
}

// Receive: a host that is lost for good. Expect: its shards begin anew elsewhere, what it had is gone, and
// all the rest is there; and a new host takes its place.
TEST_F(RebalancerTest, AHostThatIsLostIsDoneWithout) {
  begin(3);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  constexpr int count = 300;
  {
    auto store = open(0).value();
    for (int i = 0; i < count; ++i) ASSERT_TRUE(store.put(fmt::format("key{}", i), "value").has_value());
  }
  nodes_[2]->stop();
  nodes_[2]->lose_memory();
  change([](const ClusterMap& map) { return cluster::without_node(map, "c", true); });
  const auto found = [&](Store& store) {
    int there = 0;
    for (int i = 0; i < count; ++i) {
      const auto got = store.get(fmt::format("key{}", i));
      if (!got && got.error().code != Errc::not_found) return -1;
      there += got ? 1 : 0;
    }
    return there;
  };
  int there = -1;
  EXPECT_TRUE(comes_true([&] {
    auto store = open(0);
    there = store ? found(*store) : -1;
    return there >= 0;
  }));
  EXPECT_GT(there, count / 4);
  EXPECT_LT(there, count * 3 / 4);
  Node& next = add_host("d");
  ASSERT_NO_FATAL_FAILURE(next.start());
  change([&](const ClusterMap& map) { return cluster::with_node(map, "d", next.address()); });
  EXPECT_TRUE(comes_true([&] { return shards_of("d") >= 2; }));
  auto store = open(0).value();
  for (int i = 0; i < count; ++i) {
    const auto put = store.put(fmt::format("key{}", i), "value");
    ASSERT_TRUE(put.has_value()) << put.error().message();
  }
  EXPECT_EQ(found(store), count);
}

// Receive: a host that joins while another one is down. Expect: no shard moves, for what it holds may name
// what the other one has lost, until that one is back.
TEST_F(RebalancerTest, ShardsStayWhileAHostIsDown) {
  begin(3);
  ASSERT_TRUE(comes_true([&] {
    auto store = open(0);
    return store && store->count();
  }));
  nodes_[2]->stop();
  Node& next = add_host("d");
  ASSERT_NO_FATAL_FAILURE(next.start());
  change([&](const ClusterMap& map) { return cluster::with_node(map, "d", next.address()); });
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(shards_of("d"), 0);
  ASSERT_NO_FATAL_FAILURE(nodes_[2]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("d") >= 2; }));
}

// Receive: a host that was killed when it had closed its shards, to give them to another one that was removed
// meanwhile. Expect: they are open again.
TEST_F(RebalancerTest, ShardsThatDoNotMoveAnyMoreAreReopened) {
  begin(2);
  ASSERT_TRUE(comes_true([&] { return open(0).has_value(); }));
  nodes_[0]->stop();
  ASSERT_EQ(close_shards(0), 4U);
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_EQ(count_closed(0), 0U);
}

// Receive: the same of shards that are to move, and can not as long as a host is down. Expect: they are used
// where they are.
TEST_F(RebalancerTest, ShardsThatCanNotMoveNowAreReopened) {
  begin(3);
  ASSERT_TRUE(comes_true([&] {
    auto store = open(0);
    return store && store->count();
  }));
  nodes_[2]->stop();
  nodes_[0]->stop();
  ASSERT_GE(close_shards(0), 2U);
  change([](const ClusterMap& map) { return cluster::draining(map, "a"); });
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  EXPECT_TRUE(comes_true([&] { return shards_of("a") == 0 && count_closed(0) == 0; }));
}

// Receive: what a move that was given up has left on a host, and then a map of a later epoch. Expect: it is
// void, so that it is not opened when the shard comes to be there.
TEST_F(RebalancerTest, WhatIsLeftOfAMoveThatWasGivenUpIsVoid) {
  begin(2);
  change_directories(1, false, [](hash::Directory d) { return d.arriving(fabric::index_region_of(0)); });
  ASSERT_EQ(count(1, false, hash::Stage::arrives), 4U);
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap later = map;
    ++later.epoch;
    return later;
  });
  EXPECT_TRUE(comes_true([&] { return count(1, false, hash::Stage::left) == 4; }));
}

// Receive: a map that is older than what this host's part has been, and then none. Expect: a look now and
// then.
TEST_F(RebalancerTest, LooksNowAndThenWhenTheMapIsNoGood) {
  begin(1);
  const auto looks_in_a_second = [&] {
    const int before = map_.reads();
    std::this_thread::sleep_for(1s);
    return map_.reads() - before;
  };
  change([](const ClusterMap& map) -> Result<ClusterMap> {
    ClusterMap older = map;
    --older.epoch;
    return older;
  });
  EXPECT_LE(looks_in_a_second(), 6);
  map_.lose();
  EXPECT_LE(looks_in_a_second(), 6);
}

}  // namespace
}  // namespace loch::server
