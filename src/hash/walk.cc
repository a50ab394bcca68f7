// Iteration over all items. Items do not move, so the blocks are walked, and the index is asked about each
// item.
//
// A walk pins the memory that is unlinked from `pinned` on, and begins at `start`, when the items that were
// linked at `began` count as written before. A key that is there throughout had some item x at `began`,
// which can be read when the walk comes to it. If x is the key's item still, it is visited. Else the key has
// another item by now, y:
//   y was written since `start`       y is visited at once, for it may lie behind the walk
//   y was written before, and is      the walk comes to y as it did to x
//   ahead of the walk
//   y was written before, behind the  y was linked since the walk passed it, and is visited at once
//   walk, and was not visited
// so a key is visited at least once even if each new item lands in a block that the walk has passed. The item
// of an unchanged key was written before `start`, and no item is visited twice, so that key is visited
// exactly once.
//
// What is damaged a block may hide, or lie about. So at the end the slots are gone through for items that the
// walk did not come to: those that are damaged count as such, and whatever else was written before `start` is
// visited.
//
// Items are on several nodes, each with its own clock: `pinned`, `began` and `start` are of the node that an
// item is on.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "coro/scope.h"
#include "hash/heap.h"
#include "hash/shards.h"
#include "hash/slot_group.h"

namespace loch::hash {

using memory::BlockNumber;
using memory::ItemKind;
using memory::ItemRef;

namespace {

bool is_absent_or_damaged(const Error& error) {
  return error.code == Errc::not_found || error.code == Errc::corrupt;
}

}  // namespace

// The time from which on what is written to a node counts as written during the walk: all that was linked
// before this call was written before it.
coro::Task<Result<base::Nanos>> Shards::begin_walk(memory::Session* session) {
  const auto began = co_await session->control().read_time();
  if (!began) co_return std::unexpected(began.error());
  base::Nanos start = *began;
  constexpr base::Nanos lead = memory::Session::write_lead_max_ns;
  fabric::Endpoint& endpoint = attachment_.endpoint();
  const base::Nanos deadline = endpoint.now() + lead + some().slots().timeout_ns();
  while (start <= *began + lead) {
    // Here the time is over after one wait; elsewhere it is if the store's host goes on telling it.
    if (endpoint.now() > deadline)
      co_return fail(Errc::timed_out, "walk",
                     "the store's time stands still; see whether the host of the store is alive");
    co_await endpoint.sleep_until(endpoint.now() + lead + 1);
    const auto now = co_await session->control().read_time();
    if (!now) co_return std::unexpected(now.error());
    start = *now;
  }
  co_return start;
}

coro::Task<Result<Shards::Walk>> Shards::begin_walk() {
  const auto& nodes = attachment_.nodes();
  std::vector<coro::Task<Result<base::Nanos>>> beginning;
  for (const auto& node : nodes) beginning.push_back(begin_walk(node.session.get()));
  co_await coro::run_together(&attachment_.endpoint().queue(), std::span(beginning));
  Walk walk;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const auto start = beginning[n].take();
    if (!start) co_return std::unexpected(start.error());
    walk.starts.push_back(*start);
    auto blocks = nodes[n].allocator->blocks();
    if (!blocks) co_return std::unexpected(std::move(blocks.error()));
    for (const BlockNumber block : *blocks) walk.order.emplace_back(block, n);
    walk.blocks.push_back(std::move(*blocks));
  }
  std::ranges::sort(walk.order);
  co_return walk;
}

// Whether the item that the key has, y, is visited when the walk comes to x: by the cases above.
bool Shards::is_visited_now(const Walk& walk, const Walked& x) const {
  const ItemView& current = x.current->view;
  const ItemRef y = current.ref();
  if (y == x.ref) return true;
  const auto n = static_cast<std::size_t>(&attachment_.node_of(y) - attachment_.nodes().data());
  const bool was_written_before = current.written_at_ns() < walk.starts[n];
  const bool is_ahead = walk.blocks[n].contains(block_of(y)) &&
                        std::pair(y.region, y.unit) > std::pair(x.ref.region, x.ref.unit);
  return x.written_before && !(was_written_before && is_ahead);
}

