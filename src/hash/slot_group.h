// SlotGroup: some slots in a row that are read at once, by who looks at all of them: by a remote session
// more, with the headers of the items that they name if it needs these.
//
// Each group is an operation of its own, which lasts until the next one is read, so that who looks at all
// slots does not hold on all the while to what is unlinked meanwhile. So no word or item of one group says
// anything once the next one is read. A shard of a cluster may leave between two groups (Handover), unless
// the caller is in an operation all the while (Stay).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/items.h"
#include "hash/slots.h"
#include "memory/attachment.h"

namespace loch::hash {

// Of a cluster: an operation of who looks at one of its shards, which stays there while this lives.
class Stay final {
 public:
  explicit Stay(memory::Attachment& attachment) {
    if (attachment.is_of_cluster()) during_.emplace(attachment);
  }

 private:
  std::optional<memory::Attachment::Operation> during_;
};

class SlotGroup final {
 public:
  SlotGroup(Slots& slots, const Items& items, std::size_t most_if_remote = 64)
      : slots_(slots), items_(items), words_(most_if_remote) {}

  [[nodiscard]] bool has(SlotNumber slot) const { return slot >= first_ && slot - first_ < count_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] SlotWord word(SlotNumber slot) const { return {words_[slot - first_]}; }
  // The next group, from `first` on, not beyond `end`. Keeps the session fresh, too.
  coro::Task<Result<void>> read(SlotNumber first, SlotNumber end);
  coro::Task<Result<void>> read_with_headers(SlotNumber first, SlotNumber end);
  // Of the item that the slot was seen to name: what was read with the group, or is read now. Without its
  // state. Errors: as Items::fetch_intact_head.
  coro::Task<Result<memory::ItemHeader>> header_of(SlotNumber slot) const;

 private:
  Slots& slots_;
  const Items& items_;
  std::optional<memory::Attachment::Operation> during_;
  std::vector<std::uint64_t> words_;
  std::vector<Result<memory::ItemHeader>> headers_;  // by slot, if they were read
  SlotNumber first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace loch::hash
