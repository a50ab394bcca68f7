// PUT in its three conditions, and REMOVE (docs/hash.md, "Operations"; the numbers of the steps are those
// there).
#include <memory>
#include <utility>

#include "base/fault.h"
#include "base/planted.h"
#include "hash/attempts.h"
#include "hash/table.h"

namespace loch::hash {
namespace {

constexpr unsigned displacing_window = 64;
constexpr unsigned displacing_always = displacing_window * 256;

}  // namespace

Result<Table::Outcome> Table::again_or_in_doubt(NewItem* item, Result<bool> swapped) {
  if (swapped) return Outcome::again;
  item->in_doubt = true;
  return std::unexpected(std::move(swapped.error()));
}

coro::Task<Result<std::uint64_t>> Table::put(WriteRequest request) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  if (slots_.directory().growing) [[unlikely]] {
    if (auto helped = co_await growth_.help(); !helped) co_return std::unexpected(std::move(helped.error()));
  }
  KeyCollect seen;
  seen.headers_wanted = request.condition != Condition::none;
  Begun begun = Begun::written;
  auto composed = home_.remote() ? co_await compose_and_begin(&request, &seen, &begun)
                                 : co_await item_writer_.compose(request);
  if (!composed) {
    composed.error().key_hash = request.key.hash;
    co_return std::unexpected(std::move(composed.error()));
  }
  co_return co_await put_written(&request, &seen, *composed, begun);
}

coro::Task<Result<std::uint64_t>> Table::put_written(const WriteRequest* request, KeyCollect* seen,
                                                     NewItem item, Begun begun) {
  const Key key = request->key;
  Attempts attempts(slots_, "put", key.hash, Attempts::Of::change);
  for (;;) {
    Result<Outcome> step = Outcome::done;
    if (item.is_pending) {
      step = co_await put_step5_settle(key, &item);
    } else if (begun != Begun::linked) {
      step = co_await put_step(request, seen, &item, begun == Begun::collected);
    }
    begun = Begun::written;
    if (step && *step == Outcome::done) {
      known_.note_pointer(key, item.word.with_type(SlotType::committed), item.slot, length_of(*request),
                          request->expires_at_ns != 0);
      co_return item.version;
    }
    Result<void> more{};
    if (step) more = co_await attempts.again();
    if (step && more) continue;
    Error error = step ? std::move(more.error()) : std::move(step.error());
    if (error.code == Errc::moved && item.is_pending) {
      // This operation is one of those that the move waits for.
      auto settled = co_await withdraw(&item);
      if (settled && *settled == Outcome::done) co_return item.version;
      if (!settled) error = of_pending(std::move(settled.error()), item);
    }
    error.key_hash = key.hash;
    co_await abandon(&item);
    co_return std::unexpected(std::move(error));
  }
}

// One round of PUT with nothing pending.
coro::Task<Result<Table::Outcome>> Table::put_step(const WriteRequest* request, KeyCollect* seen,
                                                   NewItem* item, bool is_collected) {
  // Step 1: collect.
  if (!is_collected) {
    if (auto read = co_await snapshots_.collect(request->key, seen); !read)
      co_return std::unexpected(std::move(read.error()));
  }
  if (committed_location(*seen) >= 0) co_return co_await put_step2_update(request, seen, item);
  co_return co_await put_step_of_absent(request, seen, item);
}

// Step 2: K is committed in a slot. One compare-swap replaces its item, if the condition holds.
coro::Task<Result<Table::Outcome>> Table::put_step2_update(const WriteRequest* request, KeyCollect* seen,
                                                           NewItem* item) {
  const auto j = static_cast<unsigned>(committed_location(*seen));
  if (auto holds = check_condition(*request, *seen, j); !holds) {
    co_return std::unexpected(std::move(holds.error()));
  }
  const SlotWord old = seen->word[j];
  LOCH_FAULT_POINT("put.before_update");
  ItemWriter::prepare(item, SlotType::committed, request->key.filter(), seen->at.slot[j], old);
  auto won = co_await slots_.swap(item->slot, old, item->word);
  if (!won || !*won) co_return again_or_in_doubt(item, std::move(won));
  co_await let_go_of(old,
                     request->condition == Condition::version ? Counter::replace_done : Counter::put_update);
  co_return Outcome::done;
}

coro::Task<void> Table::let_go_of(SlotWord old, Counter how) {
  LOCH_FAULT_POINT("put.after_update");
  home_.count(how);
  return attachment_.allocator_of(old.item()).retire_soon(old.item(), old.tag() != 0);
}

