#include "sim/run/hosts.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fmt/format.h>
#include <memory>

#include "base/check.h"
#include "cluster/changes.h"
#include "hash/forget.h"
#include "hash/index.h"
#include "hash/part.h"
#include "memory/session.h"

namespace loch::sim {
namespace {

using base::microsecond_ns;
using base::millisecond_ns;
using base::second_ns;
using fabric::ClusterMap;
using memory::RegionMap;

constexpr unsigned number_bits = 16;  // of a client number; the rest is the node

// The way of a host's own process to its memory: all is mapped, and nobody else is there.
class OwnFabric final : public fabric::fake::MemoryFabric {
 public:
  OwnFabric(std::shared_ptr<fabric::fake::MemoryStore> store, std::uint32_t node, base::Nanos now)
      : MemoryFabric(std::move(store)), node_(node), now_(now) {}
  std::unique_ptr<fabric::Port> connect() override;
  [[nodiscard]] base::Clock clock() const override { return base::Clock(&now_); }
  [[nodiscard]] std::uint32_t number_of(std::uint32_t client) const { return node_ << number_bits | client; }

 private:
  const std::uint32_t node_;
  const std::atomic<base::Nanos> now_;
};

class OwnPort final : public fabric::Port {
 public:
  explicit OwnPort(OwnFabric& fabric) : fabric_(fabric) {}
  Result<fabric::Mapping> map(fabric::RegionId region) override { return fabric_.map(region); }
  Result<std::uint64_t> length_bytes(fabric::RegionId region) override {
    return fabric_.store().length_bytes(region);
  }
  void post(std::span<fabric::Operation> /*batch*/, base::Nanos /*deadline*/,
            fabric::Completion& /*done*/) override {
    LOCH_CHECK(false);  // all is mapped
  }
  void poll(base::Nanos /*wait_ns*/) override {}
  Result<bool> claim_presence(std::uint32_t client) override {
    return fabric_.claim_presence(fabric_.number_of(client));
  }
  void release_presence(std::uint32_t client) override {
    fabric_.release_presence(fabric_.number_of(client));
  }
  [[nodiscard]] bool present(std::uint32_t client) override {
    return fabric_.present(fabric_.number_of(client));
  }

