// Table: one client's way to one shard of the hash store, which is all of it on one host. The protocol is
// docs/hash.md; each operation is a coroutine whose steps carry the names used there.
//
// I1 Every change of a key's state is one compare-swap on one slot; an item is written whole before it is
// linked and never changes while it is.
// I2 A slot word never repeats while an operation that saw it runs: items rest (memory::Session, "Reuse"),
// tags rise, nonces and levels are not used twice.
// I3 So a stale read is harmless: it sees old bytes, never foreign ones, and a compare-swap that follows it
// fails.
//
// The slots are on the shard's home node, whose clock tells times to live; items are on any node, whose
// session sees to their reuse. Keys are of this shard.
//
// One thread. Keys and values that are passed in outlive the operation. An ItemView that is returned stays
// valid while the client's operation (Attachment::Operation) lasts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loch/coro/task.h>
#include <loch/loch.h>

#include "hash/displacement.h"
#include "hash/growth.h"
#include "hash/here.h"
#include "hash/index.h"
#include "hash/item.h"
#include "hash/item_writer.h"
#include "hash/items.h"
#include "hash/known.h"
#include "hash/known_items.h"
#include "hash/location_cache.h"
#include "hash/resolver.h"
#include "hash/rules.h"
#include "hash/slot_group.h"
#include "hash/slots.h"
#include "hash/snapshots.h"
#include "memory/attachment.h"

namespace loch::hash {

class Shards;

struct TableOptions {
  base::Nanos timeout_ns = base::second_ns;
  std::size_t cache_bytes = 0;         // for copies of items that a remote session reads often
  LocationCache* locations = nullptr;  // of this session and others; null: none
};

// A put with no condition and no time to live, of those that are done together.
struct GroupedPut {
  WriteRequest request;
  memory::ItemRef item;             // memory for it
  Result<std::uint64_t> outcome{};  // as of Table::put
};

class Table final {
 public:
  // `attachment` is attached to the shard's home.
  Table(memory::Attachment& attachment, std::uint32_t shard, const TableOptions& options);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() = default;

  static constexpr std::uint64_t initial_index_bytes = row_bytes << first_level;
  // A new index of 2^level rows, whatever was there: its `root`, the directory last, and empty slots in
  // `index`, which has room for them or for more.
  static void initialize(std::byte* root, const fabric::Mapping& index, unsigned level = first_level,
                         std::uint64_t time_ahead_ns = 0);

  // ---- one key (reader.cc, get_far.cc, writer.cc, put_far.cc)
  coro::Task<Result<Found>> get(Key key) { return home_.remote() ? get_anew(key) : get_near(key); }
  // By what is known of the key, whether or not that was asked for during this operation; it is used up.
  coro::Task<Result<Found>> get(Known* known) {
    if (!home_.remote()) return get_near(known->key);
    return attachment_.refresh_due() ? get_anew(known->key) : get_far(known);
  }
  // Whether the key has an item. No byte of its value is read, which may be damaged.
  coro::Task<Result<bool>> exists(Key key);
  // Returns the version of the item that was written. Errors: exists, changed, not_found by the condition;
  // no_space, timed_out, corrupt.
  coro::Task<Result<std::uint64_t>> put(WriteRequest request);
  // Several at once (put_together.cc), in one operation: whether this is the session and the time for that.
  [[nodiscard]] bool puts_together();
  // One of them; nothing if there is no memory for it at hand.
  std::optional<GroupedPut> grouped_put(const WriteRequest& request);
  coro::Task<void> put_together(std::span<GroupedPut> puts);
  // If it has that version, if one is named. Errors: not_found, changed; timed_out, corrupt.
  coro::Task<Result<void>> remove(Key key, std::optional<std::uint64_t> version = std::nullopt);

  // ---- the plain cases of one key on mapped memory; what they do not do, the coroutines above do
  [[nodiscard]] bool works_here() const { return works_here_; }
  [[nodiscard]] Here& here() { return here_; }
  // After here's steps: takes the item apart. False if its lengths do not fit.
  [[nodiscard]] bool parse_here(ItemView& item);
  // Before here's steps: memory for an item, on its way into the cache while they run; null if there is none
  // at hand. `now` was read during this operation.
  memory::Allocator::Place prepare_item_here(std::uint64_t length_bytes, base::Nanos now);
  // After here's steps: step 2 of PUT; `version` is the item's. If it fails, the item is not linked, and is
  // to be discarded; else the one that was there, probe.word, is to be retired at a time that is read after
  // this.
  bool update_here(const Probe& probe, const memory::Allocator::Place& place, std::string_view value,
                   base::Nanos expires_at_ns, base::Nanos now, std::uint64_t* version);
  void discard_here(const memory::Allocator::Place& place) {
    attachment_.nodes().front().allocator->discard_here(place);
  }
  void retire_here(SlotWord unlinked, base::Nanos now);
  // Asks for the memory of items that prepare_item_here will give out (Allocator::fetch_rested).
  void fetch_items_here(memory::ItemRef like, std::size_t ahead) {
    attachment_.nodes().front().allocator->fetch_rested(like.size_class, ahead);
  }

