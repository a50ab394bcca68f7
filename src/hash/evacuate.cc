#include "hash/evacuate.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "coro/scope.h"
#include "hash/shards.h"
#include "hash/slot_group.h"

namespace loch::hash {

using memory::BlockNumber;
using memory::ItemKind;
using memory::ItemRef;

coro::Task<Result<Evacuation::Outcome>> Evacuation::evacuate_item(ItemRef item, Key key) {
  constexpr int rounds_max = 64;
  for (int round = 0; round < rounds_max; ++round) {
    if (auto fresh = co_await slots_.keep_fresh(); !fresh)
      co_return std::unexpected(std::move(fresh.error()));
    KeyCollect seen;
    if (auto read = co_await snapshots_.collect(key, &seen); !read)
      co_return std::unexpected(std::move(read.error()));
    const int named = location_naming(seen, item);
    const auto j = static_cast<unsigned>(named);
    if (named >= 0 && seen.word[j].is(SlotType::committed)) {
      auto found = co_await items_.fetch(item);
      if (!found && found.error().code == Errc::corrupt) co_return Outcome::damaged;
      if (!found) co_return std::unexpected(std::move(found.error()));
      const auto copied = co_await item_writer_.put_copy(seen.at.slot[j], seen.word[j], &found->view);
      if (!copied) co_return std::unexpected(copied.error());
      if (*copied) co_return Outcome::done;
    }
    const auto equal = co_await snapshots_.is_snapshot(key, &seen);
    if (!equal) co_return std::unexpected(equal.error());
    if (!*equal) continue;
    if (named < 0) co_return Outcome::done;
    // A move or an insert is half way: it is brought on.
    const auto resolved = co_await resolver_.resolve_step(key, &seen);
    if (!resolved) co_return std::unexpected(resolved.error());
    if (!*resolved) break;
  }
  co_return Outcome::named;
}

coro::Task<Result<std::uint64_t>> Evacuation::clear_words(std::uint32_t node) {
  const auto directory = co_await slots_.read_directory();
  if (!directory) co_return std::unexpected(directory.error());
  const SlotNumber slots = directory->slots();
  std::uint64_t left = 0;
  SlotGroup group(slots_, items_);
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    if (!group.has(slot)) {
      if (auto read = co_await group.read(slot, slots); !read)
        co_return std::unexpected(std::move(read.error()));
    }
    const SlotWord word = group.word(slot);
    if (!word.names_item() || attachment_.region_map().node_of(word.item().region) != node) continue;
    if (auto done = co_await clear_word(slot, word, *directory); !done && !is_out_of_reach(done.error()))
      co_return std::unexpected(std::move(done.error()));
    const auto raw = co_await slots_.read(slot);
    if (!raw) co_return std::unexpected(raw.error());
    const SlotWord there{*raw};
    if (there.names_item() && attachment_.region_map().node_of(there.item().region) == node) ++left;
  }
  co_return left;
}

coro::Task<Result<void>> Evacuation::clear_word(SlotNumber slot, SlotWord word, Directory d) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  const auto header = co_await items_.read_header(word.item());
  if (!header && header.error().code != Errc::corrupt) co_return std::unexpected(header.error());
  // A word that stands where its item's key does not lead, or that names no item, is damaged.
  const bool is_its_keys =
      header && Locations::of(header->key_hash, d, slots_.candidates()).index_of(slot) >= 0;
  Result<bool> done = true;
  if (!is_its_keys) {
    done = co_await slots_.swap(slot, word, cleared_word(word, slot, d, home_.next_nonce()));
  } else if (word.is(SlotType::committed)) {
    // One that could not be copied by its key, since another slot of that, or the item, is damaged.
    const auto found = co_await items_.fetch(word.item());
    if (!found && found.error().code != Errc::corrupt) co_return std::unexpected(found.error());
    done = found ? co_await item_writer_.put_copy(slot, word, &found->view)
                 : co_await slots_.swap(slot, word, SlotWord::empty(home_.next_nonce(), word.level()));
  } else {
    // Of a move whose two words agree they are what the key's value is: so by its key, and never one by one.
    Collected repaired;
    done = co_await slot_repair_.repair_slot(slot, word, &repaired);
  }
  if (!done) co_return std::unexpected(std::move(done.error()));
  co_return Result<void>{};
}

