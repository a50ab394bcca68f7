// For tests: a store on two nodes, in one process, and clients on another host than both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/testing/posting_fabric.h"
#include "hash/handover.h"
#include "hash/testing/test_table.h"

namespace loch::hash::two_nodes {

using fabric::fake::MemoryStore;

inline constexpr std::uint32_t node_count = 2;
inline constexpr memory::Geometry geometry{.hash_seed = 42};

inline fabric::ClusterMap cluster_map() {
  fabric::ClusterMap cluster;
  cluster.nodes = {{.name = "a", .at = {}, .data = {2, 4}}, {.name = "b", .at = {}, .data = {3, 5}}};
  for (std::uint32_t shard = 0; shard < 4; ++shard)  // all slots are on the first node
    cluster.shards.push_back({.home = {.node = 0, .index = fabric::index_region_of(shard)}});
  return cluster;
}

inline memory::RegionMap regions() { return memory::RegionMap::of_cluster(cluster_map()); }

// Shard 0 is on the second node.
inline constexpr fabric::ClusterMap::Place elsewhere{.node = 1, .index = fabric::index_region_of(0, 1)};
inline memory::RegionMap regions_later() {
  fabric::ClusterMap cluster = cluster_map();
  cluster.shards[0].home = elsewhere;
  cluster.epoch = 2;
  return memory::RegionMap::of_cluster(cluster);
}

inline std::shared_ptr<MemoryStore> make_store() {
  const memory::RegionMap map = regions();
  fabric::Plan plan;
  for (const auto& node : map.nodes) {
    plan.regions.push_back({node.control, memory::control_bytes});
    plan.regions.push_back({node.data.front(), 2 * memory::block_bytes});
  }
  for (const auto& shard : map.shards) plan.regions.push_back({shard.index, Table::initial_index_bytes});
  plan.fill = [&](std::span<const fabric::Mapping> regions) {
    for (std::uint32_t node = 0; node < node_count; ++node)
      memory::StoreMemory::initialize_node(regions[std::size_t{2} * node].base, geometry, node, 7 + node);
    for (std::size_t s = 0; s < map.shards.size(); ++s) {
      Table::initialize(regions[0].base + map.shards[s].root_offset,
                        regions[std::size_t{2} * node_count + s]);
    }
  };
  return MemoryStore::create(plan);
}

// A client on another host than both nodes.
class Client : public fake::Client {
 public:
  Client(MemoryStore& store, memory::Placement placement, const memory::RegionMap& map = regions(),
         fabric::fake::PostingOptions options = {}, TableOptions of_tables = {})
      : fake::Client(
            store,
            std::make_shared<fabric::fake::PostingFabric>(store.shared_from_this(), std::move(options)),
            of_tables, map, placement) {}

  // Where the item is that was put.
  memory::ItemRef put(const std::string& key) {
    EXPECT_EQ(error_of_put(key), Errc{});
    return run(find_task(this, key)).value();
  }
  static coro::Task<Result<memory::ItemRef>> find_task(Client* self, std::string key) {
    const memory::Attachment::Operation during(self->attachment());
    const auto found = co_await self->shards().get(self->key_of(key));
    if (!found) co_return std::unexpected(found.error());
    co_return found->view.ref();
  }
  Errc error_of_get(const std::string& key) {
    const auto found = run(find_task(this, key));
    return found ? Errc{} : found.error().code;
  }
  Errc error_of_put(const std::string& key) {
    const auto put = fake::Client::put(key, std::string(100, 'v'));
    return put ? Errc{} : put.error().code;
  }
  Errc error_of_remove(const std::string& key) {
    const auto removed = remove(key);
    return removed ? Errc{} : removed.error().code;
  }
};

inline void let_pass(MemoryStore& store, base::Nanos time) {
  store.advance(time);
  for (const auto& node : regions().nodes)
    fabric::store_word(store.at({node.control, memory::latest_offset}), store.now());
}

inline Directory directory_of(const MemoryStore& store, const memory::RegionMap::Shard& shard) {
  return Directory::decode(
      fabric::load_word(store.at(IndexPlace::of(shard, regions().nodes[shard.home]).directory())));
}

inline void begin_growth(MemoryStore& store, std::uint32_t number) {
  const memory::RegionMap::Shard shard = regions().shards[number];
  ASSERT_TRUE(store.attach()->extend(shard.index, 2 * Table::initial_index_bytes).has_value());
  const auto place = IndexPlace::of(shard, regions().nodes[shard.home]);
  fabric::store_word(store.at(place.split_cursor()), std::uint64_t{first_level} << cursor_level_shift);
  fabric::store_word(store.at(place.directory()), Directory{.level = first_level, .growing = true}.encode());
}

// What is on one node moves to the other, step by step.
class Moving : public testing::Test {
 protected:
  Moving() {
    let_pass(*store_, base::second_ns);
    mover_ = std::make_unique<Client>(*store_, memory::Placement{});
    client_ =
        std::make_unique<Client>(*store_, memory::Placement{.policy = memory::Placement::Policy::spread});
    for (int i = 0; keys_.size() < 20; ++i) {
      const std::string key = fmt::format("key{}", i);
      if (shard_of(Key::of(key, geometry.hash_seed).hash, 4) == 0) keys_.push_back(key);
    }
    // The last of them is not there.
    for (const std::string& key : std::span(keys_).first(keys_.size() - 1)) client_->put(key);
  }

  [[nodiscard]] Handover handover() {
    return {mover_->attachment(), regions().shards[0], memory::RegionMap::shard_at(0, elsewhere)};
  }
  Directory directory() { return directory_of(*store_, regions().shards[0]); }
  memory::ItemRef item_of(const std::string& key) {
    return client_->run(Client::find_task(client_.get(), key)).value_or(memory::ItemRef{});
  }
  // All operations of the client that began before are over, and the node knows.
  void client_tells() {
    let_pass(*store_, base::second_ns / 100);
    EXPECT_TRUE(client_->run(client_->attachment().refresh()).has_value());
    let_pass(*store_, base::second_ns / 100);
  }
  // The second node takes no new items any more, and what is there is moved away.
  Result<Shards::Evacuated> empty_second() {
    fabric::store_word(store_->at({regions().nodes[1].control, memory::closed_offset}), 1);
    client_tells();
    EXPECT_TRUE(mover_->run(mover_->attachment().refresh()).has_value());
    return mover_->run(mover_->shards().evacuate(1));
  }

  std::shared_ptr<MemoryStore> store_ = make_store();
  std::unique_ptr<Client> mover_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> keys_;
};

}  // namespace loch::hash::two_nodes
