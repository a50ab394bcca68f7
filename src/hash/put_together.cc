// Plain puts of a remote session, many at once: each step of PUT (writer.cc) for all of them in one batch,
// where each by itself takes a coroutine and a batch a step. What does not go as it mostly does, goes on as a
// coroutine.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/planted.h"
#include "coro/scope.h"
#include "hash/table.h"

namespace loch::hash {

using fabric::Operation;

namespace {

// So that what comes behind is aligned, too.
constexpr std::uint64_t in_whole_words(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

// One of the puts, and how far it is.
struct Table::Writing {
  enum class Stage : std::uint8_t {
    links,    // its item is about to take the place of `old`
    looks,    // the key's slots are read, or one of them
    matches,  // some words may be the key's: those of `asked`; of which the one at `location` is
    written,  // nothing but that is known
    over,
  };
  PlainPut* put = nullptr;
  Stage stage = Stage::written;
  NewItem item{};
  KeyCollect seen{};
  SlotWord old{};
  std::uint8_t asked = 0;  // bit j: word j
  unsigned location = 0;

  [[nodiscard]] Key key() const { return put->request.key; }
  void end(Result<std::uint64_t> outcome) {
    if (!outcome) outcome.error().key_hash = key().hash;
    put->outcome = std::move(outcome);
    stage = Stage::over;
  }
};

bool Table::puts_together() {
  return home_.remote() && !attachment_.is_of_cluster() && !directory().growing && !attachment_.refresh_due();
}

std::optional<PlainPut> Table::plain_put(const WriteRequest& request) {
  const auto spare = attachment_.nodes().front().allocator->take_spare(length_of(request));
  return spare ? std::optional(PlainPut{.request = request, .item = *spare}) : std::nullopt;
}

coro::Task<void> Table::put_together(std::span<PlainPut> puts) {
  std::vector<Writing> all(puts.size());
  for (std::size_t i = 0; i < puts.size(); ++i) {
    all[i].put = &puts[i];
    all[i].item.ref = puts[i].item;
    all[i].seen.headers_wanted = false;
  }
  Result<void> done = co_await write_together(all);
  if (done) done = co_await look_together(all);
  if (done) done = co_await link_together(all);
  std::vector<coro::Task<void>> rest;
  for (Writing& one : all) {
    if (one.stage == Writing::Stage::over) continue;
    if (done) {
      rest.push_back(put_alone(&one));
    } else {
      one.end(std::unexpected(done.error()));  // the session is lost: others see to what it has
    }
  }
  co_await coro::run_together(&endpoint_.queue(), std::span(rest));
}

coro::Task<void> Table::put_alone(Writing* one) {
  one->put->outcome = co_await put_written(&one->put->request, &one->seen, one->item, Begun::written);
}

// The items are written; those of known keys take the place of what is known right after that; of the
// others, the slots are read.
coro::Task<Result<void>> Table::write_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::size_t length = 0;
  for (Writing& one : all) {
    length += in_whole_words(length_of(one.put->request));
    const auto pointer = pointer_of(one.key());
    one.stage = pointer ? Stage::links : Stage::looks;
    if (!pointer) continue;
    begin_collect(one.key().hash, &one.seen, DirectoryToo::no, pointer->slot);
    one.old = pointer->word;
  }
  const bool in_time = attachment_.may_act();  // else what is known of the words may be void
  const auto copies = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(all.size() * (1 + locations_max));
  std::byte* copy = copies.get();
  for (Writing& one : all) {
    const WriteRequest& request = one.put->request;
    write_copy(request, &one.item, copy);
    operations.push_back(Operation::write(one.item.ref.address(), copy, length_of(request)));
    copy += in_whole_words(length_of(request));
    if (one.stage != Stage::links) continue;
    if (!in_time) {
      one.stage = Stage::written;
      continue;
    }
    operations.push_back(link_instead(one.old, one.seen.at.slot[0], &one.item));
    operations.back().after_previous = !base::planted(base::Planted::link_beside_item);
    LOCH_FAULT_POINT("put.before_update");
  }
  const std::size_t slots_begin = operations.size();
  for (Writing& one : all) {
    if (one.stage != Stage::looks) continue;
    const Reading reading = begin_collect(one.key().hash, &one.seen, DirectoryToo::no);
    SlotWord* into = one.seen.word.data();
    for (const fabric::Address at : reading.addresses())
      operations.push_back(Operation::read(at, &(into++)->raw, sizeof(SlotWord)));
  }
  const auto done = co_await endpoint_.perform(operations);
  if (!done && endpoint_.has_failed()) co_return done;

  const Operation* next = operations.data();
  const Operation* slot = operations.data() + slots_begin;
  for (Writing& one : all) {
    const Operation& write = *next++;
    const Operation* swap = one.stage == Stage::links ? next++ : nullptr;
    const std::span slots(slot, one.stage == Stage::looks ? one.seen.at.count : 0);
    slot += slots.size();
    if (write.bad_address) {
      one.end(std::unexpected(done.error()));
      continue;
    }
    LOCH_FAULT_POINT("put.item_written");
    if (swap != nullptr) {
      co_await take_outcome(&one, swap);
    } else if (std::ranges::any_of(slots, &Operation::bad_address)) {
      one.stage = Stage::written;
    }
  }
  co_return Result<void>{};
}

// What became of putting the item in the place of `old`: if another word is there, that is what is to be
// looked at.
coro::Task<void> Table::take_outcome(Writing* one, const Operation* swap) {
  using Stage = Writing::Stage;
  const SlotWord before{swap->result};
  if (swap->bad_address || before != one->old) {
    home_.count(Counter::conflicts);
    one->seen.word[0] = before;
    one->stage = swap->bad_address || one->seen.at.count != 1 ? Stage::written : Stage::looks;
    co_return;
  }
  co_await let_go_of(before, Counter::put_update);
  note_pointer(one->key(), one->item.word, one->item.slot, length_of(one->put->request));
  one->end(one->item.version);
}

// Of each that looks: which of the items that may be the key's is.
coro::Task<Result<void>> Table::look_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::size_t length = 0;
  std::size_t count = 0;
  for (Writing& one : all) {
    if (one.stage != Stage::looks) continue;
    one.asked = plain_matches(one.seen);
    one.stage = one.asked != 0 ? Stage::matches : Stage::written;
    const auto asked = static_cast<std::size_t>(std::popcount(one.asked));
    length += asked * item_bytes(one.key().bytes.size(), 0);
    count += asked;
  }
  if (count == 0) co_return Result<void>{};
  const auto items = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(count);
  std::byte* into = items.get();
  for (const Writing& one : all) {
    if (one.stage != Stage::matches) continue;
    const std::uint64_t bytes = item_bytes(one.key().bytes.size(), 0);
    for (std::uint8_t left = one.asked; left != 0; left &= left - 1) {
      const memory::ItemRef item = one.seen.word[static_cast<unsigned>(std::countr_zero(left))].item();
      operations.push_back(Operation::read_settled(item.address(), std::exchange(into, into + bytes), bytes));
    }
  }
  if (const auto done = co_await endpoint_.perform(operations); !done && endpoint_.has_failed())
    co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage != Stage::matches) continue;
    bool is_plain = true;
    for (std::uint8_t left = one.asked; left != 0; left &= left - 1) {
      const auto j = static_cast<unsigned>(std::countr_zero(left));
      const Operation& read = *next++;
      const bool is_mine =
          !read.bad_address && take_if_mine(one.key(), j, {read.local, read.length_bytes}, one.seen);
      is_plain = is_plain && !read.bad_address && (!is_mine || one.seen.header[j].expires_at_ns == 0);
      if (is_mine) one.location = j;
    }
    if (!is_plain || std::popcount(one.seen.mine) != 1) one.stage = Stage::written;
  }
  co_return Result<void>{};
}

