// Writer: PUT in its three conditions, and REMOVE (docs/hash.md, "Operations"; the numbers of the steps are
// those there).
//
// The compare-swap that links an item, or unlinks it, is the acknowledgement (table.h, I1). An item that was
// not linked is free for other use, after a rest if a slot has named it; one that may be linked, now or
// later, is left to whoever finds it.
//
// One thread. Keys and values outlive the operation.
#pragma once

#include <cstdint>
#include <optional>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/index.h"
#include "hash/item_writer.h"
#include "hash/pending_insert.h"
#include "hash/put_far.h"
#include "hash/shard_access.h"
#include "hash/snapshots.h"

namespace loch::hash {

class Writer final {
 public:
  explicit Writer(ShardAccess& shard)
      : attachment_(shard.attachment),
        slots_(shard.slots),
        home_(shard.home),
        known_(shard.known),
        snapshots_(shard.snapshots),
        resolver_(shard.resolver),
        item_writer_(shard.item_writer),
        growth_(shard.growth),
        homing_(shard.homing),
        displacement_(shard.displacement),
        put_far_(shard),
        pending_(shard) {}

  // Returns the version of the item that was written. Errors: exists, changed, not_found by the condition;
  // no_space, timed_out, corrupt.
  coro::Task<Result<std::uint64_t>> put(WriteRequest request);
  // The rest of PUT, once the item is written.
  coro::Task<Result<std::uint64_t>> put_written(const WriteRequest* request, KeyCollect* seen, NewItem item,
                                                PutFar::Begun begun);
  // If it has that version, if one is named. Errors: not_found, changed; timed_out, corrupt.
  coro::Task<Result<void>> remove(Key key, std::optional<std::uint64_t> version);

 private:
  // Whether the item that is committed at location `j` lets the request be. Errors are of a put's operations.
  static Result<void> check_condition(const WriteRequest& request, const KeyCollect& seen, unsigned j);
  // `is_collected`: `seen` is of this operation.
  coro::Task<Result<PutOutcome>> put_step(const WriteRequest* request, KeyCollect* seen, NewItem* item,
                                          bool is_collected);
  coro::Task<Result<PutOutcome>> put_step_of_absent(const WriteRequest* request, KeyCollect* seen,
                                                    NewItem* item);
  coro::Task<Result<PutOutcome>> put_step2_update(const WriteRequest* request, KeyCollect* seen,
                                                  NewItem* item);
  coro::Task<Result<PutOutcome>> put_step4_home(KeyCollect* snapshot, NewItem* item);
  coro::Task<void> abandon(NewItem* item);

  memory::Attachment& attachment_;
  Slots& slots_;
  memory::Session& home_;
  KnownItems& known_;
  Snapshots& snapshots_;
  Resolver& resolver_;
  ItemWriter& item_writer_;
  Growth& growth_;
  Homing& homing_;
  Displacement& displacement_;
  PutFar put_far_;
  PendingInsert pending_;
};

}  // namespace loch::hash
