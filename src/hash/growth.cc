#include "hash/growth.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "base/fault.h"
#include "coro/scope.h"
#include "hash/slot_group.h"

namespace loch::hash {
namespace {

constexpr std::size_t looked_at_once = 4096;  // by a remote session that finishes
// How long an operation spends on the end of a growth before it goes on, and how long a session leaves it to
// others.
constexpr base::Nanos finishing_max_ns = 10 * base::millisecond_ns;
constexpr base::Nanos finish_again_after_ns = 100 * base::millisecond_ns;
// In place of the time when a level was reached, as long as nobody has said it.
constexpr base::Nanos not_told = ~base::Nanos{0};

// A word that somebody who split the slot has written.
bool is_split(SlotWord word, Directory d) { return d.is_split(word) && !word.is_unwritten(); }

// And that says nothing of an unfinished move.
bool is_settled(SlotWord word, Directory d) {
  return !word.is(SlotType::placed) && !word.is(SlotType::moved) && is_split(word, d);
}

}  // namespace

// A time no earlier than when the level was reached. Whoever reached it may have died, or be late, before it
// said when: then it is now.
coro::Task<Result<base::Nanos>> Growth::time_reached(unsigned level) {
  const fabric::Address at = slots_.place().reached_at(level);
  const auto told = co_await endpoint_.read_word(at);
  if (!told || *told != not_told) co_return told;
  const auto now = co_await home_.control().read_time();
  if (!now) co_return now;
  const auto before = co_await endpoint_.compare_swap(at, not_told, *now);
  co_return !before || *before != not_told ? before : now;
}

// A word's level is kept modulo 4: one that is used again must be unknown to every operation that still runs.
// False if the caller is to try again soon.
coro::Task<Result<bool>> Growth::may_reuse_level(Directory before) {
  if (before.level < first_level + level_modulus - 2) co_return true;
  const auto reached = co_await time_reached(before.level - (level_modulus - 2));
  if (!reached) co_return std::unexpected(reached.error());
  // A short operation that seems to have begun so early is over in a moment.
  constexpr int looks_max = 4;
  auto others_run = co_await home_.others_run_since(*reached);
  for (int look = 1; look < looks_max && others_run && *others_run; ++look) {
    co_await endpoint_.sleep_until(endpoint_.now() + base::millisecond_ns);
    others_run = co_await home_.others_run_since(*reached);
  }
  if (!others_run) co_return std::unexpected(std::move(others_run.error()));
  if (!*others_run) co_return true;
  // Those that have just begun are over soon.
  if (*reached + home_.geometry().expiry_ns > home_.now()) co_return false;
  co_return fail(
      Errc::no_space, "grow",
      "a client that was stopped in the midst of an operation holds the index back; continue or end it");
}

Result<void> Growth::has_room_for(std::uint64_t index_bytes) const {
  const std::uint64_t limit = home_.geometry().max_bytes;
  if (limit == 0) return {};
  const auto used = attachment_.node(slots_.home_number())->allocator->bytes_used();
  if (!used) return std::unexpected(used.error());
  const auto before_bytes = endpoint_.length_bytes(slots_.place().slots);
  if (!before_bytes) return std::unexpected(before_bytes.error());
  if (*used - *before_bytes + index_bytes <= limit) return {};
  return fail(Errc::no_space, "grow",
              fmt::format("an index of {} bytes would exceed the {} bytes that the store was created for",
                          index_bytes, limit));
}

coro::Task<Result<void>> Growth::start() {
  const auto directory = co_await slots_.read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const Directory before = *directory;
  if (before.growing) co_return Result<void>{};
  if (before.level >= last_level)
    co_return fail(Errc::no_space, "grow", "the index has the most slots that it can have");
  const auto may_reuse = co_await may_reuse_level(before);
  if (!may_reuse) co_return std::unexpected(may_reuse.error());
  if (!*may_reuse) co_return Result<void>{};
  const std::uint64_t bytes = 2 * before.rows() * row_bytes;
  if (auto room = has_room_for(bytes); !room) co_return room;
  if (auto extended = home_.memory().fabric().extend(slots_.place().slots, bytes); !extended)
    co_return extended;
  LOCH_FAULT_POINT("grow.before_start");
  // The cursor never goes back to an older level, however late its writer comes.
  const std::uint64_t first_chunk = ChunkCursor{.level = before.level}.encode();
  const fabric::Address at_cursor = slots_.place().split_cursor();
  const auto cursor = co_await endpoint_.read_word(at_cursor);
  if (!cursor) co_return std::unexpected(cursor.error());
  if (*cursor < first_chunk) {
    auto reset = co_await endpoint_.compare_swap(at_cursor, *cursor, first_chunk);
    if (!reset) co_return std::unexpected(std::move(reset.error()));
  }
  const Directory growing = before.begin_growing();
  auto started =
      co_await endpoint_.compare_swap(slots_.place().directory(), before.encode(), growing.encode());
  if (!started) co_return std::unexpected(std::move(started.error()));
  if (*started == before.encode()) home_.count(Counter::growths);
  LOCH_FAULT_POINT("grow.after_start");
  co_return Result<void>{};
}

coro::Task<Result<void>> Growth::help() {
  // Not by the copy: the shard may be about to move.
  const auto read = co_await slots_.read_directory();
  if (!read) co_return std::unexpected(read.error());
  const Directory d = *read;
  if (!d.growing) co_return Result<void>{};
  // All of it is split, but for what can not be now.
  if (finishing_.level == d.level && endpoint_.now() < finishing_.again_at) co_return Result<void>{};
  auto taken = co_await endpoint_.fetch_add(slots_.place().split_cursor(), 1);
  if (!taken) co_return std::unexpected(std::move(taken.error()));
  const auto [level, chunk] = ChunkCursor::decode(*taken);
  if (level != d.level) co_return Result<void>{};
  if (chunk >= d.chunks()) co_return co_await help_to_finish(d, chunk == d.chunks());
  const std::uint64_t end = (chunk + 1) * chunk_slots;
  // The items' headers are anywhere; all are asked for before the first is needed.
  for (std::uint64_t slot = chunk * chunk_slots; slot < end; ++slot) slots_.fetch_header(slot);
  co_return co_await split_slots(chunk * chunk_slots, end, d);
}

// Whoever came first past the end finishes; should it fail or die, or not be able to, others try again later.
coro::Task<Result<void>> Growth::help_to_finish(Directory d, bool is_first) {
  const base::Nanos now = endpoint_.now();
  const base::Nanos later = now + finish_again_after_ns;
  if (finishing_.level != d.level) finishing_ = {.level = d.level, .again_at = is_first ? now : later};
  if (now < finishing_.again_at) co_return Result<void>{};
  finishing_.again_at = later;
  co_return co_await finish(d, now + std::min(finishing_max_ns, slots_.timeout_ns()));
}

coro::Task<Result<void>> Growth::split_slots(SlotNumber first, SlotNumber end, Directory d) {
  if (home_.remote()) co_return co_await split_slots_together(first, end, d);
  for (SlotNumber slot = first; slot < end; ++slot) {
    if (auto split = co_await split_slot(slot, d); !split) co_return std::unexpected(split.error());
  }
  co_return Result<void>{};
}

// What split_slot looks at, for all of them at once: a remote session waits for the network as often for all
// as for one.
coro::Task<Result<void>> Growth::split_slots_together(SlotNumber first, SlotNumber end, Directory d) {
  const std::size_t count = end - first;
  const SlotNumber first_high = first + d.low_slots();
  std::vector<SlotWord> low(count);
  std::vector<SlotWord> high(count);
  std::vector<fabric::Operation> batch{
      fabric::Operation::read(slots_.place().slot(first), low.data(), count * sizeof(SlotWord)),
      fabric::Operation::read(slots_.place().slot(first_high), high.data(), count * sizeof(SlotWord))};
  if (auto read = co_await endpoint_.perform(batch); !read) co_return read;

  // The directory is read after the words; births may go beside it.
  std::uint64_t directory_then = 0;
  batch = {fabric::Operation::read(slots_.place().directory(), &directory_then, sizeof directory_then)};
  std::vector<std::size_t> births;
  for (std::size_t i = 0; i < count; ++i) {
    if (!high[i].is_unwritten()) continue;
    const SlotWord born = SlotWord::empty(home_.next_nonce(), d.level + 1U);
    batch.push_back(
        fabric::Operation::compare_swap(slots_.place().slot(first_high + i), high[i].raw, born.raw));
    births.push_back(i);
  }
  if (auto read = co_await endpoint_.perform(batch); !read) co_return read;
  if (Directory::decode(directory_then) != d) co_return Result<void>{};
  LOCH_FAULT_POINT("split_together.after_births");
  for (std::size_t k = 0; k < births.size(); ++k) {
    const std::size_t i = births[k];
    if (batch[k + 1].result == high[i].raw) high[i] = SlotWord{batch[k + 1].operand};
  }

  std::vector<coro::Task<Result<bool>>> splitting;
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_born = !high[i].is_unwritten();
    splitting.push_back(split_slot(first + i, d, is_born ? std::optional(low[i]) : std::nullopt));
  }
  co_await coro::run_together(&endpoint_.queue(), std::span(splitting));
  for (auto& task : splitting) {
    if (auto split = task.take(); !split) co_return std::unexpected(split.error());
  }
  co_return Result<void>{};
}

