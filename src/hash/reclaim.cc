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
                                           std::uint32_t index, ItemState state) {
  const ItemRef item = memory::item_of(block, lease, index);
  if (state.kind == ItemKind::fresh) {
    co_return lease.state == BlockState::full || (lease.state == BlockState::open && index < lease.cut());
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
  auto named = co_await is_named(item);
  if (!named) {
    // Its hash leads to a damaged slot; nobody can say whether it is linked there.
    if (named.error().code == Errc::corrupt) co_return false;
    co_return named;
  }
  co_return !*named;
}

// Retires an item that belongs to nobody, as if it had been unlinked just now: somebody who is late may still
// know it. False if it is another one by now, or was looked at too long ago: left to the next collection.
coro::Task<Result<bool>> Shards::reclaim(memory::Session* session, BlockNumber block, ItemRef item,
                                         ItemState state) {
  const auto now = co_await session->control().read_time();
  if (!now) co_return std::unexpected(now.error());
  if (!attachment_.may_act()) co_return false;
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
                                                             BlockNumber block, Collected* collected) {
  if (auto fresh = co_await some().slots().keep_fresh(); !fresh)
    co_return std::unexpected(std::move(fresh.error()));
  const memory::Attachment::Operation during(attachment_);
  memory::Session* const session = node->session.get();
  std::vector<memory::Allocator::ItemWords> items;
  const auto lease = co_await look_at_block(node->allocator.get(), block, &items);
  if (!lease) co_return std::unexpected(lease.error());
  std::vector<coro::Task<Result<bool>>> asking;
  const auto together = static_cast<std::uint32_t>(at_once(*lease));
  const auto count = static_cast<std::uint32_t>(items.size());
  for (std::uint32_t first = 0; first < count; first += together) {
    const std::uint32_t end = std::min(count, first + together);
    asking.clear();
    for (std::uint32_t i = first; i < end; ++i)
      asking.push_back(is_orphan(session, block, *lease, i, items[i].state));
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
    if (auto looked = co_await reclaim_orphans_in(node, block, collected); !looked)
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
  room_.table %= tables_.size();
  if (Table* const table = tables_[room_.table].get(); table == nullptr) {
    ++room_.table;
  } else {
    const auto next = co_await table->slot_repair().drop_expired(room_.slot, slots_at_once, until, collected);
    if (!next) co_return std::unexpected(next.error());
    room_.slot = next->value_or(0);
    if (!*next) ++room_.table;
  }
  // Whether an item is somebody's only all tables can say.
  if (!all_reached("collect")) co_return Result<void>{};
  room_.node %= attachment_.nodes().size();
  const memory::Attachment::Node& node = attachment_.nodes()[room_.node];
  const auto blocks = node.allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  for (std::uint64_t items = 0; items < items_at_once && attachment_.endpoint().now() < until; ++items) {
    if (room_.block >= blocks->size()) {
      ++room_.node;
      room_.block = 0;
      break;
    }
    const auto looked = co_await reclaim_orphans_in(&node, (*blocks)[room_.block++], collected);
    if (!looked) co_return std::unexpected(looked.error());
    items += *looked;
  }
  co_return Result<void>{};
}

coro::Task<Result<std::optional<base::Nanos>>> Shards::make_room(base::Nanos until) {
  const base::Nanos now = attachment_.endpoint().now();
  if (now < room_.rests_until) co_return room_.rests_until;
  Collected collected;
  if (auto looked = co_await look_for_room(until, &collected); !looked)
    co_return std::unexpected(std::move(looked.error()));
  base::Nanos rest = 0;
  bool has_notes = false;
  for (const auto& node : attachment_.nodes()) {
    rest = std::max(rest, node.session->rest_ns());
    has_notes = has_notes || node.allocator->has_notes();
  }
  const bool is_a_moment = rest < attachment_.memory().geometry().expiry_ns;
  const bool has_found = collected.items_expired + collected.items_reclaimed != 0;
  if (!has_found && !(is_a_moment && has_notes)) co_return std::nullopt;
  // What others hold on to follows the time by a fraction of an expiry.
  room_.rests_until = attachment_.endpoint().now() + rest + rest / 2;
  co_return room_.rests_until;
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
    const memory::Attachment::Operation during(attachment_);  // of which the directory is (Growth::finish)
    const auto directory = co_await table->slots().read_directory();
    if (!directory) co_return std::unexpected(directory.error());
    if (!directory->growing) continue;
    if (auto finished = co_await table->growth().finish(*directory); !finished)
      co_return std::unexpected(std::move(finished.error()));
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
