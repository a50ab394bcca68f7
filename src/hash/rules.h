// The rules of the slot protocol (docs/hash.md) as functions of what was read: no input, no output, no state.
// The operations and the explorer that checks them share this code.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "hash/index.h"
#include "hash/slot.h"

namespace loch::hash {

// What one collect of a key's slots saw. A snapshot is one whose words two collects in a row saw alike.
struct Collect {
  Locations at;
  std::uint64_t key_hash = 0;
  base::Nanos asked_at_ns = 0;  // a time before the words were read: what has expired by then was not there
  std::array<SlotWord, locations_max + 1> word;  // at.count of them; room for one more that is read with them
  std::uint8_t mine = 0;                         // bit j: word j names an item of this very key
  std::uint8_t owner_gone = 0;  // bit j: word j is an A whose owner can not clear it any more

  [[nodiscard]] bool is_mine(unsigned j) const { return (mine >> j & 1) != 0; }
  [[nodiscard]] bool is_mine(unsigned j, SlotType type) const { return is_mine(j) && word[j].is(type); }
  [[nodiscard]] bool same_words(const Collect& other) const;
};

// A word of another level than the directory that the collect went by: the index has grown since. Never so
// for a collect that is used.
bool is_outdated(const Collect& c);
// A word that no client writes: the slot was damaged.
bool is_damaged(const Collect& c);

// Where a candidate of the key may be placed now: in its low slot until that is split, then where its mix
// says.
unsigned open_location(const Collect& c, unsigned candidate);
// Whether the key's item may go from `source` to `destination`: where it may be placed now, or to the item's
// slot in the upper row before the lower one is split.
bool may_be_moved(const Collect& c, unsigned source, unsigned destination);
inline unsigned home_location(const Collect& c) { return open_location(c, 0); }
// Whether an insert into the home slot is possible; then none off home may be committed.
bool home_is_claimable(const Collect& c);

// The first alternate that is empty, of those in which the key may be placed now.
std::optional<unsigned> empty_alternate(const Collect& c);

// The location whose item is committed as the key's, or -1.
int committed_location(const Collect& c);
// The first location whose word names the item, whoever's it is and in whatever state, or -1.
int location_naming(const Collect& c, memory::ItemRef item);
// M at `j` and its destination hold the two halves of one move: the index of the destination, or -1.
int paired_destination(const Collect& c, unsigned j);
// The location of the key's current item, by commit or by a paired move, or -1. Of a snapshot.
int current_location(const Collect& c);
// Whether a move or an insert of the key is under way.
bool has_unfinished(const Collect& c);
// The lowest location with a pending insert of the key, or -1.
int lowest_pending(const Collect& c);

// One step of RESOLVE, from a snapshot: the compare-swap that brings the key's unfinished words on.
struct Repair {
  enum class Kind : std::uint8_t {
    commit_move,
    clear,
    mark_source,
    abort_insert,
    commit_insert,
    clear_aborted
  };
  Kind kind;
  unsigned location;
  SlotWord expected;
  SlotWord desired;
};
std::optional<Repair> resolve(const Collect& snapshot, std::uint64_t fresh_nonce);

}  // namespace loch::hash