coro::Task<Result<void>> Shards::for_each(const Visit* visit) {
  if (auto reached = all_reached("walk"); !reached) co_return reached;
  if (auto fresh = co_await some().slots().keep_fresh(); !fresh) co_return fresh;
  const memory::Attachment::Pin pin(attachment_);
  auto walk = co_await begin_walk();
  if (!walk) co_return std::unexpected(std::move(walk.error()));

  std::vector<memory::Allocator::ItemWords> items;
  std::vector<Walked> walked;
  std::vector<coro::Task<void>> tasks;
  for (const auto& [block, n] : walk->order) {
    memory::Allocator& allocator = *attachment_.nodes()[n].allocator;
    auto lease = co_await allocator.lease_of(block);
    if (!lease) co_return std::unexpected(std::move(lease.error()));
    if (auto looked = co_await allocator.look_at_items(block, *lease, &items); !looked) co_return looked;
    walked.clear();
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      const auto& [state, written_at_ns] = items[i];
      const bool written_before = written_at_ns < walk->starts[n];
      const bool unlinked_since =
          state.kind == ItemKind::retired && state.value >= pin.start(n) && written_before;
      if (state.kind == ItemKind::in_use || unlinked_since)
        walked.push_back({.ref = memory::item_of(block, *lease, i), .written_before = written_before});
    }
    const std::size_t together = at_once(*lease);
    for (std::size_t first = 0; first < walked.size(); first += together) {
      const auto some_of_them = std::span(walked).subspan(first, std::min(together, walked.size() - first));
      const memory::Attachment::Operation during(attachment_);
      if (auto looked = co_await look_up(some_of_them, &tasks); !looked) co_return looked;
      for (const Walked& x : some_of_them) {
        if (!x.found) continue;
        if (!x.current && x.current.error().code == Errc::corrupt) {
          walk->settled.insert(x.ref);
          walk->is_damaged = true;
        }
        if (!x.current || !is_visited_now(*walk, x)) continue;
        const ItemView& y = x.current->view;
        if (walk->settled.insert(y.ref()) && !(*visit)(y)) co_return Result<void>{};
      }
    }
  }
  for (const auto& table : tables_) {
    const auto goes_on = co_await visit_by_slots(&table->slots(), &*walk, visit);
    if (!goes_on) co_return std::unexpected(goes_on.error());
    if (!*goes_on) break;
  }
  co_return Result<void>{};
}

// The committed items of one shard that are not settled. False if `visit` says so.
coro::Task<Result<bool>> Shards::visit_by_slots(Slots* slots, Walk* walk, const Visit* visit) {
  const Stay stay(attachment_);
  auto d = co_await slots->read_directory();
  SlotGroup group(*slots, items_);
  std::vector<Linked> linked;
  std::vector<coro::Task<void>> tasks;
  for (SlotNumber first = 0; d && first < d->slots(); first += group.size()) {
    if (auto read = co_await group.read(first, d->slots()); !read) {
      // Where the index was cut off, the items that the blocks tell of count already.
      if (read.error().code == Errc::corrupt && walk->is_damaged) co_return true;
      co_return std::unexpected(std::move(read.error()));
    }
    linked.clear();
    for (SlotNumber slot = first; group.has(slot); ++slot) {
      const SlotWord word = group.word(slot);
      if (word.is(SlotType::committed) && !walk->settled.contains(word.item()))
        linked.push_back({.slot = slot, .word = word, .item = {.ref = word.item()}});
    }
    tasks.clear();
    for (Linked& each : linked) tasks.push_back(find_item(&each.item));
    co_await coro::run_together(&attachment_.endpoint().queue(), std::span(tasks));
    for (Linked& each : linked) {
      const auto goes_on = co_await visit_linked(slots, &each, walk, visit);
      if (!goes_on || !*goes_on) co_return goes_on;
    }
    // A growth may have begun, or ended. A shard of a cluster may be about to leave, and waits for this.
    if (!attachment_.is_of_cluster()) d = co_await slots->read_directory();
  }
  if (!d) co_return std::unexpected(d.error());
  co_return true;
}

