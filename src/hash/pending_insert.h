// PendingInsert: step 5 of PUT (docs/hash.md, "Operations"): a key whose home is taken gets a pending word
// into an alternate slot, which is committed if nothing moved meanwhile.
//
// While NewItem::is_pending anybody may commit the word or abort it, and its slot alone tells which
// (`step5_outcome`).
//
// One thread. Keeps nothing of its own: what is pending stands in the NewItem.
#pragma once

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/index.h"
#include "hash/item_writer.h"
#include "hash/shard_access.h"
#include "hash/slot.h"
#include "hash/snapshots.h"

namespace loch::hash {

class PendingInsert final {
 public:
  explicit PendingInsert(ShardAccess& shard)
      : slots_(shard.slots),
        home_(shard.home),
        snapshots_(shard.snapshots),
        resolver_(shard.resolver),
        displacement_(shard.displacement) {}

  // (a), (b): into the slot at location `alternate`, which was seen empty.
  coro::Task<Result<PutOutcome>> step5_place(Key key, const Collect* seen, unsigned alternate, NewItem* item);
  // (b) again, from a snapshot: the pending word is withdrawn if there is a reason, else brought on by
  // RESOLVE.
  coro::Task<Result<PutOutcome>> step5_settle(Key key, NewItem* item);
  // Takes the pending word back without a look at the key's other slots. If it can not, somebody has decided.
  coro::Task<Result<PutOutcome>> withdraw(NewItem* item);
  // (c) The pending word could not be changed. Its slot holds another one: A means lost, anything else that
  // the item was committed.
  coro::Task<Result<PutOutcome>> step5_outcome(SlotWord there, NewItem* item);
  // The error of a put, whose item may be pending: of one that may yet be committed by somebody, nobody can
  // say that it was not done.
  static Error error_of(Error error, const NewItem& item);

 private:
  Result<PutOutcome> has_withdrawn(NewItem* item);

  Slots& slots_;
  memory::Session& home_;
  Snapshots& snapshots_;
  Resolver& resolver_;
  Displacement& displacement_;
};

}  // namespace loch::hash
