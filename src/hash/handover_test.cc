// A shard moves from the first node to the second, step by step.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "hash/testing/two_nodes.h"

namespace loch::hash::two_nodes {
namespace {

class ClusterHandover : public Moving {
 protected:
  // The first shard is on its first host again, in its other region.
  void come_back_elsewhere() {
    const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
    const fabric::RegionId other = fabric::index_region_of(0, 1);
    fabric::store_word(store_->at(here.directory()),
                       directory().arriving(other).with_stage(ShardStage::open).encode());
  }
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
  EXPECT_EQ(Client(*store_, {}, regions_later()).error_of_get(keys_[0]), Errc::moved)
      << "not before it is open";
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  Client later(*store_, {}, regions_later());
  for (const std::string& key : std::span(keys_).first(keys_.size() - 1))
    EXPECT_EQ(later.error_of_get(key), Errc{}) << key;
  EXPECT_EQ(later.error_of_get(keys_.back()), Errc::not_found);
  later.put(keys_.back());
  later.put(keys_.front());
  EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::moved);
  EXPECT_EQ(directory().stage, ShardStage::left);
}

// Receive: a map by which the shard is where nobody has made it yet. Expect: it is waited for.
TEST_F(ClusterHandover, AShardThatItsHomeHasNotHeardOfIsWaitedFor) {
  Client later(*store_, {}, regions_later());
  EXPECT_EQ(later.error_of_get(keys_[0]), Errc::moved);
  EXPECT_EQ(later.error_of_put(keys_[0]), Errc::moved);
}

// Receive: slots that no client writes so; then a later map. Expect: damage, unless the words may be of a
// host that this client does not know.
TEST_F(ClusterHandover, WordsOfALaterMapAreNotTakenForDamage) {
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  std::memset(store_->at(here.slot(0)), 0, Table::initial_index_bytes);
  EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::corrupt);
  EXPECT_EQ(client_->error_of_put(keys_.back()), Errc::corrupt);
  fabric::store_word(store_->at({here.root.region, memory::map_epoch_offset}), regions().epoch + 1);
  EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::moved);
  EXPECT_EQ(client_->error_of_put(keys_.back()), Errc::moved);
}

// Receive: slots that were cleared, or are there no more, of a shard that has come back to its host in the
// other region. Expect: who goes by the map of before is told that it has moved, and not that they are
// damaged.
TEST_F(ClusterHandover, SlotsThatTheShardHadBeforeAreNotTakenForDamage) {
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  come_back_elsewhere();
  for (const std::uint64_t bytes : {Table::initial_index_bytes, std::uint64_t{0}}) {
    SCOPED_TRACE(bytes);
    store_->renew(here.slots, bytes);
    EXPECT_EQ(client_->error_of_get(keys_.back()), Errc::moved);
    EXPECT_EQ(client_->error_of_put(keys_.back()), Errc::moved);
  }
}

// Receive: the same, and keys that are put by the map of before, and a collection, also of an index that
// grows. Expect: they mend and split nothing there, and take no item for nobody's.
TEST_F(ClusterHandover, SlotsThatTheShardHadBeforeAreNotMended) {
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  const std::vector<std::byte> cleared(Table::initial_index_bytes);
  const auto slots = [&] { return std::span(store_->at(here.slot(0)), cleared.size()); };
  std::ranges::copy(cleared, slots().begin());
  come_back_elsewhere();
  for (const bool grows : {false, true}) {
    SCOPED_TRACE(grows);
    if (grows) begin_growth(*store_, 0);
    let_pass(*store_, 10 * base::second_ns);
    const Directory before = directory();
    const auto collected = client_->collect();
    ASSERT_FALSE(collected.has_value());
    EXPECT_EQ(collected.error().code, Errc::moved);
    EXPECT_EQ(client_->error_of_put(keys_.back()), Errc::moved);
    EXPECT_TRUE(std::ranges::equal(slots(), cleared));
    EXPECT_EQ(directory(), before);
  }
}

// Receive: slots that are not there, of a shard whose directory was read when they were; also by a client of
// which an operation has failed. Expect: they are missed, unless the directory says now that the shard is not
// there.
TEST_F(ClusterHandover, SlotsThatAreNotThereAnyMoreAreNotMissed) {
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  bool holds = false;
  Client other(*store_, {}, regions(), {.held = [&holds](auto /*batch*/) { return holds; }});
  for (Client* client : {client_.get(), &other}) ASSERT_EQ(client->error_of_get(keys_[0]), Errc{});
  holds = true;
  ASSERT_EQ(other.error_of_get(keys_[0]), Errc::timed_out);
  holds = false;
  store_->renew(here.slots, 0);
  const auto expect_all = [&](Errc expected) {
    for (Client* client : {client_.get(), &other}) {
      EXPECT_EQ(client->error_of_get(keys_.back()), expected);
      EXPECT_EQ(client->error_of_put(keys_.back()), expected);
      EXPECT_EQ(client->error_of_put(keys_[0]), expected) << "by a pointer";
    }
  };
  expect_all(Errc::corrupt);
  fabric::store_word(store_->at(here.directory()), directory().with_stage(ShardStage::left).encode());
  expect_all(Errc::moved);
}

