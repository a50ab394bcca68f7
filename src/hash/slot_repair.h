// SlotRepair: clears up one shard's slots: inserts and moves that are half done, words that no client writes,
// and items whose time to live is over. Everything else that the dead leave is memory
// (Shards::collect_garbage).
//
// One thread.
#pragma once

#include <optional>

#include <loch/coro/task.h>
#include <loch/loch.h>

#include "base/clock.h"
#include "hash/index.h"
#include "hash/shard_access.h"
#include "hash/slot.h"
#include "hash/slot_group.h"

namespace loch::hash {

class SlotRepair final {
 public:
  explicit SlotRepair(ShardAccess& shard)
      : attachment_(shard.attachment),
        endpoint_(shard.endpoint),
        items_(shard.items),
        slots_(shard.slots),
        home_(shard.home),
        resolver_(shard.resolver) {}

  // Brings on the key of an item that a slot was seen to name other than by a committed word, until there is
  // nothing left to do, and clears what a move has left there. False if there may be more to do.
  coro::Task<Result<bool>> repair_slot(SlotNumber slot, SlotWord word, Collected* collected);
  // All of it. False if moves may have been left half done.
  coro::Task<Result<bool>> repair_slots(Collected* collected);
  // Unlinks what has expired in `count` slots from `first` on, as far as there are any, or until then; not
  // while the index grows. With which slot to go on, if there are more. Of the others `least_left` becomes
  // the least time that one has left, if that is less.
  coro::Task<Result<std::optional<SlotNumber>>> drop_expired(SlotNumber first, SlotNumber count,
                                                             base::Nanos until, Collected* collected,
                                                             base::Nanos* least_left);

 private:
  coro::Task<Result<std::optional<SlotWord>>> mended_word(SlotNumber slot, SlotWord word, Directory d);
  coro::Task<Result<SlotWord>> mend_slot(SlotNumber slot, SlotWord word, Collected* collected);
  coro::Task<Result<void>> drop_if_expired(SlotNumber slot, const SlotGroup* group, Collected* collected,
                                           base::Nanos* least_left = nullptr);
  coro::Task<Result<void>> clear_if_lost(SlotNumber slot, const SlotGroup* group, Collected* collected);

  memory::Attachment& attachment_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Slots& slots_;
  memory::Session& home_;
  Resolver& resolver_;
};

}  // namespace loch::hash
