#include "hash/writer.h"

#include <utility>

#include "base/fault.h"
#include "base/planted.h"
#include "hash/attempts.h"

namespace loch::hash {
namespace {

// Of a write that took the place of an item: an insert finds only such as are over.
Counter counter_of(Condition condition) {
  switch (condition) {
    case Condition::none:
      return Counter::put_update;
    case Condition::absent:
      return Counter::put_insert;
    case Condition::version:
      return Counter::replace_done;
  }
  return Counter::put_update;
}

}  // namespace

coro::Task<Result<std::uint64_t>> Writer::put(WriteRequest request) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  if (slots_.directory().growing) [[unlikely]] {
    if (auto helped = co_await growth_.help(); !helped) co_return std::unexpected(std::move(helped.error()));
  } else if (homing_.is_due()) [[unlikely]] {
    if (auto helped = co_await homing_.help(); !helped) co_return std::unexpected(std::move(helped.error()));
  }
  KeyCollect seen;
  seen.headers_wanted = request.condition != Condition::none;
  PutFar::Begun begun = PutFar::Begun::written;
  auto composed = home_.remote() ? co_await put_far_.begin(&request, &seen, &begun)
                                 : co_await item_writer_.compose(request);
  if (!composed) {
    composed.error().key_hash = request.key.hash;
    co_return std::unexpected(std::move(composed.error()));
  }
  co_return co_await put_written(&request, &seen, *composed, begun);
}

coro::Task<Result<std::uint64_t>> Writer::put_written(const WriteRequest* request, KeyCollect* seen,
                                                      NewItem item, PutFar::Begun begun) {
  const Key key = request->key;
  Attempts attempts(slots_, "put", key.hash, Attempts::Of::change);
  for (;;) {
    Result<PutOutcome> step = PutOutcome::done;
    if (item.is_pending) {
      step = co_await pending_.step5_settle(key, &item);
    } else if (begun != PutFar::Begun::linked) {
      step = co_await put_step(request, seen, &item, begun == PutFar::Begun::collected);
    }
    begun = PutFar::Begun::written;
    if (step && *step == PutOutcome::done) {
      known_.note_pointer(key, item.word.with_type(SlotType::committed), item.slot, length_of(*request),
                          request->expires_at_ns != 0);
      co_return item.version;
    }
    Result<void> more{};
    if (step) more = co_await attempts.again();
    if (step && more) continue;
    Error error = step ? std::move(more.error()) : std::move(step.error());
    if ((error.code == Errc::moved || error.code == Errc::corrupt) && item.is_pending) {
      // Both say that it did not happen. A move of the shard waits for this operation; and of a key with a
      // damaged slot nobody could tell whether the item is to be committed.
      auto settled = co_await pending_.withdraw(&item);
      if (settled && *settled == PutOutcome::done) co_return item.version;
      if (!settled) error = std::move(settled.error());
      error = PendingInsert::error_of(std::move(error), item);
    }
    error.key_hash = key.hash;
    co_await abandon(&item);
    co_return std::unexpected(std::move(error));
  }
}

// One round of PUT with nothing pending.
coro::Task<Result<PutOutcome>> Writer::put_step(const WriteRequest* request, KeyCollect* seen, NewItem* item,
                                                bool is_collected) {
  // Step 1: collect.
  if (!is_collected) {
    if (auto read = co_await snapshots_.collect(request->key, seen); !read)
      co_return std::unexpected(std::move(read.error()));
  }
  if (committed_location(*seen) >= 0) co_return co_await put_step2_update(request, seen, item);
  co_return co_await put_step_of_absent(request, seen, item);
}

// Step 2: K is committed in a slot. One compare-swap replaces its item, if the condition holds.
coro::Task<Result<PutOutcome>> Writer::put_step2_update(const WriteRequest* request, KeyCollect* seen,
                                                        NewItem* item) {
  const auto j = static_cast<unsigned>(committed_location(*seen));
  if (auto holds = check_condition(*request, *seen, j); !holds)
    co_return std::unexpected(std::move(holds.error()));
  const SlotWord old = seen->word[j];
  LOCH_FAULT_POINT("put.before_update");
  ItemWriter::prepare(item, SlotType::committed, request->key.filter(), seen->at.slot[j], old);
  auto won = co_await slots_.swap(item->slot, old, item->word);
  if (!won || !*won) co_return again_or_in_doubt(item, std::move(won));
  co_await item_writer_.let_go_of(old, counter_of(request->condition));
  co_return PutOutcome::done;
}

