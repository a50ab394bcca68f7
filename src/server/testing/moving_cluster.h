// MovingCluster: several hosts in one process, whose map is in its memory, and may change.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/changes.h"
#include "lab/temp_folder.h"
#include "memory/attachment.h"
#include "server/testing/cluster_node.h"

namespace loch::server::fake {

using cluster::ClusterMap;

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
  // As ZooKeeper that does not answer whoever says that shards have moved.
  void refuse_arrivals(bool refuses) {
    const std::scoped_lock lock(mutex_);
    refuses_arrivals_ = refuses;
  }
  // The same for all who change it.
  void refuse_changes(bool refuses) {
    const std::scoped_lock lock(mutex_);
    refuses_changes_ = refuses;
  }
  // As somebody who changes it as soon as a host has announced that shards are to move.
  void change_what_is_announced(std::function<ClusterMap(const ClusterMap&)> how) {
    const std::scoped_lock lock(mutex_);
    changes_announced_ = std::move(how);
  }
  Result<void> write(const ClusterMap& map, std::uint64_t version) {
    {
      const std::scoped_lock lock(mutex_);
      if (refuses_changes_) return fail(Errc::unavailable, "cluster");
      if (version != map_.version) return fail(Errc::changed, "cluster");
      if (refuses_arrivals_ && moving(map) < moving(map_.map)) return fail(Errc::unavailable, "cluster");
      const bool announces = moving(map) > moving(map_.map);
      map_ = {.map = map, .version = version + 1};
      if (announces && changes_announced_) {
        map_ = {.map = std::exchange(changes_announced_, nullptr)(map), .version = version + 2};
      }
    }
    changed_.notify_all();
    return {};
  }
  void wait(std::uint64_t version, base::Nanos at_most_ns) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(at_most_ns), [&] { return map_.version != version; });
  }

 private:
  static std::ptrdiff_t moving(const ClusterMap& map) {
    return std::ranges::count_if(map.shards, [](const auto& shard) { return shard.next.has_value(); });
  }

  mutable std::mutex mutex_;
  mutable int reads_ = 0;
  bool refuses_arrivals_ = false;
  bool refuses_changes_ = false;
  std::function<ClusterMap(const ClusterMap&)> changes_announced_;
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

class MovingCluster : public ::testing::Test {
 public:
  MovingCluster(const MovingCluster&) = delete;
  MovingCluster& operator=(const MovingCluster&) = delete;
  ~MovingCluster() override = default;

 protected:
  MovingCluster() = default;

  Node& add_host(const std::string& name) {
    nodes_.push_back(std::make_unique<Node>(name, folder_ + "/" + name, "shared:"));
    nodes_.back()->make_coordinator = [this] { return std::make_unique<SharedCoordinator>(map_); };
    nodes_.back()->sees_its_neighbours = true;
    nodes_.back()->bytes_together = bytes_together_;
    auto& stores = nodes_.back()->config().stores;
    for (const std::string& more : more_stores_) {
      Config::Store store = stores.front();
      store.name = more;
      stores.push_back(std::move(store));
    }
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
  // Another host comes to the cluster. `max_bytes`: what its part of the store may grow to; 0: anything.
  void join(const std::string& name, std::uint64_t max_bytes = 0) {
    Node& next = add_host(name);
    next.config().stores.front().max_bytes = max_bytes;
    ASSERT_NO_FATAL_FAILURE(next.start());
    change([&](const ClusterMap& map) { return cluster::with_node(map, name, next.address()); });
  }
  template <class Change>
  void change(Change change) {
    SharedCoordinator coordinator(map_);
    const auto changed = cluster::change_map(coordinator, change);
    ASSERT_TRUE(changed.has_value()) << changed.error().message();
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
    const std::byte* word = endpoint.mapped(memory::incarnation_at(by, of), sizeof(std::uint64_t));
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
    return change_directories(of, true,
                              [](hash::Directory d) { return d.with_stage(hash::ShardStage::leaves); });
  }
  [[nodiscard]] std::size_t count_closed(std::uint32_t of) const {
    return count(of, true, hash::ShardStage::leaves);
  }
  [[nodiscard]] std::size_t count(std::uint32_t of, bool at_home, hash::ShardStage stage) const {
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
    options.timeout = std::chrono::seconds(5);
    return Store::open(url, options);
  }
  [[nodiscard]] Result<Store> open(std::size_t host) const { return open(url(host)); }
  [[nodiscard]] bool is_whole() const {
    auto store = open(0);
    return store && store->count();
  }
  [[nodiscard]] std::unique_ptr<memory::Attachment> attach(std::size_t host) const {
    auto fabric = fabric::attach(url(host), {}).value();
    const auto map = memory::RegionMap::of_cluster(*fabric->cluster());
    return memory::Attachment::open(memory::StoreMemory::attach(std::move(fabric), map).value()).value();
  }

  Map map_;
  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string folder_ = temp_.path();
  std::vector<std::string> more_stores_;
  std::uint64_t bytes_together_ = Rebalancer::usual_bytes_together;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace loch::server::fake