  // Items that are committed, while nobody writes.
  coro::Task<Result<std::uint64_t>> count();

  // What is better known before the first operation; the directory among it.
  coro::Task<Result<void>> open() { return slots_.open(); }

  // ---- what its operations are made of
  [[nodiscard]] Slots& slots() { return slots_; }
  [[nodiscard]] KnownItems& known() { return known_; }
  [[nodiscard]] const KnownItems& known() const { return known_; }
  [[nodiscard]] Snapshots& snapshots() { return snapshots_; }
  [[nodiscard]] Resolver& resolver() { return resolver_; }
  [[nodiscard]] Growth& growth() { return growth_; }

 private:
  friend class Shards;

  enum class Outcome : std::uint8_t { again, done };

  // ---- reader.cc
  coro::Task<Result<Found>> get_near(Key key);
  enum class Part : std::uint8_t { all, head };
  coro::Task<Result<Found>> get_by_snapshot(Key key, Collect seen, Part part = Part::all);
  enum class Words : std::uint8_t { committed, paired };
  struct Doubt {
    bool damaged = false;       // an item that may be the key's
    bool time_ran_out = false;  // of the key's item, since the slots were asked for
  };
  coro::Task<std::optional<Result<Found>>> look_for(Key key, const Collect* seen, Words words, Part part,
                                                    Doubt* doubt);
  Result<Found> miss(Key key, Doubt doubt);

  // ---- get_far.cc
  struct HomeRow;
  coro::Task<Result<Found>> get_far(Known* what);
  coro::Task<Result<Found>> get_anew(Key key);
  void ask_for_home(Key key, HomeRow* home);
  // How many of the gets of late find their key in its home row.
  class HomeShare {
   public:
    void learn(bool is_at_home) { share_ += ((is_at_home ? 1.0F : 0.0F) - share_) / 64; }
    // Then a get that looks there first takes a seventh of a round trip more than two at most, on average.
    [[nodiscard]] bool is_high() const { return share_ >= 6.0F / 7; }

   private:
    float share_ = 1;
  };

  // ---- put_far.cc
  // ItemWriter::compose of a remote session, which does more while the item is on its way: it looks for the
  // key, of which one slot is enough where the key's item is known; or, if it knows the word there, too, it
  // has the item linked as soon as it is written.
  enum class Begun : std::uint8_t { written, collected, linked };  // collected: `seen`, for the first step
  coro::Task<Result<NewItem>> compose_and_begin(const WriteRequest* request, KeyCollect* seen, Begun* begun);
  // `expected`: what goes without saying of a word that is known; null then.
  coro::Task<Result<void>> write_and_link(Key key, fabric::Operation write, SlotNumber slot, SlotWord old,
                                          const Expectation* expected, KeyCollect* seen, NewItem* item,
                                          Begun* begun);
  // Whether the one slot that was read names the item that is known to be the key's.
  bool names_what_is_known(Key key, const Slots::Reading& reading, KeyCollect* seen);
  // Whether it names the item of which `head` was read after it, and that is the key's, and may be replaced
  // without a look at the time.
  bool names_what_was_read(Key key, const Slots::Reading& reading, memory::ItemRef item,
                           std::span<const std::byte> head, KeyCollect* seen);
  // The end of a collect whose words were read once: false if it takes another one.
  coro::Task<bool> identify_first(Key key, const Slots::Reading* reading, KeyCollect* seen);

  // ---- put_together.cc
  struct Writing;
  coro::Task<Result<void>> write_together(std::span<Writing> all);
  coro::Task<Result<void>> look_together(std::span<Writing> all);
  coro::Task<Result<void>> link_together(std::span<Writing> all);
  coro::Task<Result<void>> commit_together(std::span<Writing> all);
  coro::Task<void> take_outcome(Writing* one, const fabric::Operation* swap);
  coro::Task<void> put_alone(Writing* one);
  void end_linked(Writing* one);
  void choose_step(Writing* one);
  void look_elsewhere(Writing* one);
  void ask_again(Writing* one, std::vector<fabric::Operation>* operations);
  bool is_as_expected(const Writing& one, const Collect& expected, const fabric::Operation*& next);
  bool has_linked(Writing* one, const fabric::Operation& swap);
  std::optional<SlotNumber> choose_way(Writing* one);
  static std::uint64_t head_bytes(const Writing& one);
  static void ask_for_head(const Writing& one, memory::ItemRef item, std::byte** into,
                           std::vector<fabric::Operation>* operations);
  void take_items(Writing* one, const fabric::Operation*& next);
  [[nodiscard]] std::optional<std::uint8_t> plain_matches(const Collect& seen) const;

