// The store on several nodes, in one process: what a client holds on one of them holds on all.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <span>
#include <string>

#include "fabric/testing/posting_fabric.h"
#include "hash/handover.h"
#include "hash/testing/test_table.h"

namespace loch::hash {
namespace {

using fabric::fake::MemoryStore;

constexpr std::uint32_t node_count = 2;
constexpr memory::Geometry geometry{.hash_seed = 42};

fabric::ClusterMap map_of_two_nodes() {
  fabric::ClusterMap cluster;
  cluster.nodes = {{.name = "a", .at = {}, .data = {2, 4}}, {.name = "b", .at = {}, .data = {3, 5}}};
  for (std::uint32_t shard = 0; shard < 4; ++shard)  // all slots are on the first node
    cluster.shards.push_back({.home = {.node = 0, .index = fabric::index_region_of(shard)}});
  return cluster;
}

memory::RegionMap two_nodes() { return memory::RegionMap::of_cluster(map_of_two_nodes()); }

// Shard 0 is on the second node.
constexpr fabric::ClusterMap::Place elsewhere{.node = 1, .index = fabric::index_region_of(0, 1)};
memory::RegionMap two_nodes_later() {
  fabric::ClusterMap cluster = map_of_two_nodes();
  cluster.shards[0].home = elsewhere;
  cluster.epoch = 2;
  return memory::RegionMap::of_cluster(cluster);
}

std::shared_ptr<MemoryStore> make_store() {
  const memory::RegionMap map = two_nodes();
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
  Client(MemoryStore& store, memory::Placement placement, const memory::RegionMap& map = two_nodes(),
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

void let_pass(MemoryStore& store, base::Nanos time) {
  store.advance(time);
  for (const auto& node : two_nodes().nodes)
    fabric::store_word(store.at({node.control, memory::latest_offset}), store.now());
}

Directory directory_of(const MemoryStore& store, const memory::RegionMap::Shard& shard) {
  return Directory::decode(
      fabric::load_word(store.at(IndexPlace::of(shard, two_nodes().nodes[shard.home]).directory())));
}

void begin_growth(MemoryStore& store, std::uint32_t number) {
  const memory::RegionMap::Shard shard = two_nodes().shards[number];
  ASSERT_TRUE(store.attach()->extend(shard.index, 2 * Table::initial_index_bytes).has_value());
  const auto place = IndexPlace::of(shard, two_nodes().nodes[shard.home]);
  fabric::store_word(store.at(place.split_cursor()), std::uint64_t{first_level} << cursor_level_shift);
  fabric::store_word(store.at(place.directory()), Directory{.level = first_level, .growing = true}.encode());
}

fabric::Address incarnation_of_second() { return memory::incarnation_at(1, 1); }

// Whoever comes from now on is not attached to the second node, since the first one has known it otherwise.
void lose_second(MemoryStore& store, const std::function<void(Client&)>& after = [](Client& /*writer*/) {}) {
  let_pass(store, base::second_ns);
  {
    Client writer(store, {.policy = memory::Placement::Policy::node, .node = 1});
    after(writer);
  }
  fabric::store_word(store.at(incarnation_of_second()), 99);
}
// It was only away.
void find_second(MemoryStore& store) { fabric::store_word(store.at(incarnation_of_second()), 8); }

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
      for (int puts = 0; puts < 16; ++puts) writer.put("other");  // more than are at hand
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
  {
    Client client(*store, {.policy = memory::Placement::Policy::spread});
    EXPECT_EQ(client.attachment().nodes().size(), 2U);
  }
  fabric::store_word(store->at(incarnation_of_second()), 99);
  Client client(*store, {.policy = memory::Placement::Policy::spread});
  ASSERT_EQ(client.attachment().nodes().size(), 1U);
  EXPECT_EQ(client.attachment().nodes().front().session->node(), 0U);
  EXPECT_EQ(client.put("key").region, 2);
}

// Each node has a clock of its own, by which the walk begins there.
TEST(Cluster, AWalkVisitsTheItemsOfAllNodes) {
  const auto store = make_store();
  let_pass(*store, base::second_ns);
  Client client(*store, {.policy = memory::Placement::Policy::spread}, two_nodes(),
                {.before = [&](const auto&) { let_pass(*store, 100 * base::microsecond_ns); }});
  std::set<std::string> keys;
  std::set<fabric::RegionId> regions;
  for (int i = 0; i < 20; ++i) {
    const std::string key = fmt::format("key{}", i);
    keys.insert(key);
    regions.insert(client.put(key).region);
  }
  EXPECT_EQ(regions.size(), 2U);
  const auto walked = client.walk();
  ASSERT_TRUE(walked.has_value()) << walked.error().message();
  EXPECT_EQ(walked->size(), keys.size());
  for (const auto& [key, value] : *walked) EXPECT_EQ(keys.erase(key), 1U) << key;
}

// Receive: new items are to be put on a node that is left out. Expect: on none, if it was named; where the
// key's index is, if it is the client's own.
TEST(Cluster, WhatIsToBePutOnANodeThatIsLeftOut) {
  using Policy = memory::Placement::Policy;
  const auto store = make_store();
  lose_second(*store);
  const auto client = [&](Policy policy) {
    return std::make_unique<Client>(*store, memory::Placement{.policy = policy, .node = 1});
  };
  const auto named = client(Policy::node);
  EXPECT_EQ(named->error_of_put("key"), Errc::unavailable);
  EXPECT_EQ(named->error_of_get("key"), Errc::not_found);
  EXPECT_EQ(client(Policy::local)->put("key").region, 2);
}

// Receive: an index grows while items that it names can not be reached. Expect: other keys are written as
// ever, and the growth comes to its end when the items are there again.
TEST(Cluster, AnIndexGrowsBesideItemsThatAreOutOfReach) {
  const auto store = make_store();
  const auto map = two_nodes();
  lose_second(*store, [](Client& writer) {
    for (int i = 0; i < 200; ++i) writer.put(fmt::format("lost{}", i));
  });
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) begin_growth(*store, shard);
  // Whether an item that is out of reach has the filter bits of the key.
  const auto may_be_lost = [&](const std::string& key) {
    const Key hashed = Key::of(key, geometry.hash_seed);
    const auto& shard = map.shards[shard_of(hashed.hash, map.shards.size())];
    const auto at = Locations::of(hashed.hash, {.level = first_level, .growing = true}, geometry.candidates);
    return std::ranges::any_of(std::span(at.slot).first(at.count), [&](SlotNumber slot) {
      const SlotWord word{fabric::load_word(store->at(IndexPlace::of(shard, map.nodes[0]).slot(slot)))};
      return word.names_item() && word.item().region == 3 && word.filter() == hashed.filter();
    });
  };
  std::vector<std::string> keys;
  {
    Client client(*store, {});
    for (int i = 0; i < 900; ++i) {  // all chunks are taken, and all is looked at once more
      const std::string key = fmt::format("key{}", i);
      const Errc error = client.error_of_put(key);
      if (error != Errc{} && may_be_lost(key)) continue;
      ASSERT_EQ(error, Errc{}) << key;
      keys.push_back(key);
    }
  }
  EXPECT_GT(keys.size(), 890U);
  for (const auto& shard : map.shards) EXPECT_TRUE(directory_of(*store, shard).growing);
  find_second(*store);
  Client client(*store, {});
  const auto collected = client.collect();
  ASSERT_TRUE(collected.has_value()) << collected.error().message();
  for (const auto& shard : map.shards) EXPECT_FALSE(directory_of(*store, shard).growing);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(client.error_of_get(fmt::format("lost{}", i)), Errc{});
  for (const std::string& key : keys) EXPECT_EQ(client.error_of_get(key), Errc{}) << key;
}

// Receive: a slot that is to be split, whose item belongs into the upper row and has used up its tags; the
// item's header can be read, and then the item's host does not answer. Expect: the slot is left as it is.
TEST(Cluster, ASlotIsNotSplitWithoutItsItem) {
  const auto store = make_store();
  let_pass(*store, base::second_ns);
  bool is_silent = false;
  int unanswered = 0;
  const auto held = [&](std::span<const fabric::Operation> batch) {
    const bool is_of_item = std::ranges::any_of(batch, [](const fabric::Operation& operation) {
      return operation.at.region == 3 && operation.length_bytes > sizeof(memory::ItemHeader);
    });
    if (!is_silent || !is_of_item) return false;
    ++unanswered;
    store->advance(2 * base::millisecond_ns);  // past its deadline
    return false;
  };
  Client client(*store, {.policy = memory::Placement::Policy::node, .node = 1}, two_nodes(), {.held = held},
                {.timeout_ns = base::millisecond_ns});
  const auto worn = [&] {
    for (int i = 0;; ++i) {
      std::string key = fmt::format("key{}", i);
      const std::uint64_t hash = client.key_of(key).hash;
      const bool moves_up = (home_row_mix(hash) & std::uint64_t{1} << first_level) != 0;
      if (shard_of(hash, 4) == 0 && moves_up) return key;
    }
  }();
  ASSERT_EQ(client.put(worn).region, 3);
  const auto place = IndexPlace::of(two_nodes().shards[0], two_nodes().nodes[0]);
  std::byte* home = store->at(place.slot(Locations::of(client.key_of(worn).hash, {}, 3).slot[0]));
  const SlotWord used_up = SlotWord{fabric::load_word(home)}.with_tag(tag_max);
  fabric::store_word(home, used_up.raw);
  begin_growth(*store, 0);
  is_silent = true;
  [[maybe_unused]] const auto failed = client.collect();
  EXPECT_GT(unanswered, 0);
  EXPECT_EQ(SlotWord{fabric::load_word(home)}, used_up);
  is_silent = false;
  ASSERT_TRUE(client.collect().has_value());
  EXPECT_FALSE(directory_of(*store, two_nodes().shards[0]).growing);
  EXPECT_EQ(client.error_of_get(worn), Errc{});
}

// Receive: a key that is there, and in another of its slots an item that can not be reached and may be its
// own. Expect: nothing keeps the key from being read and written; once it has been removed, nobody can say.
TEST(Cluster, AnItemOutOfReachThatMayBeTheKeys) {
  const auto store = make_store();
  memory::ItemRef out_of_reach;
  lose_second(*store, [&](Client& writer) { out_of_reach = writer.put("other"); });
  Client first(*store, {});
  const memory::ItemRef item = first.put("key");
  const Key key = Key::of("key", geometry.hash_seed);
  const auto place = IndexPlace::of(two_nodes().shards[shard_of(key.hash, 4)], two_nodes().nodes[0]);
  const auto at = Locations::of(key.hash, {}, geometry.candidates);
  const auto set_slot = [&](unsigned i, memory::ItemRef to) {
    fabric::store_word(store->at(place.slot(at.slot[i])),
                       SlotWord::link(SlotType::committed, to, key.filter(), 0, first_level).raw);
  };
  set_slot(1, item);
  set_slot(0, out_of_reach);
  Client client(*store, {});
  EXPECT_EQ(client.error_of_get("key"), Errc{});
  EXPECT_EQ(Client(*store, {}).error_of_put("key"), Errc{});
  EXPECT_EQ(client.put("key").region, 2);
  EXPECT_EQ(client.error_of_remove("key"), Errc{});
  EXPECT_EQ(client.error_of_get("key"), Errc::unavailable);
  EXPECT_EQ(client.error_of_put("key"), Errc::unavailable);
  EXPECT_EQ(client.error_of_remove("key"), Errc::unavailable);
}

// The first client that is attached to both says which incarnations they know of each other.
TEST(Cluster, NodesLearnOfEachOther) {
  const auto store = make_store();
  const auto said = [&](std::uint32_t by, std::uint32_t of) {
    return fabric::load_word(store->at(memory::incarnation_at(by, of)));
  };
  EXPECT_EQ(said(0, 1), 0U);
  const Client client(*store, {});
  EXPECT_EQ(said(0, 1), 8U);
  EXPECT_EQ(said(1, 0), 7U);
}

// A shard moves from the first node to the second, step by step.
class ClusterHandover : public testing::Test {
 protected:
  ClusterHandover() {
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
    return {mover_->attachment(), two_nodes().shards[0], memory::RegionMap::shard_at(0, elsewhere)};
  }
  Directory directory() { return directory_of(*store_, two_nodes().shards[0]); }
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
    fabric::store_word(store_->at({two_nodes().nodes[1].control, memory::closed_offset}), 1);
    client_tells();
    EXPECT_TRUE(mover_->run(mover_->attachment().refresh()).has_value());
    return mover_->run(mover_->shards().evacuate(1));
  }

