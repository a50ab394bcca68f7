// Clearing up after the dead, and of what has expired: the slots (SlotRepair), and the memory of what belongs
// to nobody.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "coro/scope.h"
#include "hash/shards.h"

namespace loch::hash {

using memory::BlockNumber;
using memory::BlockState;
using memory::ItemKind;
using memory::ItemRef;
using memory::ItemState;
using memory::LeaseWord;

coro::Task<Result<LeaseWord>> Shards::look_at_block(memory::Allocator* allocator, BlockNumber block,
                                                    std::vector<memory::Allocator::ItemWords>* items) {
  const auto lease = co_await allocator->lease_of(block);
  if (!lease) co_return lease;
  if (auto looked = co_await allocator->look_at_items(block, *lease, items); !looked)
    co_return std::unexpected(std::move(looked.error()));
  auto after = co_await allocator->lease_of(block);
  if (after && after->encode() != lease->encode()) items->clear();
  co_return after;
}

// Whether item `index` of a block belongs to nobody: a client that is gone, or whose operation is over, cut,
// claimed or wrote it and it is not linked.
coro::Task<Result<bool>> Shards::is_orphan(memory::Session* session, BlockNumber block, LeaseWord lease,
                                           std::uint32_t index, ItemState state, Damaged damaged) {
  const ItemRef item = memory::item_of(block, lease, index);
  if (state.kind == ItemKind::fresh) {
    const bool is_cut =
        lease.state == BlockState::full || (lease.state == BlockState::open && index < lease.cut());
    if (!is_cut) co_return false;
    // A linked item whose state was damaged looks like this, too.
    const auto header = co_await items_.read_header(item);
    if (!header && header.error().code == Errc::corrupt) co_return true;
    if (!header) co_return std::unexpected(header.error());
    co_return co_await is_unnamed(item, header->key_hash);
  }
  if (state.kind == ItemKind::retired) co_return false;
  const bool client_gone = session->is_gone(state.client(), state.since_at_latest());
  // Claimed ones wait in their session's lists for as long as it lives.
  if (state.kind == ItemKind::claimed) co_return client_gone;
  // Its header may be that of the item before it, which it is still being written over. Within its
  // millisecond its client may write it once more, by the same word.
  const bool may_be_written = session->now() <= state.since_at_latest() ||
                              session->may_still_run(state.client(), state.since_at_latest());
  if (!client_gone && may_be_written) co_return false;
  const auto header = co_await items_.read_header(item);
  if (!header && header.error().code == Errc::corrupt) co_return false;
  if (!header) co_return std::unexpected(header.error());
  auto unnamed = co_await is_unnamed(item, header->key_hash);
  if (!unnamed || !*unnamed) co_return unnamed;
  // A damaged header leads to other slots than those of its key.
  const auto head = co_await items_.fetch_head(item);
  if (!head && head.error().code != Errc::corrupt) co_return std::unexpected(head.error());
  if (!head) co_return damaged == Damaged::may_be_orphans;
  const Key key = Key::of(head->view.key(), session->geometry().hash_seed);
  if (key.hash == head->view.key_hash()) co_return true;
  if (damaged == Damaged::are_left) co_return false;
  co_return co_await is_unnamed(item, key.hash);
}

// Whether no slot of a key with that hash names the item; false, too, if one of them is damaged, so that
// nobody can say.
coro::Task<Result<bool>> Shards::is_unnamed(ItemRef item, std::uint64_t key_hash) {
  const auto table = table_of(key_hash);
  if (!table) co_return std::unexpected(table.error());
  auto named = co_await (*table)->snapshots().is_named(item, key_hash);
  if (!named && named.error().code == Errc::corrupt) co_return false;
  if (!named) co_return std::unexpected(std::move(named.error()));
  co_return !*named;
}

// Retires an item that belongs to nobody, as if it had been unlinked just now: somebody who is late may still
// know it. False if it is another one by now.
coro::Task<Result<bool>> Shards::reclaim(memory::Session* session, BlockNumber block, ItemRef item,
                                         ItemState state) {
  const auto now = co_await session->control().read_time();
  if (!now) co_return std::unexpected(now.error());
  fabric::Endpoint& endpoint = attachment_.endpoint();
  const std::uint64_t word = state.encode();
  const ItemState retired{.kind = ItemKind::retired, .moved = true, .value = *now};
  const auto before = co_await endpoint.compare_swap(item.address(), word, retired.encode());
  if (!before) co_return std::unexpected(before.error());
  if (*before != word) co_return false;
  LOCH_FAULT_POINT("reclaim.after_mark");
  co_await endpoint.fetch_add(memory::released_address(block), 1);
  session->count(Counter::items_reclaimed);
  co_return true;
}

coro::Task<Result<std::uint64_t>> Shards::reclaim_orphans_in(const memory::Attachment::Node* node,
                                                             BlockNumber block, Damaged damaged,
                                                             Collected* collected) {
  if (auto fresh = co_await some().slots().keep_fresh(); !fresh)
    co_return std::unexpected(std::move(fresh.error()));
  const memory::Attachment::Operation during(attachment_);
  memory::Session* const session = node->session.get();
  std::vector<memory::Allocator::ItemWords> items;
  const memory::Attachment::Look look(attachment_);
  const auto lease = co_await look_at_block(node->allocator.get(), block, &items);
  if (!lease) co_return std::unexpected(lease.error());
  if (!look.holds()) co_return 0;  // left to the next collection
  std::vector<coro::Task<Result<bool>>> asking;
  const auto together = static_cast<std::uint32_t>(at_once(*lease));
  const auto count = static_cast<std::uint32_t>(items.size());
  for (std::uint32_t first = 0; first < count; first += together) {
    const std::uint32_t end = std::min(count, first + together);
    asking.clear();
    for (std::uint32_t i = first; i < end; ++i)
      asking.push_back(is_orphan(session, block, *lease, i, items[i].state, damaged));
    co_await coro::run_together(&attachment_.endpoint().queue(), std::span(asking));
    for (std::uint32_t i = first; i < end; ++i) {
      const auto orphan = asking[i - first].take();
      if (!orphan) co_return std::unexpected(orphan.error());
      if (!*orphan) continue;
      const auto reclaimed =
          co_await reclaim(session, block, memory::item_of(block, *lease, i), items[i].state);
      if (!reclaimed) co_return std::unexpected(reclaimed.error());
      if (*reclaimed) ++collected->items_reclaimed;
    }
  }
  co_return count;
}

coro::Task<Result<void>> Shards::reclaim_orphans(const memory::Attachment::Node* node, Collected* collected) {
  const auto blocks = node->allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  for (const BlockNumber block : *blocks) {
    if (auto looked = co_await reclaim_orphans_in(node, block, Damaged::may_be_orphans, collected); !looked)
      co_return std::unexpected(std::move(looked.error()));
  }
  co_return Result<void>{};
}

// The next slots, of all tables in turn, and the next blocks, of all nodes.
coro::Task<Result<void>> Shards::look_for_room(base::Nanos until, Collected* collected) {
  // Elsewhere each item that is dropped takes some round trips.
  const bool is_far = attachment_.remote();
  const SlotNumber slots_at_once = SlotNumber{1} << (is_far ? 11 : 15);
  const std::uint64_t items_at_once = is_far ? 512 : 4096;
  const std::size_t table_number = room_.table;
  const SlotNumber first = room_.slot;
  Table* const table = tables_[table_number].get();
  std::optional<SlotNumber> next_slot;
  if (table != nullptr) {
    base::Nanos least_left = no_end;
    const auto next =
        co_await table->slot_repair().drop_expired(first, slots_at_once, until, collected, &least_left);
    if (!next) co_return std::unexpected(next.error());
    next_slot = *next;
    room_.next_end = std::min(room_.next_end, attachment_.endpoint().now() + least_left);
    if (collected->items_expired != 0) room_.slots.has_found = true;
  }
  // Unless another put of this client went on meanwhile.
  if (room_.table == table_number && room_.slot == first) {
    room_.slot = next_slot.value_or(0);
    if (!next_slot && ++room_.table == tables_.size()) {
      room_.table = 0;
      room_.slots.end();
    }
  }
  // Whether an item is somebody's only all tables can say.
  if (!all_reached("collect")) {
    room_.blocks.was_in_vain = true;
    co_return Result<void>{};
  }
  const memory::Attachment::Node& node = attachment_.nodes()[room_.node];
  const auto blocks = node.allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  for (std::uint64_t items = 0; items < items_at_once && attachment_.endpoint().now() < until; ++items) {
    if (room_.block >= blocks->size()) {
      room_.block = 0;
      if (++room_.node == attachment_.nodes().size()) {
        room_.node = 0;
        room_.blocks.end();
      }
      break;
    }
    const auto looked =
        co_await reclaim_orphans_in(&node, (*blocks)[room_.block++], Damaged::are_left, collected);
    if (!looked) co_return std::unexpected(looked.error());
    if (collected->items_reclaimed != 0) room_.blocks.has_found = true;
    items += *looked;
  }
  co_return Result<void>{};
}

coro::Task<Result<std::optional<base::Nanos>>> Shards::make_room(base::Nanos until) {
  const fabric::Endpoint& endpoint = attachment_.endpoint();
  if (endpoint.now() < found_rests_until_) co_return found_rests_until_;
  Collected collected;
  if (endpoint.now() >= looks_for_room_from_) {
    if (auto looked = co_await look_for_room(until, &collected); !looked)
      co_return std::unexpected(std::move(looked.error()));
  }
  const base::Nanos expiry_ns = attachment_.memory().geometry().expiry_ns;
  if (room_.slots.was_in_vain && room_.blocks.was_in_vain) {
    looks_for_room_from_ = std::min(endpoint.now() + expiry_ns, room_.next_end);
    room_ = {};
  }
  base::Nanos rest = 0;
  bool has_notes = false;
  for (const auto& node : attachment_.nodes()) {
    rest = std::max(rest, node.session->rest_ns());
    has_notes = has_notes || node.allocator->has_notes();
  }
  const bool is_a_moment = rest < expiry_ns;
  const bool has_found = collected.items_expired + collected.items_reclaimed != 0;
  if (!has_found && !(is_a_moment && has_notes)) co_return std::nullopt;
  // What others hold on to follows the time by a fraction of an expiry.
  found_rests_until_ = endpoint.now() + rest + rest / 2;
  co_return found_rests_until_;
}

// One that is under way, and what comes after one (Homing).
coro::Task<Result<void>> Shards::end_growth(Table* table) {
  std::uint64_t chunks = 0;
  {
    const memory::Attachment::Operation during(attachment_);  // of which the directory is (Growth::finish)
    const auto directory = co_await table->slots().read_directory();
    if (!directory) co_return std::unexpected(directory.error());
    chunks = directory->slots() / chunk_slots;
    if (directory->growing) {
      if (auto finished = co_await table->growth().finish(*directory); !finished) co_return finished;
    }
  }
  // So often at most, whatever others do to its cursor.
  for (std::uint64_t i = 0; i < chunks && table->homing().is_due(); ++i) {
    const memory::Attachment::Operation during(attachment_);
    if (auto helped = co_await table->homing().help(); !helped) co_return helped;
  }
  co_return Result<void>{};
}

coro::Task<Result<Collected>> Shards::collect_garbage() {
  if (auto reached = all_reached("collect"); !reached) co_return std::unexpected(std::move(reached.error()));
  Collected collected;
  const Stats before = attachment_.stats();
  for (const auto& node : attachment_.nodes()) {
    if (auto swept = co_await node.allocator->sweep_all(); !swept)
      co_return std::unexpected(std::move(swept.error()));
  }
  for (const auto& table : tables_) {
    if (auto ended = co_await end_growth(table.get()); !ended)
      co_return std::unexpected(std::move(ended.error()));
  }
  // What was unfinished before all slots are looked at is not any more afterwards.
  std::vector<std::uint64_t> unfinished;
  for (const auto& node : attachment_.nodes()) {
    const auto moves = co_await node.session->unfinished_moves_of_the_gone();
    if (!moves) co_return std::unexpected(moves.error());
    unfinished.push_back(*moves);
  }
  bool all_done = true;
  for (const auto& table : tables_) {
    const auto repaired = co_await table->slot_repair().repair_slots(&collected);
    if (!repaired) co_return std::unexpected(repaired.error());
    all_done = all_done && *repaired;
  }
  LOCH_FAULT_POINT("collect.before_forget");
  for (std::size_t n = 0; n < unfinished.size(); ++n) {
    const auto& node = attachment_.nodes()[n];
    if (all_done) {
      if (auto forgotten = co_await node.session->forget_unfinished_moves(unfinished[n]); !forgotten)
        co_return std::unexpected(std::move(forgotten.error()));
    }
    if (auto reclaimed = co_await reclaim_orphans(&node, &collected); !reclaimed)
      co_return std::unexpected(std::move(reclaimed.error()));
  }
  const Stats after = attachment_.stats();
  collected.sessions_reaped = after[Counter::sessions_reaped] - before[Counter::sessions_reaped];
  collected.blocks_freed = after[Counter::blocks_freed] - before[Counter::blocks_freed];
  co_return collected;
}

}  // namespace loch::hash
