#include "sim/run/store_subject.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <utility>

#include "hash/table.h"
#include "memory/readers.h"
#include "sim/crowd.h"
#include "sim/run/moving_player.h"
#include "sim/run/store_player.h"

namespace loch::sim {
namespace {

hash::SlotNumber slot_at(fabric::Address at) { return at.offset_bytes / sizeof(std::uint64_t); }

// The items that are current.
std::vector<memory::ItemRef> linked_items(const fabric::fake::MemoryStore& memory,
                                          const memory::RegionMap& map) {
  std::vector<memory::ItemRef> linked;
  for (const memory::RegionMap::Shard& shard : map.shards) {
    const std::uint64_t bytes = memory.length_bytes(shard.index);
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const hash::SlotWord word{fabric::load_word(memory.at({shard.index, at}))};
      if (word.is(hash::SlotType::committed)) linked.push_back(word.item());
    }
  }
  return linked;
}

}  // namespace

bool StoreSubject::is_of_index(fabric::Address at) const {
  if (setup_.shards != 0) return at.region >= fabric::index_region_of(0);
  return at.region == memory::index_region;
}

fabric::Plan StoreSubject::plan() const {
  fabric::Plan plan;
  for (const memory::RegionMap::Node& node : map_.nodes) {
    plan.regions.push_back({node.control, memory::control_bytes});
    plan.regions.push_back({node.data.front(), 2 * memory::block_bytes});
  }
  for (const memory::RegionMap::Shard& shard : map_.shards)
    plan.regions.push_back({shard.index, hash::Table::initial_index_bytes});
  plan.fill = [this, map = map_](std::span<const fabric::Mapping> regions) {
    for (std::size_t node = 0; node < map.nodes.size(); ++node)
      make_control(regions[2 * node].base, static_cast<std::uint32_t>(node), node + 1);
    for (std::size_t s = 0; s < map.shards.size(); ++s) {
      std::byte* root = regions[std::size_t{2} * map.shards[s].home].base + map.shards[s].root_offset;
      hash::Table::initialize(root, regions[2 * map.nodes.size() + s], {.region = map.shards[s].index});
    }
  };
  return plan;
}

void StoreSubject::make_control(std::byte* control, std::uint32_t node, std::uint64_t incarnation) const {
  memory::StoreMemory::initialize_node(control, setup_.geometry, node, incarnation);
  // As memory::make_room_for_readers: the atomics of players are not the processor's.
  if (setup_.reader_chance != 0)
    fabric::store_word(control + memory::clients_end_offset, memory::device_readers_end);
}

// Keys in each other's way take long to find, and are the same for all runs of one geometry.
std::vector<std::string> StoreSubject::keys() const {
  if (setup_.crowd_rows == 0) return numbered_keys("key", setup_.keys);
  static std::mutex mutex;
  static std::map<std::array<std::uint32_t, 3>, Crowd> crowds;
  const std::scoped_lock lock(mutex);
  const auto [crowd, added] = crowds.try_emplace(
      {setup_.geometry.candidates, setup_.crowd_rows, setup_.crowd_columns}, setup_.geometry,
      fmt::format("crowd{}-", setup_.crowd_rows), setup_.crowd_rows, setup_.crowd_columns);
  const auto keys = crowd->second.keys(setup_.keys);
  return {keys.begin(), keys.end()};
}

std::unique_ptr<Player> StoreSubject::make_player(Scene& scene, std::uint32_t number, std::uint32_t acts,
                                                  Player::Place place) const {
  return std::make_unique<StorePlayer>(scene, number, acts, place);
}

std::unique_ptr<Player> StoreSubject::make_mover(Scene& scene, std::uint32_t number,
                                                 std::uint32_t acts) const {
  return std::make_unique<MovingPlayer>(scene, number, acts);
}

void StoreSubject::make_node(Scene& scene, std::uint32_t node, std::uint64_t incarnation) const {
  fabric::fake::MemoryStore& memory = scene.store->memory();
  const memory::RegionMap map = scene.region_map();
  const memory::RegionMap::Node& made = map.nodes[node];
  memory.renew(made.control, memory::control_bytes);
  memory.renew(made.data.front(), 2 * memory::block_bytes);
  std::byte* control = memory.at({made.control, 0});
  make_control(control, node, incarnation);
  fabric::store_word(control + memory::map_epoch_offset, map.epoch);
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) {
    if (map.shards[shard].home == node) tend_shard(scene, shard);
  }
}

