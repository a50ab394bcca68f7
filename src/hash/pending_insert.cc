#include "hash/pending_insert.h"

#include <utility>

#include "base/fault.h"
#include "base/planted.h"
#include "hash/rules.h"

namespace loch::hash {

coro::Task<Result<PutOutcome>> PendingInsert::step5_place(Key key, const Collect* seen, unsigned alternate,
                                                          NewItem* item) {
  const SlotWord empty = seen->word[alternate];
  ItemWriter::prepare(item, SlotType::pending, key.filter(), seen->at.slot[alternate], empty);
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
  Collect expected = *seen;
  expected.word[alternate] = pending;
  if (!again.same_words(expected) && !base::planted(base::Planted::insert_without_look))
    co_return PutOutcome::again;  // settled by step5_settle
  LOCH_FAULT_POINT("put.before_commit");
  SlotWord before;
  auto won = co_await slots_.swap(item->slot, pending, pending.with_type(SlotType::committed), &before);
  if (!won) co_return std::unexpected(std::move(won.error()));
  if (!*won) co_return co_await step5_outcome(before, item);
  LOCH_FAULT_POINT("put.after_commit");
  item->is_pending = false;
  displacement_.note_insert();
  co_return PutOutcome::done;
}

coro::Task<Result<PutOutcome>> PendingInsert::step5_settle(Key key, NewItem* item) {
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
    if (SlotWord{*there} == item->word) co_return PutOutcome::again;
    co_return co_await step5_outcome({*there}, item);
  }
  if (!*equal) co_return PutOutcome::again;

  const bool is_hopeless =
      committed_location(snapshot) >= 0 || home_is_claimable(snapshot) || lowest_pending(snapshot) != mine;
  if (is_hopeless) co_return co_await withdraw(item);
  const auto repair = resolve(snapshot, home_.next_nonce());
  if (!repair) co_return PutOutcome::again;
  SlotWord before;
  auto applied = co_await resolver_.apply(&snapshot, *repair, &before);
  if (!applied) co_return std::unexpected(std::move(applied.error()));
  if (repair->location != static_cast<unsigned>(mine)) co_return PutOutcome::again;
  co_return co_await step5_outcome(*applied ? repair->desired : before, item);
}

coro::Task<Result<PutOutcome>> PendingInsert::withdraw(NewItem* item) {
  LOCH_FAULT_POINT("put.before_withdraw");
  SlotWord before;
  const SlotWord cleared = SlotWord::empty(home_.next_nonce(), item->word.level());
  auto won = co_await slots_.swap(item->slot, item->word, cleared, &before);
  if (!won) co_return std::unexpected(std::move(won.error()));
  if (!*won) co_return co_await step5_outcome(before, item);
  LOCH_FAULT_POINT("put.after_withdraw");
  co_return has_withdrawn(item);
}

Result<PutOutcome> PendingInsert::has_withdrawn(NewItem* item) {
  home_.count(Counter::pending_withdrawn);
  item->is_pending = false;
  if (item->tag == tag_max)
    return fail(Errc::timed_out, "put",
                "others were in the way of it too often, and each time it was withdrawn; it did not happen");
  ++item->tag;
  return PutOutcome::again;
}

coro::Task<Result<PutOutcome>> PendingInsert::step5_outcome(SlotWord there, NewItem* item) {
  if (there == item->word) co_return PutOutcome::again;
  if (there != item->word.with_type(SlotType::aborted) && !base::planted(base::Planted::wrong_roll_back)) {
    item->is_pending = false;
    displacement_.note_insert();
    co_return PutOutcome::done;
  }
  auto cleared = co_await slots_.swap(item->slot, there, SlotWord::empty(home_.next_nonce(), there.level()));
  if (!cleared) co_return std::unexpected(std::move(cleared.error()));
  // An A that stayed would be cleared by others later, and its item retired.
  if (!*cleared) co_return PutOutcome::again;
  co_return has_withdrawn(item);
}

Error PendingInsert::error_of(Error error, const NewItem& item) {
  const bool may_be_committed = item.is_pending && !base::planted(base::Planted::pending_for_undone);
  const bool says_undone = error.code == Errc::moved || error.code == Errc::corrupt;
  if (!says_undone || !may_be_committed) return error;
  error.code = Errc::unavailable;
  // Its detail is of the last step alone.
  error.detail = "the key's put had begun, and may or may not happen; of its next step: " + error.detail;
  return error;
}

}  // namespace loch::hash