Result<void> Table::check_condition(const WriteRequest& request, const KeyCollect& seen, unsigned j) {
  if (request.condition == Condition::none) [[likely]]
    return {};
  const memory::ItemHeader& current = seen.header[j];
  const bool is_expired = has_expired(current.expires_at_ns, seen.asked_at_ns);
  if (request.condition == Condition::absent && !is_expired) return fail(Errc::exists, "insert");
  if (request.condition == Condition::version && is_expired) return fail(Errc::not_found, "replace");
  if (request.condition == Condition::version &&
      item_version(seen.word[j].item(), current.written_at_ns, current.client) != request.version) {
    return fail(Errc::changed, "replace");
  }
  return {};
}

// Steps 3 to 6: no committed item of K was seen.
coro::Task<Result<Table::Outcome>> Table::put_step_of_absent(const WriteRequest* request, KeyCollect* seen,
                                                             NewItem* item) {
  const Key key = request->key;
  const SlotWord home = seen->word[home_location(*seen)];
  const bool unfinished = has_unfinished(*seen);
  if (unfinished || request->condition == Condition::version || home.is(SlotType::empty)) {
    auto equal = co_await snapshots_.is_snapshot(key, seen);
    if (!equal) co_return std::unexpected(std::move(equal.error()));
    if (!*equal) co_return Outcome::again;
  }
  if (unfinished) {
    // Step 3: what is under way is brought on by one step.
    if (auto done = co_await resolver_.resolve_step(key, seen); !done)
      co_return std::unexpected(std::move(done.error()));
    co_return Outcome::again;
  }
  if (request->condition == Condition::version) co_return fail(Errc::not_found, "replace", {}, key.hash);
  if (home.is(SlotType::empty)) co_return co_await put_step4_home(seen, item);
  if (home_is_claimable(*seen)) {
    // Another key's finished move stands in the home slot.
    auto done = co_await resolver_.resolve_item(home.item());
    if (done && !*done) {
      // Its item is damaged, or tells of no such move: the word means nothing.
      const SlotNumber slot = seen->at.slot[home_location(*seen)];
      done =
          co_await slots_.swap(slot, home, cleared_word(home, slot, seen->at.directory, home_.next_nonce()));
    }
    if (!done) co_return std::unexpected(std::move(done.error()));
    co_return Outcome::again;
  }
  co_return co_await put_step5_pending(key, seen, item);
}

// Keeps the share of inserts that displace: it rises steeply with the load of the index, and says when
// growing is better.
void Table::note_insert(bool displaced) {
  displacing_share_ -= displacing_share_ / displacing_window;
  if (displaced) {
    displacing_share_ += displacing_always / displacing_window;
  } else {
    home_.count(Counter::put_insert);
  }
}

// What becomes of an item that was not linked. One that still stands as a pending insert may yet be committed
// by somebody, so it is left to them; one that may be linked is left to a collection.
coro::Task<void> Table::abandon(NewItem* item) {
  if (item->is_pending || item->in_doubt) co_return;
  if (!item->seen) {
    co_await attachment_.allocator_of(item->ref).discard(item->ref);
    co_return;
  }
  co_await attachment_.allocator_of(item->ref).retire(item->ref, true);
}

// Step 4: K is nowhere and its home is empty.
coro::Task<Result<Table::Outcome>> Table::put_step4_home(KeyCollect* snapshot, NewItem* item) {
  const unsigned home = home_location(*snapshot);
  const SlotWord empty = snapshot->word[home];
  if (!empty.is(SlotType::empty)) co_return Outcome::again;
  LOCH_FAULT_POINT("put.before_home");
  ItemWriter::prepare(item, SlotType::committed, filter_of(snapshot->key_hash), snapshot->at.slot[home],
                      empty);
  auto won = co_await slots_.swap(item->slot, empty, item->word);
  if (!won || !*won) co_return again_or_in_doubt(item, std::move(won));
  LOCH_FAULT_POINT("put.after_home");
  note_insert(false);
  co_return Outcome::done;
}

