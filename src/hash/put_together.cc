#include "hash/put_together.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/planted.h"
#include "coro/scope.h"
#include "hash/rules.h"

namespace loch::hash {

using fabric::Operation;

namespace {

// So that what comes behind is aligned, too.
constexpr std::uint64_t in_whole_words(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

// One of the puts, and how far it is.
struct PutTogether::Writing {
  enum class Stage : std::uint8_t {
    links,    // its item is about to take the place of `old`
    follows,  // likewise, if that is where it was `lately`; what its slot holds is read, too
    looks,    // the key's slots are read, or one of them
    matches,  // some words may be the key's: those of `asked`
    found,    // the one at `location` is
    // The key is nowhere:
    fills_home,  // its home is empty; `again` is to say that nothing has changed
    offers,      // its home is taken, and the slot at `location` empty: a pending word is about to go there,
    pends,       // and stands there; `again` is to say that nothing else has changed
    collected,   // nothing is known but `seen`
    written,     // nor that
    over,
  };
  GroupedPut* put = nullptr;
  Stage stage = Stage::written;
  NewItem item{};
  KeyCollect seen{};
  // Of an insert, which few are: who writes known keys is not to fill the cache with it.
  struct Again {
    Collect seen{};
    Slots::Reading reading{};
  };
  std::unique_ptr<Again> again{};
  SlotWord old{};
  std::optional<Expectation> lately{};  // of one that follows
  std::uint8_t asked = 0;               // bit j: word j
  unsigned location = 0;

  [[nodiscard]] Key key() const { return put->request.key; }
  // Whether the words of all the key's slots are looked at, and not of one.
  [[nodiscard]] bool has_all_slots() const { return seen.at.count > 1; }
  void end(Result<std::uint64_t> outcome) {
    if (!outcome) outcome.error().key_hash = key().hash;
    put->outcome = std::move(outcome);
    stage = Stage::over;
  }
};

bool PutTogether::is_possible() const {
  return home_.remote() && !attachment_.is_of_cluster() && !slots_.directory().growing && !homing_.is_due() &&
         !attachment_.refresh_due();
}

std::optional<GroupedPut> PutTogether::prepare(const WriteRequest& request) {
  const auto spare = attachment_.nodes().front().allocator->take_spare(length_of(request));
  return spare ? std::optional(GroupedPut{.request = request, .item = *spare}) : std::nullopt;
}

coro::Task<void> PutTogether::put(std::span<GroupedPut> puts) {
  std::vector<Writing> all(puts.size());
  for (std::size_t i = 0; i < puts.size(); ++i) {
    all[i].put = &puts[i];
    all[i].item.ref = puts[i].item;
    all[i].seen.headers_wanted = false;
  }
  Result<void> done = co_await write_together(all);
  if (done) done = co_await look_together(all);
  if (done) done = co_await link_together(all);
  if (done) done = co_await commit_together(all);
  std::vector<coro::Task<void>> rest;
  for (Writing& one : all) {
    if (one.stage == Writing::Stage::over) continue;
    if (done) {
      rest.push_back(put_alone(&one));
    } else {
      one.end(std::unexpected(PendingInsert::error_of(done.error(), one.item)));  // the session is lost
    }
  }
  co_await coro::run_together(&endpoint_.queue(), std::span(rest));
}

coro::Task<void> PutTogether::put_alone(Writing* one) {
  using Begun = PutFar::Begun;
  const Begun begun = one->stage == Writing::Stage::collected ? Begun::collected : Begun::written;
  one->put->outcome = co_await writer_.put_written(&one->put->request, &one->seen, one->item, begun);
}

// How the put of a key begins, by what is known of it. The one of the key's slots that is looked at, unless
// that is each of them.
std::optional<SlotNumber> PutTogether::choose_way(Writing* one) {
  using Stage = Writing::Stage;
  const Key key = one->key();
  if (const auto pointer = known_.pointer_of(key)) {
    one->old = pointer->word;
    one->stage = Stage::links;
    return pointer->slot;
  }
  one->lately = known_.expectation_of(key);
  if (one->lately) {
    one->old = one->lately->word;
    one->stage = Stage::follows;
    return one->lately->slot;
  }
  one->stage = Stage::looks;
  const auto location = known_.location_of(key);
  return location ? std::optional(location->slot) : std::nullopt;
}

// The items are written. Those of known keys take the place of what is known right after that, and so do
// those of keys whose item was somewhere lately, if it is there still. Of all but the former, the slots are
// read.
coro::Task<Result<void>> PutTogether::write_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::size_t length = 0;
  std::vector<Operation> operations;
  operations.reserve(all.size() * (3 + Expectation::operations));
  for (Writing& one : all) {
    length += in_whole_words(length_of(one.put->request));
    const auto only = choose_way(&one);
    const Slots::Reading reading =
        slots_.begin_collect(one.key().hash, &one.seen, Slots::DirectoryToo::no, only);
    if (one.stage != Stage::links) reading.ask(one.seen.word.data(), &operations);
  }
  const std::size_t slots_end = operations.size();
  const auto copies = std::make_unique_for_overwrite<std::byte[]>(length);
  std::byte* copy = copies.get();
  for (Writing& one : all) {
    const WriteRequest& request = one.put->request;
    item_writer_.write_copy(request, &one.item, copy);
    operations.push_back(Operation::write(one.item.ref.address(), copy, length_of(request)));
    copy += in_whole_words(length_of(request));
    if (one.stage == Stage::looks) continue;
    if (one.lately) one.lately->ask(&operations);
    ItemWriter::prepare(&one.item, SlotType::committed, one.key().filter(), one.seen.at.slot[0], one.old);
    operations.push_back(item_writer_.linking(one.item, one.old));
    operations.back().after_previous = !base::planted(base::Planted::link_beside_item);
    LOCH_FAULT_POINT("put_together.before_write");
  }
  const auto done = co_await endpoint_.perform(operations);
  // Else there is something that is not there, or is not as it is expected.
  if (!done && done.error().code != Errc::corrupt) co_return done;

  const Operation* slot = operations.data();
  const Operation* next = operations.data() + slots_end;
  for (Writing& one : all) {
    const std::span slots(slot, one.stage == Stage::links ? 0 : one.seen.at.count);
    slot += slots.size();
    const Operation& write = *next++;
    if (one.stage == Stage::follows) next += Expectation::operations;
    const Operation* swap = one.stage == Stage::looks ? nullptr : next++;
    if (write.bad_address) {
      one.end(std::unexpected(done.error()));
      continue;
    }
    LOCH_FAULT_POINT("put_together.item_written");
    if (one.stage == Stage::follows && swap->bad_address) {
      home_.count(Counter::conflicts);
      one.stage = Stage::looks;
    } else if (swap != nullptr) {
      co_await take_outcome(&one, swap);
      continue;
    }
    if (std::ranges::any_of(slots, &Operation::bad_address)) one.stage = Stage::written;
  }
  co_return Result<void>{};
}

// What became of putting the item in the place of `old`: if another word is there, that is what is to be
// looked at.
coro::Task<void> PutTogether::take_outcome(Writing* one, const Operation* swap) {
  using Stage = Writing::Stage;
  const SlotWord before{swap->result};
  if (swap->bad_address || before != one->old) {
    home_.count(Counter::conflicts);
    one->seen.word[0] = before;
    one->stage = swap->bad_address || one->has_all_slots() ? Stage::written : Stage::looks;
    co_return;
  }
  co_await item_writer_.let_go_of(before, Counter::put_update);
  end_linked(one);
}

void PutTogether::end_linked(Writing* one) {
  known_.note_pointer(one->key(), one->item.word, one->item.slot, length_of(one->put->request));
  one->end(one->item.version);
}

// Of each that looks: what is to be done by the words that were read.
void PutTogether::choose_step(Writing* one) {
  using Stage = Writing::Stage;
  const Collect& seen = one->seen;
  const auto matches = plain_matches(seen);
  const bool are_all = one->has_all_slots();
  one->asked = matches.value_or(0);
  if (!matches || (*matches == 0 && !are_all)) {
    look_elsewhere(one);
  } else if (*matches != 0) {
    one->stage = Stage::matches;
  } else if (seen.word[home_location(seen)].is(SlotType::empty)) {
    one->stage = Stage::fills_home;
  } else if (const auto alternate = empty_alternate(seen); alternate && !home_is_claimable(seen)) {
    one->stage = Stage::offers;
    one->location = *alternate;
  } else {
    one->stage = Stage::collected;
  }
}

void PutTogether::ask_again(Writing* one, std::vector<Operation>* operations) {
  one->again = std::make_unique<Writing::Again>();
  one->again->reading = slots_.begin_collect(one->key().hash, &one->again->seen, Slots::DirectoryToo::yes);
  one->again->reading.ask(one->again->seen.word.data(), operations);
}

// Takes its answers from those that are left. Whether the words are those that are expected.
bool PutTogether::is_as_expected(const Writing& one, const Collect& expected, const Operation*& next) {
  const auto& [seen, reading] = *one.again;
  const std::span read(std::exchange(next, next + reading.count), reading.count);
  if (std::ranges::any_of(read, &Operation::bad_address)) return false;
  const auto is_newest = slots_.end_collect(reading, seen);
  return is_newest && *is_newest && seen.same_words(expected);
}

// Of each that looks: which of the items that may be the key's is; if there are none, the first half of an
// insert.
coro::Task<Result<void>> PutTogether::look_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  if (std::ranges::none_of(all, [](const Writing& one) { return one.stage == Stage::looks; }))
    co_return Result<void>{};
  std::size_t length = 0;
  for (Writing& one : all) {
    if (one.stage != Stage::looks) continue;
    choose_step(&one);
    length += static_cast<std::size_t>(std::popcount(one.asked)) * head_bytes(one);
  }
  const auto items = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(all.size());
  std::byte* into = items.get();
  for (Writing& one : all) {
    if (one.stage == Stage::matches) {
      for (std::uint8_t left = one.asked; left != 0; left &= left - 1)
        ask_for_head(one, one.seen.word[static_cast<unsigned>(std::countr_zero(left))].item(), &into,
                     &operations);
    } else if (one.stage == Stage::fills_home) {
      ask_again(&one, &operations);
    } else if (one.stage == Stage::offers) {
      one.old = one.seen.word[one.location];
      one.item.seen = true;
      ItemWriter::prepare(&one.item, SlotType::pending, one.key().filter(), one.seen.at.slot[one.location],
                          one.old);
      operations.push_back(item_writer_.linking(one.item, one.old));
    }
  }
  if (operations.empty()) co_return Result<void>{};
  if (auto done = co_await endpoint_.perform_each(operations); !done) co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage == Stage::matches) {
      take_items(&one, next);
    } else if (one.stage == Stage::fills_home) {
      if (!is_as_expected(one, one.seen, next)) one.stage = Stage::written;
    } else if (one.stage == Stage::offers) {
      if (!has_linked(&one, *next++)) continue;
      LOCH_FAULT_POINT("put_together.after_pending");
      home_.count(Counter::pending_inserts);
      one.item.is_pending = true;
      one.stage = Stage::pends;
    }
  }
  co_return Result<void>{};
}