// Receive: slots of a shard that has left, and may be again what they are by a later map only. Expect:
// whoever comes now takes nothing from them, also who looks at a key's home row first.
TEST_F(ClusterHandover, SlotsOfAShardThatHasLeftSayNothing) {
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  fabric::store_word(store_->at(here.directory()), directory().with_stage(ShardStage::left).encode());
  for (const auto operation_cost : {fabric::OperationCost::little, fabric::OperationCost::message}) {
    Client client(*store_, {}, regions(), {.operation_cost = operation_cost});
    for (const std::string& key : keys_) EXPECT_EQ(client.error_of_get(key), Errc::moved) << key;
  }
}

// Receive: a shard that grows. Expect: where it comes to, the growth goes on where it was, and ends.
TEST_F(ClusterHandover, AShardThatGrowsGoesOnGrowing) {
  begin_growth(*store_, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client_->error_of_put(keys_[0]), Errc{});
  const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
  const std::uint64_t cursor = fabric::load_word(store_->at(here.split_cursor()));
  EXPECT_GT(cursor, ChunkCursor{.level = first_level}.encode());
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  const auto shard = regions_later().shards[0];
  const auto there = IndexPlace::of(shard, regions().nodes[1]);
  EXPECT_EQ(fabric::load_word(store_->at(there.split_cursor())), cursor);
  EXPECT_EQ(fabric::load_word(store_->at(there.homing_cursor())),
            fabric::load_word(store_->at(here.homing_cursor())));
  EXPECT_TRUE(directory_of(*store_, shard).growing);
  Client later(*store_, {}, regions_later());
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
  EXPECT_EQ(Client(*store_, {}, regions_later()).error_of_get(keys_.back()), Errc{});
}

// Receive: a move that came as far as its copy; that was undone by the shard's host alone; and that is over.
// Expect: of the first two, nothing is there that is ever opened; the last is not taken back.
TEST_F(ClusterHandover, IsTakenBackUntilTheShardHasLeft) {
  const auto there = [this] {
    const memory::RegionMap later = regions_later();
    const auto place = IndexPlace::of(later.shards[0], later.nodes[later.shards[0].home]);
    return Directory::decode(fabric::load_word(store_->at(place.directory()))).stage;
  };
  for (const bool was_reopened : {false, true}) {
    Handover move = handover();
    ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
    client_tells();
    ASSERT_TRUE(mover_->run(move.copy()).has_value());
    ASSERT_EQ(there(), ShardStage::arrives);
    const auto here = IndexPlace::of(regions().shards[0], regions().nodes[0]);
    if (was_reopened)
      ASSERT_TRUE(mover_->run(Handover::reopen(&mover_->attachment().endpoint(), here)).has_value());
    EXPECT_TRUE(mover_->run(move.take_back()).value());
    EXPECT_EQ(there(), ShardStage::left);
    EXPECT_EQ(directory().stage, ShardStage::open);
  }
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  client_tells();
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  EXPECT_FALSE(mover_->run(move.take_back()).value());
  EXPECT_EQ(there(), ShardStage::arrives);
}

// Receive: a directory with a word that no client writes. Expect: an error, and the word stays as it is.
TEST_F(ClusterHandover, ADamagedDirectoryIsAnError) {
  std::byte* directory = store_->at(IndexPlace::of(regions().shards[0], regions().nodes[0]).directory());
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
      IndexPlace::of(memory::RegionMap::shard_at(0, elsewhere), regions().nodes[elsewhere.node]);
  std::memset(store_->at(there.root), 0, sizeof(IndexRoot));
  store_->renew(there.slots, 0);
  Handover again = handover();
  EXPECT_EQ(mover_->run(again.begin()), ShardStage::left);
  ASSERT_TRUE(mover_->run(again.clear()).has_value());
  ASSERT_TRUE(mover_->run(again.open()).has_value());
  Client later(*store_, {}, regions_later());
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
    return client.run((*client.shards().table_of(0))->slots().read_time()).value();
  };
  for (const std::uint32_t node : {0U, 1U}) {
    fabric::store_word(store_->at({regions().nodes[node].control, memory::latest_offset}),
                       node == 0 ? 500 * base::second_ns : 20 * base::second_ns);
  }
  const base::Nanos before = now(*client_);
  Handover move = handover();
  ASSERT_EQ(mover_->run(move.begin()), ShardStage::leaves);
  ASSERT_TRUE(mover_->run(move.copy()).has_value());
  ASSERT_TRUE(mover_->run(move.clear()).has_value());
  ASSERT_TRUE(mover_->run(move.open()).has_value());
  Client later(*store_, {}, regions_later());
  EXPECT_EQ(now(later), before);
}

}  // namespace
}  // namespace loch::hash::two_nodes
