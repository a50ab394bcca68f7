#include "hash/forget.h"

#include <algorithm>
#include <utility>

#include "memory/store_memory.h"

namespace loch::hash {

coro::Task<Result<std::uint64_t>> forget_items(memory::Session* session, IndexPlace place,
                                               const std::vector<fabric::RegionId>* lost) {
  fabric::Endpoint& endpoint = session->endpoint();
  const auto directory = co_await endpoint.read_word(place.directory());
  if (!directory) co_return std::unexpected(directory.error());
  const Directory d = Directory::decode(*directory);
  const auto length = endpoint.length_bytes(place.slots);
  if (!length) co_return std::unexpected(length.error());
  // Of a shard that is on its way here, the directory may be of the time when it was here before, and larger.
  const SlotNumber slots = std::min(d.slots(), *length / sizeof(std::uint64_t));
  std::uint64_t forgotten = 0;
  for (SlotNumber slot = 0; slot < slots; ++slot) {
    const fabric::Address at = place.slot(slot);
    const auto read = co_await endpoint.read_word(at);
    if (!read) co_return std::unexpected(read.error());
    const SlotWord word{*read};
    if (!word.names_item() || !std::ranges::binary_search(*lost, word.item().region)) continue;
    const SlotWord empty = cleared_word(word, slot, d, session->next_nonce());
    const auto before = co_await endpoint.compare_swap(at, word.raw, empty.raw);
    if (!before) co_return std::unexpected(before.error());
    if (*before == word.raw) ++forgotten;
  }
  co_return forgotten;
}

Result<std::unique_ptr<memory::Session>> open_own_session(std::shared_ptr<fabric::Fabric> here,
                                                          const fabric::ClusterMap& cluster,
                                                          std::uint32_t self) {
  const memory::RegionMap all = memory::RegionMap::of_cluster(cluster);
  // Of all nodes this one alone is here.
  auto memory = memory::StoreMemory::attach(std::move(here), {.nodes = {all.nodes[self]}, .shards = {}});
  if (!memory) return std::unexpected(std::move(memory.error()));
  return memory::Session::open(std::move(*memory));
}

Result<std::uint64_t> forget_node(memory::Session& session, const fabric::ClusterMap& cluster,
                                  std::uint32_t self, std::uint32_t lost) {
  const memory::RegionMap all = memory::RegionMap::of_cluster(cluster);
  fabric::Endpoint& endpoint = session.endpoint();
  std::uint64_t items = 0;
  for (const auto& shard : memory::RegionMap::shards_on(cluster, self)) {
    const auto length = endpoint.length_bytes(shard.index);
    if (!length) return std::unexpected(length.error());
    if (*length == 0) continue;  // one that is to come
    const auto place = IndexPlace::of(shard, all.nodes[self]);
    const auto forgotten = endpoint.run(forget_items(&session, place, &all.nodes[lost].data));
    if (!forgotten) return std::unexpected(forgotten.error());
    items += *forgotten;
  }
  return items;
}

Result<std::uint64_t> forget_node(std::shared_ptr<fabric::Fabric> here, const fabric::ClusterMap& cluster,
                                  std::uint32_t self, std::uint32_t lost) {
  const auto session = open_own_session(std::move(here), cluster, self);
  if (!session) return std::unexpected(session.error());
  return forget_node(**session, cluster, self, lost);
}

Result<bool> names_node(fabric::Endpoint& here, const fabric::ClusterMap& cluster, std::uint32_t self,
                        std::uint32_t other) {
  for (const auto& shard : memory::RegionMap::shards_on(cluster, self)) {
    const auto bytes = here.length_bytes(shard.index);
    if (!bytes) return std::unexpected(bytes.error());
    if (*bytes == 0) continue;  // one that is to come
    const std::byte* slots = here.mapped({shard.index, 0}, *bytes);
    if (slots == nullptr) return fail(Errc::io, "cluster", "the memory of a shard can not be mapped");
    for (std::uint64_t at = 0; at < *bytes; at += sizeof(std::uint64_t)) {
      const SlotWord word{fabric::load_word(slots + at)};
      if (word.names_item() && std::ranges::binary_search(cluster.nodes[other].data, word.item().region))
        return true;
    }
  }
  if (auto intact = here.fabric().intact(); !intact) return std::unexpected(std::move(intact.error()));
  return false;
}

}  // namespace loch::hash
