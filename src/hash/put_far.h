// PutFar: how a remote session begins a put of one key: its item is written, and the first steps of PUT
// (docs/hash.md, "Operations") go with that, so that it takes as few round trips as may be. It looks for the
// key, of which one slot is enough where the key's item is known; or, if it knows the word there, too, it has
// the item linked as soon as it is written.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/item_writer.h"
#include "hash/known_items.h"
#include "hash/shard_access.h"
#include "hash/snapshots.h"

namespace loch::hash {

class PutFar final {
 public:
  explicit PutFar(ShardAccess& shard)
      : attachment_(shard.attachment),
        endpoint_(shard.endpoint),
        slots_(shard.slots),
        home_(shard.home),
        known_(shard.known),
        snapshots_(shard.snapshots),
        item_writer_(shard.item_writer) {}

  // How far it comes. collected: `seen`, for the first step.
  enum class Begun : std::uint8_t { written, collected, linked };
  // As ItemWriter::compose.
  coro::Task<Result<NewItem>> begin(const WriteRequest* request, KeyCollect* seen, Begun* begun);

 private:
  // `expected`: what goes without saying of a word that is known; null then.
  coro::Task<Result<void>> write_and_link(Key key, fabric::Operation write, SlotNumber slot, SlotWord old,
                                          const Expectation* expected, KeyCollect* seen, NewItem* item,
                                          Begun* begun);
  // Whether the one slot that was read names the item that is known to be the key's.
  bool names_what_is_known(Key key, const Slots::Reading& reading, KeyCollect* seen);
  // Whether it names the item of which `head` was read after it, and that is the key's, and may be replaced
  // without a look at the time.
  bool names_what_was_read(Key key, const Slots::Reading& reading, memory::ItemRef item,
                           std::span<const std::byte> head, KeyCollect* seen);
  // The end of a collect whose words were read once: false if it takes another one.
  coro::Task<bool> identify_first(Key key, const Slots::Reading* reading, KeyCollect* seen);

  memory::Attachment& attachment_;
  fabric::Endpoint& endpoint_;
  Slots& slots_;
  memory::Session& home_;
  KnownItems& known_;
  Snapshots& snapshots_;
  ItemWriter& item_writer_;
};

}  // namespace loch::hash
