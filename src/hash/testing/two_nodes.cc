#include "hash/testing/two_nodes.h"

#include <fmt/format.h>
#include <span>

namespace loch::hash::two_nodes {

fabric::ClusterMap cluster_map() {
  fabric::ClusterMap cluster;
  cluster.nodes = {{.name = "a", .at = {}, .data = {2, 4}}, {.name = "b", .at = {}, .data = {3, 5}}};
  for (std::uint32_t shard = 0; shard < 4; ++shard)  // all slots are on the first node
    cluster.shards.push_back({.home = {.node = 0, .index = fabric::index_region_of(shard)}});
  return cluster;
}

memory::RegionMap regions() { return memory::RegionMap::of_cluster(cluster_map()); }

memory::RegionMap regions_later() {
  fabric::ClusterMap cluster = cluster_map();
  cluster.shards[0].home = elsewhere;
  cluster.epoch = 2;
  return memory::RegionMap::of_cluster(cluster);
}

std::shared_ptr<MemoryStore> make_store() {
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
      Table::initialize(regions[0].base + map.shards[s].root_offset, regions[std::size_t{2} * node_count + s],
                        {.region = map.shards[s].index});
    }
  };
  return MemoryStore::create(plan);
}

memory::ItemRef Client::put(const std::string& key) {
  EXPECT_EQ(error_of_put(key), Errc{});
  return run(find_task(this, key)).value();
}
coro::Task<Result<memory::ItemRef>> Client::find_task(Client* self, std::string key) {
  const memory::Attachment::Operation during(self->attachment());
  const auto found = co_await self->shards().get(self->key_of(key));
  if (!found) co_return std::unexpected(found.error());
  co_return found->view.ref();
}
Errc Client::error_of_get(const std::string& key) {
  const auto found = run(find_task(this, key));
  return found ? Errc{} : found.error().code;
}
Errc Client::error_of_put(const std::string& key) {
  const auto put = fake::Client::put(key, std::string(100, 'v'));
  return put ? Errc{} : put.error().code;
}
Errc Client::error_of_remove(const std::string& key) {
  const auto removed = remove(key);
  return removed ? Errc{} : removed.error().code;
}

void let_pass(MemoryStore& store, base::Nanos time) {
  store.advance(time);
  for (const auto& node : regions().nodes)
    fabric::store_word(store.at({node.control, memory::latest_offset}), store.now());
}

Directory directory_of(const MemoryStore& store, const memory::RegionMap::Shard& shard) {
  return Directory::decode(
      fabric::load_word(store.at(IndexPlace::of(shard, regions().nodes[shard.home]).directory())));
}

void begin_growth(MemoryStore& store, std::uint32_t number) {
  const memory::RegionMap::Shard shard = regions().shards[number];
  ASSERT_TRUE(store.attach()->extend(shard.index, 2 * Table::initial_index_bytes).has_value());
  const auto place = IndexPlace::of(shard, regions().nodes[shard.home]);
  fabric::store_word(store.at(place.split_cursor()), ChunkCursor{.level = first_level}.encode());
  fabric::store_word(store.at(place.directory()), directory_of(store, shard).begin_growing().encode());
}

Moving::Moving() {
  let_pass(*store_, base::second_ns);
  mover_ = std::make_unique<Client>(*store_, memory::Placement{});
  client_ = std::make_unique<Client>(*store_, memory::Placement{.policy = memory::Placement::Policy::spread});
  for (int i = 0; keys_.size() < 20; ++i) {
    const std::string key = fmt::format("key{}", i);
    if (shard_of(Key::of(key, geometry.hash_seed).hash, 4) == 0) keys_.push_back(key);
  }
  // The last of them is not there.
  for (const std::string& key : std::span(keys_).first(keys_.size() - 1)) client_->put(key);
}

void Moving::client_tells() {
  let_pass(*store_, base::second_ns / 100);
  EXPECT_TRUE(client_->run(client_->attachment().refresh()).has_value());
  let_pass(*store_, base::second_ns / 100);
}

Result<Shards::Evacuated> Moving::empty_second() {
  fabric::store_word(store_->at({regions().nodes[1].control, memory::closed_offset}), 1);
  client_tells();
  EXPECT_TRUE(mover_->run(mover_->attachment().refresh()).has_value());
  return mover_->run(mover_->shards().evacuate(1));
}

}  // namespace loch::hash::two_nodes
