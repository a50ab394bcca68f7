#include "memory/usage.h"

#include "memory/blocks.h"

namespace loch::memory {
namespace {

void add_data(fabric::Endpoint& endpoint, fabric::RegionId region, Usage& usage) {
  BlockList blocks;
  blocks.add(region, endpoint.length_bytes(region).value_or(0));
  for (const BlockNumber block : blocks) {
    const std::byte* lease = endpoint.mapped(lease_address(block), sizeof(std::uint64_t));
    if (lease == nullptr) return;
    usage.data_bytes += block_bytes;
    if (LeaseWord::decode(fabric::load_word(lease)).state == BlockState::free)
      usage.data_free_bytes += block_bytes;
  }
}

}  // namespace

Usage usage_of(fabric::Endpoint& endpoint) {
  Usage usage;
  for (unsigned region = first_data_region; region < data_regions_end; ++region)
    add_data(endpoint, static_cast<fabric::RegionId>(region), usage);
  usage.index_bytes = endpoint.length_bytes(index_region).value_or(0);
  for (unsigned region = fabric::index_region_of(0); region < fabric::region_count_max; ++region)
    usage.index_bytes += endpoint.length_bytes(static_cast<fabric::RegionId>(region)).value_or(0);
  return usage;
}

}  // namespace loch::memory
