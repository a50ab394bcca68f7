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

#include "hash/here.h"
#include "hash/index.h"
#include "hash/item.h"
#include "hash/known.h"
#include "hash/location_cache.h"
#include "hash/pointer_cache.h"
#include "hash/rules.h"
#include "memory/attachment.h"

namespace loch::hash {

class Shards;

struct TableOptions {
  base::Nanos timeout_ns = base::second_ns;
  std::size_t cache_bytes = 0;         // for copies of items that a remote session reads often
  LocationCache* locations = nullptr;  // of this session and others; null: none
};

// Of an item that can be neither read nor moved now, because it is damaged or on a node that can not be
// reached: who came to it on behalf of another key goes on without it.
inline bool is_out_of_reach(const Error& error) {
  return error.code == Errc::corrupt || error.code == Errc::unavailable;
}

// What a read found; keeps alive what `view` points into if that is not the store's own memory.
struct Found {
  ItemView view;
  PointerCache::Copy copy;
};

enum class Condition : std::uint8_t { none, absent, version };

struct WriteRequest {
  Key key;
  std::string_view value;
  base::Nanos expires_at_ns = 0;
  Condition condition = Condition::none;
  std::uint64_t version = 0;  // with Condition::version
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

  // ---- one key (reader.cc, get_far.cc, known.cc, writer.cc, put_far.cc)
  coro::Task<Result<Found>> get(Key key) { return home_.remote() ? get_anew(key) : get_near(key); }
  // By what is known of the key, whether or not that was asked for during this operation; it is used up.
  coro::Task<Result<Found>> get(Known* known) {
    if (!home_.remote()) return get_near(known->key);
    return attachment_.refresh_due() ? get_anew(known->key) : get_far(known);
  }
  // What a remote session knows of the key that may be asked for in a batch.
  [[nodiscard]] Known known(Key key) const;
  // Before that, of many: asks for the memory that it looks at.
  void fetch_known(Key key) const {
    if (goes_by_locations_) options_.locations->fetch(key.hash);
  }
  // What asks for it, as operations of one batch: the slot before the item (location_of); the item unless
  // there is a copy, and if it comes after, in a later batch, or `after_previous`; the time if it is mortal.
  [[nodiscard]] fabric::Operation slot_reading(Known& known) const {
    return fabric::Operation::read(index_.slot(known.pointer.slot), &known.word.raw, sizeof known.word.raw);
  }
  [[nodiscard]] static fabric::Operation item_reading(const Known& known) {
    return fabric::Operation::read_settled(known.pointer.item().address(), known.item,
                                           known.pointer.length_bytes);
  }
  [[nodiscard]] fabric::Operation time_reading(base::Nanos* into) const {
    return home_.control().time_reading(into);
  }
  // The key's item, if that is what was read, and has time left.
  std::optional<ItemView> answer(const Known& known);
  // A copy of what is known already when it is read, since that is read often: made of its parts, one behind
  // the other. Null if none is to be kept.
  [[nodiscard]] PointerCache::Copy copy_of(const Known& known, std::span<const std::byte> first,
                                           std::string_view rest = {}) const;
  // Asks for it, and has the value read to where it is wanted; for long ones. False if that is not what was
  // read; `into` was changed then.
  coro::Task<bool> read_value(Known* known, std::string* into);
  // Returns the version of the item that was written. Errors: exists, changed, not_found by the condition;
  // no_space, timed_out, corrupt.
  coro::Task<Result<std::uint64_t>> put(WriteRequest request);
  // Several at once (put_together.cc), in one operation: whether this is the session and the time for that.
  [[nodiscard]] bool puts_together();
  // One of them; nothing if there is no memory for it at hand.
  std::optional<GroupedPut> grouped_put(const WriteRequest& request);
  coro::Task<void> put_together(std::span<GroupedPut> puts);
  coro::Task<Result<void>> remove(Key key);