// Whether its item's word stands where `old` stood.
bool PutTogether::has_linked(Writing* one, const Operation& swap) {
  if (!swap.bad_address && swap.result == one->old.raw) return true;
  home_.count(Counter::conflicts);
  one->stage = Writing::Stage::written;
  return false;
}

// How much of an item tells whether it is the key's.
std::uint64_t PutTogether::head_bytes(const Writing& one) { return item_bytes(one.key().bytes.size(), 0); }

void PutTogether::ask_for_head(const Writing& one, memory::ItemRef item, std::byte** into,
                               std::vector<Operation>* operations) {
  const std::uint64_t bytes = head_bytes(one);
  operations->push_back(Operation::read_settled(item.address(), *into, bytes));
  *into += bytes;
}

// Takes the items that were asked for, of those that are left.
void PutTogether::take_items(Writing* one, const Operation*& next) {
  using Stage = Writing::Stage;
  for (std::uint8_t left = one->asked; left != 0; left &= left - 1) {
    const auto j = static_cast<unsigned>(std::countr_zero(left));
    const Operation& read = *next++;
    if (!read.bad_address &&
        snapshots_.take_if_mine(one->key(), j, {read.local, read.length_bytes}, one->seen))
      one->location = j;
  }
  if (std::popcount(one->seen.mine) == 1) {
    one->stage = Stage::found;
  } else {
    look_elsewhere(one);
  }
}

