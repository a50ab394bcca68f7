// Clearing up after the dead, and accounting for every item, block and slot.
#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "coro/scope.h"
#include "hash/shards.h"

namespace loch::hash {
namespace {

using memory::BlockNumber;
using memory::BlockState;
using memory::ItemKind;
using memory::ItemRef;
using memory::ItemState;
using memory::LeaseWord;

constexpr std::size_t findings_max = 100;

void add_finding(Report* report, std::string text) {
  if (report->findings.size() < findings_max) report->findings.push_back(std::move(text));
}

// The items of a block that is leased as `lease` says, which it is before and after the look: between the two
// it may be freed and cut otherwise, so that what is looked at are bytes of values. None if it is not.
coro::Task<Result<LeaseWord>> look_at_block(memory::Allocator* allocator, BlockNumber block,
                                            std::vector<memory::Allocator::ItemWords>* items) {
  const auto lease = co_await allocator->lease_of(block);
  if (!lease) co_return lease;
  if (auto looked = co_await allocator->look_at_items(block, *lease, items); !looked)
    co_return std::unexpected(std::move(looked.error()));
  auto after = co_await allocator->lease_of(block);
  if (after && after->encode() != lease->encode()) items->clear();
  co_return after;
}

coro::Task<Result<ItemState>> look_at_state(fabric::Endpoint* endpoint, ItemRef item) {
  const auto word = co_await endpoint->read_word(item.address());
  if (!word) co_return std::unexpected(word.error());
  co_return ItemState::decode(*word);
}

// Whether a slot may name an item that says so: one that rests was unlinked just now.
bool may_be_linked(const memory::Session& session, ItemState state) {
  return state.kind == ItemKind::in_use ||
         (state.kind == ItemKind::retired && state.value + session.geometry().expiry_ns >= session.now());
}

}  // namespace

coro::Task<Result<bool>> Table::is_named(ItemRef item, std::uint64_t key_hash) {
  Collect first;
  Collect second;
  constexpr int rounds_max = 64;
  for (int round = 0; round < rounds_max; ++round) {
    if (auto read = co_await collect_words(key_hash, &first); !read)
      co_return std::unexpected(std::move(read.error()));
    for (unsigned j = 0; j < first.at.count; ++j) {
      if (first.word[j].names_item() && first.word[j].item() == item) co_return true;
    }
    if (auto read = co_await collect_words(key_hash, &second); !read)
      co_return std::unexpected(std::move(read.error()));
    if (second.same_words(first)) co_return false;
  }
  co_return true;  // too busy to be sure
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

coro::Task<void> Shards::find_out(memory::Session* session, BlockNumber block, LeaseWord lease,
                                  Suspect* suspect) {
  suspect->is_orphan = co_await is_orphan(session, block, lease, suspect->index, suspect->state);
}

coro::Task<void> Shards::find_orphans(memory::Session* session, BlockNumber block, LeaseWord lease,
                                      std::vector<Suspect>* suspects) {
  if (suspects->size() == 1) co_return co_await find_out(session, block, lease, &suspects->front());
  std::vector<coro::Task<void>> asking;
  for (Suspect& each : *suspects) asking.push_back(find_out(session, block, lease, &each));
  co_await coro::run_together(&attachment_.endpoint().queue(), std::span(asking));
}

// Brings on the key of an item that a slot was seen to name, until there is nothing left to do. False if
// there may be.
coro::Task<Result<bool>> Table::repair_slot(SlotNumber slot, SlotWord word, Collected* collected) {
  constexpr int steps_max = 8;
  Result<bool> goes_on = true;
  int steps = 0;
  while (*goes_on && steps < steps_max) {
    goes_on = co_await resolve_item(word.item());
    // The item is on a host that is away, or a slot of its key is damaged: that of no other is the worse for
    // it.
    if (!goes_on && is_out_of_reach(goes_on.error())) co_return false;
    if (!goes_on) co_return goes_on;
    if (*goes_on) ++steps;
  }
  bool repairs = steps != 0;
  if (!*goes_on && (word.is(SlotType::placed) || word.is(SlotType::moved))) {
    // If it is there still, its item tells of no such move: the word means nothing.
    auto cleared = co_await swap_slot(slot, word, cleared_word(word, slot, directory(), home_.next_nonce()));
    if (!cleared) co_return cleared;
    repairs = repairs || *cleared;
  }
  if (repairs) ++collected->slots_repaired;
  co_return !*goes_on;
}

// False if moves may have been left half done.
coro::Task<Result<bool>> Table::repair_slots(Collected* collected) {
  const Directory d = directory();
  const SlotNumber slots = d.slots();
  bool all_done = true;
  SlotGroup group;
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    if (auto fresh = co_await keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
    if (!group.has(slot)) {
      if (auto read = co_await read_group_and_headers(slot, slots, &group); !read)
        co_return std::unexpected(std::move(read.error()));
    }
    const SlotWord word = group.word(slot);
    if (!word.names_item()) continue;
    if (word.is(SlotType::committed)) {
      auto header = co_await header_of(&group, slot);
      if (!header || !expired(header->expires_at_ns, home_.now() + time_ahead_ns_)) continue;
      // A damaged word may point at anything that looks like this; nothing is to be written there.
      if (!co_await fetch_item(word.item())) continue;
      auto gone = co_await swap_slot(slot, word, SlotWord::empty(home_.next_nonce(), word.level()));
      if (!gone) co_return std::unexpected(std::move(gone.error()));
      if (!*gone) continue;
      co_await attachment_.allocator_of(word.item()).retire(word.item(), word.tag() != 0);
      ++collected->items_expired;
      continue;
    }
    const auto done = co_await repair_slot(slot, word, collected);
    if (!done) co_return done;
    all_done = all_done && *done;
  }
  co_return all_done;
}

coro::Task<Result<void>> Shards::reclaim_orphans(const memory::Attachment::Node* node, Collected* collected) {
  memory::Session& session = *node->session;
  fabric::Endpoint& endpoint = attachment_.endpoint();
  const auto blocks = node->allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  std::vector<memory::Allocator::ItemWords> items;
  std::vector<Suspect> suspects;
  for (const BlockNumber block : *blocks) {
    const auto looked = co_await look_at_block(node->allocator.get(), block, &items);
    if (!looked) co_return std::unexpected(looked.error());
    const LeaseWord lease = *looked;
    const std::size_t together = at_once(lease);
    for (std::uint32_t i = 0; i < items.size();) {
      suspects.clear();
      for (; i < items.size() && suspects.size() < together; ++i)
        suspects.push_back({.index = i, .state = items[i].state});
      co_await find_orphans(&session, block, lease, &suspects);
      for (Suspect& suspect : suspects) {
        if (!suspect.is_orphan) co_return std::unexpected(std::move(suspect.is_orphan.error()));
        if (!*suspect.is_orphan) continue;
        const fabric::Address at = memory::item_of(block, lease, suspect.index).address();
        const std::uint64_t word = suspect.state.encode();
        // Retired as if it had been unlinked just now: somebody who is late may still know it.
        const auto now = co_await session.control().read_time();
        if (!now) co_return std::unexpected(now.error());
        if (!attachment_.may_act()) continue;  // looked at too long ago: left to the next collection
        const ItemState retired{.kind = ItemKind::retired, .moved = true, .value = *now};
        auto before = co_await endpoint.compare_swap(at, word, retired.encode());
        if (!before) co_return std::unexpected(std::move(before.error()));
        if (*before != word) continue;
        co_await endpoint.fetch_add(memory::released_address(block), 1);
        ++collected->items_reclaimed;
        session.count(Counter::items_reclaimed);
      }
    }
  }
  co_return Result<void>{};
}

coro::Task<Result<Collected>> Shards::collect() {
  if (auto reached = all_reached("collect"); !reached) co_return std::unexpected(std::move(reached.error()));
  Collected collected;
  const Stats before = attachment_.stats();
  for (const auto& node : attachment_.nodes()) {
    if (auto swept = co_await node.allocator->sweep_all(); !swept)
      co_return std::unexpected(std::move(swept.error()));
  }
  for (const auto& table : tables_) {
    const auto directory = co_await table->read_directory();
    if (!directory) co_return std::unexpected(directory.error());
    if (!directory->growing) continue;
    if (auto finished = co_await table->finish_growth(*directory); !finished)
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
    const auto repaired = co_await table->repair_slots(&collected);
    if (!repaired) co_return std::unexpected(repaired.error());
    all_done = all_done && *repaired;
  }
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

// Which items the index names; counts what it finds on the way.
coro::Task<Result<void>> Table::mark_linked(memory::ItemSet* linked, Report* report) {
  const auto read_now = co_await read_directory();
  if (!read_now) co_return std::unexpected(read_now.error());
  const Directory d = *read_now;
  const SlotNumber slots = d.slots();
  SlotGroup group;
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    if (!group.has(slot)) {
      if (auto read = co_await read_group(slot, slots, &group); !read) co_return read;
    }
    const SlotWord word = group.word(slot);
    if (word.is(SlotType::unborn) && d.growing) continue;
    const ItemRef ref = word.item();
    const bool level_fits = d.is_unsplit(word) || (d.growing && d.is_split(word));
    if (word.is(SlotType::empty) && level_fits) continue;
    const bool is_there = word.names_item() && ref.region >= memory::first_data_region &&
                          endpoint_.reaches(ref.address(), memory::item_unit_bytes);
    if (!is_there && endpoint_.has_failed())
      co_return fail(Errc::unavailable, "check", "a host can not be asked any more");
    if (!level_fits || !is_there) {
      ++report->slots_corrupt;
      add_finding(report, fmt::format("slot {}: no client writes the word {:016x}", slot, word.raw));
      continue;
    }
    ++report->slots_used;
    if (!word.is(SlotType::committed)) {
      ++report->slots_pending;
      add_finding(report, fmt::format("slot {}: an insert or move is half done (type {})", slot,
                                      static_cast<unsigned>(word.type())));
    }
    linked->insert(ref);
    auto found = co_await fetch_item(ref);
    if (!found) {
      ++report->items_corrupt;
      add_finding(report, fmt::format("slot {}: the item at region {} unit {} is damaged", slot, ref.region,
                                      ref.unit));
      continue;
    }
    if (word.is(SlotType::committed)) ++report->items;
  }
  co_return Result<void>{};
}

coro::Task<Result<Report>> Shards::check() {
  if (auto reached = all_reached("check"); !reached) co_return std::unexpected(std::move(reached.error()));
  Report report;
  if (auto fresh = co_await some().keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  memory::ItemSet linked;
  for (const auto& table : tables_) {
    if (auto marked = co_await table->mark_linked(&linked, &report); !marked)
      co_return std::unexpected(std::move(marked.error()));
  }
  for (const auto& node : attachment_.nodes()) {
    if (auto checked = co_await check_node(&node, &linked, &report); !checked)
      co_return std::unexpected(std::move(checked.error()));
  }
  co_return report;
}

coro::Task<Result<void>> Shards::check_node(const memory::Attachment::Node* node,
                                            const memory::ItemSet* linked, Report* report) {
  memory::Session& session = *node->session;
  const auto blocks = node->allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  std::vector<memory::Allocator::ItemWords> items;
  for (const BlockNumber block : *blocks) {
    const auto looked = co_await look_at_block(node->allocator.get(), block, &items);
    if (!looked) co_return std::unexpected(looked.error());
    const LeaseWord lease = *looked;
    const bool held = lease.state == BlockState::leased || lease.state == BlockState::swept;
    if (held && lease.client != 0 && session.is_gone(lease.client, session.now())) {
      ++report->items_unaccounted;
      add_finding(report, fmt::format("block {}: leased by client {}, who is gone", block, lease.client));
    }
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      const ItemRef ref = memory::item_of(block, lease, i);
      const ItemState state = items[i].state;
      const bool is_linked = linked->contains(ref);
      if (state.kind == ItemKind::retired) ++report->items_resting;
      if (is_linked) {
        if (may_be_linked(session, state)) continue;
        // It may have been unlinked, and used again, since the slots were looked at; or since the block was.
        if (auto named = co_await is_named(ref); !named || !*named) continue;
        const auto now = co_await look_at_state(&attachment_.endpoint(), ref);
        if (!now) co_return std::unexpected(now.error());
        if (may_be_linked(session, *now)) continue;
        ++report->items_corrupt;
        add_finding(report, fmt::format("block {} item {}: linked, and yet {}", block, i,
                                        now->kind == ItemKind::retired ? "it rests" : "not in use"));
        continue;
      }
      if (state.kind == ItemKind::retired) continue;
      auto orphan = co_await is_orphan(&session, block, lease, i, state);
      if (!orphan) co_return std::unexpected(std::move(orphan.error()));
      if (!*orphan) continue;
      ++report->items_unaccounted;
      add_finding(report,
                  fmt::format("block {} item {}: belongs to nobody (state {:x})", block, i, state.encode()));
    }
  }
  co_return Result<void>{};
}

}  // namespace loch::hash