  // ---- the plain cases of one key on mapped memory; what they do not do, the coroutines above do
  [[nodiscard]] bool works_here() const { return works_here_; }
  [[nodiscard]] Here& here() { return here_; }
  // After here's steps: takes the item apart. False if its lengths do not fit.
  [[nodiscard]] bool parse_here(ItemView& item);
  // Whether an item has no time left at `at`. To say that a key is not there, `at` is from before its slots
  // were read: later, another item may have taken the place of one that expired since.
  [[nodiscard]] static bool expired(base::Nanos expires_at_ns, base::Nanos at) {
    return expires_at_ns != 0 && expires_at_ns <= at;
  }
  // Before here's steps: memory for an item, on its way into the cache while they run; null if there is none
  // at hand. `now` was read during this operation.
  memory::Allocator::Place prepare_item_here(std::uint64_t length_bytes, base::Nanos now);
  // After here's steps: step 2 of PUT. If it fails, the item is not linked, and is to be discarded; else the
  // one that was there, probe.word, is to be retired at a time that is read after this.
  bool update_here(const Probe& probe, const memory::Allocator::Place& place, std::string_view value,
                   base::Nanos expires_at_ns, base::Nanos now);
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

  // Moves the item that is committed for its key in slot `from` to the empty slot `to`, another candidate of
  // its key, whose hash that is. False if either has changed. For displacements, splits, and tests.
  coro::Task<Result<bool>> move(memory::ItemRef item, std::uint64_t key_hash, SlotNumber from, SlotNumber to);

  // Clears P and M words that still name an item of this shard that was moved and has rested.
  coro::Task<bool> before_reuse(memory::ItemRef item, std::uint64_t key_hash);

  // As this session last saw it.
  [[nodiscard]] Directory directory();
  // Errors: moved, and those of the fabric.
  coro::Task<Result<Directory>> read_directory();
  // What is better known before the first operation; the directory among it.
  coro::Task<Result<void>> open();

  // The time that times to live go by: what is known of it, and what it is between the call and the answer.
  [[nodiscard]] base::Nanos newest_time() const { return home_.control().newest_time() + time_ahead_ns_; }
  coro::Task<Result<base::Nanos>> read_time();
  [[nodiscard]] const IndexPlace& place() const { return index_; }
  // Why the directory does not say where slots are.
  [[nodiscard]] std::unexpected<Error> not_open(std::uint64_t key_hash = 0) const;
  // The session with its home.
  [[nodiscard]] memory::Session& home() { return home_; }

 private:
  friend class Shards;
  friend class TableProbe;  // the explorer's way to single steps of a growth (sim/explore)

  // Bounds the retries of an operation, and spaces them.
  class Attempts {
   public:
    enum class Of : std::uint8_t { look, change };
    Attempts(Table& table, const char* operation, std::uint64_t key_hash, Of what)
        : table_(table),
          operation_(operation),
          key_hash_(key_hash),
          what_(what),
          deadline_(table.endpoint_.now() + table.options_.timeout_ns) {}
    // Before each retry: backs off, exponentially. timed_out when the deadline has passed.
    coro::Task<Result<void>> again();
    [[nodiscard]] unsigned retries() const { return retries_; }

   private:
    Table& table_;
    const char* operation_;
    std::uint64_t key_hash_;
    Of what_;
    base::Nanos deadline_;
    unsigned retries_ = 0;
  };

  struct KeyCollect : Collect {
    std::array<memory::ItemHeader, locations_max> header;  // of the words that are mine
    bool headers_wanted = true;  // else one whose item is known to be the key's is not read, and zero
    const ItemView* already_read = nullptr;  // its head, by this operation; it is not read again
  };

  // An item that this operation wrote and has not linked for good.
  struct NewItem {
    memory::ItemRef ref;
    std::uint64_t version = 0;
    std::uint8_t tag = 0;
    bool seen = false;        // a slot has named it: it must rest before it is used otherwise
    bool in_doubt = false;    // a slot may name it: the answer to a compare-swap did not come
    bool is_pending = false;  // it is I(y, tag) in the slot below
    SlotNumber slot = 0;      // that names it, or is about to
    SlotWord word{};          // by this
  };
  enum class Outcome : std::uint8_t { again, done };

