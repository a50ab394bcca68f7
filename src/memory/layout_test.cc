// What lies in a store's memory, byte by byte: another build, or another version, must read the same.
#include "memory/layout.h"

#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include "memory/blocks.h"
#include "memory/size_class.h"
#include "memory/store_memory.h"
#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

// Hexadecimal digits, eight bytes a group.
template <class T>
std::string bytes_of(const T& value) {
  std::array<unsigned char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{}{:02x}", i % 8 == 0 && i != 0 ? " " : "", bytes[i]);
  return text;
}

TEST(Layout, SuperblockBytes) {
  const Superblock superblock{.magic = magic,
                              .version = 0x01020304,
                              .candidates = 3,
                              .expiry_ns = 1'000'000'000,
                              .max_bytes = 0x1122334455667788,
                              .hash_seed = 7,
                              .boot_id = {8, 9},
                              .checksum = 10};
  EXPECT_EQ(bytes_of(superblock),
            "4c4853544f524531 0403020103000000 00ca9a3b00000000 8877665544332211 "
            "0700000000000000 0800000000000000 0900000000000000 0a00000000000000");
}

TEST(Layout, ClientEntryBytes) {
  ClientEntry entry{};
  entry.open = 1;
  entry.opened_at_ns = 2;
  entry.process = 3;
  entry.next_nonce = 4;
  entry.act_until_ns = 5;
  entry.unfinished_moves = 9;
  entry.takes_part = 10;
  entry.op_start_ns = 6;
  entry.pin_start_ns = 7;
  const std::string bytes = bytes_of(entry);
  EXPECT_EQ(bytes.substr(0, std::size_t{7} * 17),
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 "
            "0900000000000000 0a00000000000000 ");
  EXPECT_EQ(bytes.substr(8 * std::size_t{17}, 2 * 17 - 1), "0600000000000000 0700000000000000");
  ClientCounters counters{};
  counters.counted[0] = 8;
  EXPECT_EQ(bytes_of(counters).substr(0, 16), "0800000000000000");
}