  std::shared_ptr<MemoryStore> store_ = make_store();
  std::unique_ptr<Client> mover_;
  std::unique_ptr<Client> client_;
  std::vector<std::string> keys_;
};

TEST_F(ClusterHandover, MovesAShardToAnotherNode) {
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  // What is there can be read, and nothing else can be said.
  EXPECT_EQ(client_->error_of_put(keys_[0]), Errc::moved);
  EXPECT_EQ(client_->error_of_put(keys_.back()), Errc::moved);
  EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::moved);
  EXPECT_EQ(client_->error_of_get(keys_[0]), Errc{}) << "by a pointer that is right still";
  client_tells();
  ASSERT_EQ(mover_->run(move.is_quiet()), true);
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  EXPECT_EQ(client_->error_of_get(keys_[0]), Errc::moved) << "also by a pointer";
  EXPECT_EQ(Client(*store_, {}, two_nodes_later()).error_of_get(keys_[0]), Errc::moved)
      << "not before it is open";
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  Client later(*store_, {}, two_nodes_later());
  for (const std::string& key : std::span(keys_).first(keys_.size() - 1))
    EXPECT_EQ(later.error_of_get(key), Errc{}) << key;
  EXPECT_EQ(later.error_of_get(keys_.back()), Errc::not_found);
  later.put(keys_.back());
  later.put(keys_.front());
  EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::moved);
  EXPECT_EQ(directory().stage, ShardStage::left);
}