  // ---- reader.cc
  coro::Task<Result<Found>> get_near(Key key);
  coro::Task<Result<Found>> get_by_snapshot(Key key, Collect seen);
  enum class Words : std::uint8_t { committed, paired };
  struct Doubt {
    bool damaged = false;       // an item that may be the key's
    bool time_ran_out = false;  // of the key's item, since the slots were asked for
  };
  coro::Task<std::optional<Result<Found>>> look_for(Key key, const Collect* seen, Words words, Doubt* doubt);
  Result<Found> miss(Key key, Doubt doubt);
  // The item that lies there, whether a slot names it or not.
  coro::Task<Result<Found>> fetch_item(memory::ItemRef ref);
  // Of that, the header and the key (ItemView::parse_head), which is all that who moves it needs. They may be
  // damaged.
  coro::Task<Result<Found>> fetch_head(memory::ItemRef ref);
  // What was read of it, in place or into a copy.
  static Result<Found> take_apart(const memory::ItemRef& ref, const std::byte* bytes, std::uint64_t length);
  coro::Task<Result<memory::ItemHeader>> read_header(memory::ItemRef ref);
  // Whether this client is attached to the item's node. Errors: unavailable, corrupt.
  [[nodiscard]] Result<void> reaches(const memory::ItemRef& ref) const;

  // Remote items longer than this are read in two steps: what tells whether the value is wanted, then the
  // value.
  static constexpr std::uint64_t one_step_bytes_max = std::uint64_t{32} << 10;

  // ---- get_far.cc
  struct HomeRow;
  coro::Task<Result<Found>> get_far(Known* what);
  coro::Task<Result<Found>> get_anew(Key key);
  void ask_for_home(Key key, HomeRow* home);
  [[nodiscard]] bool is_read_in_one_step(const memory::ItemRef& ref) const {
    return room_of(ref) <= one_step_bytes_max && attachment_.find_node_of(ref) != nullptr;
  }
  // How many of the gets of late find their key in its home row.
  class HomeShare {
   public:
    void learn(bool is_at_home) { share_ += ((is_at_home ? 1.0F : 0.0F) - share_) / 64; }
    // Then a get that looks there first takes a seventh of a round trip more than two at most, on average.
    [[nodiscard]] bool is_high() const { return share_ >= 6.0F / 7; }

   private:
    float share_ = 1;
  };

  // ---- snapshot.cc
  // Takes over what an item says of itself, if its key is `key`.
  bool take_if_mine(Key key, unsigned j, std::span<const std::byte> item, KeyCollect& into);
  // Reads a key's slots where the directory says they are. False if a remote session learns of a newer
  // directory at that: then what was read says nothing of what is not there.
  //
  // A remote session that only looks for the key need not read the directory, too: a committed word whose
  // item has the key is right wherever it stands. If there is none, the next collect reads it, and tells of
  // both. Of a cluster it is read all the same: slots of a shard that is elsewhere say nothing (Handover).
  enum class DirectoryToo : std::uint8_t { no, yes };
  coro::Task<Result<bool>> read_slots(std::uint64_t key_hash, Collect* into,
                                      DirectoryToo directory_too = DirectoryToo::yes);
  // The two halves of it, around the reading of these words into `into->word`. `only`: the one slot of the
  // key's that is wanted.
  struct Reading {
    std::array<fabric::Address, locations_max + 1> at;
    unsigned count = 0;
    bool has_directory = false;  // as the last of them