// Bit j: word j may name an item of the key. None if any of these is more than a committed one.
std::uint8_t Table::plain_matches(const Collect& seen) const {
  if (is_outdated(seen) || is_damaged(seen)) return 0;
  std::uint8_t matches = 0;
  for (unsigned j = 0; j < seen.at.count; ++j) {
    const SlotWord word = seen.word[j];
    if (!word.names_item() || word.filter() != filter_of(seen.key_hash)) continue;
    const memory::ItemRef ref = word.item();
    const bool is_plain = word.is(SlotType::committed) && ref.size_class < memory::size_class_count &&
                          attachment_.find_node_of(ref) != nullptr;
    if (!is_plain) return 0;
    matches |= static_cast<std::uint8_t>(1U << j);
  }
  return matches;
}

// Step 2 of those that match.
coro::Task<Result<void>> Table::link_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::vector<Operation> operations;
  operations.reserve(all.size());
  if (!attachment_.may_act()) co_return Result<void>{};
  for (Writing& one : all) {
    if (one.stage != Stage::matches) continue;
    LOCH_FAULT_POINT("put.before_update");
    one.old = one.seen.word[one.location];
    operations.push_back(link_instead(one.old, one.seen.at.slot[one.location], &one.item));
  }
  if (operations.empty()) co_return Result<void>{};
  if (const auto done = co_await endpoint_.perform(operations); !done && endpoint_.has_failed())
    co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage == Stage::matches) co_await take_outcome(&one, next++);
  }
  co_return Result<void>{};
}

}  // namespace loch::hash
