// The steps of growth and displacement that a client takes only when its index is full, one at a time.
#pragma once

#include "hash/table.h"

namespace loch::hash::steps {

// Begins a growth if there is none.
inline coro::Task<Result<void>> begin_growth(Table* table) { co_return co_await table->growth().start(); }

// Splits the low slot of a candidate of `key_hash`; nothing to do while no growth is going on.
inline coro::Task<Result<bool>> split(Table* table, std::uint64_t key_hash, unsigned candidate) {
  const Directory d = table->slots().directory();
  if (!d.growing) co_return false;
  co_return co_await table->growth().split_slot(
      Locations::of(key_hash, d, table->slots().candidates()).slot[candidate], d);
}

inline coro::Task<Result<void>> finish(Table* table) {
  const Directory d = table->slots().directory();
  if (!d.growing) co_return Result<void>{};
  co_return co_await table->growth().finish(d);
}

// One move of a displacement: the item of `key` goes to the first open and empty slot of another candidate,
// or of `candidate` alone.
inline coro::Task<Result<bool>> displace(Table* table, Key key, unsigned candidate) {
  KeyCollect seen;
  if (auto read = co_await table->snapshots().collect(key, &seen); !read)
    co_return std::unexpected(std::move(read.error()));
  const int from = committed_location(seen);
  if (from < 0) co_return false;
  const auto source = static_cast<unsigned>(from);
  for (unsigned i = 0; i < seen.at.candidates; ++i) {
    if (candidate < seen.at.candidates && i != candidate) continue;
    const unsigned j = open_location(seen, i);
    if (j == source || !seen.word[j].is(SlotType::empty)) continue;
    co_return co_await table->resolver().move(seen.word[source].item(), key.hash, seen.at.slot[source],
                                              seen.at.slot[j]);
  }
  co_return false;
}

}  // namespace loch::hash::steps