// Receive: a shard that grows. Expect: where it comes to, the growth goes on where it was, and ends.
TEST_F(ClusterHandover, AShardThatGrowsGoesOnGrowing) {
  begin_growth(*store_, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client_->error_of_put(keys_[0]), Errc{});
  const auto here = IndexPlace::of(two_nodes().shards[0], two_nodes().nodes[0]);
  const std::uint64_t cursor = fabric::load_word(store_->at(here.split_cursor()));
  EXPECT_GT(cursor, std::uint64_t{first_level} << cursor_level_shift);
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  const auto shard = two_nodes_later().shards[0];
  const auto there = IndexPlace::of(shard, two_nodes().nodes[1]);
  EXPECT_EQ(fabric::load_word(store_->at(there.split_cursor())), cursor);
  EXPECT_TRUE(directory_of(*store_, shard).growing);
  Client later(*store_, {}, two_nodes_later());
  constexpr std::uint64_t chunks = (std::uint64_t{1} << first_level) / rows_split_at_once;
  for (std::uint64_t i = 0; i <= chunks; ++i) EXPECT_EQ(later.error_of_put(keys_[0]), Errc{});
  EXPECT_FALSE(directory_of(*store_, shard).growing);
  for (const std::string& key : std::span(keys_).first(keys_.size() - 1))
    EXPECT_EQ(later.error_of_get(key), Errc{}) << key;
}