Result<void> Writer::check_condition(const WriteRequest& request, const KeyCollect& seen, unsigned j) {
  if (request.condition == Condition::none) [[likely]]
    return {};
  const memory::ItemHeader& current = seen.header[j];
  const bool is_expired = has_expired(current.expires_at_ns, seen.asked_at_ns) &&
                          !base::planted(base::Planted::present_without_time);
  if (request.condition == Condition::absent && !is_expired) return fail(Errc::exists, "insert");
  if (request.condition == Condition::version && is_expired) return fail(Errc::not_found, "replace");
  if (request.condition == Condition::version &&
      item_version(seen.word[j].item(), current.written_at_ns, current.client) != request.version) {
    return fail(Errc::changed, "replace");
  }
  return {};
}

// Steps 3 to 6: no committed item of K was seen.
coro::Task<Result<PutOutcome>> Writer::put_step_of_absent(const WriteRequest* request, KeyCollect* seen,
                                                          NewItem* item) {
  const Key key = request->key;
  const SlotWord home = seen->word[home_location(*seen)];
  const bool unfinished = has_unfinished(*seen);
  if (unfinished || request->condition == Condition::version || home.is(SlotType::empty)) {
    auto equal = co_await snapshots_.is_snapshot(key, seen);
    if (!equal) co_return std::unexpected(std::move(equal.error()));
    if (!*equal) co_return PutOutcome::again;
  }
  if (unfinished) {
    // Step 3: what is under way is brought on by one step.
    if (auto done = co_await resolver_.resolve_step(key, seen); !done)
      co_return std::unexpected(std::move(done.error()));
    co_return PutOutcome::again;
  }
  if (request->condition == Condition::version) co_return fail(Errc::not_found, "replace", {}, key.hash);
  if (home.is(SlotType::empty)) co_return co_await put_step4_home(seen, item);
  if (home_is_claimable(*seen)) {
    // Another key's finished move stands in the home slot.
    if (auto cleared = co_await resolver_.clear_moved(seen->at.slot[home_location(*seen)], home, key.hash);
        !cleared)
      co_return std::unexpected(std::move(cleared.error()));
    co_return PutOutcome::again;
  }
  // Step 5: home is taken, and an alternate slot empty.
  if (const auto alternate = empty_alternate(*seen))
    co_return co_await pending_.step5_place(key, seen, *alternate, item);
  // Step 6: all candidates are taken.
  if (auto made = co_await displacement_.make_room(seen); !made)
    co_return std::unexpected(std::move(made.error()));
  co_return PutOutcome::again;
}

// Step 4: K is nowhere and its home is empty.
coro::Task<Result<PutOutcome>> Writer::put_step4_home(KeyCollect* snapshot, NewItem* item) {
  const unsigned home = home_location(*snapshot);
  const SlotWord empty = snapshot->word[home];
  if (!empty.is(SlotType::empty)) co_return PutOutcome::again;
  LOCH_FAULT_POINT("put.before_home");
  ItemWriter::prepare(item, SlotType::committed, filter_of(snapshot->key_hash), snapshot->at.slot[home],
                      empty);
  auto won = co_await slots_.swap(item->slot, empty, item->word);
  if (!won || !*won) co_return again_or_in_doubt(item, std::move(won));
  LOCH_FAULT_POINT("put.after_home");
  displacement_.note_insert();
  co_return PutOutcome::done;
}

// What becomes of an item that was not linked. One that still stands as a pending insert may yet be committed
// by somebody, so it is left to them; one that may be linked is left to a collection.
coro::Task<void> Writer::abandon(NewItem* item) {
  if (item->is_pending || item->in_doubt) co_return;
  if (!item->seen) {
    co_await attachment_.allocator_of(item->ref).discard(item->ref);
    co_return;
  }
  co_await attachment_.allocator_of(item->ref).retire(item->ref, true);
}

coro::Task<Result<void>> Writer::remove(Key key, std::optional<std::uint64_t> version) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return fresh;
  if (slots_.directory().growing) [[unlikely]] {
    if (auto helped = co_await growth_.help(); !helped) co_return helped;
  } else if (homing_.is_due()) [[unlikely]] {
    if (auto helped = co_await homing_.help(); !helped) co_return helped;
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
        known_.forget_item(key, seen.at.slot[j]);
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
