#include "hash/displacement.h"

#include <algorithm>
#include <span>
#include <vector>

#include "coro/scope.h"

namespace loch::hash {
namespace {

constexpr std::size_t looked_at_max = 240;  // slots; about five moves deep with three candidates
constexpr std::size_t at_once_if_remote = 8;

constexpr unsigned displacing_window = 64;
constexpr unsigned displacing_always = displacing_window * 256;

}  // namespace

// Where the item of a slot might be instead: nothing, if it can not be moved.
coro::Task<Result<void>> Displacement::look_around(Victim* victim) {
  if (!victim->word.is(SlotType::committed) || victim->word.tag() + 2 > tag_max) co_return Result<void>{};
  if (items_.is_unknown(victim->word.item())) co_return Result<void>{};
  const auto header = co_await items_.read_header(victim->word.item());
  if (!header && is_out_of_reach(header.error())) co_return Result<void>{};
  if (!header) co_return std::unexpected(header.error());
  // A damaged slot may name an item that is another key's, or by another filter than its own.
  if (victim->word.filter() != filter_of(header->key_hash)) co_return Result<void>{};
  Collect slots;
  auto read = co_await slots_.collect(header->key_hash, &slots);
  if (!read && is_out_of_reach(read.error())) co_return Result<void>{};
  if (read && slots.at.index_of(victim->slot) >= 0) victim->around = slots;
  co_return read;
}

// The same for some at once, which takes a remote session no longer than for one.
coro::Task<Result<void>> Displacement::look_around(std::span<Victim> victims) {
  if (victims.size() == 1) co_return co_await look_around(victims.data());
  std::vector<coro::Task<Result<void>>> looking;
  for (Victim& victim : victims) looking.push_back(look_around(&victim));
  co_await coro::run_together(&endpoint_.queue(), std::span(looking));
  for (auto& task : looking) {
    if (auto looked = task.take(); !looked) co_return looked;
  }
  co_return Result<void>{};
}

// The chain that ends with `last`, whose item goes to the empty slot `to`, from its end. True if something
// was moved or has changed, false if that item can not be moved.
coro::Task<Result<bool>> Displacement::carry_out(std::span<const Victim> all, int last, SlotNumber to) {
  for (int n = last; n >= 0; n = all[static_cast<std::size_t>(n)].parent) {
    const Victim& from = all[static_cast<std::size_t>(n)];
    auto moved = co_await resolver_.move(from.word.item(), from.around->key_hash, from.slot, to);
    if (!moved) co_return moved;
    if (*moved) {
      to = from.slot;
      continue;
    }
    // Somebody changed the chain, and what was moved stays moved; or the item can not be moved at all.
    if (n != last) co_return true;
    const auto of = co_await resolver_.key_of_item(from.word.item());
    co_return of ? of->has_value() : !is_out_of_reach(of.error());
  }
  co_return true;
}

// Near the end of a growth the old half may be so full that no chain is short enough. Splits free slots: half
// of those that are made here make room for one of the chain's items. False if there were none.
coro::Task<Result<bool>> Displacement::split_around(std::span<const Victim> victims) {
  constexpr unsigned splits_max = 8;
  const Directory d = slots_.directory();
  unsigned splits = 0;
  for (const Victim& victim : victims) {
    if (!d.growing || splits == splits_max) break;
    if (victim.slot >= d.low_slots() || !d.is_unsplit(victim.word)) continue;
    const auto split = co_await growth_.split_slot(victim.slot, d);
    if (!split) co_return std::unexpected(split.error());
    if (*split) ++splits;
  }
  co_return splits != 0;
}

// True if something was moved (or has changed), so that another look is worthwhile.
coro::Task<Result<bool>> Displacement::displace(const Collect* full) {
  std::vector<Victim> all;
  all.reserve(looked_at_max + locations_max);  // so that they stay where they are
  for (unsigned i = 0; i < full->at.candidates; ++i) {
    const unsigned j = open_location(*full, i);
    all.push_back({.slot = full->at.slot[j], .word = full->word[j]});
  }
  std::size_t looked_at = 0;
  for (std::size_t next = 0; next < all.size() && all.size() < looked_at_max; ++next) {
    if (next == looked_at) {
      looked_at = std::min(all.size(), next + (home_.remote() ? at_once_if_remote : 1));
      if (auto looked = co_await look_around(std::span(all).subspan(next, looked_at - next)); !looked)
        co_return std::unexpected(std::move(looked.error()));
    }
    if (!all[next].around) continue;
    const Collect& slots = *all[next].around;
    for (unsigned i = 0; i < slots.at.candidates; ++i) {
      const unsigned j = open_location(slots, i);
      const SlotNumber slot = slots.at.slot[j];
      if (std::ranges::find(all, slot, &Victim::slot) != all.end()) continue;
      if (!slots.word[j].is(SlotType::empty)) {
        all.push_back({.slot = slot, .word = slots.word[j], .parent = static_cast<int>(next)});
        continue;
      }
      auto done = co_await carry_out(all, static_cast<int>(next), slot);
      if (!done || *done) co_return done;
      break;
    }
  }
  co_return co_await split_around(all);
}

void Displacement::note_insert() {
  displacing_share_ -= displacing_share_ / displacing_window;
  home_.count(Counter::put_insert);
}

coro::Task<Result<void>> Displacement::make_room(const Collect* full) {
  for (unsigned i = 0; i < full->at.candidates; ++i) {
    const SlotWord word = full->word[open_location(*full, i)];
    if (!word.names_item() || word.is(SlotType::committed) || items_.is_unknown(word.item())) continue;
    auto done = co_await resolver_.resolve_item(word.item());
    if (!done && is_out_of_reach(done.error())) continue;
    if (!done) co_return std::unexpected(std::move(done.error()));
    if (*done) co_return Result<void>{};
  }
  displacing_share_ -= displacing_share_ / displacing_window;
  displacing_share_ += displacing_always / displacing_window;
  auto made = co_await displace(full);
  if (!made) co_return std::unexpected(std::move(made.error()));
  const bool crowded = displacing_share_ > displacing_always / 4 * 3;
  if (!*made || (crowded && !slots_.directory().growing)) {
    if (!*made) home_.count(Counter::displacement_failures);
    displacing_share_ = 0;
    auto grown = co_await growth_.make_room(full);
    // There was room for this one: that the index can not grow is the next one's trouble.
    if (!grown && !*made) co_return grown;
  }
  co_return Result<void>{};
}

}  // namespace loch::hash
