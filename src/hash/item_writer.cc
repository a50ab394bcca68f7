#include "hash/item_writer.h"

#include <memory>
#include <utility>

#include "base/fault.h"

namespace loch::hash {

Result<PutOutcome> again_or_in_doubt(NewItem* item, Result<bool> swapped) {
  if (swapped) return PutOutcome::again;
  item->in_doubt = true;
  return std::unexpected(std::move(swapped.error()));
}

coro::Task<Result<NewItem>> ItemWriter::compose(WriteRequest request) {
  const std::uint64_t length = length_of(request);
  auto ref = co_await attachment_.allocate(length, slots_.home_number());
  if (!ref) co_return std::unexpected(std::move(ref.error()));
  NewItem item{.ref = *ref};
  if (std::byte* at = endpoint_.mapped(ref->address(), length); at != nullptr) {
    write_copy(request, &item, at);
  } else {
    const auto copy = std::make_unique_for_overwrite<std::byte[]>(length);
    write_copy(request, &item, copy.get());
    auto written = co_await endpoint_.write(ref->address(), {copy.get(), length});
    if (!written) co_return std::unexpected(std::move(written.error()));
  }
  LOCH_FAULT_POINT("put.item_written");
  co_return item;
}

void ItemWriter::write_copy(const WriteRequest& request, NewItem* item, std::byte* copy) {
  memory::Session& session = attachment_.session_of(item->ref);
  const memory::ItemHeader header = header_for(request, session, session.next_write_time());
  item->version = write_item(copy, item->ref, header, request.key.bytes, request.value);
  write_tail(copy, length_of(request));
}

void ItemWriter::prepare(NewItem* item, SlotType as, std::uint8_t filter, SlotNumber slot, SlotWord old) {
  item->slot = slot;
  item->word = SlotWord::link(as, item->ref, filter, item->tag, old.level());
}

fabric::Operation ItemWriter::linking(const NewItem& item, SlotWord old) const {
  return fabric::Operation::compare_swap(slots_.place().slot(item.slot), old.raw, item.word.raw);
}

coro::Task<void> ItemWriter::let_go_of(SlotWord old, Counter how) {
  LOCH_FAULT_POINT("put.after_update");
  slots_.home().count(how);
  return attachment_.allocator_of(old.item()).retire_soon(old.item(), old.tag() != 0);
}

coro::Task<Result<bool>> ItemWriter::put_copy(SlotNumber slot, SlotWord word, const ItemView* item) {
  auto copy = co_await compose({.key = {.bytes = item->key(), .hash = item->key_hash()},
                                .value = item->value(),
                                .expires_at_ns = item->expires_at_ns()});
  if (!copy) co_return std::unexpected(std::move(copy.error()));
  const SlotWord linked = SlotWord::link(SlotType::committed, copy->ref, word.filter(), 0, word.level());
  auto won = co_await slots_.swap(slot, word, linked);
  if (!won) co_return won;  // it may be linked: left to a collection
  if (*won) {
    co_await attachment_.allocator_of(word.item()).retire(word.item(), true);
  } else {
    co_await attachment_.allocator_of(copy->ref).discard(copy->ref);
  }
  co_return won;
}

}  // namespace loch::hash
