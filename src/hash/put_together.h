// PutTogether: plain puts of a remote session, many at once: each step of PUT (docs/hash.md, "Operations")
// for all of them in one batch, where each by itself takes a coroutine and a batch a step. What does not go
// as it mostly does (no slot is empty, others change the same key), goes on as a coroutine (Writer).
//
// One thread. Keys and values outlive the operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "fabric/fabric.h"
#include "hash/item_writer.h"
#include "hash/pending_insert.h"
#include "hash/shard_access.h"
#include "hash/writer.h"

namespace loch::hash {

// A put with no condition and no time to live, of those that are done together.
struct GroupedPut {
  WriteRequest request;
  memory::ItemRef item;             // memory for it
  Result<std::uint64_t> outcome{};  // as of Writer::put
};

class PutTogether final {
 public:
  PutTogether(ShardAccess& shard, Writer& writer)
      : attachment_(shard.attachment),
        endpoint_(shard.endpoint),
        slots_(shard.slots),
        home_(shard.home),
        known_(shard.known),
        snapshots_(shard.snapshots),
        item_writer_(shard.item_writer),
        displacement_(shard.displacement),
        homing_(shard.homing),
        pending_(shard),
        writer_(writer) {}

  // Whether this is the session and the time for it.
  [[nodiscard]] bool is_possible() const;
  // One of those that put does; nothing if there is no memory for it at hand.
  std::optional<GroupedPut> prepare(const WriteRequest& request);
  // In one operation.
  coro::Task<void> put(std::span<GroupedPut> puts);

 private:
  struct Writing;
  // ---- the steps; each changes the stage of those that it is for
  coro::Task<Result<void>> write_together(std::span<Writing> all);
  coro::Task<Result<void>> look_together(std::span<Writing> all);
  coro::Task<Result<void>> link_together(std::span<Writing> all);
  coro::Task<Result<void>> commit_together(std::span<Writing> all);
  coro::Task<void> put_alone(Writing* one);

  // ---- what is to be done, by what was read
  std::optional<SlotNumber> choose_way(Writing* one);
  void choose_step(Writing* one);
  [[nodiscard]] std::optional<std::uint8_t> plain_matches(const Collect& seen) const;
  void look_elsewhere(Writing* one);

  // ---- what a batch is made of, and what it comes to; `next` goes on behind what is taken
  static std::uint64_t head_bytes(const Writing& one);
  static void ask_for_head(const Writing& one, memory::ItemRef item, std::byte** into,
                           std::vector<fabric::Operation>* operations);
  void take_items(Writing* one, const fabric::Operation*& next);
  void ask_again(Writing* one, std::vector<fabric::Operation>* operations);
  bool is_as_expected(const Writing& one, const Collect& expected, const fabric::Operation*& next);
  coro::Task<void> take_outcome(Writing* one, const fabric::Operation* swap);
  bool has_linked(Writing* one, const fabric::Operation& swap);
  void end_linked(Writing* one);

  memory::Attachment& attachment_;
  fabric::Endpoint& endpoint_;
  Slots& slots_;
  memory::Session& home_;
  KnownItems& known_;
  Snapshots& snapshots_;
  ItemWriter& item_writer_;
  Displacement& displacement_;
  const Homing& homing_;
  PendingInsert pending_;
  Writer& writer_;
};

}  // namespace loch::hash
