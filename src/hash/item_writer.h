// ItemWriter: writes items whole, before anything names them, and lets go of those whose place they take.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "base/clock.h"
#include "hash/item.h"
#include "hash/slots.h"

namespace loch::hash {

enum class Condition : std::uint8_t { none, absent, version };

struct WriteRequest {
  Key key;
  std::string_view value;
  base::Nanos expires_at_ns = 0;
  Condition condition = Condition::none;
  std::uint64_t version = 0;  // with Condition::version
};

// How much memory its item takes.
inline std::uint64_t length_of(const WriteRequest& request) {
  return item_bytes(request.key.bytes.size(), request.value.size()) + tail_bytes();
}

// An item that this operation wrote and has not linked for good.
struct NewItem {
  memory::ItemRef ref;
  std::uint64_t version = 0;
  std::uint8_t tag = 0;
  bool seen = false;        // a slot has named it: it must rest before it is used otherwise
  bool in_doubt = false;    // a slot may name it: the answer to a compare-swap did not come
  bool is_pending = false;  // it is I(y, tag) in the slot below
  SlotNumber slot = 0;      // that names it, or is about to
  SlotWord word{};          // by this
};

// What a step of PUT comes to: begin again, or it is done.
enum class PutOutcome : std::uint8_t { again, done };
// Of a step whose compare-swap did not put the item in its place.
Result<PutOutcome> again_or_in_doubt(NewItem* item, Result<bool> swapped);

class ItemWriter final {
 public:
  explicit ItemWriter(Slots& slots)
      : attachment_(slots.attachment()), slots_(slots), endpoint_(slots.endpoint()) {}

  // Takes memory for an item, and writes it there. Errors: no_space, timed_out, and those of the fabric.
  coro::Task<Result<NewItem>> compose(WriteRequest request);
  // The item as it is to be, to `copy`, or to its place itself, length_of(request) long.
  void write_copy(const WriteRequest& request, NewItem* item, std::byte* copy);
  // By which word which slot is to name the item, in place of `old`: so it stands in `item`. Nothing is
  // changed by that ...
  static void prepare(NewItem* item, SlotType as, std::uint8_t filter, SlotNumber slot, SlotWord old);
  // ... but by this compare-swap, for who has it done in a batch.
  [[nodiscard]] fabric::Operation linking(const NewItem& item, SlotWord old) const;
  // What is left to be done when an item has taken the place of what `old` names.
  coro::Task<void> let_go_of(SlotWord old, Counter how);
  // What an item begins with that is written then, but for what write_item fills in.
  static memory::ItemHeader header_for(const WriteRequest& request, const memory::Session& session,
                                       base::Nanos written_at_ns) {
    return {.state = 0,
            .header_sum = 0,
            .value_sum = 0,
            .key_hash = request.key.hash,
            .written_at_ns = written_at_ns,
            .expires_at_ns = request.expires_at_ns,
            .value_bytes = 0,
            .key_bytes = 0,
            .client = session.client()};
  }
  // A copy of the item that is committed there takes its place. False if the slot has changed.
  coro::Task<Result<bool>> put_copy(SlotNumber slot, SlotWord word, const ItemView* item);

 private:
  memory::Attachment& attachment_;
  Slots& slots_;
  fabric::Endpoint& endpoint_;
};

}  // namespace loch::hash