    void add(fabric::Address address) { at[count++] = address; }
    void ask(SlotWord* into, std::vector<fabric::Operation>* operations) const {
      for (const fabric::Address address : addresses())
        operations->push_back(fabric::Operation::read(address, &(into++)->raw, sizeof(SlotWord)));
    }
    [[nodiscard]] std::span<const fabric::Address> addresses() const { return std::span(at).first(count); }
  };
  Reading begin_collect(std::uint64_t key_hash, Collect* into, DirectoryToo directory_too,
                        std::optional<SlotNumber> only = std::nullopt);
  Result<bool> end_collect(const Reading& reading, const Collect& seen);
  coro::Task<Result<void>> collect_words(std::uint64_t key_hash, Collect* into);
  static constexpr unsigned outdated_retries_max = 64;
  // Errors: moved, if there is a later map of the cluster than this client's.
  coro::Task<Result<void>> check_map(std::uint64_t key_hash);
  coro::Task<std::unexpected<Error>> damaged_slot(std::uint64_t key_hash);
  coro::Task<Result<bool>> find_out_why_absent(Collect* seen, Error error);
  coro::Task<Result<void>> identify(Key key, KeyCollect* into);
  coro::Task<Result<void>> collect(Key key, KeyCollect* into);
  // True if a second collect of the key saw the words of `first`; else `first` becomes the second.
  coro::Task<Result<bool>> is_snapshot(Key key, KeyCollect* first);
  // Whether an item that is found in slots that were read after `asked_at` has time left. A remote session
  // may have to look at the store's clock for that; if the time turns out to be over, the slots are to be
  // read again, since another item may have taken the place of this one before.
  enum class TimeLeft : std::uint8_t { some, none, look_again };
  coro::Task<Result<TimeLeft>> time_left(base::Nanos expires_at_ns, base::Nanos asked_at);
  // Whether the time of any item of the key ran out while it was collected (time_left).
  coro::Task<Result<bool>> outlived(const KeyCollect* seen);

  // ---- known.cc
  // What was read where a slot named an item by the word: if it is the key's, and has time left at `time`,
  // which was read during this operation (0: was not read).
  std::optional<ItemView> view_of(Key key, SlotWord word, const std::byte* bytes, std::uint64_t length,
                                  base::Nanos time);
  // The same, and it is known from now on.
  std::optional<ItemView> item_of(Key key, SlotWord word, SlotNumber slot, const std::byte* bytes,
                                  std::uint64_t length, base::Nanos time);
  // Since the time was read, nothing of it can have run out that anybody else has seen run out.
  [[nodiscard]] bool has_time_left(base::Nanos expires_at_ns, base::Nanos time) const {
    if (base::planted(base::Planted::mortal_without_time) && time == 0) return true;
    return expires_at_ns == 0 || (time != 0 && !expired(expires_at_ns, time + time_ahead_ns_));
  }

  // What a remote session remembers of where a key's item is.
  [[nodiscard]] std::optional<PointerCache::Pointer> pointer_of(Key key) const {
    if (!home_.remote()) return std::nullopt;
    auto found = pointers_.find(key.bytes, key.hash);
    if (found && !is_kept(*found)) found.reset();
    return found;
  }
  // Whether this session holds on to what it knows of the item.
  [[nodiscard]] bool is_kept(const PointerCache::Pointer& pointer) const {
    return pointer.seen_at >= attachment_.session_of(pointer.item()).kept_since() ||
           base::planted(base::Planted::pointer_of_any_age);
  }
  [[nodiscard]] bool counts_still(const PointerCache::Pointer& pointer) const;
  [[nodiscard]] bool has_been_let_go(const Known& known) const {
    return known.was_used_lately() && !counts_still(known.pointer);
  }
  // Where the item was, however long ago, for who reads the slot first, and the item after that: what the
  // slot names then was not used again before this operation is over. So of an item that is on the slot's
  // node.
  [[nodiscard]] std::optional<PointerCache::Pointer> location_of(Key key) const {
    if (!goes_by_locations_) return std::nullopt;
    const auto found = options_.locations->find(key.hash);
    if (!found || attachment_.find_node_of(found->word.item()) != attachment_.node(home_number_))
      return std::nullopt;
    return PointerCache::Pointer{.word = found->word,
                                 .slot = found->slot,
                                 .length_bytes = found->length_bytes,
                                 .is_mortal = found->is_mortal};
  }
  // By that, if the batch is done in its order.
  [[nodiscard]] std::optional<Expectation> expectation_of(Key key) const;
  void note_item(Key key, SlotWord word, SlotNumber slot, const ItemView& item,
                 PointerCache::Copy copy = {}) {
    note_pointer(key, word, slot, item.length_bytes() + tail_bytes(), item.expires_at_ns() != 0,
                 std::move(copy));
  }
  void note_pointer(Key key, SlotWord word, SlotNumber slot, std::uint64_t length_bytes,
                    bool is_mortal = false, PointerCache::Copy copy = {}) {
    if (!home_.remote()) return;
    note_lately(key, {.word = word,
                      .slot = slot,
                      .length_bytes = length_bytes,
                      .is_mortal = is_mortal,
                      .copy = std::move(copy)});
    if (!goes_by_locations_) return;
    options_.locations->note(
        key.hash, {.word = word, .slot = slot, .length_bytes = length_bytes, .is_mortal = is_mortal});
  }
  // That the slot has nothing of the key any more.
  void forget_location(Key key, SlotNumber slot) const {
    if (goes_by_locations_) options_.locations->forget(key.hash, slot);
  }
  // Of what others know, too: that this session has seen it now.
  void note_lately(Key key, PointerCache::Pointer pointer) {
    pointer.seen_at = attachment_.session_of(pointer.item()).oldest_operation();
    pointers_.note(key.bytes, key.hash, std::move(pointer));
  }

