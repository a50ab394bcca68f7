#include "hash/part.h"

#include <fmt/format.h>
#include <vector>

#include "base/hash.h"
#include "fabric/endpoint.h"
#include "hash/handover.h"
#include "hash/table.h"

namespace loch::hash {
namespace {

using fabric::ClusterMap;
using memory::RegionMap;

// Brings a shard that is at home here into use. Reopens one that was to leave, opens one that has arrived.
// Begins it anew, empty, if nothing is here, or (with a map of a later epoch) only what it left here before.
Result<void> tend_shard(fabric::Fabric& fabric, fabric::Endpoint& endpoint, const IndexPlace& place,
                        bool is_later) {
  std::byte* root = endpoint.mapped(place.root, sizeof(IndexRoot));
  if (root == nullptr) return fail(Errc::corrupt, "cluster", "the control region is too short");
  const std::uint64_t word = fabric::load_word(root + offsetof(IndexRoot, directory));
  const auto directory = Directory::decode(word);
  if (directory.stage == ShardStage::leaves) return endpoint.run(Handover::reopen(&endpoint, place));
  const bool is_of_before = directory.stage == ShardStage::arrives && !directory.arrives(place.slots);
  const bool is_elsewhere = directory.stage == ShardStage::left || is_of_before;
  if (word != 0 && !(is_elsewhere && is_later)) return endpoint.run(Handover::open(&endpoint, place));
  const std::uint64_t bytes = Table::initial_index_bytes;
  if (auto extended = fabric.extend(place.slots, bytes); !extended) return extended;
  const auto length = endpoint.length_bytes(place.slots);
  if (!length) return std::unexpected(length.error());
  std::byte* slots = endpoint.mapped(place.slot(0), *length);
  if (slots == nullptr) return fail(Errc::io, "cluster", "the memory of a shard can not be mapped");
  // Whoever has opened the table already goes by the time that the root has told of.
  const std::uint64_t time_ahead_ns = fabric::load_word(root + offsetof(IndexRoot, time_ahead_ns));
  Table::initialize(root, {slots, *length}, {.region = place.slots}, time_ahead_ns);
  return {};
}

bool is_for(const ClusterMap::Shard& shard, std::uint32_t node) {
  return shard.home.node == node || (shard.next && shard.next->node == node);
}

// Of where keys and items are: it changes only with the epoch, unless another list is passed off as the one
// that the part was made by. What nodes are called, and where they are found, may change at any time.
std::uint64_t digest_of(const ClusterMap& map) {
  std::vector<std::uint64_t> places{map.shards.size()};
  for (const ClusterMap::Shard& shard : map.shards)
    places.insert(places.end(), {shard.home.node, shard.home.index});
  for (const ClusterMap::Node& node : map.nodes) {
    places.push_back(node.data.size());
    places.insert(places.end(), node.data.begin(), node.data.end());
  }
  return base::hash_bytes(places.data(), places.size() * sizeof places.front(), 0) | 1;  // never 0
}

// What is here of a shard that is elsewhere is not to be opened when the shard comes to be here another time:
// a move that was given up left it, or the cluster did without this host for a while. Only by a map of a
// later epoch, which nobody has heard of from here: by an older one, the shard may be on its way here by now.
void void_shard(std::byte* root) {
  std::byte* word = root + offsetof(IndexRoot, directory);
  const std::uint64_t said = fabric::load_word(word);
  if (said != 0) fabric::store_word(word, Directory::decode(said).with_stage(ShardStage::left).encode());
}

}  // namespace

Result<void> tend_part(const std::shared_ptr<fabric::Fabric>& here, const ClusterMap& map,
                       std::uint32_t node) {
  fabric::Endpoint endpoint(here, here->connect());
  const RegionMap regions = RegionMap::of_cluster(map);
  const fabric::RegionId control = regions.nodes[node].control;
  if (endpoint.length_bytes(control).value_or(0) < memory::control_bytes)
    return fail(
        Errc::incompatible, "cluster",
        fmt::format("{} is a part of another place in the cluster, or of none; remove it, and start anew",
                    here->location()));
  std::byte* words = endpoint.mapped({control, 0}, memory::control_bytes);
  if (words == nullptr) return fail(Errc::io, "cluster", "the control region can not be mapped");
  std::byte* epoch = words + memory::map_epoch_offset;
  if (fabric::load_word(epoch) > map.epoch)
    return fail(Errc::unavailable, "cluster",
                "the coordinator tells of a map that is older than this host's");
  const bool is_later = fabric::load_word(epoch) < map.epoch;
  std::byte* digest = words + memory::map_digest_offset;
  const std::uint64_t noted = fabric::load_word(digest);
  if (!is_later && noted != 0 && noted != digest_of(map))
    return fail(Errc::incompatible, "cluster",
                fmt::format("{} was made by another list of hosts, and by this one its keys would not be "
                            "found; start all hosts with the former list, dump the store and stop them; then "
                            "remove it on each of them, and start anew",
                            here->location()));
  for (std::uint32_t shard = 0; shard < regions.shards.size(); ++shard) {
    if (is_later && !is_for(map.shards[shard], node)) void_shard(words + regions.shards[shard].root_offset);
    if (regions.shards[shard].home != node || map.shards[shard].next) continue;
    const auto place = IndexPlace::of(regions.shards[shard], regions.nodes[node]);
    if (auto tended = tend_shard(*here, endpoint, place, is_later); !tended) return tended;
  }
  const bool serves = map.nodes[node].state == ClusterMap::NodeState::serves;
  fabric::store_word(words + memory::closed_offset, serves ? 0 : 1);
  fabric::store_word(digest, digest_of(map));  // before the epoch, which says what it is compared with
  fabric::store_word(epoch, map.epoch);
  return {};
}

}  // namespace loch::hash
