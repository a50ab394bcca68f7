// Evacuation: what emptying a node does in one shard's slots: each item that is linked on the node is
// replaced by a copy on another one.
//
// The node takes no new items, and all operations that began before it was so are over, so no item comes to
// be linked there. Its blocks are walked (Shards::evacuate), not the index, since words may be moved about in
// the index meanwhile and items stay.
//
// One thread.
#pragma once

#include <cstdint>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/index.h"
#include "hash/shard_access.h"
#include "hash/slot.h"
#include "hash/slot_repair.h"

namespace loch::hash {

class Evacuation final {
 public:
  Evacuation(ShardAccess& shard, SlotRepair& slot_repair)
      : attachment_(shard.attachment),
        items_(shard.items),
        slots_(shard.slots),
        home_(shard.home),
        snapshots_(shard.snapshots),
        resolver_(shard.resolver),
        item_writer_(shard.item_writer),
        slot_repair_(slot_repair) {}

  // Whether no slot of its key names the item any more. `damaged`: one does, and it can not be copied.
  enum class Outcome : std::uint8_t { done, damaged, named };
  coro::Task<Result<Outcome>> evacuate_item(memory::ItemRef item, Key key);
  // Clears what moves have left that names items of the node, and damaged words that do; how many words name
  // some still. A damaged item goes with its memory: it would be damaged elsewhere, too.
  coro::Task<Result<std::uint64_t>> clear_words(std::uint32_t node);

 private:
  coro::Task<Result<void>> clear_word(SlotNumber slot, SlotWord word, Directory d);

  memory::Attachment& attachment_;
  const Items& items_;
  Slots& slots_;
  memory::Session& home_;
  Snapshots& snapshots_;
  Resolver& resolver_;
  ItemWriter& item_writer_;
  SlotRepair& slot_repair_;
};

}  // namespace loch::hash
