// Planted faults: rules of the protocols that can be broken on purpose, so that the tests show that they
// would be missed. Compiled in with the fault points alone; anywhere else nothing is ever planted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace loch::base {

enum class Planted : std::uint8_t {
  nothing,
  empty_without_nonce,   // an EMPTY word comes back
  miss_by_one_collect,   // "not found" is answered after one look at the slots
  insert_without_look,   // a pending insert is committed without a second look at the other slots
  move_without_tag,      // a moved item's words carry the tag that it had
  wrong_roll_back,       // an insert that another client committed is taken for lost, and cleared
  pending_for_undone,    // a session that ends says that a pending insert of it did not happen
  stale_helper,          // what is half done is brought on from one look at the slots
  reuse_beneath_others,  // memory is used again while operations run that may have seen what was there (R2)
  lease_without_fence,   // blocks are taken from a client that has not ended
  pointer_of_any_age,    // where a remote session saw a key's item last is where it looks, however long ago
  copy_of_any_age,       // so is a copy of the item
  mortal_without_time,   // a known item with a time to live is given out without a look at the time
  present_without_time,  // exists and conditions take an item for there whose time to live is over
  reader_unseen,         // a session that only reads is in no registry
  directory_by_copy,     // a remote session takes its copy of the directory for what it is now
  value_without_sum,     // the bytes of a value are taken as they come
  link_beside_item,      // a put of a known key names its item while that is on its way
  versions_at_ends,      // an item is taken as whole if its head and its tail are of one version
  handover_at_once,      // a shard is copied while operations run that began before it was closed
  handover_keeps_slots,  // a shard's slots stay as they are where it was
  dispute_ignored,       // clients go to a node whose memory is not what the others know it by
  removed_undrained,     // a host may be removed before all that it had is elsewhere
  let_go_before_others   // a host gives away what a session held that others have not ended
};

struct PlantedName {
  Planted fault;
  std::string_view name;
};
inline constexpr std::array planted_names = {
    PlantedName{Planted::empty_without_nonce, "empty_without_nonce"},
    PlantedName{Planted::miss_by_one_collect, "miss_by_one_collect"},
    PlantedName{Planted::insert_without_look, "insert_without_look"},
    PlantedName{Planted::move_without_tag, "move_without_tag"},
    PlantedName{Planted::wrong_roll_back, "wrong_roll_back"},
    PlantedName{Planted::pending_for_undone, "pending_for_undone"},
    PlantedName{Planted::stale_helper, "stale_helper"},
    PlantedName{Planted::reuse_beneath_others, "reuse_beneath_others"},
    PlantedName{Planted::lease_without_fence, "lease_without_fence"},
    PlantedName{Planted::pointer_of_any_age, "pointer_of_any_age"},
    PlantedName{Planted::copy_of_any_age, "copy_of_any_age"},
    PlantedName{Planted::mortal_without_time, "mortal_without_time"},
    PlantedName{Planted::present_without_time, "present_without_time"},
    PlantedName{Planted::reader_unseen, "reader_unseen"},
    PlantedName{Planted::directory_by_copy, "directory_by_copy"},
    PlantedName{Planted::value_without_sum, "value_without_sum"},
    PlantedName{Planted::link_beside_item, "link_beside_item"},
    PlantedName{Planted::versions_at_ends, "versions_at_ends"},
    PlantedName{Planted::handover_at_once, "handover_at_once"},
    PlantedName{Planted::handover_keeps_slots, "handover_keeps_slots"},
    PlantedName{Planted::dispute_ignored, "dispute_ignored"},
    PlantedName{Planted::removed_undrained, "removed_undrained"},
    PlantedName{Planted::let_go_before_others, "let_go_before_others"},
};

#ifdef LOCH_FAULT_POINTS
// Not synchronised: set before any client runs.
inline Planted planted_fault = Planted::nothing;
inline bool planted(Planted fault) { return planted_fault == fault; }
inline void plant(Planted fault) { planted_fault = fault; }
#else
constexpr bool planted(Planted /*fault*/) { return false; }
#endif

}  // namespace loch::base
