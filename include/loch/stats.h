// Counters of every kind of operation, retry and repair. Each client keeps its own in the store's memory, so
// that others can read them; a sum over all clients is a Stats too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace loch {

enum class Counter : std::uint8_t {
  // Calls, by outcome; of a call for several keys, each key. update and touch count as what they are made of:
  // a get and a replace, or an insert, anew for each attempt.
  get_hit,          // get, read, view, and multi_get: the key has an item
  get_miss,         // it has none, or one whose time to live is over
  put_update,       // put: replaced an item
  put_insert,       // put, or insert: the key had none; or, of an insert, one whose time to live was over
  insert_exists,    // insert: refused
  replace_done,     // replace
  replace_changed,  // refused: another version was there
  remove_hit,
  remove_miss,
  exists,         // that were answered, either way
  expired_reads,  // items found whose time to live was over
  cache_hit,      // answers by a copy, of which the index said that it is the key's still

  // Reads and changes that did not come through at once.
  second_collects,  // a key's slots were read again, to know that nothing changed meanwhile
  conflicts,        // a compare-and-swap found another word
  backoffs,         // pauses before another attempt
  timeouts,         // attempts that ended with the deadline

  // Making room in the index.
  pending_inserts,        // inserts off the key's first slot, which take two steps
  pending_withdrawn,      // of them, those taken back for others that were in the way
  displacements,          // items moved to another of their slots
  displacement_failures,  // no slot could be made free by moves: the index grows next
  growths,                // times that the index began to double
  slots_split,            // slots of which the half that belongs elsewhere was made over

  // Steps done for clients that died, or are slow, and damage that was met.
  helped_moves,
  helped_inserts,  // and one's own that a snapshot decided
  cleared_words,   // slots that said what nobody needs any longer
  corrupt_items,   // reads that found an item damaged
  corrupt_slots,   // reads that found words in the index that no client writes

  // Memory.
  items_allocated,
  items_reused,     // of memory that an item had before
  items_retired,    // unlinked, so that their memory can be reused when it has rested
  blocks_leased,    // 1 MiB each, to be cut into items
  blocks_freed,     // by whoever finds none of their items in use, and of large items
  large_allocated,  // items that take whole blocks
  segments_added,   // times that the store took more memory
  sessions_reaped,  // of clients that died, settled
  items_reclaimed,  // that they wrote and never linked, or unlinked and never retired
};
inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::items_reclaimed) + 1;

// The name of a counter as in the enum: "get_hit".
[[nodiscard]] std::string_view name(Counter counter);

struct Stats {
  std::array<std::uint64_t, counter_count> values{};

  [[nodiscard]] std::uint64_t operator[](Counter c) const { return values[static_cast<std::size_t>(c)]; }
  std::uint64_t& operator[](Counter c) { return values[static_cast<std::size_t>(c)]; }
  Stats& operator+=(const Stats& other) {
    for (std::size_t i = 0; i < counter_count; ++i) values[i] += other.values[i];
    return *this;
  }
};

}  // namespace loch
