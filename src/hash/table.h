// Table: one client's way to one shard of the hash store, which is all of it on one host. The protocol is
// docs/hash.md; each operation is a coroutine of Reader, Writer or another class below, whose steps carry the
// names used there.
//
// I1 Every change of a key's state is one compare-swap on one slot; an item is written whole before it is
// linked and never changes while it is.
// I2 A slot word never repeats while an operation that saw it runs: items rest (memory::Session, "Reuse"),
// tags rise, nonces and levels are not used twice.
// I3 So a stale read is harmless: it sees old bytes, never foreign ones, and a compare-swap that follows it
// fails.
//
// Keys are of this shard.
//
// One thread. Keys and values that are passed in outlive the operation. An ItemView that is returned stays
// valid while the client's operation (Attachment::Operation) lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "hash/evacuate.h"
#include "hash/here.h"
#include "hash/index.h"
#include "hash/item.h"
#include "hash/known.h"
#include "hash/put_together.h"
#include "hash/reader.h"
#include "hash/shard_access.h"
#include "hash/slot_repair.h"
#include "hash/writer.h"
#include "memory/attachment.h"

namespace loch::hash {

class Table final {
 public:
  // `attachment` is attached to the shard's home.
  Table(memory::Attachment& attachment, std::uint32_t shard, const TableOptions& options);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() = default;

  static constexpr std::uint64_t initial_index_bytes = row_bytes << first_level;
  // A new index, whatever was there: its `root`, with the `first` directory last, and empty slots in `index`,
  // which is the directory's region, and has room for them or for more.
  static void initialize(std::byte* root, const fabric::Mapping& index, Directory first = {},
                         std::uint64_t time_ahead_ns = 0);

  // ---- one key: what Reader and Writer say of these
  coro::Task<Result<Found>> get(Key key) { return reader_.get(key); }
  coro::Task<Result<Found>> get(Known* known) { return reader_.get(known); }
  coro::Task<Result<bool>> exists(Key key) { return reader_.exists(key); }
  coro::Task<Result<std::uint64_t>> put(WriteRequest request) { return writer_.put(request); }
  coro::Task<Result<void>> remove(Key key, std::optional<std::uint64_t> version = std::nullopt) {
    return writer_.remove(key, version);
  }
  // Several at once (PutTogether), in one operation: whether this is the session and the time for that.
  [[nodiscard]] bool puts_together() const { return put_together_.is_possible(); }
  // One of them; nothing if there is no memory for it at hand.
  std::optional<GroupedPut> grouped_put(const WriteRequest& request) {
    return put_together_.prepare(request);
  }
  coro::Task<void> put_together(std::span<GroupedPut> puts) { return put_together_.put(puts); }

  // ---- the plain cases of one key on mapped memory; what they do not do, the coroutines above do
  [[nodiscard]] bool works_here() const { return works_here_; }
  [[nodiscard]] Here& here() { return here_; }
  // After here's steps: takes the item apart. False if its lengths do not fit.
  [[nodiscard]] bool parse_here(ItemView& item);
  // Before here's steps: memory for an item, on its way into the cache while they run; null if there is none
  // at hand. `now` was read during this operation.
  memory::Allocator::Place prepare_item_here(std::uint64_t length_bytes, base::Nanos now);
  // After here's steps, round which the caller looks: step 2 of PUT; `version` is the item's. If it fails,
  // the item is not linked, and is to be discarded; else the one that was there, probe.word, is to be retired
  // at a time that is read after this.
  bool update_here(const memory::Attachment::Look& look, const Probe& probe,
                   const memory::Allocator::Place& place, std::string_view value, base::Nanos expires_at_ns,
                   base::Nanos now, std::uint64_t* version);
  void discard_here(const memory::Allocator::Place& place) const {
    shard_.attachment.nodes().front().allocator->discard_here(place);
  }
  void retire_here(SlotWord unlinked, base::Nanos now);
  // Asks for the memory of items that prepare_item_here will give out (Allocator::fetch_rested).
  void fetch_items_here(memory::ItemRef like, std::size_t ahead) const {
    shard_.attachment.nodes().front().allocator->fetch_rested(like.size_class, ahead);
  }

  // Items that are committed, while nobody writes. Those whose header or key is damaged are left out, and
  // count as damaged (Counter::corrupt_items).
  coro::Task<Result<std::uint64_t>> count();

  // What is better known before the first operation; the directory among it.
  coro::Task<Result<void>> open();

  // ---- what it is made of
  [[nodiscard]] Reader& reader() { return reader_; }
  [[nodiscard]] Evacuation& evacuation() { return evacuation_; }
  [[nodiscard]] SlotRepair& slot_repair() { return slot_repair_; }
  [[nodiscard]] Slots& slots() { return shard_.slots; }
  [[nodiscard]] KnownItems& known() { return shard_.known; }
  [[nodiscard]] const KnownItems& known() const { return shard_.known; }
  [[nodiscard]] Snapshots& snapshots() { return shard_.snapshots; }
  [[nodiscard]] Resolver& resolver() { return shard_.resolver; }
  [[nodiscard]] Growth& growth() { return shard_.growth; }
  [[nodiscard]] Homing& homing() { return shard_.homing; }

 private:
  ShardAccess shard_;
  Reader reader_;
  Writer writer_;
  PutTogether put_together_;
  SlotRepair slot_repair_;
  Evacuation evacuation_;
  const bool works_here_;  // all of the store is mapped
  Here here_;
};

}  // namespace loch::hash
