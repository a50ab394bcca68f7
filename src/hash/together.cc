// Plain puts of a remote session, many at once: each step of PUT (writer.cc) for all of them in one batch,
// where each by itself takes a coroutine and a batch a step. What does not go as it mostly does, goes on as a
// coroutine.
#include <algorithm>
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
    matches,  // one word may be the key's: the one at `location`
    written,  // nothing but that is known
    over,
  };
  PlainPut* put = nullptr;
  Stage stage = Stage::written;
  NewItem item{};
  KeyCollect seen{};
  SlotWord old{};
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

// Of each that looks: whether the one item that may be the key's is.
coro::Task<Result<void>> Table::look_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::size_t length = 0;
  std::size_t count = 0;
  for (Writing& one : all) {
    if (one.stage != Stage::looks) continue;
    const auto location = only_match(one.seen);
    one.stage = location ? Stage::matches : Stage::written;
    if (!location) continue;
    one.location = *location;
    length += item_bytes(one.key().bytes.size(), 0);
    ++count;
  }
  if (count == 0) co_return Result<void>{};
  const auto items = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(count);
  std::byte* into = items.get();
  for (const Writing& one : all) {
    if (one.stage != Stage::matches) continue;
    const std::uint64_t bytes = item_bytes(one.key().bytes.size(), 0);
    operations.push_back(Operation::read_settled(one.seen.word[one.location].item().address(), into, bytes));
    into += bytes;
  }
  if (const auto done = co_await endpoint_.perform(operations); !done && endpoint_.has_failed())
    co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage != Stage::matches) continue;
    const Operation& read = *next++;
    const bool is_mine = !read.bad_address &&
                         take_if_mine(one.key(), one.location, {read.local, read.length_bytes}, one.seen) &&
                         one.seen.header[one.location].expires_at_ns == 0;
    if (!is_mine) one.stage = Stage::written;
  }
  co_return Result<void>{};
}

// The location of the one word that may name an item of the key, if it is committed.
std::optional<unsigned> Table::only_match(const Collect& seen) const {
  if (is_outdated(seen) || is_damaged(seen)) return std::nullopt;
  std::optional<unsigned> found;
  for (unsigned j = 0; j < seen.at.count; ++j) {
    const SlotWord word = seen.word[j];
    if (!word.names_item() || word.filter() != filter_of(seen.key_hash)) continue;
    if (found || !word.is(SlotType::committed) || attachment_.find_node_of(word.item()) == nullptr)
      return std::nullopt;
    const memory::ItemRef ref = word.item();
    if (ref.size_class < memory::size_class_count) found = j;
  }
  return found;
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
