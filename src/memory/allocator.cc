#include "memory/allocator.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/fault.h"
#include "coro/scope.h"

namespace loch::memory {
namespace {

constexpr base::Nanos note_age_max_in_expiries = 16;
// How far ahead of their use what is noted is asked for.
constexpr std::size_t item_fetch_distance = 32;
constexpr std::size_t note_fetch_distance = 96;
constexpr std::uint64_t fetched_bytes_max = 256;  // of each; the processor goes on by itself

}  // namespace

coro::Task<Result<ItemRef>> Allocator::allocate(std::uint64_t bytes) {
  session_.count(Counter::items_allocated);
  const std::uint8_t size_class = size_class_of(bytes);
  if (size_class == large_class) co_return co_await allocate_large(blocks_of_large(bytes));
  if (const auto spare = take_spare_of(size_class)) co_return *spare;
  Note note;
  while (take_rested(size_class, note, session_.now())) {
    if (co_await claim(note)) {
      session_.count(Counter::items_reused);
      co_return note.item;
    }
  }
  if (can_carve(size_class)) co_return co_await carve(size_class);
  co_return co_await allocate_class(size_class);
}

std::optional<ItemRef> Allocator::take_spare_of(std::uint8_t size_class) {
  auto& spares = spares_[size_class];
  std::optional<ItemRef> item;
  if (!spares.empty()) {
    item = spares.back();
    spares.pop_back();
  }
  refill_soon(size_class);
  return item;
}

std::optional<ItemRef> Allocator::take_spare(std::uint64_t bytes) {
  const std::uint8_t size_class = size_class_of(bytes);
  const auto item = size_class == large_class ? std::nullopt : take_spare_of(size_class);
  if (item) session_.count(Counter::items_allocated);
  return item;
}

Allocator::Place Allocator::allocate_here(std::uint64_t bytes, base::Nanos now) {
  const std::uint8_t size_class = size_class_of(bytes);
  if (size_class == large_class) return {};
  auto& notes = notes_[size_class];
  Place place;
  Note note;
  if (auto& spares = spares_[size_class]; !spares.empty()) {
    place.ref = spares.back();
    place.at = endpoint_.mapped(place.ref.address(), bytes);
    if (place.at == nullptr) return {};
    spares.pop_back();
  } else if (take_rested(size_class, note, now)) {
    place = {note.item, endpoint_.mapped(note.item.address(), bytes)};
    if (place.at == nullptr || !claim_here(note, place.at, now)) {
      notes.push_front(note);
      return {};
    }
    session_.count(Counter::items_reused);
  } else {
    place = carve_here(size_class, bytes, now);
    if (place.at == nullptr) return {};
  }
  session_.count(Counter::items_allocated);
  return place;
}

bool Allocator::claim_here(const Note& note, std::byte* item, base::Nanos now) {
  if (!session_.reusable(note.retired_at(), 0, now)) return false;
  if (note.moved() && session_.moves_may_linger()) return false;
  const LeaseWord lease = lease_here(block_of(note.item));
  if (lease.size_class != note.item.size_class || lease.state == BlockState::free) return false;
  const std::uint64_t mine = ItemState::claimed(session_.client(), now).encode();
  // Pairs with the release in retire; what its readers did came before.
  const bool won = fabric::swap_word(item, note.state, mine) == note.state;
  LOCH_FAULT_POINT("alloc_here.item_claimed");
  return won;
}

bool Allocator::retire_here(ItemRef item, bool moved, base::Nanos now) {
  auto& notes = notes_[item.size_class];
  std::byte* at = endpoint_.mapped(item.address(), sizeof(ItemHeader));
  if (at == nullptr || notes.size() >= notes_kept_max ||
      now - left_notes_at_ > session_.geometry().expiry_ns) {
    return false;
  }
  LOCH_FAULT_POINT("retire_here.before_mark");
  session_.count(Counter::items_retired);
  const std::uint64_t state = ItemState{.kind = ItemKind::retired, .moved = moved, .value = now}.encode();
  fabric::store_word(at, state);
  notes.push_back({item, state});
  return true;
}

// The slow half of allocate: neither notes nor a block at hand.
coro::Task<Result<ItemRef>> Allocator::allocate_class(std::uint8_t size_class) {
  if (session_.remote()) {
    // What rests may have rested by now.
    if (auto fresh = co_await session_.refresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  }
  std::optional<std::size_t> swept;
  constexpr int rounds_max = 64;  // others may take what this session found or added
  for (int round = 0; round < rounds_max; ++round) {
    if (!spares_[size_class].empty()) co_return *take_spare_of(size_class);
    if (can_carve(size_class)) co_return co_await carve(size_class);
    Note note;
    while (take_rested(size_class, note, session_.now())) {
      if (!co_await claim(note)) continue;
      session_.count(Counter::items_reused);
      co_return note.item;
    }
    // What one operation of this session finds or adds is enough for many.
    const auto turn = co_await getting_blocks_.lock();
    if (!spares_[size_class].empty() || is_at_hand(size_class)) continue;
    auto found = co_await find_block(size_class);
    if (!found) co_return std::unexpected(std::move(found.error()));
    auto freed = co_await free_own_large();
    if (!freed) co_return std::unexpected(std::move(freed.error()));
    if (*found || *freed) continue;
    if (auto more = co_await extend_or_sweep(1, &swept); !more)
      co_return std::unexpected(std::move(more.error()));
  }
  co_return others_took_it();
}

std::unexpected<Error> Allocator::others_took_it() {
  return fail(Errc::no_space, "allocate", "other clients take all the memory that is freed; try again");
}

coro::Task<Result<ItemRef>> Allocator::carve(std::uint8_t size_class) {
  ItemRef item;
  if (auto carved = co_await carve_all(size_class, {&item, 1}, fabric::Urgency::awaited); !carved)
    co_return std::unexpected(std::move(carved.error()));
  co_return item;
}

Allocator::Place Allocator::carve_here(std::uint8_t size_class, std::uint64_t bytes, base::Nanos now) {
  if (!can_carve(size_class)) return {};
  Carving& carving = *carvings_[size_class];
  const ItemRef item = item_in_block(carving.block, size_class, carving.next);
  std::byte* at = endpoint_.mapped(item.address(), bytes);
  std::byte* lease = endpoint_.mapped(lease_address(carving.block), sizeof(std::uint64_t));
  if (at == nullptr || lease == nullptr) return {};
  ++carving.next;
  fabric::store_word(at, ItemState::claimed(session_.client(), now).encode());
  if (!carving.any() && carving.claiming == 0)
    fabric::store_word(lease, carving.lease.next(BlockState::full, size_class, 0).encode());
  return {item, at};
}

bool Allocator::take_rested(std::uint8_t size_class, Note& note, base::Nanos now) {
  if (!has_rested(size_class, now)) return false;
  auto& notes = notes_[size_class];
  note = notes.front();
  notes.pop_front();
  return true;
}

void Allocator::fetch_rested(std::uint8_t size_class, std::size_t ahead) {
  if (size_class >= size_class_count) return;
  const auto& notes = notes_[size_class];
  // There are more notes than a cache holds: each is asked for before the item that it names.
  if (notes.size() <= note_fetch_distance + ahead) return;
  __builtin_prefetch(&notes[note_fetch_distance + ahead]);
  const std::uint64_t length = std::min<std::uint64_t>(class_bytes[size_class], fetched_bytes_max);
  std::byte* item = endpoint_.mapped(notes[item_fetch_distance + ahead].item.address(), length);
  for (std::uint64_t line = 0; item != nullptr && line < length; line += fabric::cache_line_bytes)
    __builtin_prefetch(item + line, 1);
}

// Makes a noted item this session's own, if it still rests as noted and may be used again.
coro::Task<bool> Allocator::claim(Note note) {
  const fabric::Address at = note.item.address();
  // A block that was freed and cut otherwise has no item boundary here: its words may be anybody's bytes.
  const auto lease = co_await lease_of(block_of(note.item));
  if (!lease || lease->size_class != note.item.size_class || lease->state == BlockState::free)
    co_return false;
  if (const auto seen = co_await endpoint_.read_word(at); !seen || *seen != note.state) co_return false;
  if (!session_.reusable(note.retired_at(), 0)) {
    const auto written_at = co_await endpoint_.read_word(at + offsetof(ItemHeader, written_at_ns));
    if (!written_at) co_return false;
    if (!session_.reusable(note.retired_at(), *written_at)) {
      // Held by a client that was stopped; the block's count lets a later sweep find it.
      co_await endpoint_.fetch_add(released_address(block_of(note.item)), 1);
      co_return false;
    }
  }
  if (note.moved() && session_.moves_may_linger() && !co_await guard_->before_reuse(note.item)) {
    co_await rest_again(note);
    co_return false;
  }
  const std::uint64_t mine = ItemState::claimed(session_.client(), session_.now()).encode();
  const auto before = co_await endpoint_.compare_swap(at, note.state, mine);
  LOCH_FAULT_POINT("alloc.item_claimed");
  co_return before && *before == note.state;
}

// As if it had been unlinked just now: whoever tried again at once would try for nothing.
coro::Task<void> Allocator::rest_again(Note note) {
  ItemState state = ItemState::decode(note.state);
  state.value = session_.now();
  const std::uint64_t noted = std::exchange(note.state, state.encode());
  const auto before = co_await endpoint_.compare_swap(note.item.address(), noted, note.state);
  if (before && *before == noted) notes_[note.item.size_class].push_back(note);
}

coro::Task<Result<void>> Allocator::retire(ItemRef item, bool moved) {
  const auto time = co_await session_.control().read_time();
  if (!time) co_return std::unexpected(time.error());
  const Unlinked unlinked{.item = item, .moved = moved};
  co_return co_await retire_all({&unlinked, 1}, *time, fabric::Urgency::awaited);
}

// Notes that this session has not needed for long are others' to find. False if there may be more of them.
coro::Task<bool> Allocator::leave_old_notes(std::uint8_t size_class) {
  auto& notes = notes_[size_class];
  const base::Nanos age_max = note_age_max_in_expiries * session_.geometry().expiry_ns;
  constexpr std::size_t at_once_max = 4096;
  std::map<BlockNumber, std::uint64_t> released;
  std::size_t left = 0;
  for (; left < at_once_max && !notes.empty(); ++left) {
    if (notes.front().retired_at() + age_max > session_.now()) break;
    ++released[block_of(notes.front().item)];
    notes.pop_front();
  }
  co_await count_released(&released);
  co_return left < at_once_max;
}

coro::Task<bool> Allocator::leave_all_notes(std::size_t size_class) {
  std::map<BlockNumber, std::uint64_t> released;
  for (const Note& note : std::exchange(notes_[size_class], {})) ++released[block_of(note.item)];
  co_return co_await count_released(&released);
}

// Tells the blocks how many items they have that nobody has a note of. False when it can not be told.
coro::Task<bool> Allocator::count_released(const std::map<BlockNumber, std::uint64_t>* released) {
  std::vector<fabric::Operation> operations;
  for (const auto& [block, count] : *released)
    operations.push_back(fabric::Operation::fetch_add(released_address(block), count));
  co_return (co_await endpoint_.perform(operations)).has_value();
}

coro::Task<Result<void>> Allocator::discard(ItemRef item) {
  if (item.size_class == large_class) {
    const Unlinked unused{.item = item};
    auto retired = co_await mark_retired({&unused, 1}, long_ago, fabric::Urgency::awaited);
    if (retired) notes_[large_class].push_front(note_of(unused, long_ago));
    co_return retired;
  }
  // It may have been written already; it is not in use.
  const std::uint64_t mine = ItemState::claimed(session_.client(), session_.now()).encode();
  auto claimed = co_await endpoint_.write_word(item.address(), mine);
  if (claimed) spares_[item.size_class].push_back(item);
  co_return claimed;
}

void Allocator::discard_here(const Place& place) {
  fabric::store_word(place.at, ItemState::claimed(session_.client(), session_.now()).encode());
  spares_[place.ref.size_class].push_back(place.ref);
}

// What can not be written now is found by a collection, as if this session had died.
coro::Task<void> Allocator::close() {
  while (background_.running() != 0) co_await background_.drain();
  for (std::size_t c = 0; c < size_class_count; ++c) {
    std::vector<Unlinked> unused;
    for (const ItemRef& item : std::exchange(spares_[c], {})) unused.push_back({.item = item});
    if (!unused.empty() && !co_await mark_retired(unused, long_ago, fabric::Urgency::awaited)) co_return;
    for (const Unlinked& each : unused) notes_[c].push_back(note_of(each, long_ago));
    if (!co_await leave_all_notes(c)) co_return;
    if (!co_await close_carving(static_cast<std::uint8_t>(c))) co_return;
  }
  [[maybe_unused]] const bool left = co_await leave_all_notes(large_class);
}

// Whoever wants items of its class goes on with a block that was being cut. If anything has failed, nobody
// knows whether all that was cut says whose it is: then the block is settled like those of the dead.
coro::Task<Result<void>> Allocator::close_carving(std::uint8_t size_class) {
  if (!can_carve(size_class) || endpoint_.has_failed()) co_return Result<void>{};
  const std::shared_ptr<Carving> carving = std::exchange(carvings_[size_class], nullptr);
  const LeaseWord open = carving->lease.next_open(size_class, carving->next);
  if (auto left = co_await endpoint_.write_word(lease_address(carving->block), open.encode()); !left)
    co_return left;
  if (auto told = co_await endpoint_.fetch_add(frees_address_, 1); !told)
    co_return std::unexpected(std::move(told.error()));
  co_return Result<void>{};
}

}  // namespace loch::memory