// What was read says too little.
void PutTogether::look_elsewhere(Writing* one) {
  one->stage = Writing::Stage::written;
  if (!one->has_all_slots()) known_.forget_item(one->key(), one->seen.at.slot[0]);
}

// Bit j: word j may name an item of the key. Nothing if any of these is more than a committed one.
std::optional<std::uint8_t> PutTogether::plain_matches(const Collect& seen) const {
  if (is_outdated(seen) || is_damaged(seen)) return std::nullopt;
  std::uint8_t matches = 0;
  for (unsigned j = 0; j < seen.at.count; ++j) {
    const SlotWord word = seen.word[j];
    if (!word.names_item() || word.filter() != filter_of(seen.key_hash)) continue;
    if (!word.is(SlotType::committed) || attachment_.find_node_of(word.item()) == nullptr)
      return std::nullopt;
    matches |= static_cast<std::uint8_t>(1U << j);
  }
  return matches;
}

// Step 2 of those that are found, 4 of those whose home is empty; and another look of those that stand as
// pending.
coro::Task<Result<void>> PutTogether::link_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::vector<Operation> operations;
  operations.reserve(all.size());
  for (Writing& one : all) {
    if (one.stage == Stage::pends) ask_again(&one, &operations);
    const bool is_found = one.stage == Stage::found;
    if (!is_found && one.stage != Stage::fills_home) continue;
    if (is_found) LOCH_FAULT_POINT("put_together.before_update");
    if (!is_found) LOCH_FAULT_POINT("put_together.before_home");
    const unsigned at = is_found ? one.location : home_location(one.seen);
    one.old = one.seen.word[at];
    ItemWriter::prepare(&one.item, SlotType::committed, one.key().filter(), one.seen.at.slot[at], one.old);
    operations.push_back(item_writer_.linking(one.item, one.old));
  }
  if (operations.empty()) co_return Result<void>{};
  if (auto done = co_await endpoint_.perform_each(operations); !done) co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage == Stage::found) {
      co_await take_outcome(&one, next++);
    } else if (one.stage == Stage::fills_home) {
      if (!has_linked(&one, *next++)) continue;
      LOCH_FAULT_POINT("put_together.after_home");
      displacement_.note_insert();
      end_linked(&one);
    } else if (one.stage == Stage::pends) {
      Collect expected = static_cast<const Collect&>(one.seen);
      expected.word[one.location] = one.item.word;
      if (!is_as_expected(one, expected, next) && !base::planted(base::Planted::insert_without_look))
        one.stage = Stage::written;
    }
  }
  co_return Result<void>{};
}

