// Shards: one client's way to the whole hash store: a Table for each shard of its index, and what concerns
// all of them. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hash/table.h"

namespace loch::hash {

// A get of those that are done together.
struct GroupedGet {
  Known known;  // whose key it is, and what else is known of it
  std::string* into = nullptr;
  Result<void> outcome{};
};

class Shards final : public memory::ReuseGuard {
 public:
  Shards(memory::Attachment& attachment, const TableOptions& options);
  ~Shards() override { attachment_.close(); }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;
  // What is better known before the first operation. Errors: those of the fabric.
  coro::Task<Result<void>> open();

  // The table of a key. Errors: unavailable, if its home can not be reached.
  [[nodiscard]] Result<Table*> table_of(std::uint64_t key_hash) {
    Table* table = tables_[shard_of(key_hash, tables_.size())].get();
    if (table == nullptr) [[unlikely]]
      return unreached(key_hash);
    return table;
  }
  // Of a store that has one shard; null if it has more, or that one is not reached.
  [[nodiscard]] Table* only() { return tables_.size() == 1 ? tables_.front().get() : nullptr; }

  coro::Task<Result<Found>> get(Key key);
  // As Reader::exists.
  coro::Task<Result<bool>> exists(Key key);
  // As KnownItems::of.
  [[nodiscard]] Known known(Key key) const;
  void fetch_known(Key key) const {
    if (const Table* table = tables_[shard_of(key.hash, tables_.size())].get(); table != nullptr)
      table->known().fetch(key);
  }
  // Several at once (get_together.cc), of a remote session, in one operation.
  coro::Task<void> get_together(std::span<GroupedGet> gets);

  // ---- everything (walk.cc, check.cc, reclaim.cc). Of a store with nodes that can not be reached:
  // unavailable.
  using Visit = std::function<bool(const ItemView&)>;
  coro::Task<Result<void>> for_each(const Visit* visit);
  coro::Task<Result<std::uint64_t>> count();
  coro::Task<Result<Collected>> collect_garbage();
  // For who found no memory: a part of collect_garbage, and another one each time, until then. When what that
  // unlinked will have rested, so that it is worth another try; or, where that is a moment, what this client
  // has unlinked before. Nothing if there was none. If there is none in all parts, it does not look again for
  // an expiry, or until a time to live ends that it saw.
  coro::Task<Result<std::optional<base::Nanos>>> make_room(base::Nanos until);
  // For who found no memory, too: whether the next put sweeps blocks that this one had no time for.
  [[nodiscard]] bool sweeps_on() const {
    return std::ranges::any_of(attachment_.nodes(),
                               [](const auto& node) { return node.allocator->sweeps_on(); });
  }
  // How many that were, by all puts so far.
  [[nodiscard]] std::uint64_t blocks_swept() const {
    std::uint64_t blocks = 0;
    for (const auto& node : attachment_.nodes()) blocks += node.allocator->blocks_swept();
    return blocks;
  }
  coro::Task<Result<Report>> check();

  // Whether all operations that began on the node until `since`, by its clock, are over.
  coro::Task<Result<bool>> is_quiet(std::uint32_t node, base::Nanos since);
  // Of a node that takes no new items (memory::closed_offset), and whose items are to be elsewhere: puts
  // copies in place of those that are linked, and clears the words that name what was there (evacuate.cc).
  // `goes_on` is asked before each block, and each shard's words; if it says no, the rest is left.
  struct Evacuated {
    std::uint64_t copied = 0;
    std::uint64_t left = 0;  // items and words that could not be seen to now: to be called again
  };
  coro::Task<Result<Evacuated>> evacuate(std::uint32_t node, std::function<bool()> goes_on = {});

  // What there is to say of the index.
  coro::Task<Result<void>> describe(Info* into);

  // memory::ReuseGuard
  coro::Task<bool> before_reuse(memory::ItemRef item) override;

