// What lies where in a store's memory, apart from the index (hash/index.h).
//
//   control   superblock, the index's root, the totals of dead clients, the registry of clients
//   index     slots (hash/slot.h)
//   data      blocks of 1 MiB; block 0 of each region holds the descriptors of its blocks
//
// Which regions those are, RegionMap says (region_map.h).
//
//   control:  0        superblock
//             1024     index root
//             2048     totals of what was counted by sessions that are gone
//             3072     how often a block was freed or left
//             3136     moves of sessions that are gone: unfinished, settled
//             3200     latest time
//             3208     newest tick of a barrier that is over
//             3264     end of the client numbers
//             3328     of a cluster: the nodes' incarnations
//             3840     of a cluster: epoch of the map
//             3848     of a cluster: digest of which nodes it has keys and items on
//             3904     of a cluster: whether the node is closed
//             4096     registry: client_count_max entries
//             135168   what each of those sessions has counted
//             528384   of a cluster: the roots of the shards that are at home here
//
//   a data region:  | descriptors | block 1 | block 2 | ...
//   a block is cut into items of one size class, or is part of one large item.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <loch/stats.h>

#include "fabric/fabric.h"
#include "memory/region_map.h"

namespace loch::memory {

inline constexpr std::uint64_t magic = 0x31'45'52'4f'54'53'48'4c;  // "LHSTORE1"
inline constexpr std::uint32_t format_version = 10;

inline constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t blocks_in_region_max = fabric::region_bytes_max / block_bytes;
inline constexpr std::uint64_t item_unit_bytes = 64;
inline constexpr std::uint32_t client_count_max = 1024;  // number 0 is nobody

struct Superblock {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t candidates;  // slots a key may stand in
  std::uint64_t expiry_ns;   // how long unlinked memory rests
  std::uint64_t max_bytes;   // of index and data; 0: what the file system gives
  std::uint64_t hash_seed;
  std::uint64_t boot_id[2];  // of the host, when the store was created: its times mean nothing after a reboot
  std::uint64_t checksum;    // of all before it
};
static_assert(sizeof(Superblock) == 64 && std::has_unique_object_representations_v<Superblock>);
static_assert(offsetof(Superblock, checksum) == 56);

inline constexpr std::uint64_t index_root_offset = 1024;
inline constexpr std::uint64_t totals_offset = 2048;
inline constexpr std::uint64_t frees_offset = 3072;  // how often a block was freed or left; see Allocator
// Moves of sessions that are gone: how many may have left words behind, and of how many of them there are
// none any more. Both only rise.
inline constexpr std::uint64_t unfinished_moves_offset = 3136;
inline constexpr std::uint64_t settled_moves_offset = 3144;
inline constexpr std::uint64_t latest_offset = 3200;  // the store's latest time; see Session
// The newest tick in which a barrier was begun that is over; see Session.
inline constexpr std::uint64_t barrier_offset = 3208;
inline constexpr std::uint64_t clients_end_offset = 3264;  // above every client number that was ever used
// Of a cluster: by node, when its part of the store was made, as far as this one knows; see Attachment. Its
// own is what it is.
inline constexpr std::uint64_t incarnations_offset = 3328;
constexpr fabric::Address incarnation_at(std::uint32_t by, std::uint32_t of) {
  return {fabric::control_region_of(by), incarnations_offset + of * sizeof(std::uint64_t)};
}
// Of a cluster, by the node's host: the epoch of the map that it goes by, a digest of where that map has keys
// and items (0: none is noted), and whether the node takes no new items.
inline constexpr std::uint64_t map_epoch_offset = 3840;
inline constexpr std::uint64_t map_digest_offset = 3848;
inline constexpr std::uint64_t closed_offset = 3904;
inline constexpr std::uint64_t registry_offset = 4096;
static_assert(incarnations_offset + fabric::node_count_max * sizeof(std::uint64_t) <= map_epoch_offset);

// One session of one client process. Its owner alone writes it while it is present (fabric::Port::present);
// the next session that takes the number settles what the last one left. All that others go by is here, and
// nothing else, since each remote session reads all entries now and then.
struct ClientEntry {
  std::uint64_t open;          // 1 while a session has it; 1 and not present: died
  std::uint64_t opened_at_ns;  // what was written before by this number was written by a session that is gone
  std::uint64_t process;       // 0: a session that only reads (readers.cc); else for people
  std::uint64_t next_nonce;    // nonces below this may have been used
  std::uint64_t act_until_ns;  // no operation of this session acts on what was written after this; it rises
  std::uint64_t unfinished_moves;  // how many moves of this session may have left words behind
  std::uint64_t takes_part;        // 1: of this host, and its process takes part in barriers (base/barrier.h)
  std::uint64_t unused_0[1];
  std::uint64_t op_start_ns;  // of the oldest operation that runs or, if remote, may; 0: none
  // Of the oldest view or iteration; 0: none. If remote: since when it holds on to what was unlinked.
  std::uint64_t pin_start_ns;
  std::uint64_t unused_1[6];
};
static_assert(sizeof(ClientEntry) == 128 && std::has_unique_object_representations_v<ClientEntry>);
static_assert(offsetof(ClientEntry, op_start_ns) == 64,
              "written twice an operation: a cache line of its own");
static_assert(offsetof(ClientEntry, pin_start_ns) == 72, "remote sessions write both together");

// What the session with that number has counted, and those before it that are not settled. As its entry.
struct ClientCounters {
  std::array<std::uint64_t, counter_count> counted;
  std::array<std::uint64_t, 48 - counter_count> unused;
};
static_assert(sizeof(ClientCounters) == 384 && std::has_unique_object_representations_v<ClientCounters>);

inline constexpr std::uint64_t counters_offset = registry_offset + client_count_max * sizeof(ClientEntry);
static_assert(counters_offset % fabric::cache_line_bytes == 0);
inline constexpr std::uint64_t shard_roots_offset =
    counters_offset + client_count_max * sizeof(ClientCounters);
inline constexpr std::uint64_t shard_root_bytes = 256;
inline constexpr std::uint64_t control_bytes =
    shard_roots_offset + fabric::shard_count_max * shard_root_bytes;

// 16 bytes a block, in block 0 of its region. `lease` is changed by compare-swap; but the client that has cut
// a block writes `full` or `open` over its own `leased`, which nobody else changes while it is present.
struct BlockDescriptor {
  std::uint64_t lease;     // LeaseWord
  std::uint64_t released;  // items that their unlinkers left to whoever needs them
};
static_assert(sizeof(BlockDescriptor) == 16);
static_assert(blocks_in_region_max * sizeof(BlockDescriptor) == block_bytes);

enum class BlockState : std::uint8_t {
  free = 0,
  leased = 1,      // its client cuts it into items; of the large class: is about to, or takes a run
  full = 2,        // all cut; the items belong to the index, or rest
  swept = 3,       // a client looks for what can be reused
  large_head = 4,  // the first block of a large item
  large_part = 5,  // a further one
  open = 6,        // some of its items are cut; nobody has it, so whoever wants items of its class may go on
};

// No word of a block ever comes back: the generation rises with every change.
//
//   63       28 27      20 19      8 7     3 2     0
//   [generation][blocks   ][client   ][class ][state ]
//   [generation][items that are cut  ][class ][open  ]
struct LeaseWord {
  BlockState state = BlockState::free;
  std::uint8_t size_class = 0;
  std::uint16_t client = 0;
  std::uint8_t block_count = 0;  // of a large item, in its head
  std::uint64_t generation = 0;

