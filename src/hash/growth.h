// Growth: the index doubles while it is in use (docs/hash.md, "Growth").
//
// Each row r is split into r and r + 2^level, slot by slot. The directory says that a growth is going on, and
// each word's level whether its slot has been split already; clients that put or remove split a few slots
// each. A slot is split by one compare-swap that raises the level of its word; an item whose place is in the
// upper row is moved there first, by MIGRATE. A client that goes by an older directory finds words of another
// level and looks again.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "base/clock.h"
#include "hash/item_writer.h"
#include "hash/items.h"
#include "hash/resolver.h"
#include "hash/slots.h"

namespace loch::hash {

class Growth final {
 public:
  Growth(Slots& slots, const Items& items, Resolver& resolver, ItemWriter& writer)
      : attachment_(slots.attachment()),
        slots_(slots),
        home_(slots.home()),
        endpoint_(slots.endpoint()),
        items_(items),
        resolver_(resolver),
        writer_(writer) {}

  // Begins one, unless one goes on. Errors: no_space, if the index can not grow; and those of the fabric.
  coro::Task<Result<void>> start();
  // Splits the next few slots, and finishes the growth when there are none left.
  coro::Task<Result<void>> help();
  // A key found no room: the index begins to grow, and the key's own slots are split first.
  coro::Task<Result<void>> make_room(const Collect* full);
  // Splits a slot. False if it can not be done now: an insert that lost stands there and its owner will clear
  // it, another slot of its item's key is damaged and will be mended by its own split, the item is on a node
  // that can not be reached, there is no memory for a copy of it, or the growth is over. `seen`: its word, if
  // that is known as look_before_split would have told it.
  coro::Task<Result<bool>> split_slot(SlotNumber low, Directory d,
                                      std::optional<SlotWord> seen = std::nullopt);
  // Looks at every slot: each is split, and no move is half done whose other end is told by the old level. In
  // one operation of the caller's, which read the directory: the level is not used again while that runs.
  //
  // `until`: on the way of an operation. It goes on where this session has left off, until then or to the
  // end; next, with the first slot that could not be settled. Those before that stay settled.
  coro::Task<Result<void>> finish(Directory d, std::optional<base::Nanos> until = std::nullopt);

 private:
  coro::Task<Result<base::Nanos>> time_reached(unsigned level);
  coro::Task<Result<bool>> may_reuse_level(Directory before);
  [[nodiscard]] Result<void> has_room_for(std::uint64_t index_bytes) const;
  coro::Task<Result<void>> split_slots(SlotNumber first, SlotNumber end, Directory d);
  coro::Task<Result<void>> split_slots_together(SlotNumber first, SlotNumber end, Directory d);
  coro::Task<Result<bool>> look_before_split(SlotNumber low, Directory d, std::optional<SlotWord>* seen);
  coro::Task<Result<bool>> leads_to(SlotWord word, SlotNumber slot, Directory d);
  coro::Task<Result<bool>> clear_above(SlotNumber low, SlotWord word, Directory d);
  coro::Task<Result<bool>> split_committed(SlotNumber low, SlotWord word, Directory d);
  coro::Task<Result<void>> help_to_finish(Directory d, bool is_first);
  enum class Settled : std::uint8_t { yes, not_now, growth_is_over };
  coro::Task<Result<Settled>> settle_slot(SlotNumber slot, Directory d);

  memory::Attachment& attachment_;
  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Resolver& resolver_;
  ItemWriter& writer_;
  // How far this session is with the end of the growth from a level.
  struct Finishing {
    std::uint8_t level = 0;
    SlotNumber next = 0;
    base::Nanos again_at = 0;
    std::optional<SlotNumber> left{};  // the first before `next` that could not be settled
  };
  Finishing finishing_;
};

}  // namespace loch::hash
