// Snapshots: what a key's slots and the items that they name say (docs/hash.md, "Words"): what every other
// operation than GET's plain hit begins with.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/items.h"
#include "hash/known_items.h"
#include "hash/rules.h"
#include "hash/slots.h"

namespace loch::hash {

// The words of a key's slots, and which of them name items of the key.
struct KeyCollect : Collect {
  std::array<memory::ItemHeader, locations_max> header;  // of the words that are mine
  bool headers_wanted = true;  // else one whose item is known to be the key's is not read, and zero
  const ItemView* already_read = nullptr;  // its head, by this operation; it is not read again
};

class Snapshots final {
 public:
  Snapshots(Slots& slots, const Items& items, const KnownItems& known)
      : attachment_(slots.attachment()),
        slots_(slots),
        home_(slots.home()),
        endpoint_(slots.endpoint()),
        items_(items),
        known_(known) {}

  // Takes over what an item says of itself, if its key is `key`.
  bool take_if_mine(Key key, unsigned j, std::span<const std::byte> item, KeyCollect& into);
  // Finds out which words name items of the key, by reading those whose filter says that they may. What can
  // not be read may be the key's, which is an error unless the committed one is found: there is one at most,
  // and what is to be done where it is depends on no other word.
  coro::Task<Result<void>> identify(Key key, KeyCollect* into);
  // The words of the key's slots, identified. Errors: as Slots::collect and identify; timed_out.
  coro::Task<Result<void>> collect(Key key, KeyCollect* into);
  // True if a second collect of the key saw the words of `first`; else `first` becomes the second.
  coro::Task<Result<bool>> is_snapshot(Key key, KeyCollect* first);
  // Whether a slot of the item's key names it; true, too, if they change too often to say.
  coro::Task<Result<bool>> is_named(memory::ItemRef item, std::uint64_t key_hash);
  // Whether an item that is found in slots that were read after `asked_at` has time left. A remote session
  // may have to look at the store's clock for that; if the time turns out to be over, the slots are to be
  // read again, since another item may have taken the place of this one before.
  enum class TimeLeft : std::uint8_t { some, none, look_again };
  coro::Task<Result<TimeLeft>> time_left(base::Nanos expires_at_ns, base::Nanos asked_at);
  // Whether the time of any item of the key ran out while it was collected (time_left).
  coro::Task<Result<bool>> outlived(const KeyCollect* seen);

 private:
  memory::Attachment& attachment_;
  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  const KnownItems& known_;
};

}  // namespace loch::hash
