#include "hash/resolver.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include "base/fault.h"
#include "base/planted.h"

namespace loch::hash {

coro::Task<Result<bool>> Resolver::apply(const Collect* snapshot, Repair repair, SlotWord* before) {
  const SlotNumber slot = snapshot->at.slot[repair.location];
  // Whoever marks a source writes a word that names the item, as the mover does, and has to see to it
  // likewise: what the mover had to may have been settled already.
  memory::Session* const marking =
      repair.kind == Repair::Kind::mark_source ? &attachment_.session_of(repair.expected.item()) : nullptr;
  if (marking != nullptr) marking->begin_move();
  LOCH_FAULT_POINT("resolve.before_cas");
  auto won = co_await slots_.swap(slot, repair.expected, repair.desired, before);
  if (marking != nullptr && won && !*won) marking->end_move();
  if (!won || !*won) co_return won;
  LOCH_FAULT_POINT("resolve.after_cas");
  switch (repair.kind) {
    case Repair::Kind::mark_source: {
      home_.count(Counter::helped_moves);
      const int placed = snapshot->at.find(repair.desired.ref(), repair.location, snapshot->key_hash);
      if (placed < 0) break;
      const auto destination = static_cast<unsigned>(placed);
      const SlotNumber to = snapshot->at.slot[destination];
      bool leaves_nothing = false;
      auto done = co_await move_step5_to_6(slot, to, repair.desired, snapshot->word[destination],
                                           snapshot->at.directory, &leaves_nothing);
      if (leaves_nothing || co_await is_unnamed_by_moves(repair.desired.item(), slot, to))
        marking->end_move();
      if (!done) co_return std::unexpected(std::move(done.error()));
      break;
    }
    case Repair::Kind::commit_move:
      home_.count(Counter::helped_moves);
      break;
    case Repair::Kind::commit_insert:
    case Repair::Kind::abort_insert:
      home_.count(Counter::helped_inserts);
      break;
    case Repair::Kind::clear:
      home_.count(Counter::cleared_words);
      break;
    case Repair::Kind::clear_aborted:
      home_.count(Counter::cleared_words);
      // Its owner is gone; whoever unlinked the item retires it.
      co_await attachment_.allocator_of(repair.expected.item()).retire(repair.expected.item(), true);
      break;
  }
  co_return true;
}

coro::Task<Result<bool>> Resolver::resolve_step(Key key, const KeyCollect* snapshot) {
  const auto repair = resolve(*snapshot, home_.next_nonce());
  if (!repair || key.hash != snapshot->key_hash) co_return false;
  auto applied = co_await apply(snapshot, *repair, nullptr);
  if (!applied) co_return applied;
  // Also if somebody else was first: there was something to do, and it may not be done for good.
  co_return true;
}

coro::Task<Result<std::optional<KeyedItem>>> Resolver::key_of_item(memory::ItemRef item) {
  auto head = co_await items_.fetch_head(item);
  if (!head && head.error().code != Errc::corrupt) co_return std::unexpected(std::move(head.error()));
  if (!head) co_return std::nullopt;
  KeyedItem keyed{
      .bytes = std::string(head->view.key()), .hash = head->view.key_hash(), .head = std::move(*head)};
  if (Key::of(keyed.bytes, home_.geometry().hash_seed).hash != keyed.hash) co_return std::nullopt;
  co_return keyed;
}

coro::Task<Result<bool>> Resolver::resolve_item(memory::ItemRef item) {
  const auto of = co_await key_of_item(item);
  if (!of) co_return std::unexpected(of.error());
  if (!*of) co_return false;
  const Key key = (*of)->key();
  KeyCollect snapshot;
  snapshot.already_read = &(*of)->head.view;
  if (auto read = co_await snapshots_.collect(key, &snapshot); !read)
    co_return std::unexpected(std::move(read.error()));
  auto equal = co_await snapshots_.is_snapshot(key, &snapshot);
  if (!equal) co_return equal;
  // Others change the key: that is progress too.
  if (!*equal) co_return true;
  co_return co_await resolve_step(key, &snapshot);
}

// Whether the move of an M is, by a look at its other end alone. Its P stood there before the M was written,
// and leaves that slot only when it is committed.
coro::Task<Result<bool>> Resolver::is_over(SlotNumber slot, SlotWord moved) {
  const auto of = co_await key_of_item(moved.item());
  if (!of) co_return std::unexpected(of.error());
  if (!*of) co_return true;
  const auto d = co_await slots_.read_directory();
  if (!d) co_return std::unexpected(d.error());
  Collect ends;
  ends.key_hash = (*of)->hash;
  ends.at.set(ends.key_hash, *d, slots_.candidates());
  const int source = ends.at.index_of(slot);
  if (source < 0) co_return true;
  const auto from = static_cast<unsigned>(source);
  const int destination = ends.at.find(moved.ref(), from, ends.key_hash);
  if (destination < 0) co_return true;
  const auto to = static_cast<unsigned>(destination);
  const auto there = co_await slots_.read(ends.at.slot[to]);
  if (!there) co_return std::unexpected(there.error());
  ends.word[from] = moved;
  ends.word[to] = {*there};
  const bool level_fits = d->is_unsplit(ends.word[to]) || (d->growing && d->is_split(ends.word[to]));
  // A damaged one may have been the P.
  co_return level_fits && !ends.word[to].is_unwritten() && paired_destination(ends, from) < 0;
}

coro::Task<Result<void>> Resolver::clear_moved(SlotNumber slot, SlotWord moved, std::uint64_t for_key_hash) {
  if (items_.is_unknown(moved.item())) co_return co_await slots_.damaged_slot(for_key_hash);
  const auto resolved = co_await resolve_item(moved.item());
  if (resolved && *resolved) co_return Result<void>{};
  if (!resolved) {
    // Another slot of its key is damaged, which need not hold up this one.
    if (resolved.error().code != Errc::corrupt) co_return std::unexpected(resolved.error());
    const auto over = co_await is_over(slot, moved);
    if (!over) co_return std::unexpected(over.error());
    if (!*over) {
      co_return fail(
          Errc::corrupt, "index",
          fmt::format("slot {}, which is this key's, holds a half-done move of another key that has "
                      "a damaged slot; `loch gc` mends that",
                      slot));
    }
  }
  // Else its item is damaged, or tells of no such move: the word means nothing.
  const auto d = co_await slots_.read_directory();
  if (!d) co_return std::unexpected(d.error());
  const auto cleared = co_await slots_.swap(slot, moved, cleared_word(moved, slot, *d, home_.next_nonce()));
  if (!cleared) co_return std::unexpected(cleared.error());
  co_return Result<void>{};
}

coro::Task<Result<bool>> Resolver::move(memory::ItemRef item, std::uint64_t key_hash, SlotNumber from,
                                        SlotNumber to) {
  const auto of = co_await key_of_item(item);
  if (!of) co_return std::unexpected(of.error());
  if (!*of || (*of)->hash != key_hash) co_return false;
  const Key key = (*of)->key();

  // Step 1: the key's slots; the destination is empty.
  KeyCollect seen;
  seen.already_read = &(*of)->head.view;
  if (auto read = co_await slots_.collect(key_hash, &seen); !read)
    co_return std::unexpected(std::move(read.error()));
  if (auto done = co_await snapshots_.identify(key, &seen); !done)
    co_return std::unexpected(std::move(done.error()));
  const int source = seen.at.index_of(from);
  const int destination = seen.at.index_of(to);
  if (source < 0 || destination < 0 || source == destination) co_return false;
  if (!may_be_moved(seen, static_cast<unsigned>(source), static_cast<unsigned>(destination))) co_return false;
  SlotWord committed = seen.word[static_cast<unsigned>(source)];
  const SlotWord empty = seen.word[static_cast<unsigned>(destination)];
  if (!seen.is_mine(static_cast<unsigned>(source), SlotType::committed) || committed.item() != item ||
      !empty.is(SlotType::empty) || committed.tag() + 2 > tag_max) {
    co_return false;
  }

  // Step 2: after that, announce the move, or see that the source has not changed.
  LOCH_FAULT_POINT("move.before_announce");
  if (committed.tag() == 0 && !base::planted(base::Planted::move_without_tag)) {
    auto announced = co_await slots_.swap(from, committed, committed.with_tag(1));
    if (!announced || !*announced) co_return announced;
    committed = committed.with_tag(1);
  } else {
    auto word = co_await slots_.read(from);
    if (!word) co_return std::unexpected(std::move(word.error()));
    if (*word != committed.raw) co_return false;
  }
  LOCH_FAULT_POINT("move.after_announce");

  // Step 3: P at the destination. From here on words may be left that name the item.
  memory::Session& session = attachment_.session_of(item);
  session.begin_move();
  bool leaves_nothing = false;
  auto moved = co_await move_step3_to_6(item, from, to, committed, empty, &seen, &leaves_nothing);
  if (leaves_nothing || co_await is_unnamed_by_moves(item, from, to)) session.end_move();
  co_return moved;
}

coro::Task<Result<bool>> Resolver::move_step3_to_6(memory::ItemRef item, SlotNumber from, SlotNumber to,
                                                   SlotWord committed, SlotWord empty, const Collect* seen,
                                                   bool* leaves_nothing) {
  const auto source = static_cast<unsigned>(seen->at.index_of(from));
  const auto destination = static_cast<unsigned>(seen->at.index_of(to));
  // Step 3.
  const auto tag =
      static_cast<std::uint8_t>(committed.tag() + (base::planted(base::Planted::move_without_tag) ? 0 : 1));
  const SlotWord placed = SlotWord::link(SlotType::placed, item, committed.filter(), tag, empty.level())
                              .with_ref(seen->at.ref_of(source, destination));
  auto won = co_await slots_.swap(to, empty, placed);
  if (!won || !*won) co_return won;
  LOCH_FAULT_POINT("move.after_place");

  // Step 4: M at the source. If it has changed, P is dead, and is cleared.
  const SlotWord marked = SlotWord::link(SlotType::moved, item, committed.filter(), tag, committed.level())
                              .with_ref(seen->at.ref_of(destination, source));
  won = co_await slots_.swap(from, committed, marked);
  if (!won) co_return won;
  if (!*won) {
    auto resolved = co_await resolve_item(item);
    if (!resolved) co_return resolved;
    co_return false;
  }
  LOCH_FAULT_POINT("move.after_mark");
  if (auto done = co_await move_step5_to_6(from, to, marked, placed, seen->at.directory, leaves_nothing);
      !done)
    co_return std::unexpected(std::move(done.error()));
  home_.count(Counter::displacements);
  co_return true;
}

coro::Task<Result<void>> Resolver::move_step5_to_6(SlotNumber from, SlotNumber to, SlotWord marked,
                                                   SlotWord placed, Directory d, bool* leaves_nothing) {
  // Step 5: the destination is committed; step 6: the source is empty. Others may have done either. The
  // source is not cleared while the destination is in doubt: that P would be dead.
  const auto committed = co_await slots_.swap(to, placed, placed.with_type(SlotType::committed).with_ref({}));
  if (!committed) co_return std::unexpected(committed.error());
  LOCH_FAULT_POINT("move.after_commit");
  const auto cleared = co_await slots_.swap(from, marked, cleared_word(marked, from, d, home_.next_nonce()));
  LOCH_FAULT_POINT("move.after_clear");
  if (!cleared) co_return std::unexpected(cleared.error());
  // Both words were there and are not any more, and no word is ever written twice.
  *leaves_nothing = *committed && *cleared;
  co_return Result<void>{};
}

// Whether neither end of a move that was begun here still says anything of it.
coro::Task<bool> Resolver::is_unnamed_by_moves(memory::ItemRef item, SlotNumber from, SlotNumber to) {
  const std::array ends = {slots_.place().slot(from), slots_.place().slot(to)};
  std::array<std::uint64_t, ends.size()> words{};
  if (!co_await endpoint_.read_words(ends, words.data())) co_return false;
  co_return std::ranges::none_of(words, [item](std::uint64_t raw) {
    const SlotWord there{raw};
    return (there.is(SlotType::placed) || there.is(SlotType::moved)) && there.item() == item;
  });
}

coro::Task<bool> Resolver::before_reuse(memory::ItemRef item, std::uint64_t key_hash) {
  constexpr int rounds_max = 16;
  for (int round = 0; round < rounds_max; ++round) {
    Collect seen;
    if (!co_await slots_.collect(key_hash, &seen)) co_return false;
    const int named = location_naming(seen, item);
    if (named < 0) co_return true;
    const auto stale = static_cast<unsigned>(named);
    const SlotWord word = seen.word[stale];
    // Only what a move left may still name it; anything else says that the item is in use.
    if (!word.is(SlotType::placed) && !word.is(SlotType::moved)) co_return false;
    const SlotNumber slot = seen.at.slot[stale];
    const SlotWord cleared = cleared_word(word, slot, seen.at.directory, home_.next_nonce());
    if (!co_await slots_.swap(slot, word, cleared)) co_return false;
  }
  co_return false;
}

}  // namespace loch::hash
