#include "hash/put_far.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/planted.h"

namespace loch::hash {

coro::Task<Result<NewItem>> PutFar::begin(const WriteRequest* request, KeyCollect* seen, Begun* begun) {
  const std::uint64_t length = length_of(*request);
  auto ref = co_await attachment_.allocate(length, slots_.home_number());
  if (!ref) co_return std::unexpected(std::move(ref.error()));
  NewItem item{.ref = *ref};
  const auto copy = std::make_unique_for_overwrite<std::byte[]>(length);
  item_writer_.write_copy(*request, &item, copy.get());
  const auto write = fabric::Operation::write(ref->address(), copy.get(), length);
  const Key key = request->key;
  const auto pointer = seen->headers_wanted ? std::nullopt : known_.pointer_of(key);
  // Of a cluster the directory has to be looked at before anything changes (Handover).
  if (!attachment_.is_of_cluster()) {
    const auto expected = pointer || seen->headers_wanted ? std::nullopt : known_.expectation_of(key);
    if (pointer || expected) {
      const SlotNumber slot = pointer ? pointer->slot : expected->slot;
      const SlotWord old = pointer ? pointer->word : expected->word;
      auto done =
          co_await write_and_link(key, write, slot, old, expected ? &*expected : nullptr, seen, &item, begun);
      if (!done) co_return std::unexpected(std::move(done.error()));
      co_return item;
    }
  }
  const auto location = pointer ? std::nullopt : known_.location_of(key);
  const auto& known = pointer ? pointer : location;
  const bool reads_item = location && endpoint_.keeps_order();
  const Slots::Reading reading = slots_.begin_collect(key.hash, seen, Slots::DirectoryToo::no,
                                                      known ? std::optional(known->slot) : std::nullopt);
  std::vector<fabric::Operation> operations;
  operations.reserve(2 + reading.count);
  operations.push_back(write);
  reading.ask(seen->word.data(), &operations);
  std::vector<std::byte> head;
  if (reads_item) {
    head.resize(item_bytes(key.bytes.size(), 0));
    operations.push_back(
        fabric::Operation::read_settled(location->item().address(), head.data(), head.size()));
  }
  const auto done = co_await endpoint_.perform(operations);
  const fabric::Operation& writing = operations.front();
  // Slots that are not there may be those of a shard that is to come, which is for the next look to find out.
  const bool are_slots_absent = !done && done.error().code == Errc::corrupt;
  if (!done && (writing.did_nothing() || (endpoint_.has_failed() && !are_slots_absent)))
    co_return std::unexpected(done.error());
  LOCH_FAULT_POINT("put_far.item_written");
  bool is_collected = false;
  if (done && pointer) {
    is_collected = names_what_is_known(key, reading, seen);
  } else if (done && reads_item) {
    is_collected = names_what_was_read(key, reading, location->item(), head, seen);
  } else if (done) {
    is_collected = co_await identify_first(key, &reading, seen);
    // What one slot has nothing of may be in the others.
    if (location) is_collected = is_collected && committed_location(*seen) >= 0;
  }
  if (done && location && !is_collected) known_.forget_item(key, location->slot);
  *begun = is_collected ? Begun::collected : Begun::written;
  co_return item;
}

// Step 2 with the word that the slot is known, or expected, to hold: if it is there, it names the key's item.
// If it is not, nothing has happened, and the word that is there names the key's item all the same, unless
// that has left.
coro::Task<Result<void>> PutFar::write_and_link(Key key, fabric::Operation write, SlotNumber slot,
                                                SlotWord old, const Expectation* expected, KeyCollect* seen,
                                                NewItem* item, Begun* begun) {
  slots_.begin_collect(key.hash, seen, Slots::DirectoryToo::no, slot);
  std::vector<fabric::Operation> operations = {write};
  operations.reserve(3 + Expectation::operations);
  if (expected != nullptr) expected->ask(&operations);
  ItemWriter::prepare(item, SlotType::committed, key.filter(), slot, old);
  operations.push_back(item_writer_.linking(*item, old));
  operations.back().after_previous = !base::planted(base::Planted::link_beside_item);
  const std::size_t linking = operations.size() - 1;
  if (expected != nullptr)
    operations.push_back(
        fabric::Operation::read(slots_.place().slot(slot), &seen->word[0].raw, sizeof seen->word[0].raw));
  LOCH_FAULT_POINT("put_far.before_update");
  const auto done = co_await endpoint_.perform(operations);
  const bool may_be_unexpected = expected != nullptr && !operations.front().bad_address &&
                                 !operations.back().bad_address &&
                                 (done || done.error().code == Errc::corrupt);
  if (!done && !may_be_unexpected) co_return done;
  if (done) seen->word[0] = {operations[linking].result};
  if (!done || seen->word[0] != old) {
    home_.count(Counter::conflicts);
    const bool is_found = co_await snapshots_.identify(key, seen) && committed_location(*seen) >= 0;
    if (!is_found) known_.forget_item(key, slot);
    *begun = is_found ? Begun::collected : Begun::written;
    co_return Result<void>{};
  }
  *begun = Begun::linked;
  co_await item_writer_.let_go_of(old, Counter::put_update);
  co_return Result<void>{};
}

// By what is known now: a refresh since may have let go of what the pointer named before.
bool PutFar::names_what_is_known(Key key, const Slots::Reading& reading, KeyCollect* seen) {
  const auto pointer = known_.pointer_of(key);
  const auto is_newest = slots_.end_collect(reading, *seen);
  if (!pointer || !is_newest || !*is_newest) return false;
  const SlotWord word = seen->word[0];
  if (!word.is(SlotType::committed) || word.item() != pointer->item()) return false;
  seen->mine = 1;
  seen->header[0] = {};
  return true;
}

bool PutFar::names_what_was_read(Key key, const Slots::Reading& reading, memory::ItemRef item,
                                 std::span<const std::byte> head, KeyCollect* seen) {
  const auto is_newest = slots_.end_collect(reading, *seen);
  const SlotWord word = seen->word[0];
  if (!is_newest || !*is_newest || !word.is(SlotType::committed) || word.item() != item) return false;
  if (!snapshots_.take_if_mine(key, 0, head, *seen)) return false;
  // Where there is no condition, it does not matter whether the item has time left.
  if (seen->header[0].expires_at_ns == 0 || !seen->headers_wanted) return true;
  seen->mine = 0;
  return false;
}

coro::Task<bool> PutFar::identify_first(Key key, const Slots::Reading* reading, KeyCollect* seen) {
  const auto is_newest = slots_.end_collect(*reading, *seen);
  if (!is_newest || !*is_newest || is_outdated(*seen) || is_damaged(*seen)) co_return false;
  if (const auto done = co_await snapshots_.identify(key, seen); !done) co_return false;
  const auto over = co_await snapshots_.outlived(seen);
  co_return over && !*over;
}

}  // namespace loch::hash