void StoreSubject::tend_shard(Scene& scene, std::uint32_t shard) const {
  fabric::fake::MemoryStore& memory = scene.store->memory();
  const memory::RegionMap map = scene.region_map();
  const auto place = hash::IndexPlace::of(map.shards[shard], map.nodes[map.shards[shard].home]);
  const bool is_down = memory.length_bytes(place.root.region) == 0;
  if (is_down || fabric::load_word(memory.at(place.directory())) != 0) return;
  constexpr std::uint64_t bytes = hash::Table::initial_index_bytes;
  memory.renew(place.slots, bytes);
  hash::Table::initialize(memory.at(place.root), {memory.at(place.slot(0)), bytes}, {.region = place.slots});
}

std::uint32_t StoreSubject::shard_of(const Scene& scene, const std::string& key) const {
  return hash::shard_of(hash::Key::of(key, setup_.geometry.hash_seed).hash, scene.cluster.shards.size());
}

// Of the item of some key that is there; not of its state, which belongs to the memory and not to the item.
void StoreSubject::flip_a_bit(Scene& scene) const {
  const fabric::fake::MemoryStore& memory = scene.store->memory();
  const std::vector<memory::ItemRef> linked = linked_items(memory, scene.region_map());
  if (linked.empty()) return;
  base::Random& random = scene.store->simulation().random();
  const memory::ItemRef ref = linked[random.below(linked.size())];
  std::byte* item = memory.at(ref.address());
  hash::ItemView view;
  view.begin(item, ref);
  const std::uint64_t room = ref.size_class < memory::size_class_count
                                 ? memory::class_bytes[ref.size_class]
                                 : hash::item_bytes(key_bytes_max, value_bytes_max);
  // One that is damaged already may say that it has any length.
  if (!view.take_lengths(room) || !view.header_is_intact()) return;
  const std::string key(view.key());
  const std::uint64_t at = sizeof(std::uint64_t) + random.below(view.length_bytes() - sizeof(std::uint64_t));
  item[at] ^= std::byte{1} << random.below(8);
  scene.recorder.damage(key, scene.now());
  if (scene.say) scene.say(key, fmt::format("damaged: byte {} of the item of {}", at, key));
}

bool StoreSubject::concerns(const Scene& scene, const std::string& key,
                            const fabric::Operation& operation) const {
  const auto hash = hash::Key::of(key, setup_.geometry.hash_seed).hash;
  const memory::RegionMap map = scene.region_map();
  const memory::RegionMap::Shard& shard = map.shards[hash::shard_of(hash, map.shards.size())];
  if (operation.at.region != shard.index) return false;
  const auto place = hash::IndexPlace::of(shard, map.nodes[shard.home]);
  const auto directory =
      hash::Directory::decode(fabric::load_word(scene.store->memory().at(place.directory())));
  const auto at = hash::Locations::of(hash, directory, setup_.geometry.candidates);
  const auto* end = at.slot.begin() + at.count;
  return std::find(at.slot.begin(), end, slot_at(operation.at)) != end;
}

std::string StoreSubject::place_text(fabric::Address at) const {
  return is_of_index(at) ? fmt::format("slot {:#x}", slot_at(at))
                         : fmt::format("region {} {:#x}", at.region, at.offset_bytes);
}

std::string StoreSubject::word_text(fabric::Address at, std::uint64_t word) const {
  if (!is_of_index(at)) return fmt::format("{:x}", word);
  const hash::SlotWord slot{word};
  if (word == 0) return "unborn";
  if (slot.is(hash::SlotType::empty)) return fmt::format("E(#{:x})", slot.nonce());
  if (!slot.names_item()) return fmt::format("{:x}?", word);
  constexpr std::array types{'?', 'E', 'C', 'I', 'A', 'P', 'M', '?'};
  const memory::ItemRef item = slot.item();
  return fmt::format("{}(item {}:{:#x}, tag {})", types[static_cast<std::size_t>(slot.type())], item.region,
                     item.address().offset_bytes, slot.tag());
}

}  // namespace loch::sim
