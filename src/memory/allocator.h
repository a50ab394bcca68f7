// Allocator: one session's way to its node's memory for items.
//
// A session leases a free block by one compare-swap on its descriptor and cuts it into items of one size
// class. Items that are unlinked rest (Session, "Reuse") and may then be claimed by anybody, by one
// compare-swap on their state word; the session that unlinked an item keeps a note of it, and nobody else
// needs one while that session puts as much as it removes. Notes that a session does not use are left to
// others: the item's block counts them, and who needs memory sweeps that block. A block all of whose items
// have rested becomes free again, for any class.
//
// I1 An item's state is `claimed` by its allocator until it is written, and `in_use` before it is linked.
// I2 Only the client whose compare-swap unlinked an item retires it.
// I3 A block's class changes only while the block is leased by a client that had claimed each of its items.
// I4 Words of blocks never repeat (LeaseWord), so a compare-swap on one hits what was read.
//
// One thread, of the session.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <loch/coro/task.h>

#include "coro/background.h"
#include "coro/mutex.h"
#include "memory/blocks.h"
#include "memory/session.h"

namespace loch::memory {

// What the structure above knows about items that have rested: it clears what may still name one that was
// moved.
class ReuseGuard {
 public:
  virtual ~ReuseGuard() = default;
  // False if the item can not be cleared now; it is left for later.
  virtual coro::Task<bool> before_reuse(ItemRef item) = 0;
};

class Allocator {
 public:
  explicit Allocator(Session& session)
      : session_(session),
        endpoint_(session.endpoint()),
        frees_address_{session.regions().control, frees_offset},
        getting_blocks_(endpoint_.queue()),
        background_(endpoint_.queue()) {}
  ~Allocator() { endpoint_.run(close()); }
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Set once, before the first allocation.
  void set_guard(ReuseGuard* guard) { guard_ = guard; }

  // An item of at least `bytes`, claimed by this session. Errors: no_space.
  coro::Task<Result<ItemRef>> allocate(std::uint64_t bytes);
  // The same, at once, of a remote session that has one to spare.
  std::optional<ItemRef> take_spare(std::uint64_t bytes);
  // The same, of mapped memory that is at hand; null if there is none. `now` was read during this operation.
  struct Place {
    ItemRef ref;
    std::byte* at = nullptr;
  };
  Place allocate_here(std::uint64_t bytes, base::Nanos now);
  // Asks for the memory of what allocate_here will give out in a while; of a batch, `ahead` counts its calls.
  void fetch_rested(std::uint8_t size_class, std::size_t ahead);
  // Gives back an item that was never linked. Errors: those of the fabric; then it is left to a collection.
  coro::Task<Result<void>> discard(ItemRef item);
  // The same of one that allocate_here gave.
  void discard_here(const Place& place);
  // Says that `item` was unlinked just now. `moved`: words of unfinished moves may still name it.
  coro::Task<Result<void>> retire(ItemRef item, bool moved);
  // The same; a remote session does not wait until it is done.
  coro::Task<void> retire_soon(ItemRef item, bool moved);

  // The same, if its memory is mapped and nothing else is to be done; else false, and nothing was. `now` was
  // read after the item was unlinked.
  bool retire_here(ItemRef item, bool moved, base::Nanos now);

  // Whether it knows of anything that was unlinked, which may rest still.
  [[nodiscard]] bool has_notes() const {
    return std::ranges::any_of(notes_, [](const auto& notes) { return !notes.empty(); });
  }

  // Whether an allocation that found nothing had no time to sweep all blocks: the next one goes on with that.
  [[nodiscard]] bool sweeps_on() const { return swept_in_vain_ != 0; }
  // By allocations that found nothing.
  [[nodiscard]] std::uint64_t blocks_swept() const { return blocks_swept_; }
  // Looks at every block: settles what dead clients leased, frees blocks all of whose items have rested, and
  // takes notes of items that have. Returns the number of blocks freed.
  coro::Task<Result<std::uint64_t>> sweep_all();
  // Takes over the blocks that the dead client was filling or sweeping; also if it had this session's number.
  coro::Task<Result<void>> settle_blocks(std::uint16_t dead);

  // The node's blocks as they are now.
  [[nodiscard]] Result<BlockList> blocks();
  // What counts against `max_bytes`: its data regions and the shards that are at home there.
  [[nodiscard]] Result<std::uint64_t> bytes_used();
  coro::Task<Result<LeaseWord>> lease_of(BlockNumber block);
  // Reads the descriptor of a block of the list, unless the group has it; a remote session also those of many
  // that follow it, since that takes it no longer.
  coro::Task<Result<void>> read_descriptors(const BlockList* list, BlockNumber block, DescriptorGroup* into);

  // What the items of a block say of themselves.
  struct ItemWords {
    ItemState state;
    base::Nanos written_at_ns = 0;
  };
  // Reads them all, in the order of the items that `lease` says there are; `into` is as long as that then.
  coro::Task<Result<void>> look_at_items(BlockNumber block, LeaseWord lease, std::vector<ItemWords>* into);