coro::Task<Result<bool>> Shards::visit_linked(Slots* slots, Linked* linked, Walk* walk, const Visit* visit) {
  Walked& x = linked->item;
  if (items_.is_unknown(x.ref)) {
    // Of a host that joined since the walk began, unless this client's map is the newest.
    const Error error = (co_await slots->damaged_slot(0)).error();
    if (error.code != Errc::moved && error.code != Errc::corrupt) co_return std::unexpected(error);
    co_return true;
  }
  if (!x.found && x.found.error().code != Errc::corrupt)
    co_return std::unexpected(std::move(x.found.error()));
  if (!x.found) {
    const auto now = co_await slots->read(linked->slot);
    if (!now) co_return std::unexpected(now.error());
    if (*now == linked->word.raw) slots->home().count(Counter::corrupt_items);
    co_return true;
  }
  const auto n = static_cast<std::size_t>(&attachment_.node_of(x.ref) - attachment_.nodes().data());
  if (x.found->view.written_at_ns() >= walk->starts[n]) co_return true;
  co_await find_current(&x);
  if (!x.current && !is_absent_or_damaged(x.current.error()))
    co_return std::unexpected(std::move(x.current.error()));
  if (!x.current || x.current->view.ref() != x.ref || !walk->settled.insert(x.ref)) co_return true;
  // Where a block hides an item, its memory may be used again while it is visited.
  const std::uint64_t length = x.current->view.length_bytes();
  const auto copy = bytes_of_heap(length);
  if (copy == nullptr) co_return no_heap("walk", length);
  std::memcpy(copy.get(), x.current->view.bytes(), length);
  ItemView view;
  if (view.parse(copy.get(), length, x.ref) && view.is_intact()) co_return (*visit)(view);
  slots->home().count(Counter::corrupt_items);
  co_return true;
}

// What is not there, or damaged, is so in `walked`. Errors: any other.
coro::Task<Result<void>> Shards::look_up(std::span<Walked> walked, std::vector<coro::Task<void>>* tasks) {
  coro::RunQueue& queue = attachment_.endpoint().queue();
  tasks->clear();
  for (Walked& each : walked) tasks->push_back(find_item(&each));
  co_await coro::run_together(&queue, std::span(*tasks));
  tasks->clear();
  for (Walked& each : walked) {
    if (each.found) tasks->push_back(find_current(&each));
  }
  co_await coro::run_together(&queue, std::span(*tasks));
  for (Walked& each : walked) {
    // Damaged, which matters if a slot names it; or not written yet.
    if (!each.found && each.found.error().code != Errc::corrupt)
      co_return std::unexpected(std::move(each.found.error()));
    if (each.found && !each.current && !is_absent_or_damaged(each.current.error()))
      co_return std::unexpected(std::move(each.current.error()));
  }
  co_return Result<void>{};
}

// Whose it is; the value is read once, with what its key has now.
coro::Task<void> Shards::find_item(Walked* walked) {
  walked->found = co_await items_.fetch_intact_head(walked->ref);
}

coro::Task<void> Shards::find_current(Walked* walked) {
  const ItemView& item = walked->found->view;
  walked->current = co_await get(Key{.bytes = item.key(), .hash = item.key_hash()});
  if (!walked->current && std::string_view(walked->current.error().operation) == "get")
    walked->current.error().operation = "walk";
}

}  // namespace loch::hash
