#include "hash/shard_access.h"

namespace loch::hash {

ShardAccess::ShardAccess(memory::Attachment& to, std::uint32_t shard, const TableOptions& options)
    : attachment(to),
      endpoint(to.endpoint()),
      items(to),
      slots(to, shard, options.timeout_ns),
      home(slots.home()),
      known(slots, options.cache_bytes, options.pointer_places, options.locations),
      snapshots(slots, items, known),
      resolver(slots, items, snapshots),
      item_writer(slots),
      growth(slots, items, resolver, item_writer),
      homing(slots, items, resolver),
      displacement(slots, items, resolver, growth) {
  endpoint.set_timeout(options.timeout_ns);
}

}  // namespace loch::hash
