// Displacement: step 6 of PUT (docs/hash.md, "Operations"): makes room for a key all of whose candidates are
// taken: the shortest chain of moves that frees one, found breadth first and carried out from its end, so
// that each move goes to an empty slot (Nessie, 4.2.3, without its copies). If there is none, or too many
// inserts need one, the index grows.
//
// One thread.
#pragma once

#include <optional>
#include <span>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/growth.h"
#include "hash/items.h"
#include "hash/resolver.h"
#include "hash/slots.h"

namespace loch::hash {

class Displacement final {
 public:
  Displacement(Slots& slots, const Items& items, Resolver& resolver, Growth& growth)
      : slots_(slots),
        home_(slots.home()),
        endpoint_(slots.endpoint()),
        items_(items),
        resolver_(resolver),
        growth_(growth) {}

  // Resolves what is unfinished in the key's slots, else displaces, else grows; another look at them is
  // worthwhile then. Errors: no_space, if the index can not grow; and those of the fabric.
  coro::Task<Result<void>> make_room(const Collect* full);
  // That a key was inserted, whether room was made for it or not.
  void note_insert();

 private:
  // A slot whose item might move, to make room.
  struct Victim {
    SlotNumber slot = 0;
    SlotWord word;
    int parent = -1;                  // whose item would move here; -1: that of the new key itself
    std::optional<Collect> around{};  // the slots of its item's key
  };
  coro::Task<Result<void>> look_around(Victim* victim);
  coro::Task<Result<void>> look_around(std::span<Victim> victims);
  coro::Task<Result<bool>> displace(const Collect* full);
  coro::Task<Result<bool>> carry_out(std::span<const Victim> all, int last, SlotNumber to);
  coro::Task<Result<bool>> split_around(std::span<const Victim> victims);

  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Resolver& resolver_;
  Growth& growth_;
  // Of the last inserts: how many had to displace, of displacing_always. It rises steeply with the load of
  // the index, and says when growing is better.
  unsigned displacing_share_ = 0;
};

}  // namespace loch::hash