  // ---- put_far.cc
  // `compose` of a remote session, which does more while the item is on its way: it looks for the key, of
  // which one slot is enough where the key's item is known; or, if it knows the word there, too, it has the
  // item linked as soon as it is written.
  enum class Begun : std::uint8_t { written, collected, linked };  // collected: `seen`, for the first step
  coro::Task<Result<NewItem>> compose_and_begin(const WriteRequest* request, KeyCollect* seen, Begun* begun);
  // `expected`: what goes without saying of a word that is known; null then.
  coro::Task<Result<void>> write_and_link(Key key, fabric::Operation write, SlotNumber slot, SlotWord old,
                                          const Expectation* expected, KeyCollect* seen, NewItem* item,
                                          Begun* begun);
  // Whether the one slot that was read names the item that is known to be the key's.
  bool names_what_is_known(Key key, const Reading& reading, KeyCollect* seen);
  // Whether it names the item of which `head` was read after it, and that is the key's, and may be replaced
  // without a look at the time.
  bool names_what_was_read(Key key, const Reading& reading, memory::ItemRef item,
                           std::span<const std::byte> head, KeyCollect* seen);
  // The end of a collect whose words were read once: false if it takes another one.
  coro::Task<bool> identify_first(Key key, const Reading* reading, KeyCollect* seen);

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
  static std::uint64_t length_of(const WriteRequest& request) {
    return item_bytes(request.key.bytes.size(), request.value.size()) + tail_bytes();
  }
  coro::Task<Result<NewItem>> compose(WriteRequest request);
  // The item as it is to be, to `copy`, which is length_of(request) long.
  void write_copy(const WriteRequest& request, NewItem* item, std::byte* copy);
  // What step 2 leaves to be done when it has put another item in the place of what `old` names.
  coro::Task<void> let_go_of(SlotWord old, Counter how);
  // Has the slot name the item instead of what `old` says.
  fabric::Operation link(NewItem* item, SlotType as, std::uint8_t filter, SlotNumber slot,
                         SlotWord old) const;
  // What a step comes to whose compare-swap did not do that.
  static Result<Outcome> again_or_in_doubt(NewItem* item, Result<bool> swapped);
  // The rest of PUT, once the item is written.
  coro::Task<Result<std::uint64_t>> put_written(const WriteRequest* request, KeyCollect* seen, NewItem item,
                                                Begun begun);
  // Of an item that is to lie there.
  memory::ItemHeader header_for(const WriteRequest& request, const memory::ItemRef& item);
  // Whether the item that is committed at location `j` lets the request be.
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