// An operation that began before is waited for.
TEST_F(ClusterHandover, WaitsForThoseThatBeganBefore) {
  Handover move = handover();
  {
    const memory::Attachment::Operation during(client_->attachment());
    let_pass(*store_, base::second_ns / 100);
    ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
    client_tells();
    EXPECT_EQ(mover_->run(move.is_quiet()), false);
  }
  client_tells();
  EXPECT_EQ(mover_->run(move.is_quiet()), true);
}

TEST_F(ClusterHandover, IsUndoneOrGoneOnWith) {
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.undo()).has_value());
  EXPECT_EQ(client_->error_of_put(keys_.back()), Errc{});
  // Another mover, who finds it half done.
  Handover again = handover();
  ASSERT_EQ(mover_->run(again.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(again.copy()).has_value());
  ASSERT_TRUE(mover_->run(again.clear()).has_value());
  Handover last = handover();
  EXPECT_EQ(mover_->run(last.begin()), ShardStage::left);
  ASSERT_TRUE(mover_->run(last.undo()).has_value());
  EXPECT_EQ(directory().stage, ShardStage::left) << "it is too late for that";
  ASSERT_TRUE(mover_->run(last.clear()).has_value());
  ASSERT_TRUE(mover_->run(last.open()).has_value());
  EXPECT_EQ(Client(*store_, {}, two_nodes_later()).error_of_get(keys_.back()), Errc{});
}

