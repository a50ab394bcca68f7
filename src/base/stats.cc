#include <array>

#include <loch/stats.h>

namespace loch {

std::string_view name(Counter counter) {
  static constexpr std::array<std::string_view, counter_count> names = {
      "get_hit",        "get_miss",        "put_update",        "put_insert",     "insert_exists",
      "replace_done",   "replace_changed", "remove_hit",        "remove_miss",    "exists",
      "expired_reads",  "cache_hit",       "second_collects",   "conflicts",      "backoffs",
      "timeouts",       "pending_inserts", "pending_withdrawn", "displacements",  "displacement_failures",
      "growths",        "slots_split",     "helped_moves",      "helped_inserts", "cleared_words",
      "corrupt_items",  "corrupt_slots",   "items_allocated",   "items_reused",   "items_retired",
      "blocks_leased",  "blocks_freed",    "large_allocated",   "segments_added", "sessions_reaped",
      "items_reclaimed"};
  return names[static_cast<std::size_t>(counter)];
}

}  // namespace loch
