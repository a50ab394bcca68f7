// Homing: after a growth, brings items back to their home rows (docs/hash.md, "Growth").
//
// An index that is full has more than a quarter of its items in their other rows. Split in two, it has room
// for nearly all of them at home, where a get by a queue pair finds them with one message. So a session of
// which each operation is a message (fabric::OperationCost) begins to look at all slots when it puts or
// removes, a few at a time, once for every level. The others of its kind and those of the store's host do so,
// too, from then on, and move what has room, by MIGRATE. Nobody begins it in a store that has no such client:
// to the others both rows are as near. What is left undone, by who fails or dies, stays where it is, which is
// a place of its own as good as the other.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/index.h"
#include "hash/items.h"
#include "hash/resolver.h"
#include "hash/slots.h"

namespace loch::hash {

class Homing final {
 public:
  Homing(Slots& slots, const Items& items, Resolver& resolver)
      : slots_(slots),
        endpoint_(slots.endpoint()),
        items_(items),
        resolver_(resolver),
        begins_(slots.home().remote() && endpoint_.operation_cost() != fabric::OperationCost::little),
        cursor_here_(slots.home().remote()
                         ? nullptr
                         : endpoint_.mapped(slots.place().homing_cursor(), sizeof(std::uint64_t))) {}

  // Before the first operation: learns what others have done. Errors: those of the fabric.
  coro::Task<Result<void>> open();
  // Whether there may be something to do.
  [[nodiscard]] bool is_due() const {
    const Directory d = slots_.directory();
    if (d.growing) return false;
    if (cursor_here_ == nullptr) return begins_ && d.level > done_level_;
    const auto cursor = ChunkCursor::decode(fabric::load_word(cursor_here_));
    return cursor.level == d.level && cursor.chunk < d.chunks();
  }
  // Looks at the next few slots. A session of another host takes each step for all of them at once. In an
  // operation of the caller's. Errors: those of the fabric, of the shard's home.
  coro::Task<Result<void>> help();

 private:
  coro::Task<Result<void>> bring_home_from(SlotNumber begin, SlotNumber end, Directory d);
  void learn(ChunkCursor cursor);
  coro::Task<Result<std::optional<std::uint64_t>>> take_chunks(Directory d, std::uint64_t count);
  coro::Task<void> bring_home(memory::ItemRef item, std::uint64_t key_hash, SlotNumber from);

  Slots& slots_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Resolver& resolver_;
  const bool begins_;
  const std::byte* const cursor_here_;  // of a session of the store's host; else null
  // Up to which one that begins it has nothing to do. An index that never grew has all at home that has room.
  std::uint8_t done_level_ = first_level;
};

}  // namespace loch::hash