  // ---- resolve.cc
  coro::Task<Result<bool>> resolve_step(Key key, const KeyCollect* snapshot);
  coro::Task<Result<bool>> apply(const Collect* snapshot, Repair repair, SlotWord* before);
  // One step of RESOLVE for the key of `item`, whatever it is. False if there was nothing to do.
  coro::Task<Result<bool>> resolve_item(memory::ItemRef item);
  // An item's head and its key, which is copied: the item may be unlinked meanwhile. One that is damaged
  // elsewhere than in its key and the hash of that is its key's all the same, whose operations meet it by
  // that.
  struct KeyedItem {
    std::string bytes;
    std::uint64_t hash = 0;
    Found head;

    [[nodiscard]] Key key() const { return {.bytes = bytes, .hash = hash}; }
  };
  coro::Task<Result<std::optional<KeyedItem>>> key_of_item(memory::ItemRef item);

  // Of what it finds, `leaves_nothing` is set if no word of this move is left.
  coro::Task<Result<bool>> move_step3_to_6(memory::ItemRef item, SlotNumber from, SlotNumber to,
                                           SlotWord committed, SlotWord empty, const Collect* seen,
                                           bool* leaves_nothing);
  coro::Task<Result<void>> move_step5_to_6(SlotNumber from, SlotNumber to, SlotWord marked, SlotWord placed,
                                           Directory d, bool* leaves_nothing);
  coro::Task<bool> is_unnamed_by_moves(memory::ItemRef item, SlotNumber from, SlotNumber to);

  // ---- displace.cc
  // A slot whose item might move, to make room.
  struct Victim {
    SlotNumber slot = 0;
    SlotWord word;
    int parent = -1;                  // whose item would move here; -1: that of the new key itself
    std::optional<Collect> around{};  // the slots of its item's key
  };
  coro::Task<Result<void>> look_around(Victim* victim);
  coro::Task<Result<void>> look_around(std::span<Victim> victims);
  coro::Task<Result<bool>> carry_out(std::span<const Victim> all, int last, SlotNumber to);
  coro::Task<Result<bool>> split_around(std::span<const Victim> victims);
  coro::Task<Result<bool>> displace(const KeyCollect* full);

  // ---- grow.cc
  coro::Task<Result<void>> start_growth();
  coro::Task<Result<bool>> may_reuse_level(Directory before);
  [[nodiscard]] Result<void> has_room_for(std::uint64_t index_bytes) const;
  coro::Task<Result<void>> help_growth();
  coro::Task<Result<void>> split_slots(SlotNumber first, SlotNumber end, Directory d);
  coro::Task<Result<void>> make_room_by_growth(const KeyCollect* full);
  coro::Task<Result<void>> split_slots_together(SlotNumber first, SlotNumber end, Directory d);
  coro::Task<Result<bool>> split_slot(SlotNumber low, Directory directory,
                                      std::optional<SlotWord> seen = std::nullopt);
  coro::Task<Result<bool>> look_before_split(SlotNumber low, Directory d, std::optional<SlotWord>* seen);
  coro::Task<Result<bool>> leads_to(memory::ItemRef item, SlotNumber slot, Directory d);
  coro::Task<Result<bool>> split_committed(SlotNumber low, SlotWord word, Directory directory);
  coro::Task<Result<void>> help_to_finish(Directory d, bool is_first);
  coro::Task<Result<void>> finish_growth(Directory d, std::optional<base::Nanos> until = std::nullopt);
  enum class Settled : std::uint8_t { yes, not_now, growth_is_over };
  coro::Task<Result<Settled>> settle_slot(SlotNumber slot, Directory d);
  // A copy of the item that is committed there takes its place. False if the slot has changed.
  coro::Task<Result<bool>> put_copy(SlotNumber slot, SlotWord word, const ItemView* item);

  // ---- evacuate.cc
  coro::Task<Result<bool>> evacuate_item(memory::ItemRef item, Key key);
  coro::Task<Result<std::uint64_t>> clear_words(std::uint32_t node);
  coro::Task<Result<bool>> evacuate_word(SlotNumber slot, SlotWord word, std::uint64_t key_hash);

