// Known: what a remote session asks for when it knows where a key's item was: the slot that named it, the
// item there, unless it has a copy, and, if that has a time to live, the time; mostly all at once
// (Nessie, 4.1.3).
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "hash/index.h"
#include "hash/location_cache.h"
#include "hash/pointer_cache.h"
#include "hash/slot.h"

namespace loch::hash {

struct Known {
  Key key;
  PointerCache::Pointer pointer{};
  std::byte* item = nullptr;      // where the item is read to, unless there is a copy: pointer.length_bytes
  SlotWord word{};                // what the slot holds, once it was read; of no type until then
  base::Nanos time = 0;           // of the home node, of an item that has a time to live; likewise
  bool item_comes_after = false;  // the slot, and not with it: of a location, where no order is kept
  bool was_asked = false;         // and did not answer
  LocationCache::Spot spot{};     // where it is to be noted

  static Known of(Key key, std::optional<PointerCache::Pointer> pointer, bool item_comes_after = false) {
    return {.key = key,
            .pointer = pointer ? std::move(*pointer) : PointerCache::Pointer{},
            .item_comes_after = item_comes_after};
  }
  // Whether nothing is known of the key.
  [[nodiscard]] bool is_nothing() const { return pointer.length_bytes == 0; }
  // Else by way of a location, from whatever time.
  [[nodiscard]] bool was_used_lately() const { return pointer.seen_at != 0; }
  [[nodiscard]] bool has_copy() const { return pointer.copy != nullptr; }
  // Whether the item is asked for at once with the slot.
  [[nodiscard]] bool asks_for_item() const { return !has_copy() && !item_comes_after; }
  [[nodiscard]] const std::byte* bytes() const { return has_copy() ? pointer.copy.get() : item; }
  // Whether the slot names the item still; or another one, which is probably the key's, then.
  [[nodiscard]] bool is_as_known() const { return is_of_key() && word.item() == pointer.item(); }
  [[nodiscard]] bool is_of_another_item() const { return is_of_key() && word.item() != pointer.item(); }
  // Or nothing of the key's.
  [[nodiscard]] bool is_gone() const { return !is_of_key(); }

 private:
  [[nodiscard]] bool is_of_key() const {
    return word.is(SlotType::committed) && word.filter() == key.filter();
  }
};

// What a put with no condition expects of a key of which it knows a location: that the slot holds the word;
// and then that the item is the key's. In this order: what the slot names while the put runs is not used
// again before that is over (KnownItems::location_of).
struct Expectation {
  static constexpr std::size_t operations = 3;

  Key key;
  std::uint16_t key_bytes = 0;
  SlotNumber slot = 0;
  fabric::Address slot_address;
  SlotWord word{};

  // Adds operations of which each goes by the one before it, as what comes behind them is to. They go by this
  // for as long.
  void ask(std::vector<fabric::Operation>* into) const {
    const fabric::Address item = word.item().address();
    using fabric::Operation;
    for (Operation expect :
         {Operation::expect(slot_address, &word.raw, sizeof word.raw),
          Operation::expect(item + offsetof(memory::ItemHeader, key_bytes), &key_bytes, sizeof key_bytes),
          Operation::expect(item + sizeof(memory::ItemHeader), key.bytes.data(), key.bytes.size())}) {
      expect.after_previous = true;
      into->push_back(expect);
    }
  }
};

}  // namespace loch::hash
