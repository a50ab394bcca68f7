// Teeth: the workload whose runs find each planted fault, and within how many of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "base/planted.h"

namespace loch::sim {

struct Tooth {
  base::Planted fault;
  std::string_view workload;
  std::uint64_t seeds;     // within which it is found; docs/simulation.md has what it took
  std::uint64_t from = 0;  // the first of them: not 0 where it would take long to come to one that finds it
};

using base::Planted;
inline constexpr std::array all_teeth = {
    // the index
    Tooth{Planted::empty_without_nonce, "jam", 2'000, 180},
    Tooth{Planted::miss_by_one_collect, "jam", 2'000},
    Tooth{Planted::insert_without_look, "jam", 1'000},
    Tooth{Planted::move_without_tag, "jam", 2'000, 500},
    Tooth{Planted::wrong_roll_back, "jam", 500},
    Tooth{Planted::pending_for_undone, "crowded", 2'000, 150},
    Tooth{Planted::stale_helper, "jam", 3'000, 12'450},
    // memory that is used again
    Tooth{Planted::reuse_beneath_others, "hot", 1'000},
    Tooth{Planted::lease_without_fence, "hot", 50},
    Tooth{Planted::pointer_of_any_age, "idle", 500},
    Tooth{Planted::copy_of_any_age, "idle", 2'000},
    Tooth{Planted::mortal_without_time, "mortal", 500},
    Tooth{Planted::present_without_time, "mortal", 500},
    Tooth{Planted::reader_unseen, "readers", 4'000, 70},
    // what a remote session knows, and items that are not whole
    Tooth{Planted::directory_by_copy, "moves", 500},
    Tooth{Planted::link_beside_item, "hot", 200},
    Tooth{Planted::value_without_sum, "damage", 50},
    Tooth{Planted::versions_at_ends, "damage", 50},
    // hosts
    Tooth{Planted::handover_at_once, "moves", 2'000, 500},
    Tooth{Planted::handover_keeps_slots, "moves", 2'000},
    Tooth{Planted::dispute_ignored, "amnesia", 50},
    Tooth{Planted::removed_undrained, "members", 50},
    Tooth{Planted::let_go_before_others, "cluster", 2'000, 270},
};
static_assert(all_teeth.size() == base::planted_names.size());

inline std::string_view name(const Tooth& tooth) {
  return std::ranges::find(base::planted_names, tooth.fault, &base::PlantedName::fault)->name;
}
// For lists of tests, which would show the bytes of it.
inline void PrintTo(const Tooth& tooth, std::ostream* out) { *out << name(tooth); }

}  // namespace loch::sim