// Step 5: home is taken. An alternate slot gets a pending word, which is committed if nothing moved
// meanwhile.
coro::Task<Result<Table::Outcome>> Table::put_step5_pending(Key key, KeyCollect* seen, NewItem* item) {
  const auto alternate = empty_alternate(*seen);
  if (!alternate) co_return co_await put_step6_make_room(seen);

  const unsigned a = *alternate;
  const SlotWord empty = seen->word[a];
  ItemWriter::prepare(item, SlotType::pending, key.filter(), seen->at.slot[a], empty);
  const SlotWord pending = item->word;
  item->seen = true;
  auto placed = co_await slots_.swap(item->slot, empty, pending);
  if (!placed || !*placed) co_return again_or_in_doubt(item, std::move(placed));
  LOCH_FAULT_POINT("put.after_pending");
  home_.count(Counter::pending_inserts);
  item->is_pending = true;

  // (b) A collect after the pending word stands: if the others are as before, nobody else can have inserted
  // K.
  Collect again;
  if (auto read = co_await slots_.collect(key.hash, &again); !read)
    co_return std::unexpected(std::move(read.error()));
  Collect expected = static_cast<const Collect&>(*seen);
  expected.word[a] = pending;
  if (!again.same_words(expected) && !base::planted(base::Planted::insert_without_look))
    co_return Outcome::again;  // settled by put_step5_settle
  LOCH_FAULT_POINT("put.before_commit");
  SlotWord before;
  auto won = co_await slots_.swap(item->slot, pending, pending.with_type(SlotType::committed), &before);
  if (!won) co_return std::unexpected(std::move(won.error()));
  if (!*won) co_return co_await pending_outcome(before, item);
  LOCH_FAULT_POINT("put.after_commit");
  item->is_pending = false;
  note_insert(false);
  co_return Outcome::done;
}

// (b) again, from a snapshot: the pending word is withdrawn if there is a reason, else brought on by RESOLVE.
coro::Task<Result<Table::Outcome>> Table::put_step5_settle(Key key, NewItem* item) {
  KeyCollect snapshot;
  if (auto read = co_await snapshots_.collect(key, &snapshot); !read)
    co_return std::unexpected(std::move(read.error()));
  auto equal = co_await snapshots_.is_snapshot(key, &snapshot);
  if (!equal) co_return std::unexpected(std::move(equal.error()));
  const int mine = snapshot.at.index_of(item->slot);
  // A slot that is no candidate any more was split while the word stood there, so it does no longer.
  if (mine < 0 || snapshot.word[static_cast<unsigned>(mine)] != item->word) {
    auto there = co_await slots_.read(item->slot);
    if (!there) co_return std::unexpected(std::move(there.error()));
    if (SlotWord{*there} == item->word) co_return Outcome::again;
    co_return co_await pending_outcome({*there}, item);
  }
  if (!*equal) co_return Outcome::again;

  const bool is_hopeless =
      committed_location(snapshot) >= 0 || home_is_claimable(snapshot) || lowest_pending(snapshot) != mine;
  if (is_hopeless) co_return co_await try_withdraw(item);
  const auto repair = resolve(snapshot, home_.next_nonce());
  if (!repair) co_return Outcome::again;
  SlotWord before;
  auto applied = co_await resolver_.apply(&snapshot, *repair, &before);
  if (!applied) co_return std::unexpected(std::move(applied.error()));
  if (repair->location != static_cast<unsigned>(mine)) co_return Outcome::again;
  co_return co_await pending_outcome(*applied ? repair->desired : before, item);
}

// Takes the pending word back. If it can not, somebody has decided.
coro::Task<Result<Table::Outcome>> Table::try_withdraw(NewItem* item) {
  LOCH_FAULT_POINT("put.before_withdraw");
  SlotWord before;
  const SlotWord cleared = SlotWord::empty(home_.next_nonce(), item->word.level());
  auto won = co_await slots_.swap(item->slot, item->word, cleared, &before);
  if (!won) co_return std::unexpected(std::move(won.error()));
  if (!*won) co_return co_await pending_outcome(before, item);
  LOCH_FAULT_POINT("put.after_withdraw");
  co_return has_withdrawn(item);
}

Result<Table::Outcome> Table::has_withdrawn(NewItem* item) {
  home_.count(Counter::pending_withdrawn);
  item->is_pending = false;
  if (item->tag == tag_max)
    return fail(Errc::timed_out, "put",
                "others were in the way of it too often, and each time it was withdrawn; it did not happen");
  ++item->tag;
  return Outcome::again;
}

// Of one that may yet be committed by somebody, nobody can say that it was not done.
Error Table::of_pending(Error error, const NewItem& item) {
  const bool may_be_committed = item.is_pending && !base::planted(base::Planted::pending_for_undone);
  if (error.code != Errc::moved || !may_be_committed) return error;
  error.code = Errc::unavailable;
  error.detail += "; the key's put had begun before, and may or may not happen";
  return error;
}