// Step 5 (b) of those that stand as pending: nobody else can have inserted their keys.
coro::Task<Result<void>> PutTogether::commit_together(std::span<Writing> all) {
  using Stage = Writing::Stage;
  std::vector<Operation> operations;
  for (const Writing& one : all) {
    if (one.stage != Stage::pends) continue;
    LOCH_FAULT_POINT("put_together.before_commit");
    const SlotWord pending = one.item.word;
    operations.push_back(Operation::compare_swap(slots_.place().slot(one.item.slot), pending.raw,
                                                 pending.with_type(SlotType::committed).raw));
  }
  if (operations.empty()) co_return Result<void>{};
  if (auto done = co_await endpoint_.perform_each(operations); !done) co_return done;
  const Operation* next = operations.data();
  for (Writing& one : all) {
    if (one.stage != Stage::pends) continue;
    const Operation& swap = *next++;
    one.stage = Stage::written;  // unless it is over
    if (swap.bad_address) continue;
    if (swap.result == swap.compare) {
      LOCH_FAULT_POINT("put_together.after_commit");
      one.item.is_pending = false;
      displacement_.note_insert();
    } else if (const auto outcome = co_await pending_.step5_outcome({swap.result}, &one.item);
               !outcome || *outcome != PutOutcome::done) {
      continue;
    }
    one.item.word = one.item.word.with_type(SlotType::committed);
    end_linked(&one);
  }
  co_return Result<void>{};
}

}  // namespace loch::hash
