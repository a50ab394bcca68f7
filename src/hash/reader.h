// Reader: GET and EXISTS by one-sided reads (docs/hash.md, "Operations"); no processor but the client's takes
// part, and no slot is changed.
//
// A committed word whose item has the key answers, wherever it stands and whatever became of it since: it was
// there after the operation began (table.h, I2 and I3). That a key is absent is told by a snapshot alone.
//
// One thread. Keys outlive the operation; a Found stays valid while the client's lasts
// (Attachment::Operation).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/index.h"
#include "hash/items.h"
#include "hash/known.h"
#include "hash/rules.h"
#include "hash/shard_access.h"
#include "hash/short_way.h"

namespace loch::hash {

class Reader final {
 public:
  explicit Reader(ShardAccess& shard)
      : attachment_(shard.attachment),
        endpoint_(shard.endpoint),
        items_(shard.items),
        slots_(shard.slots),
        home_(shard.home),
        known_(shard.known),
        snapshots_(shard.snapshots),
        shard_(shard),
        home_share_(endpoint_.operation_cost()) {}

  coro::Task<Result<Found>> get(Key key) { return home_.remote() ? get_anew(key) : get_near(key); }
  // By what is known of the key, whether or not that was asked for during this operation; it is used up.
  coro::Task<Result<Found>> get(Known* known) {
    if (!home_.remote()) return get_near(known->key);
    return attachment_.refresh_due() ? get_anew(known->key) : get_far(known);
  }
  // The same in two parts, of a remote session that need not refresh: what who waits, and is no coroutine,
  // can do itself; and if that tells nothing, the rest.
  ShortWay short_way(Known* known, std::span<std::byte> room) { return {shard_, home_share_, known, room}; }
  coro::Task<Result<Found>> get_after(ShortWay* way);
  // Whether the key has an item. No byte of its value is read, which may be damaged.
  coro::Task<Result<bool>> exists(Key key);

  // The rest of GET: what is not a plain hit. `seen`: a first collect. Of the item, `part` is read.
  enum class Part : std::uint8_t { all, head };
  coro::Task<Result<Found>> get_by_snapshot(Key key, Collect seen, Part part = Part::all);

 private:
  coro::Task<Result<Found>> get_near(Key key);
  enum class Words : std::uint8_t { committed, paired };
  struct Doubt {
    bool damaged = false;       // an item that may be the key's
    bool time_ran_out = false;  // of the key's item, since the slots were asked for
  };
  coro::Task<std::optional<Result<Found>>> look_for(Key key, const Collect* seen, Words words, Part part,
                                                    Doubt* doubt);
  Result<Found> miss(Key key, Doubt doubt);

  coro::Task<Result<Found>> get_anew(Key key);
  coro::Task<Result<Found>> get_far(Known* known);

  memory::Attachment& attachment_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Slots& slots_;
  memory::Session& home_;
  KnownItems& known_;
  Snapshots& snapshots_;
  ShardAccess& shard_;
  HomeShare home_share_;
};

}  // namespace loch::hash