coro::Task<Result<bool>> Growth::split_slot(SlotNumber low, Directory d, std::optional<SlotWord> seen) {
  const unsigned next_level = d.level + 1U;
  constexpr int rounds_max = 64;
  for (int round = 0; round < rounds_max; ++round) {
    if (!seen) {
      auto looked = co_await look_before_split(low, d, &seen);
      if (!looked || !*looked) co_return looked;
      if (!seen) continue;
    }
    const SlotWord word = *std::exchange(seen, std::nullopt);
    if (is_split(word, d)) co_return true;
    if (word.names_item() && items_.is_unknown(word.item())) co_return false;
    Result<bool> done = true;
    if (word.is(SlotType::committed)) {
      done = co_await split_committed(low, word, d);
    } else if (word.names_item()) {
      done = co_await resolver_.resolve_item(word.item());
      if (done && !*done) {
        auto belongs = co_await leads_to(word, low, d);
        // An insert that lost: its owner will clear it. Else the word names no item that belongs here, or one
        // that nobody will know again: it is mended.
        if (belongs && *belongs) co_return false;
        done = std::move(belongs);
        if (done) done = co_await slots_.swap(low, word, SlotWord::empty(home_.next_nonce(), next_level));
      }
    } else {
      // Empty; or damaged, which the new word mends.
      LOCH_FAULT_POINT("split_empty.before_flip");
      done = co_await slots_.swap(low, word, SlotWord::empty(home_.next_nonce(), next_level));
      LOCH_FAULT_POINT("split_empty.after_flip");
      if (done && *done) home_.count(Counter::slots_split);
    }
    if (!done && (is_out_of_reach(done.error()) || done.error().code == Errc::no_space)) co_return false;
    if (!done) co_return done;
  }
  co_return false;
}