coro::Task<Result<bool>> Shards::is_quiet(std::uint32_t node, base::Nanos since) {
  auto others = co_await attachment_.node(node)->session->others_run_since(since);
  if (!others) co_return others;
  co_return !*others;
}

namespace {

// Before all was seen to.
Shards::Evacuated ended(Shards::Evacuated evacuated) {
  ++evacuated.left;
  return evacuated;
}

}  // namespace

// One item: its key's slot names a copy instead, if it names this one.
coro::Task<Result<void>> Shards::evacuate_one(ItemRef item, Evacuated* evacuated) {
  auto head = co_await items_.fetch_intact_head(item);
  if (!head && head.error().code != Errc::corrupt) co_return std::unexpected(std::move(head.error()));
  if (!head) co_return Result<void>{};  // if a word names it, that is cleared later
  const Key key{.bytes = head->view.key(), .hash = head->view.key_hash()};
  const auto table = table_of(key.hash);
  if (!table) co_return std::unexpected(table.error());
  auto done = co_await (*table)->evacuation().evacuate_item(item, key);
  if (!done && !is_out_of_reach(done.error())) co_return std::unexpected(std::move(done.error()));
  if (done && *done == Evacuation::Outcome::damaged) co_return Result<void>{};  // likewise
  // What can not be copied by its key now is by its word, if that stays in its slot later.
  ++(done && *done == Evacuation::Outcome::done ? evacuated->copied : evacuated->left);
  co_return Result<void>{};
}

coro::Task<Result<Shards::Evacuated>> Shards::evacuate(std::uint32_t node, std::function<bool()> goes_on) {
  if (auto reached = all_reached("evacuate"); !reached) co_return std::unexpected(std::move(reached.error()));
  const memory::Attachment::Node& from = *attachment_.node(node);
  Evacuated evacuated;
  Collected collected;
  std::vector<memory::Allocator::ItemWords> items;
  std::vector<ItemRef> in_use;
  std::vector<coro::Task<Result<void>>> copying;
  const auto blocks = from.allocator->blocks();
  if (!blocks) co_return std::unexpected(blocks.error());
  const auto is_ended = [&] { return goes_on && !goes_on(); };
  for (const BlockNumber block : *blocks) {
    if (is_ended()) co_return ended(evacuated);
    if (auto reclaimed = co_await reclaim_orphans_in(&from, block, Damaged::may_be_orphans, &collected);
        !reclaimed)
      co_return std::unexpected(std::move(reclaimed.error()));
    const auto lease = co_await from.allocator->lease_of(block);
    if (!lease) co_return std::unexpected(lease.error());
    if (auto looked = co_await from.allocator->look_at_items(block, *lease, &items); !looked)
      co_return std::unexpected(std::move(looked.error()));
    in_use.clear();
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      if (items[i].state.kind == ItemKind::in_use) in_use.push_back(memory::item_of(block, *lease, i));
    }
    const std::size_t together = at_once(*lease);
    for (std::size_t first = 0; first < in_use.size(); first += together) {
      const memory::Attachment::Operation during(attachment_);
      copying.clear();
      for (std::size_t i = first; i < std::min(in_use.size(), first + together); ++i)
        copying.push_back(evacuate_one(in_use[i], &evacuated));
      co_await coro::run_together(&attachment_.endpoint().queue(), std::span(copying));
      for (auto& task : copying) {
        if (auto done = task.take(); !done) co_return std::unexpected(std::move(done.error()));
      }
    }
  }
  for (const auto& table : tables_) {
    if (is_ended()) co_return ended(evacuated);
    const memory::Attachment::Operation during(attachment_);
    const auto words = co_await table->evacuation().clear_words(node);
    if (!words) co_return std::unexpected(words.error());
    evacuated.left += *words;
  }
  co_return evacuated;
}

}  // namespace loch::hash