 private:
  OwnFabric& fabric_;
};

std::unique_ptr<fabric::Port> OwnFabric::connect() { return std::make_unique<OwnPort>(*this); }

// The key of an item whose bytes these are from `offset` on; empty if it has none.
std::string key_of(const fabric::fake::MemoryStore::Taken& region, std::uint64_t offset) {
  memory::ItemHeader header;
  if (offset + sizeof header > region.length_bytes) return {};
  std::memcpy(&header, region.base.get() + offset, sizeof header);
  if (offset + sizeof header + header.key_bytes > region.length_bytes) return {};
  return {reinterpret_cast<const char*>(region.base.get()) + offset + sizeof header, header.key_bytes};
}

}  // namespace

Hosts::Hosts(Scene& scene, const Subject& subject, std::function<void(std::uint32_t node)> end_sessions)
    : scene_(scene),
      subject_(subject),
      end_sessions_(std::move(end_sessions)),
      hosts_(scene.region_map().nodes.size()),
      incarnations_(hosts_.size()) {
  // Those of a cluster were started at other times.
  for (std::uint32_t node = 0; node < count(); ++node)
    hosts_[node] = {.name = name_of_host(node), .ahead_ns = 100 * second_ns * node};
  for (std::uint32_t node = 0; node < count() && scene_.setup.nodes_max != 0; ++node) follow_map(node);
}

void Hosts::tell_time(std::uint32_t node) {
  std::byte* latest = scene_.store->memory().at({control_of(node), memory::latest_offset});
  const base::Nanos time = simulation().clock().now() + hosts_[node].ahead_ns;
  if (fabric::load_word(latest) < time) fabric::store_word(latest, time);
}

void Hosts::keep_time() {
  for (std::uint32_t node = 0; node < count(); ++node) {
    if (is_there(node)) tell_time(node);
  }
  if (scene_.setup.crowd_rows != 0 && scene_.setup.shards == 0) begin_homing();
  simulation().after(scene_.setup.keeper_ns, [this] { keep_time(); });
}

// So that items which are crowded out of their home rows go back all the time, and not after a growth alone.
// Which slots have been looked at is nothing that anybody relies on.
void Hosts::begin_homing() {
  constexpr hash::IndexPlace place = hash::index_of_one_host;
  auto& memory = scene_.store->memory();
  const auto directory = hash::Directory::decode(fabric::load_word(memory.at(place.directory())));
  fabric::store_word(memory.at(place.homing_cursor()), hash::ChunkCursor{.level = directory.level}.encode());
}

std::uint64_t Hosts::incarnation(std::uint32_t by, std::uint32_t of) const {
  return fabric::load_word(scene_.store->memory().at(memory::incarnation_at(by, of)));
}

bool Hosts::answers(std::uint32_t node) const {
  return !scene_.store->is_down(node) && !scene_.store->is_cut_off(node);
}

bool Hosts::is_gone(std::uint32_t node) const {
  return scene_.cluster.nodes[node].state == ClusterMap::NodeState::gone;
}

// ---- memory that is lost, and comes

bool Hosts::lose_memory(std::uint32_t node, std::optional<base::Nanos> away_ns) {
  if (node >= count() || is_gone(node) || scene_.store->is_down(node)) return false;
  ++scene_.absences;
  scene_.store->take_down(node);
  note_lost_shards(node);
  const Incarnation was{node, incarnation(node, node)};
  lost_[was] = {.at_ns = scene_.now(), .data = take_memory(node)};
  note_lost_items(lost_[was]);
  if (away_ns) simulation().after(*away_ns, [this, node] { come_back(node); });
  begin_to_look();
  return true;
}

// All that it had; what was in its data regions.
Hosts::Memory Hosts::take_memory(std::uint32_t node) {
  fabric::sim::SimStore& store = *scene_.store;
  store.memory().let_go(node << number_bits, (node + 1) << number_bits);
  Memory data;
  for (std::size_t i = 0; i < fabric::region_count_max; ++i) {
    const auto region = static_cast<fabric::RegionId>(i);
    if (store.memory().length_bytes(region) == 0 || store.node_of(region) != node) continue;
    if (region < memory::data_regions_end) {
      data[region] = store.memory().take(region);
    } else {
      store.memory().renew(region, 0);
    }
  }
  return data;
}

void Hosts::come_back(std::uint32_t node) {
  if (!scene_.store->is_down(node) || is_there(node) || is_gone(node)) return;
  subject_.make_node(scene_, node, ++incarnations_);
  // Its clock has begun anew.
  hosts_[node] = {.name = scene_.cluster.nodes[node].name,
                  .ahead_ns = simulation().random().below(200 * second_ns)};
  tell_time(node);
  if (scene_.setup.nodes_max != 0) follow_map(node);
  scene_.store->bring_up(node);
}

void Hosts::return_all() {
  for (std::uint32_t node = 0; node < count(); ++node) come_back(node);
}

// ---- the map

void Hosts::start(std::uint32_t node, base::Nanos wait_ns) {
  ++scene_.absences;
  if (!scene_.store->is_down(node)) scene_.store->take_down(node);
  scene_.store->memory().renew(control_of(node), 0);
  hosts_.resize(std::max<std::size_t>(hosts_.size(), node + 1));
  simulation().after(wait_ns, [this, node] { come_back(node); });
}

void Hosts::tell(std::uint32_t node, base::Nanos wait_ns) {
  simulation().after(wait_ns, [this, node, epoch = scene_.cluster.epoch] {
    if (!is_there(node)) return;
    if (scene_.setup.nodes_max != 0) return follow_map(node);
    std::byte* word = scene_.store->memory().at({control_of(node), memory::map_epoch_offset});
    if (fabric::load_word(word) < epoch) fabric::store_word(word, epoch);
  });
}

// As Member::adopt.
void Hosts::follow_map(std::uint32_t node) {
  if (!is_there(node)) return;
  const ClusterMap& map = scene_.cluster;
  if (map.nodes[node].name != hosts_[node].name) return say_farewell(node);
  // A host's own thread moves its shards, and goes by another map when it has.
  if (scene_.gives_away(node)) return simulation().after(millisecond_ns, [this, node] { follow_map(node); });
  if (const auto tended = hash::tend_part(own(node), map, node); !tended) {
    if (tended.error().code != Errc::no_space)
      scene_.fail_with("a host can not go by a map: " + tended.error().message());
    return simulation().after(100 * millisecond_ns, [this, node] { follow_map(node); });
  }
  hosts_[node].gone = 0;
  for (std::uint32_t other = 0; other < map.nodes.size(); ++other) {
    if (is_gone(other)) hosts_[node].gone |= fabric::node_bit(other);
  }
  hosts_[node].drained = cluster::drained_nodes(map, hosts_[node].drained);
  begin_to_look();
}

bool Hosts::is_up_to_date(std::uint32_t node) const {
  if (scene_.setup.nodes_max == 0 || hosts_[node].departs) return true;
  const auto* epoch = scene_.store->memory().at({control_of(node), memory::map_epoch_offset});
  return fabric::load_word(epoch) == scene_.cluster.epoch;
}

// One that is not in the map any more.
void Hosts::say_farewell(std::uint32_t node) {
  if (std::exchange(hosts_[node].departs, true)) return;
  constexpr base::Nanos farewell_ns = 3 * second_ns;
  simulation().after(farewell_ns, [this, node] { depart(node); });
}

void Hosts::depart(std::uint32_t node) {
  // It is ending all sessions already, for what another one has lost.
  if (scene_.store->is_down(node)) return simulation().after(millisecond_ns, [this, node] { depart(node); });
  ++scene_.absences;
  scene_.store->take_down(node);
  end_sessions_(node);
  simulation().after(draw_ending(), [this, node] {
    if (scene_.names(node))
      scene_.fail_with(fmt::format("node {} has left the cluster, and a slot names what was there", node));
    take_memory(node);
  });
}

bool Hosts::is_mistaken(std::uint32_t by, std::uint32_t of) const {
  const std::uint64_t known = incarnation(by, of);
  return known != 0 && known != (is_gone(by, of) ? 0 : incarnation(of, of));
}

bool Hosts::are_settled() const {
  if (scene_.store->is_fencing()) return false;
  for (std::uint32_t by = 0; by < count(); ++by) {
    if (scene_.setup.nodes_max != 0 && is_gone(by)) {
      if (is_there(by)) return false;
      continue;
    }
    if (scene_.store->is_down(by)) return false;
    for (std::uint32_t of = 0; of < count(); ++of) {
      if (by != of && is_mistaken(by, of)) return false;
    }
    if (!is_up_to_date(by)) return false;
  }
  return true;
}

// ---- what others are

void Hosts::begin_to_look() {
  if (!std::exchange(looks_around_, true)) look_around();
}

// Each host looks at all others.
void Hosts::look_around() {
  for (std::uint32_t by = 0; by < count(); ++by) {
    for (std::uint32_t of = 0; of < count(); ++of) {
      if (by == of || !answers(by) || !is_mistaken(by, of) || !is_up_to_date(by)) continue;
      if (is_gone(by, of)) {
        forget_the_gone(by, of);
      } else if (answers(of)) {
        forget(by, of);
      }
    }
  }
  constexpr base::Nanos look_every_max_ns = 200 * millisecond_ns;
  simulation().after(millisecond_ns + simulation().random().below(look_every_max_ns),
                     [this] { look_around(); });
}

// Of one that was drained nobody is about to name anything, and no session has to end.
void Hosts::forget_the_gone(std::uint32_t by, std::uint32_t of) {
  if ((hosts_[by].drained & fabric::node_bit(of)) == 0) return forget(by, of);
  const auto here = own(by);
  fabric::Endpoint endpoint(here, here->connect());
  const auto named = hash::names_node(endpoint, scene_.cluster, by, of);
  if (!named) return scene_.fail_with("a host can not look at its slots: " + named.error().message());
  if (*named) return forget(by, of);
  fabric::store_word(scene_.store->memory().at(memory::incarnation_at(by, of)), 0);
}

base::Nanos Hosts::draw_ending() {
  return 10 * microsecond_ns + simulation().random().below(20 * millisecond_ns);
}

void Hosts::forget(std::uint32_t by, std::uint32_t of) {
  ++scene_.absences;
  scene_.store->take_down(by);
  end_sessions_(by);
  const std::uint64_t is = is_gone(by, of) ? 0 : incarnation(of, of);
  // Once all sessions have ended here: on other hosts they may go on for a while (SimSession).
  simulation().after(draw_ending(), [this, by, of, is] { forget_items(by, of, is); });
}

// When the host's part is what the map says, as it is by then where each host has a memory of its own: here
// the name of a region that it had by an older map may be another one's.
void Hosts::forget_items(std::uint32_t by, std::uint32_t of, std::uint64_t is) {
  if (!is_up_to_date(by))
    return simulation().after(millisecond_ns, [this, by, of, is] { forget_items(by, of, is); });
  std::byte* known = scene_.store->memory().at(memory::incarnation_at(by, of));
  if (const auto lost = lost_.find({of, fabric::load_word(known)}); lost != lost_.end()) {
    for (const RegionMap::Shard& shard : RegionMap::shards_on(scene_.cluster, by))
      note_forgotten(shard, lost->second);
  }
  if (const auto forgotten = hash::forget_node(own(by), scene_.cluster, by, of); !forgotten)
    scene_.fail_with("a host can not forget: " + forgotten.error().message());
  fabric::store_word(known, is);
  scene_.store->bring_up(by);
}

std::shared_ptr<fabric::Fabric> Hosts::own(std::uint32_t node) const {
  const base::Nanos now = simulation().clock().now() + hosts_[node].ahead_ns;
  return std::make_shared<OwnFabric>(scene_.store->shared_memory(), node, now);
}

// ---- what is lost

bool Hosts::moves(const RegionMap::Shard& shard) const {
  return std::ranges::any_of(scene_.cluster.shards, [&](const ClusterMap::Shard& each) {
    return each.next && (each.home.index == shard.index || each.next->index == shard.index);
  });
}

void Hosts::note_lost(const std::string& key, base::Nanos since, bool certainly) {
  scene_.recorder.lose(key, since, certainly ? scene_.now() : never_ns);
  scene_.lost.insert(key);
  if (scene_.say) scene_.say(key, fmt::format("lost{}", certainly ? "" : ", perhaps"));
}

// What is on its way is lost with either of its places, or not.
void Hosts::note_lost_shards(std::uint32_t node) {
  for (const auto* keys : {&scene_.keys, &scene_.kept}) {
    for (const std::string& key : *keys) {
      const ClusterMap::Shard& shard = scene_.cluster.shards[subject_.shard_of(scene_, key)];
      const bool comes_here = shard.next && shard.next->node == node;
      if (shard.home.node == node || comes_here) note_lost(key, scene_.now(), !shard.next);
    }
  }
}

template <class What>
void Hosts::for_each_item(const RegionMap::Shard& shard, const Memory& of, What what) const {
  const auto& memory = scene_.store->memory();
  const std::uint64_t bytes = memory.length_bytes(shard.index);
  for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const hash::SlotWord word{fabric::load_word(memory.at({shard.index, at}))};
    if (!word.names_item()) continue;
    const auto region = of.find(word.item().region);
    if (region == of.end()) continue;
    const std::string key = key_of(region->second, word.item().address().offset_bytes);
    const bool is_known = std::ranges::count(scene_.keys, key) + std::ranges::count(scene_.kept, key) != 0;
    if (is_known) what(key, word);
  }
}

// Who goes by a map without the host does not come to them any more.
void Hosts::note_lost_items(const Lost& lost) {
  for (const RegionMap::Shard& shard : scene_.region_map().shards) {
    for_each_item(shard, lost.data,
                  [this](const std::string& key, hash::SlotWord /*word*/) { scene_.lost.insert(key); });
  }
}

// When the slots of a shard are about to be emptied: a committed word's key is certainly gone then.
void Hosts::note_forgotten(const RegionMap::Shard& shard, const Lost& lost) {
  for_each_item(shard, lost.data, [&](const std::string& key, hash::SlotWord word) {
    note_lost(key, lost.at_ns, word.is(hash::SlotType::committed) && !moves(shard));
  });
}

}  // namespace loch::sim