// The word of a slot whose upper one is born, by a directory that is read after it; `seen` stays empty if
// another look is needed. False if the growth is over.
coro::Task<Result<bool>> Growth::look_before_split(SlotNumber low, Directory d,
                                                   std::optional<SlotWord>* seen) {
  const SlotNumber high = low + d.low_slots();
  auto born = co_await slots_.read(high);
  if (!born) co_return std::unexpected(std::move(born.error()));
  if (SlotWord{*born}.is_unwritten()) {
    auto done = co_await slots_.swap(high, {*born}, SlotWord::empty(home_.next_nonce(), d.level + 1U));
    if (!done) co_return done;
    if (!*done) co_return true;
    LOCH_FAULT_POINT("split.after_birth");
  }
  auto read = co_await slots_.read(low);
  if (!read) co_return std::unexpected(std::move(read.error()));
  const SlotWord word{*read};
  if (!is_split(word, d)) {
    const auto now = co_await slots_.read_directory();
    if (!now) co_return std::unexpected(now.error());
    if (*now != d) co_return false;
  }
  *seen = word;
  co_return true;
}

// Whether the word may stand in `slot` for the key of its item while the index grows. Not if the item does
// not say whose it is.
coro::Task<Result<bool>> Growth::leads_to(SlotWord word, SlotNumber slot, Directory d) {
  const auto of = co_await resolver_.key_of_item(word.item());
  if (!of) co_return std::unexpected(of.error());
  if (!*of) co_return false;
  const std::uint64_t hash = (*of)->hash;
  co_return word.filter() == filter_of(hash) &&
      Locations::of(hash, d, slots_.candidates()).index_of(slot) >= 0;
}