  // ---- writer.cc
  // What step 2 leaves to be done when it has put another item in the place of what `old` names.
  coro::Task<void> let_go_of(SlotWord old, Counter how);
  // What a step comes to whose compare-swap did not do that.
  static Result<Outcome> again_or_in_doubt(NewItem* item, Result<bool> swapped);
  // The rest of PUT, once the item is written.
  coro::Task<Result<std::uint64_t>> put_written(const WriteRequest* request, KeyCollect* seen, NewItem item,
                                                Begun begun);
  // Whether the item that is committed at location `j` lets the request be. Errors are of a put's operations.
  static Result<void> check_condition(const WriteRequest& request, const KeyCollect& seen, unsigned j);
  // `is_collected`: `seen` is of this operation.
  coro::Task<Result<Outcome>> put_step(const WriteRequest* request, KeyCollect* seen, NewItem* item,
                                       bool is_collected);
  coro::Task<Result<Outcome>> put_step_of_absent(const WriteRequest* request, KeyCollect* seen,
                                                 NewItem* item);
  coro::Task<Result<Outcome>> put_step2_update(const WriteRequest* request, KeyCollect* seen, NewItem* item);
  coro::Task<Result<Outcome>> put_step4_home(KeyCollect* snapshot, NewItem* item);
  coro::Task<Result<Outcome>> put_step5_pending(Key key, KeyCollect* seen, NewItem* item);
  coro::Task<Result<Outcome>> put_step5_settle(Key key, NewItem* item);
  coro::Task<Result<Outcome>> put_step6_make_room(KeyCollect* seen);
  coro::Task<Result<Outcome>> pending_outcome(SlotWord now_there, NewItem* item);
  coro::Task<void> abandon(NewItem* item);
  coro::Task<Result<Outcome>> try_withdraw(NewItem* item);
  coro::Task<Result<Outcome>> withdraw(NewItem* item);
  Result<Outcome> has_withdrawn(NewItem* item);
  static Error of_pending(Error error, const NewItem& item);
  void note_insert(bool displaced);

  // ---- evacuate.cc
  // Whether no slot of its key names the item any more. `damaged`: one does, and it can not be copied.
  enum class Evacuation : std::uint8_t { done, damaged, named };
  coro::Task<Result<Evacuation>> evacuate_item(memory::ItemRef item, Key key);
  coro::Task<Result<std::uint64_t>> clear_words(std::uint32_t node);
  coro::Task<Result<bool>> evacuate_word(SlotNumber slot, SlotWord word, std::uint64_t key_hash);

  // ---- check.cc
  coro::Task<Result<void>> mark_linked(memory::ItemSet* linked, Report* report);

  // ---- reclaim.cc
  coro::Task<Result<bool>> repair_slots(Collected* collected);
  // Unlinks what has expired in `count` slots from `first` on, as far as there are any, or until then; not
  // while the index grows. With which slot to go on, if there are more.
  coro::Task<Result<std::optional<SlotNumber>>> drop_expired(SlotNumber first, SlotNumber count,
                                                             base::Nanos until, Collected* collected);
  coro::Task<Result<void>> drop_if_expired(SlotNumber slot, const SlotGroup* group, Collected* collected);
  coro::Task<Result<bool>> repair_slot(SlotNumber slot, SlotWord word, Collected* collected);
  coro::Task<Result<void>> mend_slot(SlotNumber slot, SlotWord word, Collected* collected);
  coro::Task<Result<bool>> is_named(memory::ItemRef item, std::uint64_t key_hash);

  memory::Attachment& attachment_;
  Items items_;
  Slots slots_;
  KnownItems known_;
  Snapshots snapshots_;
  Resolver resolver_;
  ItemWriter item_writer_;
  Growth growth_;
  Displacement displacement_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  const bool has_home_share_;  // else a get looks in both rows of its key at once
  HomeShare home_share_;
  const bool works_here_;  // all of the store is mapped
  Here here_;
  unsigned displacing_share_ = 0;  // of the last inserts: how many had to displace, of displacing_always
};

}  // namespace loch::hash
