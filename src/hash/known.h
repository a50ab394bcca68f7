// Known: what a remote session asks for when it knows where a key's item was lately: the slot that named it,
// the item there, unless it has a copy, and, if that has a time to live, the time, all at once
// (nessie.txt 4.1.3).
#pragma once

#include <cstddef>

#include "hash/index.h"
#include "hash/pointer_cache.h"
#include "hash/slot.h"

namespace loch::hash {

struct Known {
  Key key;
  PointerCache::Pointer pointer;
  std::byte* item = nullptr;  // where the item is read to, unless there is a copy: pointer.length_bytes
  SlotWord word{};            // what the slot holds, once it was read; of no type until then
  base::Nanos time = 0;       // of the home node, of an item that has a time to live; likewise

  // Else by way of a location, from whatever time.
  [[nodiscard]] bool was_used_lately() const { return pointer.seen_at != 0; }
  [[nodiscard]] bool has_copy() const { return pointer.copy != nullptr; }
  [[nodiscard]] const std::byte* bytes() const { return has_copy() ? pointer.copy.get() : item; }
  // Whether the slot names the item still; or another one, which is probably the key's, then.
  [[nodiscard]] bool is_as_known() const { return is_of_key() && word.item() == pointer.item(); }
  [[nodiscard]] bool is_of_another_item() const { return is_of_key() && word.item() != pointer.item(); }

 private:
  [[nodiscard]] bool is_of_key() const {
    return word.is(SlotType::committed) && word.filter() == key.filter();
  }
};
// Of a key that is not known.
inline const Known nothing_known{};

}  // namespace loch::hash
