// Items: reading the items of a store, wherever they are. Whatever comes from there is input: an item counts
// as what it says only if its lengths, its place and its sums fit.
//
// One thread. A Found stays valid while the client's operation (Attachment::Operation) lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <loch/coro/task.h>
#include <loch/error.h>

#include "fabric/endpoint.h"
#include "hash/item.h"
#include "hash/pointer_cache.h"
#include "memory/attachment.h"

namespace loch::hash {

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

class Items final {
 public:
  explicit Items(memory::Attachment& attachment)
      : attachment_(attachment), endpoint_(attachment.endpoint()) {}

  // Whether this client is attached to the item's node. Errors: unavailable, moved, corrupt.
  [[nodiscard]] Result<void> reaches(const memory::ItemRef& ref) const;
  // Whether the item is in a region that this client's map of the cluster does not have: of a host that
  // joined since, or of none, since the word that names it is damaged. Who came to it on behalf of another
  // key goes on without it.
  [[nodiscard]] bool is_unknown(const memory::ItemRef& ref) const {
    return attachment_.find_node_of(ref) == nullptr && attachment_.is_of_cluster() &&
           ref.region >= memory::first_data_region && !attachment_.region_map().node_of(ref.region);
  }
  // The item that lies there, whether a slot names it or not. Errors: as reaches; no_space, if a long one has
  // no room in this process.
  coro::Task<Result<Found>> fetch(memory::ItemRef ref) const;
  // Of that, the header and the key (ItemView::parse_head), which is all that who moves it needs. They may be
  // damaged. Of one whose key is longer than `key_bytes`, it is corrupt.
  coro::Task<Result<Found>> fetch_head(memory::ItemRef ref, std::uint64_t key_bytes = key_bytes_max) const;
  // The same of one that is as it was written, whatever became of the value; else it is corrupt. As many
  // bytes are read as a key of `key_bytes` takes, and more only if it is another one's.
  coro::Task<Result<Found>> fetch_intact_head(memory::ItemRef ref,
                                              std::uint64_t key_bytes = key_bytes_max) const;
  coro::Task<Result<memory::ItemHeader>> read_header(memory::ItemRef ref) const;
  // What was read of it, in place or into a copy; nothing if it is damaged.
  static std::optional<ItemView> take_apart(const memory::ItemRef& ref, const std::byte* bytes,
                                            std::uint64_t length);

  // Whether all of its memory is read at once. Remote items that may be longer are read in two steps: what
  // tells whether the value is wanted, then the value.
  [[nodiscard]] bool is_read_in_one_step(const memory::ItemRef& ref) const {
    return room_of(ref) <= one_step_bytes_max && attachment_.find_node_of(ref) != nullptr;
  }

 private:
  static constexpr std::uint64_t one_step_bytes_max = std::uint64_t{32} << 10;

  memory::Attachment& attachment_;
  fabric::Endpoint& endpoint_;
};

}  // namespace loch::hash
