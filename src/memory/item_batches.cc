// The part of Allocator that claims, cuts off and retires many items at once; and what a remote session does
// so before it needs items and after it has unlinked some, so that no put waits for it.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "coro/scope.h"
#include "memory/allocator.h"

namespace loch::memory {
namespace {

// How many items of a class a remote session claims before it needs them: few at first, and at most as many
// as eight batches of puts take (Client::multi_put), of few bytes together. While half of them are left, the
// next block is found.
constexpr std::size_t spares_at_first = 8;
constexpr std::size_t spares_most(std::uint8_t size_class) {
  constexpr std::size_t items_max = 512;
  constexpr std::size_t bytes_max = 65'536;
  return std::min<std::size_t>(items_max, bytes_max / class_bytes[size_class]);
}

}  // namespace

// Those that it got come first afterwards; how many.
coro::Task<std::size_t> Allocator::claim_all(std::span<Note> notes, fabric::Urgency urgency) {
  // A block that was freed and cut otherwise has no item boundary there: its words may be anybody's bytes.
  std::vector<std::uint64_t> leases(notes.size());
  std::vector<fabric::Operation> operations;
  operations.reserve(notes.size());
  const auto is_of_same_block = [&](std::size_t i) {
    return i != 0 && block_of(notes[i].item) == block_of(notes[i - 1].item);
  };
  for (std::size_t i = 0; i < notes.size(); ++i) {
    leases[i] = lease_of_nothing.encode();
    const BlockNumber block = block_of(notes[i].item);
    if (!is_of_same_block(i) && exists(block))
      operations.push_back(fabric::Operation::read(lease_address(block), &leases[i], sizeof leases[i]));
  }
  if (auto read = co_await endpoint_.perform(operations, urgency); !read) co_return 0;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (is_of_same_block(i)) leases[i] = leases[i - 1];
  }

  // Those that take more than their compare-swap go the longer way.
  const std::uint64_t mine = ItemState::claimed(session_.client(), session_.now()).encode();
  std::vector<bool> got(notes.size());
  std::vector<std::size_t> swapped;
  std::vector<std::size_t> others;
  operations.clear();
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const Note& note = notes[i];
    const LeaseWord lease = LeaseWord::decode(leases[i]);
    if (lease.size_class != note.item.size_class || lease.state == BlockState::free) continue;
    if (!session_.reusable(note.retired_at(), 0) || (note.moved() && session_.moves_may_linger())) {
      others.push_back(i);
      continue;
    }
    swapped.push_back(i);
    operations.push_back(fabric::Operation::compare_swap(note.item.address(), note.state, mine));
  }
  if (!operations.empty()) {
    const auto done = co_await endpoint_.perform(operations, urgency);
    LOCH_FAULT_POINT("alloc.items_claimed");
    for (std::size_t k = 0; done && k < swapped.size(); ++k)
      got[swapped[k]] = operations[k].result == notes[swapped[k]].state;
  }
  std::vector<coro::Task<bool>> claims;
  claims.reserve(others.size());
  for (const std::size_t i : others) claims.push_back(claim(notes[i]));
  co_await coro::run_together(&endpoint_.queue(), std::span(claims));
  for (std::size_t k = 0; k < others.size(); ++k) got[others[k]] = claims[k].take();

  std::vector<Note> left;
  std::size_t count = 0;
  for (std::size_t i = 0; i < notes.size(); ++i) {
    if (got[i]) {
      notes[count++] = notes[i];
    } else {
      left.push_back(notes[i]);
    }
  }
  std::ranges::copy(left, notes.begin() + static_cast<std::ptrdiff_t>(count));
  co_return count;
}

