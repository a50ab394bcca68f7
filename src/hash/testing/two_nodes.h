// For tests: a store on two nodes, in one process, and clients on another host than both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
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

fabric::ClusterMap cluster_map();
memory::RegionMap regions();

// Shard 0 is on the second node.
inline constexpr fabric::ClusterMap::Place elsewhere{.node = 1, .index = fabric::index_region_of(0, 1)};
memory::RegionMap regions_later();

std::shared_ptr<MemoryStore> make_store();

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
  memory::ItemRef put(const std::string& key);
  static coro::Task<Result<memory::ItemRef>> find_task(Client* self, std::string key);
  Errc error_of_get(const std::string& key);
  Errc error_of_put(const std::string& key);
  Errc error_of_remove(const std::string& key);
};

void let_pass(MemoryStore& store, base::Nanos time);

Directory directory_of(const MemoryStore& store, const memory::RegionMap::Shard& shard);
void begin_growth(MemoryStore& store, std::uint32_t number);

// What is on one node moves to the other, step by step.
class Moving : public testing::Test {
 protected:
  Moving();

  [[nodiscard]] Handover handover() {
    return {mover_->attachment(), regions().shards[0], memory::RegionMap::shard_at(0, elsewhere)};
  }
  Directory directory() { return directory_of(*store_, regions().shards[0]); }
  memory::ItemRef item_of(const std::string& key) {
    return client_->run(Client::find_task(client_.get(), key)).value_or(memory::ItemRef{});
  }
  // All operations of the client that began before are over, and the node knows.
  void client_tells();
  // The second node takes no new items any more, and what is there is moved away.
  Result<Shards::Evacuated> empty_second();

  std::shared_ptr<MemoryStore> store_ = make_store();
  std::unique_ptr<Client> mover_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> keys_;
};

}  // namespace loch::hash::two_nodes
