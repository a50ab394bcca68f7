#include "hash/known_items.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "hash/heap.h"

namespace loch::hash {

Known KnownItems::of(Key key) const {
  if (!home_.remote()) return {.key = key};
  if (auto pointer = pointers_.find(key.bytes, key.hash); pointer && counts_still(*pointer))
    return Known::of(key, std::move(pointer));
  LocationCache::Spot spot;
  Known known = Known::of(key, location_of(key, &spot), !endpoint_.keeps_order());
  known.spot = spot;
  return known;
}

bool KnownItems::counts_still(const PointerCache::Pointer& pointer) const {
  return is_kept(pointer) || (pointer.copy != nullptr && base::planted(base::Planted::copy_of_any_age));
}

std::optional<Expectation> KnownItems::expectation_of(Key key) const {
  const auto location = endpoint_.keeps_order() ? location_of(key) : std::nullopt;
  if (!location || !location->word.is(SlotType::committed) || location->word.filter() != key.filter())
    return std::nullopt;
  return Expectation{.key = key,
                     .key_bytes = static_cast<std::uint16_t>(key.bytes.size()),
                     .slot = location->slot,
                     .slot_address = slots_.place().slot(location->slot),
                     .word = location->word};
}

// The item's memory has not been reused since it was known, or since the slot was read; so if that names it,
// it is what was read, or copied before. Unless a refresh meanwhile has let go of what was known.
std::optional<ItemView> KnownItems::answer(const Known& known) {
  if (!known.is_as_known() || has_been_let_go(known)) return std::nullopt;
  home_.control().learn_time(known.time);
  const std::uint64_t length = known.pointer.length_bytes;
  const auto item = view_of(known.key, known.word, known.bytes(), length, known.time);
  if (!item) return std::nullopt;
  if (known.has_copy()) home_.count(Counter::cache_hit);
  auto copy = known.has_copy() ? known.pointer.copy : copy_of(known, {known.item, length});
  // All sessions know this already, if it is as it was.
  const bool is_as_noted = known.word == known.pointer.word && item->length_bytes() + tail_bytes() == length;
  if (is_as_noted) {
    note_lately(known.key, {.word = known.word,
                            .slot = known.pointer.slot,
                            .length_bytes = length,
                            .is_mortal = known.pointer.is_mortal,
                            .copy = std::move(copy)});
  } else {
    note_item(known.key, known.word, known.pointer.slot, *item, std::move(copy));
  }
  return item;
}

PointerCache::Copy KnownItems::copy_of(const Known& known, std::span<const std::byte> first,
                                       std::string_view rest) const {
  const std::size_t length = known.pointer.length_bytes;
  if (!known.was_used_lately() || !pointers_.keeps_copy_of(length) || first.size() + rest.size() != length)
    return nullptr;
  auto copy = std::make_shared_for_overwrite<std::byte[]>(length);
  std::ranges::copy(rest, reinterpret_cast<char*>(std::ranges::copy(first, copy.get()).out));
  return copy;
}

std::optional<ItemView> KnownItems::view_of(Key key, SlotWord word, const std::byte* bytes,
                                            std::uint64_t length, base::Nanos time) const {
  auto item = Items::take_apart(word.item(), bytes, length);
  if (item && (item->key() != key.bytes || !has_time_left(item->expires_at_ns(), time))) item.reset();
  return item;
}

std::optional<ItemView> KnownItems::item_of(Key key, SlotWord word, SlotNumber slot, const std::byte* bytes,
                                            std::uint64_t length, base::Nanos time) {
  const auto item = view_of(key, word, bytes, length, time);
  if (item) note_item(key, word, slot, *item);
  return item;
}

coro::Task<bool> KnownItems::read_value(Known* known, std::string* into) {
  const std::string_view key = known->key.bytes;
  const memory::ItemRef ref = known->pointer.item();
  const std::uint64_t before_value = item_bytes(key.size(), 0);
  const std::uint64_t length = known->pointer.length_bytes - tail_bytes();
  if (length < before_value) co_return false;  // a location of another key's item
  if (!make_as_long(into, length - before_value)) co_return false;
  const auto head = std::make_unique_for_overwrite<std::byte[]>(before_value);
  std::array operations = {
      slot_reading(*known), fabric::Operation::read_settled(ref.address(), head.get(), before_value),
      fabric::Operation::read_settled(ref.address() + before_value, into->data(), into->size()),
      time_reading(&known->time)};
  const std::size_t count = operations.size() - (known->pointer.is_mortal ? 0 : 1);
  if (!co_await endpoint_.perform(std::span(operations).first(count))) {
    known->word = {};
    co_return false;
  }
  home_.control().learn_time(known->time);
  ItemView item;
  item.begin(head.get(), ref);
  const bool fits = item.key_bytes() == key.size() && item.take_lengths(length) &&
                    item.length_bytes() == length && item.key() == key &&
                    has_time_left(item.expires_at_ns(), known->time);
  if (!known->is_as_known() || has_been_let_go(*known) || !fits || !item.is_intact_with(*into))
    co_return false;
  note_item(known->key, known->word, known->pointer.slot, item,
            copy_of(*known, {head.get(), before_value}, *into));
  co_return true;
}

// Of what this session holds on to, the slot alone says that it is there, but not for how long.
coro::Task<bool> KnownItems::is_there(Known* known) {
  const PointerCache::Pointer& pointer = known->pointer;
  const std::uint64_t length = item_bytes(known->key.bytes.size(), 0);
  const bool takes_head = !known->was_used_lately() || pointer.is_mortal;
  const auto head = std::make_unique_for_overwrite<std::byte[]>(length);
  std::array<fabric::Operation, 3> operations = {slot_reading(*known)};
  std::size_t count = 1;
  if (takes_head) {
    operations[count] = fabric::Operation::read_settled(pointer.item().address(), head.get(), length);
    operations[count++].after_previous = known->item_comes_after;
  }
  if (pointer.is_mortal) operations[count++] = time_reading(&known->time);
  const std::span asked(operations.data(), count);
  if (!co_await endpoint_.perform_each(asked)) co_return false;
  if (std::ranges::any_of(asked, &fabric::Operation::did_nothing)) known->word = {};
  if (!known->is_as_known() || has_been_let_go(*known)) co_return false;
  home_.control().learn_time(known->time);
  if (takes_head) {
    ItemView item;
    const bool is_its = item.parse_head(head.get(), length, known->word.item()) && item.header_is_intact() &&
                        item.key() == known->key.bytes;
    if (!is_its || !has_time_left(item.expires_at_ns(), known->time)) co_return false;
  }
  // A location may be of an item of another length.
  if (known->was_used_lately())
    note_lately(known->key, {.word = known->word,
                             .slot = pointer.slot,
                             .length_bytes = pointer.length_bytes,
                             .is_mortal = pointer.is_mortal,
                             .copy = pointer.copy});
  co_return true;
}

}  // namespace loch::hash
