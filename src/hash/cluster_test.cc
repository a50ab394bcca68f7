// The store on several nodes, in one process: what a client holds on one of them holds on all.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "fabric/testing/posting_fabric.h"
#include "hash/shards.h"
#include "memory/attachment.h"

namespace loch::hash {
namespace {

using fabric::fake::MemoryStore;

constexpr std::uint32_t node_count = 2;
constexpr memory::Geometry geometry{.hash_seed = 42};

memory::RegionMap two_nodes() {
  fabric::ClusterMap cluster;
  cluster.nodes = {{.name = "a", .at = {}, .data = {2, 4}}, {.name = "b", .at = {}, .data = {3, 5}}};
  cluster.homes = {0, 0, 0, 0};  // all slots are on the first node
  return memory::RegionMap::of_cluster(cluster);
}

std::shared_ptr<MemoryStore> make_store() {
  const memory::RegionMap map = two_nodes();
  fabric::Plan plan;
  for (const auto& node : map.nodes) {
    plan.regions.push_back({node.control, memory::control_bytes});
    plan.regions.push_back({node.data.front(), 2 * memory::block_bytes});
  }
  for (const auto& shard : map.shards)
    plan.regions.push_back({shard.index, Table::initial_index_bytes(geometry.candidates)});
  plan.fill = [&](std::span<const fabric::Mapping> regions) {
    for (std::uint32_t node = 0; node < node_count; ++node)
      memory::StoreMemory::initialize_node(regions[2 * node].base, geometry, node, 7 + node);
    for (std::size_t s = 0; s < map.shards.size(); ++s) {
      Table::initialize(regions[0].base + map.shards[s].root_offset, regions[2 * node_count + s].base,
                        geometry.candidates);
    }
  };
  return MemoryStore::create(plan);
}

// A client on another host than both nodes.
class Client {
 public:
  Client(MemoryStore& store, memory::Placement placement) {
    const auto memory = memory::StoreMemory::attach(
        std::make_shared<fabric::fake::PostingFabric>(
            store.shared_from_this(), fabric::fake::PostingOptions{.mapped = {}, .before = {}, .held = {}}),
        two_nodes());
    EXPECT_TRUE(memory.has_value());
    attachment_ = memory::Attachment::open(*memory, placement).value();
    shards_ = std::make_unique<Shards>(*attachment_, TableOptions{});
    EXPECT_TRUE(run(shards_->open()).has_value());
  }

  template <class T>
  T run(coro::Task<T> task) {
    return attachment_->endpoint().run(std::move(task));
  }
  // Where the item is that was put.
  memory::ItemRef put(const std::string& key) {
    EXPECT_TRUE(run(put_task(this, key)).has_value());
    return run(find_task(this, key)).value();
  }
  static coro::Task<Result<std::uint64_t>> put_task(Client* self, std::string key) {
    const memory::Attachment::Operation during(*self->attachment_);
    const std::string value(100, 'v');
    const Key hashed = Key::of(key, geometry.hash_seed);
    co_return co_await (*self->shards_->table_of(hashed.hash))->put({.key = hashed, .value = value});
  }
  static coro::Task<Result<memory::ItemRef>> find_task(Client* self, std::string key) {
    const memory::Attachment::Operation during(*self->attachment_);
    const auto found = co_await self->shards_->get(Key::of(key, geometry.hash_seed));
    if (!found) co_return std::unexpected(found.error());
    co_return found->view.ref();
  }
  [[nodiscard]] memory::Attachment& attachment() { return *attachment_; }

 private:
  std::unique_ptr<memory::Attachment> attachment_;
  std::unique_ptr<Shards> shards_;
};

void let_pass(MemoryStore& store, base::Nanos time) {
  store.advance(time);
  for (const auto& node : two_nodes().nodes)
    fabric::store_word(store.at({node.control, memory::latest_offset}), store.now());
}

// Receive: an item on the second node that is replaced while an operation of another client runs, which went
// to the first node alone. Expect: its memory is not used again before the operation is over.
TEST(Cluster, AnOperationHoldsBackReuseOnAllNodes) {
  const auto store = make_store();
  let_pass(*store, base::second_ns);
  constexpr memory::Placement to_second{.policy = memory::Placement::Policy::node, .node = 1};
  Client writer(*store, to_second);
  Client reader(*store, to_second);
  const memory::ItemRef first = writer.put("key");
  ASSERT_EQ(first.region, 3);
  bool was_retired = false;
  const auto is_used_again = [&] {
    // Not for so long that the writer leaves what it has unlinked to others.
    for (int i = 0; i < 6; ++i) {
      let_pass(*store, base::second_ns / 4);
      // The reader is busy elsewhere, and yet says so in time.
      EXPECT_TRUE(reader.run(reader.attachment().refresh()).has_value());
      EXPECT_TRUE(writer.run(writer.attachment().refresh()).has_value());
      writer.put("other");
      writer.put("key");
      const auto state = memory::ItemState::decode(fabric::load_word(store->at(first.address())));
      if (was_retired && state.kind != memory::ItemKind::retired) return true;
      was_retired = was_retired || state.kind == memory::ItemKind::retired;
    }
    EXPECT_TRUE(was_retired);
    return false;
  };
  {
    const memory::Attachment::Operation during(reader.attachment());
    let_pass(*store, base::second_ns);
    EXPECT_FALSE(is_used_again());
  }
  EXPECT_TRUE(is_used_again());
}

// A node that is another than it was is left out; the rest is as it was.
TEST(Cluster, ANodeThatIsAnotherThanItWasIsLeftOut) {
  const auto store = make_store();
  let_pass(*store, base::second_ns);
  const fabric::Address incarnation{two_nodes().nodes[1].control,
                                    memory::incarnations_offset + sizeof(std::uint64_t)};
  {
    Client client(*store, {.policy = memory::Placement::Policy::spread});
    EXPECT_EQ(client.attachment().nodes().size(), 2U);
  }
  fabric::store_word(store->at(incarnation), 99);
  Client client(*store, {.policy = memory::Placement::Policy::spread});
  ASSERT_EQ(client.attachment().nodes().size(), 1U);
  EXPECT_EQ(client.attachment().nodes().front().session->node(), 0U);
  EXPECT_EQ(client.put("key").region, 2);
}

// The first client that is attached to both says which incarnations they know of each other.
TEST(Cluster, NodesLearnOfEachOther) {
  const auto store = make_store();
  const auto said = [&](std::uint32_t by, std::uint32_t of) {
    return fabric::load_word(
        store->at({two_nodes().nodes[by].control, memory::incarnations_offset + of * sizeof(std::uint64_t)}));
  };
  EXPECT_EQ(said(0, 1), 0U);
  const Client client(*store, {});
  EXPECT_EQ(said(0, 1), 8U);
  EXPECT_EQ(said(1, 0), 7U);
}

}  // namespace
}  // namespace loch::hash
