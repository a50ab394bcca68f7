// Counters of every kind of operation, retry and repair. Each client keeps its own in the store's memory, so
// that others can read them; a sum over all clients is a Stats too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace loch {

enum class Counter : std::uint8_t {
  // Operations, by outcome.
  get_hit,
  get_miss,
  put_update,
  put_insert,
  insert_exists,
  replace_done,
  replace_changed,
  remove_hit,
  remove_miss,
  exists,
  expired_reads,  // of items whose time to live had passed
  cache_hit,
  // Retries.
  second_collects,  // collects repeated to make a snapshot
  conflicts,        // a CAS that found another word
  backoffs,
  timeouts,
  // Inserts off their home slot, and moves.
  pending_inserts,
  pending_withdrawn,
  displacements,
  displacement_failures,
  growths,
  slots_split,
  // Repairs: steps done for somebody else.
  helped_moves,
  helped_inserts,
  cleared_words,
  corrupt_items,
  corrupt_slots,
  // Memory.
  items_allocated,
  items_reused,
  items_retired,
  blocks_leased,
  blocks_freed,
  large_allocated,
  segments_added,
  sessions_reaped,
  items_reclaimed,
};
inline constexpr std::size_t counter_count = static_cast<std::size_t>(Counter::items_reclaimed) + 1;

// The name of a counter as in the enum: "get_hit".
std::string_view name(Counter counter);

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