  [[nodiscard]] constexpr std::uint64_t encode() const {
    return static_cast<std::uint64_t>(state) | std::uint64_t{size_class} << 3 | std::uint64_t{client} << 8 |
           std::uint64_t{block_count} << 20 | generation << 28;
  }
  static constexpr LeaseWord decode(std::uint64_t word) {
    return {.state = static_cast<BlockState>(word & 7),
            .size_class = static_cast<std::uint8_t>(word >> 3 & 31),
            .client = static_cast<std::uint16_t>(word >> 8 & 0xfff),
            .block_count = static_cast<std::uint8_t>(word >> 20 & 0xff),
            .generation = word >> 28};
  }
  // Of an open block: how many of its items are cut.
  [[nodiscard]] constexpr std::uint32_t cut() const { return std::uint32_t{block_count} << 12 | client; }
  [[nodiscard]] constexpr LeaseWord next_open(std::uint8_t size, std::uint32_t items_cut) const {
    return next(BlockState::open, size, static_cast<std::uint16_t>(items_cut & 0xfff),
                static_cast<std::uint8_t>(items_cut >> 12));
  }
  // The next word of the block.
  [[nodiscard]] constexpr LeaseWord next(BlockState s, std::uint8_t size, std::uint16_t who,
                                         std::uint8_t blocks = 0) const {
    return {.state = s,
            .size_class = size,
            .client = who,
            .block_count = blocks,
            .generation = (generation + 1) & ((std::uint64_t{1} << 36) - 1)};
  }
};

// What every item begins with. Written whole before the item is linked; only `state` changes afterwards.
struct ItemHeader {
  std::uint64_t state;       // ItemState; in no sum
  std::uint32_t header_sum;  // of all from key_hash to the last byte of the key, and of the item's place
  std::uint32_t value_sum;   // goes on from there over the value
  std::uint64_t key_hash;
  std::uint64_t written_at_ns;  // rises from item to item of one client
  std::uint64_t expires_at_ns;  // 0: never
  std::uint32_t value_bytes;
  std::uint16_t key_bytes;
  std::uint16_t client;  // who wrote it
};
static_assert(sizeof(ItemHeader) == 48 && std::has_unique_object_representations_v<ItemHeader>);

inline constexpr std::size_t summed_from = offsetof(ItemHeader, key_hash);

// Who an item's memory belongs to.
//
//   fresh     nobody has used it since its block was leased: the holder of the lease
//   claimed   the client in the word, which writes it; not linked yet
//   in_use    written by the client in the word, or just being written by it from another host; linked, about
//             to be linked, or just unlinked by a client that is about to say so
//   retired   unlinked at the time in the word; anybody may claim it by compare-swap when it has rested
enum class ItemKind : std::uint8_t { fresh = 0, claimed = 1, in_use = 2, retired = 3 };

//   63                  3    2     1     0
//   [time, or client    ][moved][ kind     ]
struct ItemState {
  ItemKind kind = ItemKind::fresh;
  bool moved = false;  // retired: words of unfinished moves may still name it
  std::uint64_t value = 0;