TEST(Layout, OfTheControlRegion) {
  EXPECT_EQ(index_root_offset, 1'024U);
  EXPECT_EQ(totals_offset, 2'048U);
  EXPECT_EQ(frees_offset, 3'072U);
  EXPECT_EQ(unfinished_moves_offset, 3'136U);
  EXPECT_EQ(settled_moves_offset, 3'144U);
  EXPECT_EQ(latest_offset, 3'200U);
  EXPECT_EQ(barrier_offset, 3'208U);
  EXPECT_EQ(clients_end_offset, 3'264U);
  EXPECT_EQ(incarnations_offset, 3'328U);
  EXPECT_EQ(map_epoch_offset, 3'840U);
  EXPECT_EQ(map_digest_offset, 3'848U);
  EXPECT_EQ(closed_offset, 3'904U);
  EXPECT_EQ(registry_offset, 4'096U);
  EXPECT_EQ(counters_offset, 135'168U);
  EXPECT_EQ(shard_roots_offset, 528'384U);
  EXPECT_EQ(shard_root_bytes, 256U);
  EXPECT_EQ(control_bytes, 536'576U);
}

TEST(Layout, ItemHeaderBytes) {
  const ItemHeader header{.state = 1,
                          .header_sum = 2,
                          .value_sum = 0,
                          .key_hash = 3,
                          .written_at_ns = 4,
                          .expires_at_ns = 5,
                          .value_bytes = 0x01020304,
                          .key_bytes = 0x0506,
                          .client = 0x0708};
  EXPECT_EQ(bytes_of(header),
            "0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000 "
            "0403020106050807");
}

TEST(Layout, LeaseWordBits) {
  const LeaseWord word{.state = BlockState::large_head,
                       .size_class = 31,
                       .client = 0x3ff,
                       .block_count = 129,
                       .generation = 5};
  EXPECT_EQ(word.encode(), 0x5813fffcU);
  const LeaseWord same = LeaseWord::decode(word.encode());
  EXPECT_EQ(same.encode(), word.encode());
  EXPECT_EQ(same.client, 0x3ff);
  EXPECT_EQ(same.block_count, 129);
  const LeaseWord next = word.next(BlockState::free, 0, 0);
  EXPECT_EQ(next.generation, 6U);
  // The generation's last value is followed by the first, and spills into nothing.
  const LeaseWord last{.generation = (std::uint64_t{1} << 36) - 1};
  EXPECT_EQ(last.next(BlockState::full, 3, 9).generation, 0U);
  EXPECT_EQ(LeaseWord{}.encode(), 0U) << "the zero bytes of a fresh region are a free block";
}

TEST(Layout, LeaseWordsRoundTrip) {
  base::Random random(1);
  for (int i = 0; i < 1'000; ++i) {
    const std::uint64_t word = random.next();
    EXPECT_EQ(LeaseWord::decode(word).encode(), word);
    EXPECT_EQ(ItemState::decode(word).encode(), word);
  }
}

TEST(Layout, ItemStateBits) {
  EXPECT_EQ(ItemState{}.encode(), 0U) << "the zero bytes of a fresh block are fresh items";
  EXPECT_EQ((ItemState{.kind = ItemKind::retired, .moved = true, .value = 5}.encode()), 0x2fU);
  const ItemState claimed = ItemState::claimed(17, 123'456 * base::millisecond_ns + 789);
  EXPECT_EQ(claimed.encode(), 1U | (std::uint64_t{17} | std::uint64_t{123'456} << 12) << 3);
  EXPECT_EQ(ItemState::decode(claimed.encode()).client(), 17);
  EXPECT_EQ(claimed.since(), 123'456 * base::millisecond_ns);
  EXPECT_EQ(claimed.since_at_latest(), 123'457 * base::millisecond_ns - 1);
  const ItemState in_use = ItemState::in_use(17, 123'456 * base::millisecond_ns + 789);
  EXPECT_EQ(in_use.encode(), 2U | (std::uint64_t{17} | std::uint64_t{123'456} << 12) << 3);
  // A time of a clock that has run for a hundred years keeps its place.
  const base::Nanos late = base::Nanos{100} * 365 * 24 * 3'600 * base::second_ns;
  EXPECT_EQ(ItemState::decode(ItemState{.kind = ItemKind::retired, .value = late}.encode()).value,
            late % (std::uint64_t{1} << 61));
  EXPECT_EQ(ItemState::claimed(1, late).since(), late);
}

TEST(SizeClass, EachIsTheSmallestThatFits) {
  for (std::size_t c = 1; c < size_class_count; ++c) {
    EXPECT_GT(class_bytes[c], class_bytes[c - 1]);
    EXPECT_EQ(class_bytes[c] % item_unit_bytes, 0U);
    EXPECT_GE(items_in_block(static_cast<std::uint8_t>(c)), 2U);
  }
  for (std::uint64_t bytes = 1; bytes <= class_bytes_max; bytes += bytes < 4'096 ? 1 : 61) {
    const std::uint8_t c = size_class_of(bytes);
    ASSERT_LT(c, size_class_count) << bytes;
    ASSERT_GE(class_bytes[c], bytes);
    if (c > 0) ASSERT_LT(class_bytes[c - 1], bytes);
  }
  EXPECT_EQ(size_class_of(class_bytes_max), size_class_count - 1);
  EXPECT_EQ(size_class_of(class_bytes_max + 1), large_class);
  EXPECT_EQ(blocks_of_large(block_bytes), 1U);
  EXPECT_EQ(blocks_of_large(block_bytes + 1), 2U);
}

#ifdef LOCH_FAULT_POINTS
// Receive: size classes that are joined by fours. Expect: the longest of those that the smallest is one of.
TEST(SizeClass, JoinedOnesAreTheLongestOfThem) {
  base::narrowing.classes_joined = 4;
  EXPECT_EQ(size_class_of(1), 3);
  EXPECT_EQ(size_class_of(class_bytes[3]), 3);
  EXPECT_EQ(size_class_of(class_bytes[3] + 1), 7);
  EXPECT_EQ(size_class_of(class_bytes_max), size_class_count - 1);
  EXPECT_EQ(size_class_of(class_bytes_max + 1), large_class);
  base::narrowing = {};
}
#endif

TEST(Blocks, NumbersAndPlacesAgree) {
  for (const BlockNumber block :
       {BlockNumber{1}, BlockNumber{65'535}, BlockNumber{65'537}, BlockNumber{200'000}}) {
    EXPECT_EQ(block_of(large_item(block)), block);
    EXPECT_EQ(block_of(item_in_block(block, 0, items_in_block(0) - 1)), block);
    EXPECT_EQ(block_of(item_in_block(block, 30, 1)), block);
    EXPECT_EQ(block_address(block).region, first_data_region + block / 65'536);
  }
  EXPECT_EQ(lease_address(65'537), (fabric::Address{3, 16}));
  EXPECT_EQ(released_address(65'537), (fabric::Address{3, 24}));
}

TEST(Blocks, AListLeavesOutDescriptorsAndGaps) {
  BlockList list;
  EXPECT_EQ(list.begin(), list.end());
  list.add(first_data_region, 3 * block_bytes);
  list.add(first_data_region + 1, block_bytes);  // descriptors alone
  list.add(first_data_region + 3, 2 * block_bytes + 5);
  const std::vector<BlockNumber> blocks(list.begin(), list.end());
  EXPECT_EQ(blocks, (std::vector<BlockNumber>{1, 2, 3 * 65'536 + 1}));
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[1], 2U);
  EXPECT_EQ(list[2], 3U * 65'536 + 1);
  EXPECT_TRUE(list.contains(2));
  for (const BlockNumber none : {0U, 3U, 65'537U, 3U * 65'536, 3U * 65'536 + 2})
    EXPECT_FALSE(list.contains(none)) << none;
}

TEST(Items, ASetKeepsThemByRegion) {
  ItemSet set;
  const ItemRef a{.region = 2, .size_class = 0, .unit = 7};
  const ItemRef b{.region = 100, .size_class = 0, .unit = 7};
  EXPECT_FALSE(set.contains(a));
  EXPECT_TRUE(set.insert(a));
  EXPECT_FALSE(set.insert(a));
  EXPECT_FALSE(set.contains(b));
  EXPECT_TRUE(set.insert(b));
}

TEST(Regions, OfAClusterAreEachOnOneNode) {
  fabric::ClusterMap cluster{
      .nodes = {{.name = "a", .at = {}, .data = {2, 5}}, {.name = "b", .at = {}, .data = {3}}}, .shards = {}};
  for (const std::uint32_t home : {1U, 0U, 1U, 1U}) {
    const auto shard = static_cast<std::uint32_t>(cluster.shards.size());
    cluster.shards.push_back({.home = {.node = home, .index = fabric::index_region_of(shard)}});
  }
  const RegionMap map = RegionMap::of_cluster(cluster);
  EXPECT_EQ(map.node_of(2), 0U);
  EXPECT_EQ(map.node_of(3), 1U);
  EXPECT_EQ(map.node_of(5), 0U);
  EXPECT_FALSE(map.node_of(4).has_value());
  EXPECT_EQ(map.nodes[1].control, 129);
  ASSERT_EQ(map.shards.size(), 4U);
  EXPECT_EQ(map.shards[3].home, 1U);
  EXPECT_EQ(map.shards[3].index, 195);
  EXPECT_GE(map.shards[0].root_offset, shard_roots_offset);
  EXPECT_EQ(map.shards[3].root_offset - map.shards[0].root_offset, 3 * shard_root_bytes);
  EXPECT_LE(map.shards[3].root_offset + shard_root_bytes, control_bytes);
}

// ---- attaching

Errc attach_error(fabric::fake::MemoryStore& store) {
  const auto attached = StoreMemory::attach(store.attach());
  if (attached) return Errc{};
  EXPECT_FALSE(attached.error().detail.empty());
  return attached.error().code;
}

TEST(Attach, TheGeometryIsWhatItWasCreatedWith) {
  const Geometry geometry{.candidates = 4, .expiry_ns = 5, .max_bytes = 6, .hash_seed = 7};
  const auto store = fake::make_memory(geometry);
  const auto attached = StoreMemory::attach(store->attach());
  ASSERT_TRUE(attached.has_value());
  EXPECT_EQ((*attached)->geometry().candidates, 4U);
  EXPECT_EQ((*attached)->geometry().expiry_ns, 5U);
  EXPECT_EQ((*attached)->geometry().max_bytes, 6U);
  EXPECT_EQ((*attached)->geometry().hash_seed, 7U);
}

TEST(Attach, EveryChangedByteOfTheSuperblockIsSeen) {
  const auto store = fake::make_memory({});
  for (std::uint64_t offset = 0; offset < sizeof(Superblock); ++offset) {
    std::byte* at = store->at({control_region, offset});
    *at ^= std::byte{1};
    const Errc error = attach_error(*store);
    EXPECT_TRUE(error == Errc::corrupt || error == Errc::incompatible) << offset;
    *at ^= std::byte{1};
  }
  EXPECT_EQ(attach_error(*store), Errc{});
}

TEST(Attach, AnotherVersionIsIncompatible) {
  const auto store = fake::make_memory({});
  const std::uint32_t other = format_version + 1;
  std::memcpy(store->at({control_region, offsetof(Superblock, version)}), &other, sizeof other);
  EXPECT_EQ(attach_error(*store), Errc::incompatible);
}

TEST(Attach, AShortControlRegionIsNoStore) {
  const auto store = fabric::fake::MemoryStore::create({.regions = {{control_region, 4'096}}, .fill = {}});
  EXPECT_EQ(attach_error(*store), Errc::corrupt);
}

}  // namespace
}  // namespace loch::memory