  // Leaves the notes to others; the session ends.
  coro::Task<void> close();

 private:
  // Of a block that does not exist, in a region that ends before it: nobody's and not to be had.
  static constexpr LeaseWord lease_of_nothing{.state = BlockState::large_part, .size_class = large_class};
  static constexpr std::size_t notes_kept_max = std::size_t{1} << 22;

  // An item that was unlinked, and what its state is as long as the note holds. There may be millions.
  struct Note {
    ItemRef item;
    std::uint64_t state = 0;

    [[nodiscard]] base::Nanos retired_at() const { return ItemState::decode(state).value; }
    [[nodiscard]] bool moved() const { return ItemState::decode(state).moved; }
  };
  static_assert(sizeof(Note) == 16);
  // When an item was unlinked that never was linked: it need not rest. Before any operation began, a fifth of
  // a second after the host did; and as unlikely as any time to be what the bytes of a value say: a claim
  // compares the item's state, where another client may have put a value since the block's class was looked
  // at.
  static constexpr base::Nanos long_ago = 0x0b5e'9d37;
  // By this session, and not yet retired.
  struct Unlinked {
    ItemRef item;
    bool moved = false;
    base::Nanos start = 0;  // of the operation that it counts as, in a remote session
  };
  static constexpr Note note_of(const Unlinked& unlinked, base::Nanos time) {
    return {.item = unlinked.item,
            .state = ItemState{.kind = ItemKind::retired, .moved = unlinked.moved, .value = time}.encode()};
  }
  // How a remote session keeps its spares of a class.
  struct Supply {
    std::size_t wanted = 0;
    bool is_refilling = false;
  };
  // A block that is being cut.
  struct Carving {
    BlockNumber block = 0;
    std::uint32_t next = 0;
    std::uint32_t count = 0;
    std::uint32_t claiming = 0;  // items that were cut and do not say yet whose they are
    LeaseWord lease;

    [[nodiscard]] bool any() const { return next < count; }
  };

  // ---- allocator.cc
  coro::Task<Result<ItemRef>> allocate_class(std::uint8_t size_class);
  // All that it found, each time.
  static std::unexpected<Error> others_took_it();
  coro::Task<bool> claim(Note note);
  coro::Task<void> rest_again(Note note);
  // A note that needs no more than its compare-swap, of mapped memory: whether it was claimed.
  bool claim_here(const Note& note, std::byte* item, base::Nanos now);
  [[nodiscard]] bool has_rested(std::uint8_t size_class, base::Nanos now) const {
    const auto& notes = notes_[size_class];
    return !notes.empty() && session_.rested(notes.front().retired_at(), now);
  }
  bool take_rested(std::uint8_t size_class, Note& note, base::Nanos now);
  [[nodiscard]] bool can_carve(std::uint8_t size_class) const {
    return carvings_[size_class] != nullptr && carvings_[size_class]->any();
  }
  [[nodiscard]] bool is_at_hand(std::uint8_t size_class) const {
    return can_carve(size_class) || has_rested(size_class, session_.now());
  }
  coro::Task<Result<ItemRef>> carve(std::uint8_t size_class);
  Place carve_here(std::uint8_t size_class, std::uint64_t bytes, base::Nanos now);
  std::optional<ItemRef> take_spare_of(std::uint8_t size_class);
  coro::Task<bool> leave_old_notes(std::uint8_t size_class);
  coro::Task<bool> leave_all_notes(std::size_t size_class);
  coro::Task<bool> count_released(const std::map<BlockNumber, std::uint64_t>* released);
  coro::Task<Result<void>> close_carving(std::uint8_t size_class);

  // ---- block_leases.cc
  void take_known_blocks();
  [[nodiscard]] bool exists(BlockNumber block);
  // What lease_of reads, of mapped memory; else that of a block that does not exist.
  LeaseWord lease_here(BlockNumber block);
  coro::Task<Result<bool>> change_lease(BlockNumber block, LeaseWord from, LeaseWord to);
  coro::Task<Result<bool>> free_block(BlockNumber block, LeaseWord word);
  // One to cut items off, or one in which others left items. One operation of the session at a time.
  coro::Task<Result<bool>> find_block(std::uint8_t size_class);
  coro::Task<Result<bool>> lease_free_block(std::uint8_t size_class);
  coro::Task<Result<bool>> lease_known_block(std::uint8_t size_class, std::uint64_t frees);
  coro::Task<Result<bool>> take_block(BlockNumber block, LeaseWord seen, std::uint8_t size_class);
  coro::Task<Result<void>> clear_items(BlockNumber block, std::uint8_t size_class);

