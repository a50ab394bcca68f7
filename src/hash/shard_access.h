// ShardAccess: one session's access to one shard, which is what Reader, Writer and the like are made of. Each
// part knows those before it, and none after.
//
// The slots are on the shard's home node, whose clock tells times to live; items are on any node, whose
// session sees to their reuse.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "fabric/endpoint.h"
#include "hash/displacement.h"
#include "hash/growth.h"
#include "hash/homing.h"
#include "hash/item_writer.h"
#include "hash/items.h"
#include "hash/known_items.h"
#include "hash/location_cache.h"
#include "hash/pointer_cache.h"
#include "hash/resolver.h"
#include "hash/slots.h"
#include "hash/snapshots.h"
#include "memory/attachment.h"

namespace loch::hash {

struct TableOptions {
  base::Nanos timeout_ns = base::second_ns;
  std::size_t cache_bytes = 0;  // for copies of items that a remote session reads often
  std::size_t pointer_places = PointerCache::places_usual;  // for where those are that it used lately
  LocationCache* locations = nullptr;                       // of this session and others; null: none
};

struct ShardAccess final {
  // `to` is attached to the shard's home.
  ShardAccess(memory::Attachment& to, std::uint32_t shard, const TableOptions& options);
  ShardAccess(const ShardAccess&) = delete;
  ShardAccess& operator=(const ShardAccess&) = delete;
  ~ShardAccess() = default;

  memory::Attachment& attachment;
  fabric::Endpoint& endpoint;
  Items items;
  Slots slots;
  memory::Session& home;  // with the shard's home
  KnownItems known;
  Snapshots snapshots;
  Resolver resolver;
  ItemWriter item_writer;
  Growth growth;
  Homing homing;
  Displacement displacement;
};

}  // namespace loch::hash
