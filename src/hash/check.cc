// Accounting for every item, block and slot.
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "hash/shards.h"
#include "hash/slot_group.h"

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
  if (report->findings.size() < findings_max)
    report->findings.push_back(std::move(text));
  else
    ++report->findings_left_out;
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

// Which items the index of a shard names; counts what it finds on the way.
coro::Task<Result<void>> mark_linked(Slots* slots, const Items* items, memory::ItemSet* linked,
                                     Report* report) {
  memory::Attachment& attachment = slots->attachment();
  fabric::Endpoint& endpoint = slots->endpoint();
  const Stay stay(attachment);
  auto d = co_await slots->read_directory();
  SlotGroup group(*slots, *items);
  for (SlotNumber slot = 0; d && slot < d->slots(); ++slot) {
    if (!group.has(slot)) {
      if (auto read = co_await group.read(slot, d->slots()); !read) co_return read;
      // A growth may have begun, or ended. One of a cluster may be about to leave, and waits for this.
      if (!attachment.is_of_cluster()) d = co_await slots->read_directory();
      if (!d) break;
    }
    const SlotWord word = group.word(slot);
    if (word.is(SlotType::unborn) && d->growing) continue;
    const ItemRef ref = word.item();
    const bool level_fits = d->is_unsplit(word) || (d->growing && d->is_split(word));
    if (word.is(SlotType::empty) && level_fits) continue;
    const bool is_there = word.names_item() && ref.region >= memory::first_data_region &&
                          endpoint.reaches(ref.address(), memory::item_unit_bytes);
    if (!is_there && endpoint.has_failed())
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
    auto found = co_await items->fetch(ref);
    if (!found && found.error().code == Errc::no_space) co_return std::unexpected(std::move(found.error()));
    if (!found) {
      ++report->items_corrupt;
      add_finding(report, fmt::format("slot {}: the item at region {} unit {} is damaged", slot, ref.region,
                                      ref.unit));
      continue;
    }
    if (word.is(SlotType::committed)) ++report->items;
  }
  if (!d) co_return std::unexpected(d.error());
  co_return Result<void>{};
}

}  // namespace

coro::Task<Result<Report>> Shards::check() {
  if (auto reached = all_reached("check"); !reached) co_return std::unexpected(std::move(reached.error()));
  Report report;
  if (auto fresh = co_await some().slots().keep_fresh(); !fresh)
    co_return std::unexpected(std::move(fresh.error()));
  memory::ItemSet linked;
  for (const auto& table : tables_) {
    if (auto marked = co_await mark_linked(&table->slots(), &items_, &linked, &report); !marked)
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
    if (auto fresh = co_await some().slots().keep_fresh(); !fresh) co_return fresh;
    const memory::Attachment::Operation during(attachment_);
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
      auto orphan = co_await is_orphan(&session, block, lease, i, state, Damaged::may_be_orphans);
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