// Makes room in the upper slot for the item of the lower one, whose word that was. Nobody places anything
// there before the lower slot is split, but for who moves its item up. So while the word stands below, what
// stands above is the P of its own move, which is brought on; that of an item which stood there before, and
// is dead; or damage. True if something was done.
coro::Task<Result<bool>> Growth::clear_above(SlotNumber low, SlotWord word, Directory d) {
  const SlotNumber high = low + d.low_slots();
  const auto there = co_await slots_.read(high);
  if (!there) co_return std::unexpected(there.error());
  const SlotWord above{*there};
  if (above.is(SlotType::empty) && d.is_split(above)) co_return false;
  const auto below = co_await slots_.read(low);
  if (!below) co_return std::unexpected(below.error());
  if (SlotWord{*below} != word) co_return false;
  if (above.is(SlotType::placed) && above.item() == word.item() && d.is_split(above)) {
    auto resolved = co_await resolver_.resolve_item(word.item());
    if (!resolved || *resolved) co_return resolved;
  }
  co_return co_await slots_.swap(high, above, SlotWord::empty(home_.next_nonce(), d.level + 1U));
}

coro::Task<Result<bool>> Growth::split_committed(SlotNumber low, SlotWord word, Directory d) {
  const unsigned next_level = d.level + 1U;
  const SlotNumber high = low + d.low_slots();
  auto header = co_await items_.read_header(word.item());
  bool moves_up = false;
  if (header) {
    // An item whose hash does not lead here is damaged, or its word is; it stays where it is.
    const Locations at = Locations::of(header->key_hash, d, slots_.candidates());
    moves_up =
        at.index_of(low) >= 0 && at.index_of(high) >= 0 && word.filter() == filter_of(header->key_hash);
  } else if (header.error().code != Errc::corrupt) {
    co_return std::unexpected(std::move(header.error()));
  }
  // One of neither level is damaged. As it belongs up, its slot was not split yet.
  if (moves_up && !d.is_unsplit(word)) co_return co_await slots_.swap(low, word, word.with_level(d.level));
  if (moves_up) {
    if (word.tag() + 2 > tag_max) {
      // Moved too often to be moved again (docs/hash.md): a copy takes its place, with tags of its own.
      auto found = co_await items_.fetch(word.item());
      if (found) co_return co_await writer_.put_copy(low, word, &found->view);
      if (found.error().code != Errc::corrupt) co_return std::unexpected(std::move(found.error()));
    } else {
      auto moved = co_await resolver_.move(word.item(), header->key_hash, low, high);
      const bool is_held_up = moved ? !*moved : moved.error().code == Errc::corrupt;
      if (!is_held_up) co_return moved;
      auto cleared = co_await clear_above(low, word, d);
      if (!cleared || *cleared) co_return cleared;
      if (!moved) co_return moved;
      // One that does not say whose it is can not be moved, and is nobody's from now on.
      const auto of = co_await resolver_.key_of_item(word.item());
      if (!of) co_return std::unexpected(of.error());
      if (*of) co_return false;
    }
  }
  LOCH_FAULT_POINT("split.before_flip");
  auto flipped = co_await slots_.swap(low, word, word.with_level(next_level));
  LOCH_FAULT_POINT("split.after_flip");
  if (flipped && *flipped) home_.count(Counter::slots_split);
  co_return flipped;
}