 private:
  struct Looked;
  struct Getting;
  struct Candidate;
  coro::Task<Result<void>> ask_together(std::span<Getting> all, std::span<Looked> looked,
                                        std::vector<Candidate>* candidates);
  void take_known(Getting* one, bool has_item, std::vector<Candidate>* candidates);
  void take_slots(Getting* one, std::vector<Candidate>* candidates);
  void add_candidate(Getting* one, SlotWord word, SlotNumber slot, std::vector<Candidate>* candidates,
                     std::optional<std::uint64_t> length = {});
  coro::Task<Result<void>> read_together(std::span<Candidate> candidates);
  coro::Task<void> get_alone(Getting* one);
  // A walk: when it began on each node, by its clock, and which blocks of the node it walks; all of these in
  // the order of their numbers, each with its node, since the regions of the nodes may alternate; and what it
  // has come to.
  struct Walk {
    std::vector<base::Nanos> starts;
    std::vector<memory::BlockList> blocks;
    std::vector<std::pair<memory::BlockNumber, std::size_t>> order;
    memory::ItemSet settled;  // visited, or counted as damaged
    bool is_damaged = false;  // some are
  };
  coro::Task<Result<Walk>> begin_walk();
  coro::Task<Result<base::Nanos>> begin_walk(memory::Session* session);
  // An item that a walk comes to, and the one that its key has.
  struct Walked {
    memory::ItemRef ref;
    bool written_before = false;
    Result<Found> found{};  // its head
    Result<Found> current{};
  };
  [[nodiscard]] bool is_visited_now(const Walk& walk, const Walked& x) const;
  coro::Task<Result<void>> look_up(std::span<Walked> walked, std::vector<coro::Task<void>>* tasks);
  // One that a slot names.
  struct Linked {
    SlotNumber slot = 0;
    SlotWord word;
    Walked item;
  };
  coro::Task<Result<bool>> visit_by_slots(Slots* slots, Walk* walk, const Visit* visit);
  coro::Task<Result<bool>> visit_linked(Slots* slots, Linked* linked, Walk* walk, const Visit* visit);
  coro::Task<void> find_item(Walked* walked);
  coro::Task<void> find_current(Walked* walked);
  coro::Task<Result<void>> evacuate_one(memory::ItemRef item, Evacuated* evacuated);
  coro::Task<Result<void>> look_for_room(base::Nanos until, Collected* collected);
  coro::Task<Result<void>> end_growth(Table* table);
  coro::Task<Result<void>> reclaim_orphans(const memory::Attachment::Node* node, Collected* collected);
  // What is to become of those that no slot seems to name, and that are so damaged that one may. None has
  // committed them once the slots have been repaired.
  enum class Damaged : std::uint8_t { are_left, may_be_orphans };
  // In one block; how many items it has.
  coro::Task<Result<std::uint64_t>> reclaim_orphans_in(const memory::Attachment::Node* node,
                                                       memory::BlockNumber block, Damaged damaged,
                                                       Collected* collected);
  coro::Task<Result<void>> check_node(const memory::Attachment::Node* node, const memory::ItemSet* linked,
                                      Report* report);
  coro::Task<Result<bool>> is_orphan(memory::Session* session, memory::BlockNumber block,
                                     memory::LeaseWord lease, std::uint32_t index, memory::ItemState state,
                                     Damaged damaged);
  coro::Task<Result<bool>> is_unnamed(memory::ItemRef item, std::uint64_t key_hash);
  coro::Task<Result<bool>> reclaim(memory::Session* session, memory::BlockNumber block, memory::ItemRef item,
                                   memory::ItemState state);
  // What a block's items say, and its lease; no items if that changed meanwhile, for what was read may be
  // bytes of values.
  static coro::Task<Result<memory::LeaseWord>> look_at_block(
      memory::Allocator* allocator, memory::BlockNumber block,
      std::vector<memory::Allocator::ItemWords>* items);
  // How many items of a block a client looks at together: elsewhere some, so that their round trips overlap.
  [[nodiscard]] std::size_t at_once(memory::LeaseWord lease) const;
  // Whether a slot of its key names the item.
  coro::Task<Result<bool>> is_named(memory::ItemRef item);
  [[nodiscard]] std::unexpected<Error> unreached(std::uint64_t key_hash) const;
  // Whether all of the store can be reached.
  [[nodiscard]] Result<void> all_reached(const char* operation) const;
  // Some table: for what is the same for all.
  [[nodiscard]] Table& some() const { return *some_; }

  memory::Attachment& attachment_;
  const Items items_;
  std::vector<std::unique_ptr<Table>> tables_;  // null: its home can not be reached
  Table* some_ = nullptr;

  static constexpr base::Nanos no_end = base::Nanos{1} << 62;
  // How far make_room has come.
  struct Room {
    std::size_t table = 0;
    SlotNumber slot = 0;
    std::size_t node = 0;
    std::size_t block = 0;  // of the node's list
    // All slots, and all blocks, each time from the first to the last.
    struct Round {
      bool has_found = false;    // this one, so far
      bool was_in_vain = false;  // the last one
      void end() { was_in_vain = !std::exchange(has_found, false); }
    };
    Round slots;
    Round blocks;
    base::Nanos next_end = no_end;  // of a time to live that it came to
  };
  Room room_;
  base::Nanos found_rests_until_ = 0;    // what make_room found
  base::Nanos looks_for_room_from_ = 0;  // before, it would be in vain
};

}  // namespace loch::hash