  // ---- check.cc
  coro::Task<Result<void>> mark_linked(memory::ItemSet* linked, Report* report);

  // ---- reclaim.cc
  class SlotGroup;
  coro::Task<Result<bool>> repair_slots(Collected* collected);
  // Unlinks what has expired in `count` slots from `first` on, as far as there are any; not while the index
  // grows. How many slots there are.
  coro::Task<Result<SlotNumber>> drop_expired(SlotNumber first, SlotNumber count, Collected* collected);
  coro::Task<Result<void>> drop_if_expired(SlotNumber slot, const SlotGroup* group, Collected* collected);
  coro::Task<Result<bool>> repair_slot(SlotNumber slot, SlotWord word, Collected* collected);
  coro::Task<Result<void>> mend_slot(SlotNumber slot, SlotWord word, Collected* collected);
  coro::Task<Result<bool>> is_named(memory::ItemRef item, std::uint64_t key_hash);

  // ---- table.cc
  // Before an operation goes on: a remote session refreshes when it is due.
  coro::Task<Result<void>> keep_fresh();
  coro::Task<Result<std::uint64_t>> read_slot(SlotNumber slot);
  // Some slots in a row that were read at once, by who looks at all of them: of a remote session more.
  class SlotGroup {
   public:
    explicit SlotGroup(std::size_t most_if_remote = 64) : words_(most_if_remote) {}
    [[nodiscard]] bool has(SlotNumber slot) const { return slot >= first_ && slot - first_ < count_; }
    [[nodiscard]] SlotWord word(SlotNumber slot) const { return {words_[slot - first_]}; }

   private:
    friend class Table;
    std::vector<std::uint64_t> words_;
    std::vector<Result<memory::ItemHeader>> headers_;  // by slot, if they were read
    SlotNumber first_ = 0;
    std::size_t count_ = 0;
  };
  // Keeps the session fresh, too.
  coro::Task<Result<void>> read_group(SlotNumber first, SlotNumber end, SlotGroup* into);
  // Of slots that are mapped: asks for the memory of the header of the item that is committed there.
  void fetch_header(SlotNumber slot) const;
  // Of a remote session also the headers of the items that the slots name.
  coro::Task<Result<void>> read_group_and_headers(SlotNumber first, SlotNumber end, SlotGroup* into);
  // The header that was read with the group, or is read now.
  coro::Task<Result<memory::ItemHeader>> header_of(const SlotGroup* group, SlotNumber slot);
  static coro::Task<Result<memory::ItemHeader>> header_in(const SlotGroup* group, SlotNumber slot);
  // False if the word is not `expected`; or if this session was stopped for so long that what it knows of
  // `expected` may be void (Session::may_act), so that it has to look again: the word may be there still.
  coro::Task<Result<bool>> swap_slot(SlotNumber slot, SlotWord expected, SlotWord desired,
                                     SlotWord* before = nullptr);

  std::byte* directory_place();

  memory::Attachment& attachment_;
  const std::uint32_t home_number_;
  memory::Session& home_;
  fabric::Endpoint& endpoint_;
  TableOptions options_;
  unsigned candidates_;
  const bool has_home_share_;  // else a get looks in both rows of its key at once
  HomeShare home_share_;
  const IndexPlace index_;
  const bool works_here_;             // all of the store is mapped
  const bool goes_by_locations_;      // of a remote client
  PointerCache pointers_;             // of a remote client
  std::uint64_t directory_copy_ = 0;  // likewise; a directory that there was
  std::byte* directory_word_;
  Here here_;
  std::uint64_t time_ahead_ns_ = 0;  // IndexRoot
  // How far this session is with the end of the growth from a level.
  struct Finishing {
    std::uint8_t level = 0;
    SlotNumber next = 0;
    base::Nanos again_at = 0;
  };
  Finishing finishing_;
  unsigned displacing_share_ = 0;  // of the last inserts: how many had to displace, of displacing_always
};

}  // namespace loch::hash