// Receive: a directory with a word that no client writes. Expect: an error, and the word stays as it is.
TEST_F(ClusterHandover, ADamagedDirectoryIsAnError) {
  std::byte* directory = store_->at(IndexPlace::of(two_nodes().shards[0], two_nodes().nodes[0]).directory());
  for (const std::uint64_t damaged : {std::uint64_t{1} << 40 | first_level, std::uint64_t{200}}) {
    fabric::store_word(directory, damaged);
    Handover move = handover();
    const auto begun = mover_->run(move.begin());
    ASSERT_FALSE(begun.has_value());
    EXPECT_EQ(begun.error().code, Errc::corrupt);
    EXPECT_EQ(fabric::load_word(directory), damaged);
  }
}

// Receive: the new home loses its memory when nothing is left at the old one. Expect: the shard begins anew.
TEST_F(ClusterHandover, TheNewHomeLosesWhatHasLeft) {
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  const auto there =
      IndexPlace::of(memory::RegionMap::shard_at(0, elsewhere), two_nodes().nodes[elsewhere.node]);
  std::memset(store_->at(there.root), 0, sizeof(IndexRoot));
  store_->renew(there.slots, 0);
  Handover again = handover();
  EXPECT_EQ(mover_->run(again.begin()), ShardStage::left);
  ASSERT_TRUE(mover_->run(again.clear()).has_value());
  ASSERT_TRUE(mover_->run(again.open()).has_value());
  Client later(*store_, {}, two_nodes_later());
  EXPECT_EQ(later.error_of_get(keys_.front()), Errc::not_found);
  later.put(keys_.front());
  EXPECT_EQ(later.error_of_get(keys_.front()), Errc{});
  // Whoever is late does not begin it once more.
  const auto late = mover_->run(again.clear());
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Errc::unavailable);
  EXPECT_EQ(later.error_of_get(keys_.front()), Errc{});
}

// Receive: a copy that was given up is longer than the next one. Expect: nothing of it is left.
TEST_F(ClusterHandover, ACopyOfBeforeIsGone) {
  const std::uint64_t bytes = Table::initial_index_bytes;
  store_->renew(elsewhere.index, 2 * bytes);
  std::memset(store_->at({elsewhere.index, 0}), 0x5a, 2 * bytes);
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  for (std::uint64_t at = bytes; at < 2 * bytes; at += sizeof(std::uint64_t))
    ASSERT_EQ(fabric::load_word(store_->at({elsewhere.index, at})), 0U) << at;
}

// Times to live go on, though the clock of the new home is behind.
TEST_F(ClusterHandover, TimesToLiveGoByOneClock) {
  const auto now = [](Client& client) {
    return client.run((*client.shards().table_of(0))->read_time()).value();
  };
  for (const std::uint32_t node : {0U, 1U}) {
    fabric::store_word(store_->at({two_nodes().nodes[node].control, memory::latest_offset}),
                       node == 0 ? 500 * base::second_ns : 20 * base::second_ns);
  }
  const base::Nanos before = now(*client_);
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  Client later(*store_, {}, two_nodes_later());
  EXPECT_EQ(now(later), before);
}

// Receive: a node that takes no new items. Expect: what was there is elsewhere, and nothing names it any
// more.
TEST_F(ClusterHandover, ANodeIsEmptied) {
  const auto on_second = [&](const std::string& key) {
    return client_->run(Client::find_task(client_.get(), key)).value().region % 2 == 1;
  };
  const auto present = std::span(keys_).first(keys_.size() - 1);
  EXPECT_GT(std::ranges::count_if(present, on_second), 5);
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  EXPECT_GT(emptied->copied, 5U);
  EXPECT_EQ(std::ranges::count_if(present, on_second), 0);
  for (const std::string& key : present) EXPECT_EQ(client_->put(key).region % 2, 0) << "no new ones either";
  EXPECT_EQ(mover_->run(mover_->shards().evacuate(1)).value().copied, 0U);
  client_.reset();  // which retires what its last puts have unlinked
  const auto report = mover_->run(mover_->shards().check());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_TRUE(report->findings.empty()) << report->findings.front();
}