  [[nodiscard]] constexpr std::uint64_t encode() const {
    return static_cast<std::uint64_t>(kind) | std::uint64_t{moved} << 2 | value << 3;
  }
  static constexpr ItemState decode(std::uint64_t word) {
    return {.kind = static_cast<ItemKind>(word & 3), .moved = (word & 4) != 0, .value = word >> 3};
  }
  // `claimed` and `in_use` carry the client and the time, to the millisecond: no two claims are the same
  // word, and who wrote an item is known when its header has not arrived yet.
  static constexpr ItemState claimed(std::uint16_t client, base::Nanos time) {
    return of_client(ItemKind::claimed, client, time);
  }
  static constexpr ItemState in_use(std::uint16_t client, base::Nanos time) {
    return of_client(ItemKind::in_use, client, time);
  }
  [[nodiscard]] constexpr std::uint16_t client() const { return static_cast<std::uint16_t>(value & 0xfff); }
  // That it is since then at the earliest, and at the latest.
  [[nodiscard]] constexpr base::Nanos since() const { return (value >> 12) * base::millisecond_ns; }
  [[nodiscard]] constexpr base::Nanos since_at_latest() const { return since() + base::millisecond_ns - 1; }

 private:
  static constexpr ItemState of_client(ItemKind kind, std::uint16_t client, base::Nanos time) {
    return {.kind = kind, .value = std::uint64_t{client} | (time / base::millisecond_ns) << 12};
  }
};

}  // namespace loch::memory