// Cuts the next items off, as many as there are of `into`, and says whose they are. The block is full when
// the last of its items says so.
coro::Task<Result<void>> Allocator::carve_all(std::uint8_t size_class, std::span<ItemRef> into,
                                              fabric::Urgency urgency) {
  const std::shared_ptr<Carving> carving = carvings_[size_class];
  const std::uint64_t mine = ItemState::claimed(session_.client(), session_.now()).encode();
  std::vector<fabric::Operation> operations;
  operations.reserve(into.size());
  for (ItemRef& item : into) {
    item = item_in_block(carving->block, size_class, carving->next++);
    operations.push_back(fabric::Operation::write(item.address(), &mine, sizeof mine));
  }
  const auto count = static_cast<std::uint32_t>(into.size());
  carving->claiming += count;
  auto claimed = co_await endpoint_.perform(operations, urgency);
  carving->claiming -= count;
  if (!claimed) co_return claimed;  // a sweep or a collection finds them
  if (!carving->any() && carving->claiming == 0) {
    const LeaseWord full = carving->lease.next(BlockState::full, size_class, 0);
    co_return co_await endpoint_.write_word(lease_address(carving->block), full.encode());
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Allocator::mark_retired(std::span<const Unlinked> unlinked, base::Nanos time,
                                                 fabric::Urgency urgency) {
  std::vector<std::uint64_t> states;
  std::vector<fabric::Operation> operations;
  states.reserve(unlinked.size());
  operations.reserve(unlinked.size());
  for (const Unlinked& each : unlinked) {
    states.push_back(note_of(each, time).state);
    operations.push_back(
        fabric::Operation::write(each.item.address(), &states.back(), sizeof(std::uint64_t)));
  }
  co_return co_await endpoint_.perform(operations, urgency);
}

// `time` is no earlier than the unlinking, by the clock that others count their operations by.
coro::Task<Result<void>> Allocator::retire_all(std::span<const Unlinked> unlinked, base::Nanos time,
                                               fabric::Urgency urgency) {
  LOCH_FAULT_POINT("retire.before_mark");
  session_.count(Counter::items_retired, unlinked.size());
  if (auto done = co_await mark_retired(unlinked, time, urgency); !done) co_return done;
  for (const Unlinked& each : unlinked) {
    auto& notes = notes_[each.item.size_class];
    if (notes.size() < notes_kept_max) {
      notes.push_back(note_of(each, time));
    } else {
      co_await endpoint_.fetch_add(released_address(block_of(each.item)), 1);
    }
  }
  if (time - left_notes_at_ > session_.geometry().expiry_ns) {
    bool all_left = true;
    for (std::size_t c = 0; c < size_class_count; ++c)
      all_left = co_await leave_old_notes(static_cast<std::uint8_t>(c)) && all_left;
    if (all_left) left_notes_at_ = time;
    // Nobody else looks for large ones that this session has notes of before memory runs out.
    [[maybe_unused]] const auto freed = co_await free_own_large();
  }
  co_return Result<void>{};
}

void Allocator::refill_soon(std::uint8_t size_class) {
  Supply& supply = supplies_[size_class];
  const std::size_t most = spares_most(size_class);
  if (!session_.remote() || most == 0 || supply.is_refilling ||
      spares_[size_class].size() > supply.wanted / 2)
    return;
  supply.wanted = std::min(most, std::max(spares_at_first, 2 * supply.wanted));
  supply.is_refilling = true;
  background_.start(refill(size_class));
}

// Of what is at hand, and of the next block that has some; to add or to free blocks takes longer, and is for
// those who need it.
coro::Task<void> Allocator::refill(std::uint8_t size_class) {
  const base::Nanos start = session_.begin_operation();
  auto& spares = spares_[size_class];
  const std::size_t wanted = supplies_[size_class].wanted;
  for (bool more = true; more && spares.size() <= wanted / 2;) {
    const std::size_t missing = wanted - spares.size();
    std::vector<Note> notes;
    Note note;
    while (notes.size() < missing && take_rested(size_class, note, session_.now())) notes.push_back(note);
    const std::size_t claimed = notes.empty() ? 0 : co_await claim_all(notes, fabric::Urgency::background);
    session_.count(Counter::items_reused, claimed);
    for (std::size_t i = 0; i < claimed; ++i) spares.push_back(notes[i].item);
    more = claimed != 0;
    if (claimed < missing && can_carve(size_class)) {
      const Carving& carving = *carvings_[size_class];
      std::vector<ItemRef> items(std::min<std::size_t>(missing - claimed, carving.count - carving.next));
      more = (co_await carve_all(size_class, items, fabric::Urgency::background)).has_value();
      if (more) spares.insert(spares.end(), items.begin(), items.end());
    }
    if (!more && !endpoint_.has_failed()) {
      const auto turn = co_await getting_blocks_.lock();
      more = is_at_hand(size_class) || (co_await find_block(size_class)).value_or(false);
    }
  }
  session_.end_operation(start);
  supplies_[size_class].is_refilling = false;
}

coro::Task<void> Allocator::retire_soon(ItemRef item, bool moved) {
  if (!session_.remote()) {
    co_await retire(item, moved);
    co_return;
  }
  // It counts as a part of the operation that unlinked the item until it is done.
  unlinked_.push_back({item, moved, session_.begin_operation()});
  if (std::exchange(retiring_, true)) co_return;
  background_.start(retire_unlinked());
}

// All that was unlinked while those before were retired, by one look at the time.
coro::Task<void> Allocator::retire_unlinked() {
  while (!unlinked_.empty()) {
    const std::vector<Unlinked> items = std::exchange(unlinked_, {});
    if (const auto time = co_await session_.control().read_time(fabric::Urgency::background)) {
      // What can not be marked is found by a collection.
      [[maybe_unused]] const auto retired = co_await retire_all(items, *time, fabric::Urgency::background);
    }
    for (const Unlinked& each : items) session_.end_operation(each.start);
  }
  retiring_ = false;
}

}  // namespace loch::memory
