// GET of keys of which a remote session knows where their items were lately (known.h).
#include <array>
#include <memory>
#include <span>

#include "hash/shards.h"

namespace loch::hash {

// One round trip, if the slot still names the item. What is not found so is nothing yet.
coro::Task<std::optional<Result<Found>>> Table::get_known(Known known) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(known.pointer.length_bytes);
  known.item = copy.get();
  std::array operations = {read_slot(known), read_item(known), read_time(&known.time)};
  const std::size_t count = operations.size() - (known.pointer.is_mortal ? 0 : 1);
  if (auto read = co_await endpoint_.perform(std::span(operations).first(count)); !read) {
    if (endpoint_.has_failed()) co_return std::unexpected(std::move(read.error()));
    co_return std::nullopt;
  }
  if (const auto item = answer(known)) co_return Found{.view = *item, .copy = std::move(copy)};
  if (!known.is_of_another_item()) co_return std::nullopt;
  co_return co_await get_by_word(known);
}

// The item's memory has not been reused since it was known, or since the slot was read; so if that names it,
// it is what was read.
std::optional<ItemView> Table::answer(const Known& known) {
  if (!known.is_as_known()) return std::nullopt;
  home_.control().learn_time(known.time);
  return item_of(known.key, known.word, known.pointer.slot, known.item, known.pointer.length_bytes,
                 known.time);
}

std::optional<ItemView> Table::item_of(Key key, SlotWord word, SlotNumber slot, const std::byte* bytes,
                                       std::uint64_t length, base::Nanos time) {
  const auto found = take_apart(word.item(), bytes, length);
  if (!found || found->view.key() != key.bytes || !has_time_left(found->view.expires_at_ns(), time))
    return std::nullopt;
  note_pointer(key, word, slot, found->view.length_bytes() + tail_bytes(), found->view.expires_at_ns() != 0);
  return found->view;
}

coro::Task<bool> Table::read_value(Known* known, std::string* into) {
  const std::string_view key = known->key.bytes;
  const memory::ItemRef ref = known->pointer.item();
  const std::uint64_t before_value = item_bytes(key.size(), 0);
  const std::uint64_t length = known->pointer.length_bytes - tail_bytes();
  if (length < before_value) co_return false;  // a location of another key's item
  const auto head = std::make_unique_for_overwrite<std::byte[]>(before_value);
  into->resize_and_overwrite(length - before_value, [](char* /*buffer*/, std::size_t size) { return size; });
  std::array operations = {
      read_slot(*known), fabric::Operation::read_settled(ref.address(), head.get(), before_value),
      fabric::Operation::read_settled(ref.address() + before_value, into->data(), into->size()),
      read_time(&known->time)};
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
  if (!known->is_as_known() || !fits || !item.is_intact_with(*into)) co_return false;
  note_pointer(known->key, known->word, known->pointer.slot, known->pointer.length_bytes,
               item.expires_at_ns() != 0);
  co_return true;
}

// Of one that is_of_another_item: step 1 with one slot of the key's.
coro::Task<std::optional<Result<Found>>> Table::get_by_word(Known known) {
  const Key key = known.key;
  const SlotWord word = known.word;
  auto found = co_await fetch_item(word.item());
  if (!found || found->view.key() != key.bytes || !has_time_left(found->view.expires_at_ns(), known.time))
    co_return std::nullopt;
  note_pointer(key, word, known.pointer.slot, found->view.length_bytes() + tail_bytes(),
               found->view.expires_at_ns() != 0);
  co_return found;
}

std::optional<Known> Shards::known(Key key) const {
  const Table* table = tables_[shard_of(key.hash, tables_.size())].get();
  return table != nullptr ? table->known(key) : std::nullopt;
}

}  // namespace loch::hash
