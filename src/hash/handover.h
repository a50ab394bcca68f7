// Handover: moves one shard of the index to another host while clients work.
//
// H1 The directory where the shard is says that it `leaves`. Operations that begin after that find it so:
// they change nothing, and take nothing for absent (Errc::moved); their callers begin anew.
// H2 All operations that began before are over. From here on nobody changes a slot.
// H3 Slots and root are copied, and there the directory says that the shard `arrives`. Empty slots get nonces
// of the new home, whose sessions give out the next ones.
// H4 The directory here says that it has `left`, and the slots are cleared: who remembers where a key's item
// was (PointerCache) finds nothing here any more.
// H5 The cluster's map says that the shard is there. That is the caller's part.
// H6 The directory there says that it is `open`.
//
// Up to H3 a move can be undone; from H4 on it is to be brought to its end, by whoever comes. Each step may
// be done again by somebody else, after one who died: where a shard is, `begin` says from its directory. One
// mover at a time. A host that loses its memory takes with it what it had of the shard: before H4 the new
// home gets it again, after that the shard begins there anew.
//
// An item's time to live goes by the clock of the shard's first home, of which each home knows how far it is
// ahead of its own (IndexRoot::time_ahead_ns). That time stands still for a moment when the shard moves, and
// never goes back.
#pragma once

#include <cstdint>

#include <loch/coro/task.h>

#include "hash/index.h"
#include "memory/attachment.h"

namespace loch::hash {

class Handover {
 public:
  // `attachment` is attached to the nodes of both. `from` is where the shard is, `to` where it goes; both in
  // the attachment's map. Errors of all: those of the fabric.
  Handover(memory::Attachment& attachment, const memory::RegionMap::Shard& from,
           const memory::RegionMap::Shard& to);

  // What the shard says of itself where it is. Errors, as of all that follow: also corrupt.
  coro::Task<Result<Directory>> directory();
  // Before H1: has memory for as many slots made where the shard goes. Errors: also no_space.
  Result<void> make_room(Directory d);
  // H1. `leaves`: go on with H2; `left`: somebody came to H4, go on with clear().
  coro::Task<Result<ShardStage>> begin();
  // H2. False if some operation may still run: to be asked again.
  coro::Task<Result<bool>> is_quiet();
  // H3. Errors: also no_space.
  coro::Task<Result<void>> copy();
  // H4; the first half of it alone, for who has several shards that are to go together.
  coro::Task<Result<void>> clear();
  coro::Task<Result<void>> leave();
  // H6. Also of a shard that arrives here from elsewhere; nothing if it does not.
  static coro::Task<Result<void>> open(fabric::Endpoint* endpoint, IndexPlace there);
  coro::Task<Result<void>> open() { return open(&endpoint_, to_); }
  // Instead of H4: the shard stays where it is.
  coro::Task<Result<void>> undo();
  // The same by the shard's host alone, whether the other one can be reached or not. Nothing if it does not
  // leave.
  static coro::Task<Result<void>> reopen(fabric::Endpoint* endpoint, IndexPlace here);
  // Undoes it for good, also after `reopen`: what it has left there is never opened. False if the shard has
  // left.
  coro::Task<Result<bool>> take_back();

 private:
  coro::Task<Result<void>> copy_slots(Directory d);
  coro::Task<Result<void>> copy_root(Directory d);
  coro::Task<Result<void>> write_root(Directory d, IndexRoot root);
  coro::Task<Result<void>> begin_anew();
  coro::Task<Result<void>> clear_slots(fabric::RegionId slots, std::uint64_t begin, std::uint64_t end);
  [[nodiscard]] std::uint64_t slots_bytes(Directory d) const;
  coro::Task<Result<void>> change_stage(ShardStage to);

  fabric::Endpoint& endpoint_;
  memory::Session& home_;
  memory::Session& next_;
  const IndexPlace from_;
  const IndexPlace to_;
  base::Nanos closed_at_ns_ = 0;
};

}  // namespace loch::hash