coro::Task<Result<void>> Growth::finish(Directory d, std::optional<base::Nanos> until) {
  const std::uint64_t low_slots = d.low_slots();
  const auto is_time_over = [&] { return until && endpoint_.now() >= *until; };
  const SlotNumber begin = until ? finishing_.next : 0;
  std::optional<SlotNumber> left = until ? finishing_.left : std::nullopt;
  // Where the next operation goes on. Another one may have come to the next growth.
  const auto leave_off = [&](SlotNumber next, base::Nanos again_at) {
    if (until && finishing_.level == d.level)
      finishing_ = {.level = d.level, .next = next, .again_at = again_at, .left = left};
  };
  SlotGroup group(slots_, items_, looked_at_once);
  for (SlotNumber slot = begin; slot < 2 * low_slots; ++slot) {
    const bool is_new = !group.has(slot);
    if (is_new) {
      // Not across the halves: the lower one is looked at first.
      const SlotNumber end = slot < low_slots ? low_slots : 2 * low_slots;
      if (auto read = co_await group.read(slot, end); !read) co_return read;
      // However long the host took to answer, each operation gets on.
      if (until && slot == begin) until = std::max(*until, endpoint_.now() + finishing_max_ns / 2);
    }
    const SlotWord word = group.word(slot);
    const bool settled = is_settled(word, d);
    if ((is_new || !settled) && is_time_over()) {
      leave_off(slot, left ? finishing_.again_at : 0);
      co_return Result<void>{};
    }
    if (settled) continue;
    const auto done = co_await settle_slot(slot, d);
    if (!done) co_return std::unexpected(done.error());
    if (*done == Settled::growth_is_over) co_return Result<void>{};
    if (*done == Settled::yes) continue;
    left = left.value_or(slot);
    // Nothing but its owner ends the wait for one that lost. What else holds a slot up may be the damage of
    // another slot, which is mended when its turn comes.
    if (until && word.is(SlotType::aborted)) break;
  }
  if (left) {
    const SlotNumber next = *left;
    left.reset();
    leave_off(next, finishing_.again_at);
    co_return Result<void>{};  // some later client finishes
  }
  LOCH_FAULT_POINT("grow.before_finish");
  const Directory grown = d.grown();
  // Operations go by the old level until the directory is written, and when that was is known only
  // afterwards.
  if (auto told = co_await endpoint_.write_word(slots_.place().reached_at(grown.level), not_told); !told)
    co_return told;
  auto finished = co_await endpoint_.compare_swap(slots_.place().directory(), d.encode(), grown.encode());
  LOCH_FAULT_POINT("grow.after_finish");
  if (!finished) co_return std::unexpected(std::move(finished.error()));
  if (auto told = co_await time_reached(grown.level); !told) co_return std::unexpected(told.error());
  co_return Result<void>{};
}

// One slot of that.
coro::Task<Result<Growth::Settled>> Growth::settle_slot(SlotNumber slot, Directory d) {
  const std::uint64_t low_slots = d.low_slots();
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  constexpr int rounds_max = 16;
  for (int round = 0; round < rounds_max; ++round) {
    auto read = co_await slots_.read(slot);
    if (!read) co_return std::unexpected(std::move(read.error()));
    const SlotWord word{*read};
    if (word.is(SlotType::placed) || word.is(SlotType::moved)) {
      if (items_.is_unknown(word.item())) co_return Settled::not_now;
      auto done = co_await resolver_.resolve_item(word.item());
      // Until the slot that is damaged has been mended, or the item's node is back.
      if (!done && is_out_of_reach(done.error())) co_return Settled::not_now;
      if (!done) co_return std::unexpected(std::move(done.error()));
      if (*done) continue;
      // Its item is damaged, or tells of no such move: the word means nothing.
      auto cleared = co_await slots_.swap(slot, word, cleared_word(word, slot, d, home_.next_nonce()));
      if (!cleared) co_return std::unexpected(std::move(cleared.error()));
      continue;
    }
    if (is_settled(word, d)) co_return Settled::yes;
    auto split = co_await split_slot(slot < low_slots ? slot : slot - low_slots, d);
    if (!split) co_return std::unexpected(std::move(split.error()));
    const auto now = co_await slots_.read_directory();
    if (!now) co_return std::unexpected(now.error());
    if (*now != d) co_return Settled::growth_is_over;
    if (!*split) co_return Settled::not_now;
    if (slot >= low_slots && !is_split(word, d) && !word.is_unwritten()) {
      // Read in this very growth, as the directory says; no client writes such a word into the upper half
      // then, so it is damage, and mended.
      auto mended = co_await slots_.swap(slot, word, SlotWord::empty(home_.next_nonce(), d.level + 1U));
      if (!mended) co_return std::unexpected(std::move(mended.error()));
    }
  }
  co_return Settled::not_now;  // a busy one
}

coro::Task<Result<void>> Growth::make_room(const Collect* full) {
  if (auto started = co_await start(); !started) co_return started;
  const auto read = co_await slots_.read_directory();
  if (!read) co_return std::unexpected(read.error());
  const Directory d = *read;
  if (d.growing) {
    const Locations at = Locations::of(full->key_hash, d, slots_.candidates());
    for (unsigned i = 0; i < slots_.candidates(); ++i) {
      auto split = co_await split_slot(at.slot[i], d);
      if (!split) co_return std::unexpected(std::move(split.error()));
    }
  }
  co_return co_await help();
}

}  // namespace loch::hash
