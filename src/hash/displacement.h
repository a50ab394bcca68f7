// Displacement: makes room for a key all of whose candidates are taken: the shortest chain of moves that
// frees one, found breadth first and carried out from its end, so that each move goes to an empty slot
// (Nessie, 4.2.3, without its copies).
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

  // True if something was moved (or has changed), so that another look is worthwhile.
  coro::Task<Result<bool>> make_room(const Collect* full);

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
  coro::Task<Result<bool>> carry_out(std::span<const Victim> all, int last, SlotNumber to);
  coro::Task<Result<bool>> split_around(std::span<const Victim> victims);

  Slots& slots_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const Items& items_;
  Resolver& resolver_;
  Growth& growth_;
};

}  // namespace loch::hash