// Receive: a node is to be emptied by one who is told to end. Expect: nothing is done, and it says that there
// is more to do.
TEST_F(ClusterHandover, ANodeIsEmptiedUntilItIsToEnd) {
  fabric::store_word(store_->at({two_nodes().nodes[1].control, memory::closed_offset}), 1);
  client_tells();
  ASSERT_TRUE(mover_->run(mover_->attachment().refresh()).has_value());
  const auto ended = mover_->run(mover_->shards().evacuate(1, [] { return false; }));
  ASSERT_TRUE(ended.has_value()) << ended.error().message();
  EXPECT_EQ(ended->copied, 0U);
  EXPECT_GT(ended->left, 0U);
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_GT(emptied->copied, 5U);
}

// Receive: damaged words that name an item of another key there, and a place where none can be. Expect: they
// are cleared, too.
TEST_F(ClusterHandover, ANodeIsEmptiedOfWhatDamagedWordsName) {
  const auto on_second = [&](const std::string& key) {
    return client_->run(Client::find_task(client_.get(), key)).value();
  };
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return on_second(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  memory::ItemRef nowhere = on_second(*found);
  nowhere.unit = std::uint32_t{1} << 29;
  std::vector<fabric::Address> damaged;
  const fabric::RegionId index = two_nodes().shards[1].index;
  for (std::uint64_t at = 0; damaged.size() < 2; at += sizeof(std::uint64_t)) {
    const SlotWord word{fabric::load_word(store_->at({index, at}))};
    if (!word.is(SlotType::empty)) continue;
    const memory::ItemRef item = damaged.empty() ? on_second(*found) : nowhere;
    fabric::store_word(store_->at({index, at}),
                       SlotWord::link(SlotType::committed, item, 1, 0, word.level()).raw);
    damaged.push_back({index, at});
  }
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  for (const fabric::Address at : damaged)
    EXPECT_TRUE(SlotWord{fabric::load_word(store_->at(at))}.is(SlotType::empty));
  EXPECT_EQ(on_second(*found).region % 2, 0) << "and it has moved";
}

// Receive: a damaged item there. Expect: it goes with its memory.
TEST_F(ClusterHandover, ANodeIsEmptiedOfADamagedItem) {
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return item_of(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  *store_->at(item_of(*found).address() + sizeof(memory::ItemHeader) + found->size()) ^= std::byte{1};
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(emptied->left, 0U);
  EXPECT_EQ(client_->error_of_get(*found), Errc::not_found);
}

// Receive: a key whose item is there, and that has a damaged slot. Expect: its item is copied all the same,
// and so are all others.
TEST_F(ClusterHandover, ANodeIsEmptiedBesideADamagedSlot) {
  const auto found =
      std::ranges::find_if(keys_, [&](const std::string& key) { return item_of(key).region == 3; });
  ASSERT_NE(found, keys_.end());
  const auto place = IndexPlace::of(two_nodes().shards[0], two_nodes().nodes[0]);
  const auto at = Locations::of(Key::of(*found, geometry.hash_seed).hash, {}, geometry.candidates);
  const auto word_in = [&](unsigned i) {
    return SlotWord{fabric::load_word(store_->at(place.slot(at.slot[i])))};
  };
  ASSERT_EQ(word_in(0).item(), item_of(*found));
  const SlotWord before = word_in(2);
  fabric::store_word(store_->at(place.slot(at.slot[2])), ~std::uint64_t{0});
  const auto emptied = empty_second();
  ASSERT_TRUE(emptied.has_value()) << emptied.error().message();
  EXPECT_EQ(word_in(0).item().region, 2);
  EXPECT_EQ(mover_->run(mover_->shards().evacuate(1)).value().left, 0U);
  fabric::store_word(store_->at(place.slot(at.slot[2])), before.raw);
  EXPECT_EQ(client_->error_of_get(*found), Errc{});
}

}  // namespace
}  // namespace loch::hash