// The same without a look at the key's other slots, until it is over.
coro::Task<Result<Table::Outcome>> Table::withdraw(NewItem* item) {
  constexpr int rounds_max = 16;
  for (int round = 0; round < rounds_max; ++round) {
    auto outcome = co_await try_withdraw(item);
    if (!outcome || !item->is_pending) co_return outcome;
  }
  co_return fail(Errc::timed_out, "put",
                 "the key's part of the index moves; it may or may not have happened");
}

// (c) The pending word could not be changed. Its slot holds another one: A means lost, anything else that the
// item was committed.
coro::Task<Result<Table::Outcome>> Table::pending_outcome(SlotWord there, NewItem* item) {
  if (there == item->word) co_return Outcome::again;
  if (there != item->word.with_type(SlotType::aborted) && !base::planted(base::Planted::wrong_roll_back)) {
    item->is_pending = false;
    note_insert(false);
    co_return Outcome::done;
  }
  auto cleared = co_await slots_.swap(item->slot, there, SlotWord::empty(home_.next_nonce(), there.level()));
  if (!cleared) co_return std::unexpected(std::move(cleared.error()));
  // An A that stayed would be cleared by others later, and its item retired.
  if (!*cleared) co_return Outcome::again;
  co_return has_withdrawn(item);
}

// Step 6: all candidates are taken.
coro::Task<Result<Table::Outcome>> Table::put_step6_make_room(KeyCollect* seen) {
  for (unsigned i = 0; i < seen->at.candidates; ++i) {
    const SlotWord word = seen->word[open_location(*seen, i)];
    if (!word.names_item() || word.is(SlotType::committed)) continue;
    auto done = co_await resolver_.resolve_item(word.item());
    if (!done && is_out_of_reach(done.error())) continue;
    if (!done) co_return std::unexpected(std::move(done.error()));
    if (*done) co_return Outcome::again;
  }
  note_insert(true);
  auto made = co_await displacement_.make_room(seen);
  if (!made) co_return std::unexpected(std::move(made.error()));
  const bool crowded = displacing_share_ > displacing_always / 4 * 3;
  if (!*made || (crowded && !slots_.directory().growing)) {
    if (!*made) home_.count(Counter::displacement_failures);
    displacing_share_ = 0;
    auto grown = co_await growth_.make_room(seen);
    // There was room for this one: that the index can not grow is the next one's trouble.
    if (!grown && !*made) co_return std::unexpected(std::move(grown.error()));
  }
  co_return Outcome::again;
}

coro::Task<Result<void>> Table::remove(Key key, std::optional<std::uint64_t> version) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return fresh;
  if (slots_.directory().growing) [[unlikely]] {
    if (auto helped = co_await growth_.help(); !helped) co_return helped;
  }
  const WriteRequest request{.key = key,
                             .value = {},
                             .condition = version ? Condition::version : Condition::none,
                             .version = version.value_or(0)};
  Attempts attempts(slots_, "remove", key.hash, Attempts::Of::change);
  KeyCollect seen;
  for (;;) {
    if (auto read = co_await snapshots_.collect(key, &seen); !read) co_return read;
    if (const int committed = committed_location(seen); committed >= 0) {
      const auto j = static_cast<unsigned>(committed);
      if (const auto holds = check_condition(request, seen, j); !holds)
        co_return fail(holds.error().code, "remove", {}, key.hash);
      const SlotWord old = seen.word[j];
      const bool was_expired = has_expired(seen.header[j].expires_at_ns, seen.asked_at_ns);
      LOCH_FAULT_POINT("remove.before_unlink");
      auto won = co_await slots_.swap(seen.at.slot[j], old, SlotWord::empty(home_.next_nonce(), old.level()));
      if (!won) co_return std::unexpected(std::move(won.error()));
      if (*won) {
        LOCH_FAULT_POINT("remove.after_unlink");
        known_.forget_location(key, seen.at.slot[j]);
        co_await attachment_.allocator_of(old.item()).retire_soon(old.item(), old.tag() != 0);
        if (was_expired) co_return fail(Errc::not_found, "remove", {}, key.hash);
        co_return Result<void>{};
      }
    } else {
      auto equal = co_await snapshots_.is_snapshot(key, &seen);
      if (!equal) co_return std::unexpected(std::move(equal.error()));
      if (*equal) {
        if (current_location(seen) < 0) co_return fail(Errc::not_found, "remove", {}, key.hash);
        // A move is half way: it is committed first.
        if (auto done = co_await resolver_.resolve_step(key, &seen); !done)
          co_return std::unexpected(std::move(done.error()));
      }
    }
    if (auto more = co_await attempts.again(); !more) co_return more;
  }
}

}  // namespace loch::hash
