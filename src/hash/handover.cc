#include "hash/handover.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/fault.h"
#include "base/planted.h"

namespace loch::hash {
namespace {

constexpr std::uint64_t bytes_at_once = std::uint64_t{32} << 10;

IndexPlace place_of(memory::Attachment& attachment, const memory::RegionMap::Shard& shard) {
  return IndexPlace::of(shard, attachment.region_map().nodes[shard.home]);
}

coro::Task<Result<Directory>> read_directory(fabric::Endpoint* endpoint, IndexPlace place) {
  const auto word = co_await endpoint->read_word(place.directory());
  if (!word) co_return std::unexpected(word.error());
  co_return Directory::decode(*word);
}

// Unless somebody else has changed it since it was read.
coro::Task<Result<void>> put_stage(fabric::Endpoint* endpoint, IndexPlace place, Directory read,
                                   ShardStage to) {
  const auto before =
      co_await endpoint->compare_swap(place.directory(), read.encode(), read.with_stage(to).encode());
  if (!before) co_return std::unexpected(before.error());
  co_return Result<void>{};
}

}  // namespace

Handover::Handover(memory::Attachment& attachment, const memory::RegionMap::Shard& from,
                   const memory::RegionMap::Shard& to)
    : endpoint_(attachment.endpoint()),
      home_(*attachment.node(from.home)->session),
      next_(*attachment.node(to.home)->session),
      from_(place_of(attachment, from)),
      to_(place_of(attachment, to)) {}

coro::Task<Result<Directory>> Handover::directory() {
  auto d = co_await read_directory(&endpoint_, from_);
  if (d && d->level == 0)
    co_return fail(Errc::corrupt, "handover", "a shard's directory holds a word that no client writes");
  co_return d;
}

coro::Task<Result<void>> Handover::change_stage(ShardStage to) {
  // Operations that began before may begin or end a growth meanwhile.
  constexpr int rounds_max = 16;
  for (int round = 0; round < rounds_max; ++round) {
    const auto d = co_await directory();
    if (!d) co_return std::unexpected(d.error());
    if (d->stage == to) co_return Result<void>{};
    const auto before =
        co_await endpoint_.compare_swap(from_.directory(), d->encode(), d->with_stage(to).encode());
    if (!before) co_return std::unexpected(before.error());
    if (*before == d->encode()) co_return Result<void>{};
  }
  co_return fail(Errc::timed_out, "handover", "a shard's directory changes all the time");
}

coro::Task<Result<ShardStage>> Handover::begin() {
  const auto d = co_await directory();
  if (!d) co_return std::unexpected(d.error());
  if (d->stage == ShardStage::left) co_return ShardStage::left;
  if (auto closed = co_await change_stage(ShardStage::leaves); !closed)
    co_return std::unexpected(std::move(closed.error()));
  LOCH_FAULT_POINT("handover.after_close");
  const auto now = co_await home_.control().read_time();
  if (!now) co_return std::unexpected(now.error());
  closed_at_ns_ = *now;
  co_return ShardStage::leaves;
}

coro::Task<Result<bool>> Handover::is_quiet() {
  if (base::planted(base::Planted::handover_at_once)) co_return true;
  auto others = co_await home_.others_run_since(closed_at_ns_);
  if (!others) co_return others;
  co_return !*others;
}

std::uint64_t Handover::slots_bytes(Directory d) const { return d.slots() * sizeof(std::uint64_t); }

Result<void> Handover::make_room(Directory d) {
  return next_.memory().fabric().extend(to_.slots, slots_bytes(d));
}

coro::Task<Result<void>> Handover::copy() {
  const auto d = co_await directory();
  if (!d) co_return std::unexpected(d.error());
  // A growth may have begun since there was room.
  if (auto room = make_room(*d); !room) co_return room;
  if (auto copied = co_await copy_slots(*d); !copied) co_return copied;
  // A move that was given up may have left more there: of the shard as it was before its home lost it.
  const auto end = endpoint_.length_bytes(to_.slots);
  if (!end) co_return std::unexpected(end.error());
  if (auto cleared = co_await clear_slots(to_.slots, slots_bytes(*d), *end); !cleared) co_return cleared;
  LOCH_FAULT_POINT("handover.after_slots");
  co_return co_await copy_root(*d);
}

coro::Task<Result<void>> Handover::copy_slots(Directory d) {
  const std::uint64_t length = slots_bytes(d);
  std::vector<std::uint64_t> words;
  for (std::uint64_t offset = 0; offset < length; offset += bytes_at_once) {
    const std::uint64_t bytes = std::min(bytes_at_once, length - offset);
    if (next_.refresh_due()) {
      if (auto fresh = co_await next_.refresh(); !fresh) co_return fresh;
    }
    auto read = co_await endpoint_.fetch({from_.slots, offset}, bytes);
    if (!read) co_return std::unexpected(std::move(read.error()));
    words.resize(bytes / sizeof(std::uint64_t));
    std::memcpy(words.data(), read->data(), bytes);
    for (std::uint64_t& raw : words) {
      const SlotWord word{raw};
      if (word.is(SlotType::empty)) raw = SlotWord::empty(next_.next_nonce(), word.level()).raw;
    }
    if (auto written = co_await endpoint_.write({to_.slots, offset}, std::as_bytes(std::span(words)));
        !written)
      co_return written;
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Handover::copy_root(Directory d) {
  const std::array at = {from_.split_cursor(), from_.homing_cursor()};
  std::array<std::uint64_t, at.size()> words{};
  if (auto read = co_await endpoint_.read_words(at, words.data()); !read) co_return read;
  IndexRoot root{};
  root.split_cursor = words[0];
  root.homing_cursor = words[1];
  co_return co_await write_root(d, root);
}

// All of it with no directory yet, and then that the shard arrives.
coro::Task<Result<void>> Handover::write_root(Directory d, IndexRoot root) {
  const auto ahead = co_await endpoint_.read_word(from_.time_ahead());
  if (!ahead) co_return std::unexpected(ahead.error());
  // Nobody has gone by a later time here, since all is quiet; so the shard's time does not go back.
  const auto here = co_await home_.control().read_time();
  if (!here) co_return std::unexpected(here.error());
  const auto there = co_await next_.control().read_time();
  if (!there) co_return std::unexpected(there.error());
  root.time_ahead_ns = *ahead + *here - *there;
  // No operation there has seen words of any level.
  std::ranges::fill(root.reached_at_ns, *there);
  if (auto written = co_await endpoint_.write(to_.root, std::as_bytes(std::span(&root, 1))); !written)
    co_return written;
  co_return co_await endpoint_.write_word(to_.directory(), d.arriving(to_.slots).encode());
}

// What was copied is lost with the memory of its new home, and nothing of it is here any more.
coro::Task<Result<void>> Handover::begin_anew() {
  const Directory first;
  if (auto room = make_room(first); !room) co_return room;
  std::vector<std::uint64_t> words(slots_bytes(first) / sizeof(std::uint64_t));
  for (std::uint64_t& raw : words) raw = SlotWord::empty(next_.next_nonce(), first.level).raw;
  if (auto written = co_await endpoint_.write({to_.slots, 0}, std::as_bytes(std::span(words))); !written)
    co_return written;
  co_return co_await write_root(first, {});
}

coro::Task<Result<void>> Handover::leave() {
  const auto there = co_await endpoint_.read_word(to_.directory());
  if (!there) co_return std::unexpected(there.error());
  const auto here = co_await directory();
  if (!here) co_return std::unexpected(here.error());
  // A new home that says nothing at all is one that has lost its memory.
  if (here->stage == ShardStage::left && *there == 0) {
    if (auto begun = co_await begin_anew(); !begun) co_return begun;
  } else if (!Directory::decode(*there).arrives(to_.slots)) {
    co_return fail(Errc::unavailable, "handover", "the host that a shard was copied to has lost it again");
  }
  if (auto left = co_await change_stage(ShardStage::left); !left) co_return left;
  LOCH_FAULT_POINT("handover.after_left");
  co_return Result<void>{};
}

coro::Task<Result<void>> Handover::clear() {
  if (auto left = co_await leave(); !left) co_return left;
  if (base::planted(base::Planted::handover_keeps_slots)) co_return Result<void>{};
  const auto here = co_await directory();
  if (!here) co_return std::unexpected(here.error());
  co_return co_await clear_slots(from_.slots, 0, slots_bytes(*here));
}

coro::Task<Result<void>> Handover::clear_slots(fabric::RegionId slots, std::uint64_t begin,
                                               std::uint64_t end) {
  const std::vector<std::uint64_t> nothing(bytes_at_once / sizeof(std::uint64_t));
  for (std::uint64_t offset = begin; offset < end; offset += bytes_at_once) {
    const auto bytes = std::as_bytes(std::span(nothing)).first(std::min(bytes_at_once, end - offset));
    if (auto cleared = co_await endpoint_.write({slots, offset}, bytes); !cleared) co_return cleared;
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Handover::open(fabric::Endpoint* endpoint, IndexPlace there) {
  const auto d = co_await read_directory(endpoint, there);
  if (!d) co_return std::unexpected(d.error());
  if (!d->arrives(there.slots)) co_return Result<void>{};
  co_return co_await put_stage(endpoint, there, *d, ShardStage::open);
}

coro::Task<Result<void>> Handover::reopen(fabric::Endpoint* endpoint, IndexPlace here) {
  const auto d = co_await read_directory(endpoint, here);
  if (!d) co_return std::unexpected(d.error());
  if (d->stage != ShardStage::leaves) co_return Result<void>{};
  co_return co_await put_stage(endpoint, here, *d, ShardStage::open);
}

coro::Task<Result<void>> Handover::undo() {
  const auto d = co_await directory();
  if (!d) co_return std::unexpected(d.error());
  if (d->stage != ShardStage::leaves) co_return Result<void>{};
  // First what is there: from the moment that it is open here, that is old. But no shard stays closed for a
  // host that has gone: what is left there is written anew by the next copy, or voided by that host itself.
  Result<void> voided;
  if (endpoint_.reaches(to_.directory(), sizeof(std::uint64_t)))
    voided = co_await endpoint_.write_word(to_.directory(), d->with_stage(ShardStage::left).encode());
  auto opened = co_await reopen(&endpoint_, from_);
  co_return opened ? voided : opened;
}

coro::Task<Result<bool>> Handover::take_back() {
  if (auto undone = co_await undo(); !undone) co_return std::unexpected(std::move(undone.error()));
  const auto here = co_await directory();
  if (!here) co_return std::unexpected(here.error());
  if (here->stage != ShardStage::open) co_return false;
  // Of a move that this host has undone alone (reopen).
  const auto there = co_await endpoint_.read_word(to_.directory());
  if (!there) co_return std::unexpected(there.error());
  const Directory d = Directory::decode(*there);
  if (!d.arrives(to_.slots)) co_return true;
  auto voided = co_await endpoint_.write_word(to_.directory(), d.with_stage(ShardStage::left).encode());
  if (!voided) co_return std::unexpected(std::move(voided.error()));
  co_return true;
}

}  // namespace loch::hash
