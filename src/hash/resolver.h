// Resolver: RESOLVE and MIGRATE: bringing on what is half done, by whoever meets it, and moving items
// (docs/hash.md).
//
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/items.h"
#include "hash/rules.h"
#include "hash/slots.h"
#include "hash/snapshots.h"

namespace loch::hash {

// An item's head and its key, which is copied: the item may be unlinked meanwhile. One that is damaged
// elsewhere than in its key and the hash of that is its key's all the same, whose operations meet it by
// that.
struct KeyedItem {
  std::string bytes;
  std::uint64_t hash = 0;
  Found head;

  [[nodiscard]] Key key() const { return {.bytes = bytes, .hash = hash}; }
};

class Resolver final {
 public:
  Resolver(Slots& slots, const Items& items, Snapshots& snapshots)
      : attachment_(slots.attachment()),
        slots_(slots),
        home_(slots.home()),
        endpoint_(slots.endpoint()),
        items_(items),
        snapshots_(snapshots) {}

  // Brings the key on by one step, by a snapshot of it. False if there was nothing to do.
  coro::Task<Result<bool>> resolve_step(Key key, const KeyCollect* snapshot);
  // Carries out a repair of that snapshot. False if the slot has changed; `before`, if wanted: what it held.
  coro::Task<Result<bool>> apply(const Collect* snapshot, Repair repair, SlotWord* before);
  // The same for the key of `item`, whatever it is. False if there was nothing to do.
  coro::Task<Result<bool>> resolve_item(memory::ItemRef item);
  // The same for the M in a slot that the key of that hash is to have; cleared, if there was nothing to do.
  // Errors: corrupt, if the move may be half done, and can not be brought on.
  coro::Task<Result<void>> clear_moved(SlotNumber slot, SlotWord moved, std::uint64_t for_key_hash);
  // None if the item is damaged so that nobody can say whose it is.
  coro::Task<Result<std::optional<KeyedItem>>> key_of_item(memory::ItemRef item);

  // Moves the item that is committed for its key in slot `from` to the empty slot `to`, another candidate of
  // its key, whose hash that is. False if either has changed. For displacements, splits, and tests.
  coro::Task<Result<bool>> move(memory::ItemRef item, std::uint64_t key_hash, SlotNumber from, SlotNumber to);

  // Clears P and M words that still name an item of this shard that was moved and has rested.
  coro::Task<bool> before_reuse(memory::ItemRef item, std::uint64_t key_hash);

 private:
  // Of what it finds, `leaves_nothing` is set if no word of this move is left.
  coro::Task<Result<bool>> move_step3_to_6(memory::ItemRef item, SlotNumber from, SlotNumber to,
                                           SlotWord committed, SlotWord empty, const Collect* seen,
                                           bool* leaves_nothing);
  coro::Task<Result<void>> move_step5_to_6(SlotNumber from, SlotNumber to, SlotWord marked, SlotWord placed,
                                           Directory d, bool* leaves_nothing);
  coro::Task<Result<bool>> is_over(SlotNumber slot, SlotWord moved);
  coro::Task<bool> is_unnamed_by_moves(memory::ItemRef item, SlotNumber from, SlotNumber to);

  memory::Attachment& attachment_;
  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Snapshots& snapshots_;
};

}  // namespace loch::hash