  // ---- extension.cc
  template <class LengthOf>
  Result<std::uint64_t> sum_used(LengthOf length_of);
  // Where the node's next blocks are to be.
  struct Extension {
    fabric::RegionId region = 0;
    std::uint64_t from_blocks = 0;
    std::uint64_t to_blocks = 0;
  };
  Result<Extension> next_extension(std::uint64_t blocks_wanted, std::uint64_t bytes_used) const;
  coro::Task<Result<void>> look_at_headers(BlockNumber block, std::uint64_t stride, std::uint32_t count,
                                           std::vector<ItemWords>* into);
  Result<void> extend(std::uint64_t blocks_wanted);
  coro::Task<Result<void>> extend_or_sweep(std::uint64_t blocks_wanted, std::optional<std::size_t>* swept);
  coro::Task<Result<void>> extend_soon(std::uint8_t size_class, std::uint64_t frees);

  // ---- sweep.cc
  coro::Task<Result<bool>> find_released(std::uint8_t size_class);
  enum class Sweep : std::uint8_t { takes_notes, frees };
  enum class Swept : std::uint8_t { nothing, items, block };  // what it gained
  coro::Task<Result<std::size_t>> sweep_on(base::Nanos until);
  coro::Task<Result<bool>> sweep_one(BlockNumber block);
  coro::Task<Result<Swept>> sweep_block(BlockNumber block, LeaseWord word, Sweep how);
  coro::Task<std::size_t> claim_first(std::vector<Note>* notes);
  coro::Task<Result<void>> settle_the_dead();
  coro::Task<Result<void>> settle_block(BlockNumber block, LeaseWord word, std::uint16_t dead);

  // ---- large_items.cc
  coro::Task<Result<ItemRef>> allocate_large(std::uint64_t block_total);
  struct LeaseChange {
    BlockNumber block = 0;
    LeaseWord from;
    LeaseWord to;
    bool won = false;
  };
  coro::Task<Result<void>> change_leases(std::span<LeaseChange> changes);
  coro::Task<Result<std::vector<LeaseWord>>> leases_from(BlockNumber first, std::uint64_t count);
  coro::Task<Result<bool>> lease_run(BlockNumber first, std::uint64_t count);
  coro::Task<Result<bool>> free_own_large();
  coro::Task<Result<bool>> free_left_large(const std::vector<BlockNumber>* heads);
  coro::Task<Result<bool>> free_rested_large(BlockNumber head, LeaseWord word);
  coro::Task<Result<void>> free_large(BlockNumber head, LeaseWord word);

  // ---- item_batches.cc
  coro::Task<std::size_t> claim_all(std::span<Note> notes, fabric::Urgency urgency);
  coro::Task<Result<void>> carve_all(std::uint8_t size_class, std::span<ItemRef> into,
                                     fabric::Urgency urgency);
  coro::Task<Result<void>> retire_all(std::span<const Unlinked> unlinked, base::Nanos time,
                                      fabric::Urgency urgency);
  // Says of the items that they are `retired`, and nothing else.
  coro::Task<Result<void>> mark_retired(std::span<const Unlinked> unlinked, base::Nanos time,
                                        fabric::Urgency urgency);
  coro::Task<void> retire_unlinked();
  void refill_soon(std::uint8_t size_class);
  coro::Task<void> refill(std::uint8_t size_class);

  Session& session_;
  fabric::Endpoint& endpoint_;
  ReuseGuard* guard_ = nullptr;
  std::array<std::shared_ptr<Carving>, size_class_count> carvings_;
  std::array<std::deque<Note>, size_class_count + 1> notes_;   // in the order of their retirement
  std::array<std::vector<ItemRef>, size_class_count> spares_;  // claimed by this session, never linked
  std::array<Supply, size_class_count> supplies_{};
  std::vector<Unlinked> unlinked_;
  bool retiring_ = false;
  const fabric::Address frees_address_;
  std::size_t next_block_ = 0;  // of `known_blocks_`: where the search for a free one goes on
  BlockList known_blocks_;
  // When a search for a block last found nothing: how often any had been freed, and how many there were.
  struct Searched {
    std::uint64_t frees = ~std::uint64_t{0};
    std::size_t blocks = 0;
    bool operator==(const Searched&) const = default;
  };
  std::array<Searched, size_class_count> searched_{};  // of each class, unless some were found since
  Searched full_;                                      // the last of them, also if some were found since
  std::size_t foreseen_blocks_ = 0;  // how many there were when more were last asked for beforehand
  std::size_t next_released_ = 0;    // of `known_blocks_`: where the search for what others left goes on
  std::array<base::Nanos, size_class_count> searched_released_at_{};  // and found nothing of the class
  base::Nanos swept_in_vain_until_ = 0;  // from then on another sweep may find something
  std::size_t swept_in_vain_ = 0;        // blocks in a row, by allocations that had no time for all
  std::size_t next_swept_ = 0;           // of `known_blocks_`: where the next one goes on
  std::uint64_t blocks_swept_ = 0;       // by all of them
  base::Nanos left_notes_at_ = 0;        // all that were old then
  coro::Mutex getting_blocks_;
  coro::Background background_;  // what a remote session does without waiting for it
};

}  // namespace loch::memory
