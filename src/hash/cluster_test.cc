// The store on several nodes, in one process: what a client holds on one of them holds on all.
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "hash/testing/two_nodes.h"

namespace loch::hash::two_nodes {
namespace {

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
  Client client(*store, {.policy = memory::Placement::Policy::spread}, regions(),
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

// Receive: calls about the whole store, of which one node is left out. Expect: they say which.
TEST(Cluster, WhoNeedsAllNodesIsToldWhichOneIsMissing) {
  const auto store = make_store();
  lose_second(*store);
  Client client(*store, {});
  const std::string name = client.attachment().memory().name_of_node(1);
  const auto expect_named = [&name](const auto& answer) {
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Errc::unavailable);
    EXPECT_NE(answer.error().detail.find(name), std::string::npos) << answer.error().message();
  };
  expect_named(client.walk());
  expect_named(client.count());
  expect_named(client.check());
  expect_named(client.collect());
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
  const auto map = regions();
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
  Client client(*store, {.policy = memory::Placement::Policy::node, .node = 1}, regions(), {.held = held},
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
  const auto place = IndexPlace::of(regions().shards[0], regions().nodes[0]);
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
  EXPECT_FALSE(directory_of(*store, regions().shards[0]).growing);
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
  const auto place = IndexPlace::of(regions().shards[shard_of(key.hash, 4)], regions().nodes[0]);
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

// Receive: slots in the way of an insert that name items of regions that no host has, as if half done.
// Expect: room is made elsewhere; where the home itself is in doubt, the insert says that it is damaged. None
// tries until its time is over.
TEST(Cluster, WordsOfRegionsThatNobodyHasHoldUpNoInsert) {
  for (const bool is_home_in_doubt : {false, true}) {
    SCOPED_TRACE(is_home_in_doubt);
    const auto store = make_store();
    let_pass(*store, base::second_ns);
    Client client(*store, {});
    const std::string key = [&] {
      for (int i = 0;; ++i) {
        std::string candidate = fmt::format("key{}", i);
        const Key hashed = client.key_of(candidate);
        const std::uint64_t rows = std::uint64_t{1} << first_level;
        const bool has_room_above = (home_row_mix(hashed.hash) & other_row_mix(hashed.hash) & rows) != 0;
        if (shard_of(hashed.hash, 4) == 0 && has_room_above && hashed.filter() != 0) return candidate;
      }
    }();
    const auto place = IndexPlace::of(regions().shards[0], regions().nodes[0]);
    const auto at = Locations::of(client.key_of(key).hash, {}, geometry.candidates);
    const auto set_slot = [&](unsigned i, SlotType type, fabric::RegionId region) {
      const SlotWord word = SlotWord::link(type, {.region = region, .unit = 1'000'000}, 0, 0, first_level);
      fabric::store_word(store->at(place.slot(at.slot[i])), word.raw);
    };
    constexpr fabric::RegionId nobodys = 9;
    if (is_home_in_doubt) {
      set_slot(0, SlotType::moved, nobodys);
    } else {
      set_slot(0, SlotType::pending, nobodys);
      set_slot(1, SlotType::committed, regions().nodes[0].data.front());
      set_slot(2, SlotType::placed, nobodys);
    }
    EXPECT_EQ(client.error_of_put(key), is_home_in_doubt ? Errc::corrupt : Errc{});
    EXPECT_EQ(client.counted(Counter::timeouts), 0U);
  }
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

}  // namespace
}  // namespace loch::hash::two_nodes
