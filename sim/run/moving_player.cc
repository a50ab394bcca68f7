#include "sim/run/moving_player.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "cluster/changes.h"

namespace loch::sim {
namespace {

using fabric::ClusterMap;
using memory::RegionMap;

hash::IndexPlace place_of(const RegionMap& map, std::uint32_t shard) {
  return hash::IndexPlace::of(map.shards[shard], map.nodes[map.shards[shard].home]);
}

}  // namespace

MovingPlayer::MovingPlayer(Scene& scene, std::uint32_t number, std::uint32_t acts)
    : Player(scene, number, acts, Place::remote) {
  auto memory = memory::StoreMemory::attach(shared_fabric(), scene.region_map());
  if (!memory) return;
  auto attachment = memory::Attachment::open(*memory);
  if (!attachment || (*attachment)->nodes().size() != (*attachment)->region_map().living()) return;
  attachment_ = std::move(*attachment);
  shards_ =
      std::make_unique<hash::Shards>(*attachment_, hash::TableOptions{.timeout_ns = scene.setup.timeout_ns});
  if (auto opened = endpoint()->run(shards_->open()); !opened) close();
}

void MovingPlayer::close() {
  shards_.reset();
  attachment_.reset();
}

Result<void> MovingPlayer::put_at_once(std::string_view /*key*/, std::string_view /*value*/) {
  return fail(Errc::invalid_argument, "put", "a mover puts nothing");
}

bool MovingPlayer::is_under_way(const Scene& scene) {
  const RegionMap map = scene.region_map();
  for (std::uint32_t shard = 0; shard < scene.cluster.shards.size(); ++shard) {
    const hash::IndexPlace place = place_of(map, shard);
    const auto directory =
        hash::Directory::decode(fabric::load_word(scene.store->memory().at(place.directory())));
    if (scene.cluster.shards[shard].next || !directory.is_open(place.slots)) return true;
  }
  return false;
}

std::optional<std::uint32_t> MovingPlayer::laden_node(const Scene& scene) {
  const ClusterMap& map = scene.cluster;
  if (scene.setup.nodes_max == 0) return std::nullopt;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    if (map.nodes[node].state == ClusterMap::NodeState::leaves || cluster::has_too_many(map, node))
      return node;
  }
  return std::nullopt;
}

bool MovingPlayer::is_unsettled(const Scene& scene) { return is_under_way(scene) || laden_node(scene); }

bool MovingPlayer::reaches(std::uint32_t node) const {
  return node < attachment_->region_map().nodes.size() && is_attached_to(node) &&
         !shared_fabric()->has_broken_way();
}

coro::Task<void> MovingPlayer::act(Act /*what*/) {
  has_moved_ = true;
  Result<void> done = co_await settle();
  const bool waits_for_host = done && is_under_way(scene());
  const auto laden = done && !waits_for_host ? laden_node(scene()) : std::nullopt;
  if (laden) {
    done = co_await relieve(*laden);
  } else if (done && !waits_for_host) {
    done = co_await move_something();
  }
  // Hosts look at the map now and then.
  constexpr base::Nanos pause_ns = 100 * base::millisecond_ns;
  if (!done || waits_for_host || laden) co_await endpoint()->sleep_until(endpoint()->now() + pause_ns);
  if (scene().say)
    scene().say({}, fmt::format("client {}, moving: {}", number(), done ? "done" : done.error().message()));
  const bool is_excused = done || done.error().code == Errc::timed_out || done.error().code == Errc::moved ||
                          done.error().code == Errc::no_space || fenced() || silent();
  if (!is_excused && done.error().code != Errc::unavailable)
    scene().fail_with(fmt::format("player {}, moving: {}", number(), done.error().message()));
}

// Goes on with what somebody else has begun.
coro::Task<Result<void>> MovingPlayer::settle() {
  for (std::uint32_t node = 0; scene().setup.nodes_max == 0 && node < scene().setup.nodes; ++node)
    fabric::store_word(scene().store->memory().at({fabric::control_region_of(node), memory::closed_offset}),
                       0);
  return move_all();
}

// Those shards that are on their way.
coro::Task<Result<void>> MovingPlayer::move_all() {
  for (std::uint32_t shard = 0; shard < scene().cluster.shards.size(); ++shard) {
    auto opened = co_await hash::Handover::open(endpoint(), place_of(scene().region_map(), shard));
    if (!opened) co_return opened;
    if (!scene().cluster.shards[shard].next) continue;
    if (auto moved = co_await move(shard); !moved) co_return moved;
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> MovingPlayer::move_something() {
  const auto node = static_cast<std::uint32_t>(random().below(scene().cluster.nodes.size()));
  // Where hosts come and go, those that go are emptied.
  const bool empties = random().below(4) == 0;
  if (empties && scene().setup.nodes_max == 0) co_return co_await empty(node);
  const auto shard = static_cast<std::uint32_t>(random().below(scene().setup.shards));
  const bool is_taken = scene().cluster.nodes[node].state == ClusterMap::NodeState::serves;
  if (empties || !is_taken || scene().cluster.shards[shard].home.node == node) co_return Result<void>{};
  announce(shard, node);
  co_return co_await move(shard);
}

// Shards first, then items.
coro::Task<Result<void>> MovingPlayer::relieve(std::uint32_t node) {
  if (!is_current()) co_return Result<void>{};
  if (cluster::has_too_many(scene().cluster, node)) {
    scene().change_map(cluster::with_moves_announced(scene().cluster, node));
    co_return co_await move_all();
  }
  const std::uint64_t epoch = scene().cluster.epoch;
  const std::byte* closed =
      scene().store->memory().at({fabric::control_region_of(node), memory::closed_offset});
  // The node's host has to hear of it first.
  if (!reaches(node) || fabric::load_word(closed) == 0) co_return Result<void>{};
  const auto emptied = co_await evacuate(node);
  if (!emptied) co_return std::unexpected(emptied.error());
  if (!*emptied || !is_current() || scene().cluster.epoch != epoch) co_return Result<void>{};
  judge_empty(node);
  const auto drained = cluster::drained(scene().cluster, scene().cluster.nodes[node].name);
  if (!drained) co_return Result<void>{};
  scene().change_map(*drained);
  tell_hosts();
  co_return Result<void>{};
}

void MovingPlayer::announce(std::uint32_t shard, std::uint32_t node) {
  ClusterMap::Shard& moving = scene().cluster.shards[shard];
  const unsigned turn = moving.home.index == fabric::index_region_of(shard, 0) ? 1 : 0;
  moving.next = ClusterMap::Place{.node = node, .index = fabric::index_region_of(shard, turn)};
}

void MovingPlayer::commit(std::uint32_t shard) {
  const ClusterMap& map = scene().cluster;
  scene().change_map(cluster::with_moves_done(map, map.shards[shard].home.node, {shard}));
  scene().on_arrival(shard);
  tell_hosts();
}

// All hosts learn of it, some later than others.
void MovingPlayer::tell_hosts() {
  constexpr base::Nanos learns_max_ns = 20 * base::millisecond_ns;
  for (std::uint32_t node = 0; node < scene().cluster.nodes.size(); ++node)
    scene().tell_host(node, random().below(learns_max_ns));
}

void MovingPlayer::undo(std::uint32_t shard) { scene().cluster.shards[shard].next.reset(); }

// False if it does not become so in time.
template <class Ask>
coro::Task<Result<bool>> MovingPlayer::await_quiet(Ask is_quiet) {
  constexpr int looks_max = 40;
  for (int look = 0; look < looks_max; ++look) {
    auto quiet = co_await is_quiet();
    if (!quiet || *quiet) co_return quiet;
    co_await endpoint()->sleep_until(endpoint()->now() + 10 * base::millisecond_ns);
  }
  co_return false;
}

coro::Task<Result<void>> MovingPlayer::move(std::uint32_t shard) {
  moves_from_ = scene().cluster.shards[shard].home.node;
  auto moved = co_await hand_over(shard);
  moves_from_.reset();
  co_return moved;
}

coro::Task<Result<void>> MovingPlayer::hand_over(std::uint32_t shard) {
  const base::Nanos began = scene().now();
  const ClusterMap::Shard moving = scene().cluster.shards[shard];
  if (!reaches(moving.home.node) || !reaches(moving.next->node))
    co_return fail(Errc::unavailable, "move", "a host has come or gone");
  hash::Handover handover(*attachment_, RegionMap::shard_at(shard, moving.home),
                          RegionMap::shard_at(shard, *moving.next));
  const auto stage = co_await handover.begin();
  if (!stage) co_return std::unexpected(stage.error());
  if (*stage == hash::ShardStage::leaves) {
    const auto quiet = co_await await_quiet([&] { return handover.is_quiet(); });
    if (!quiet) co_return std::unexpected(quiet.error());
    if (!*quiet || !may_copy_from(moving.home.node)) {
      auto undone = co_await handover.undo();
      if (undone && !silent()) undo(shard);
      co_return undone;
    }
    if (auto copied = co_await handover.copy(); !copied) co_return copied;
    // The shard's time is now what it was at some moment meanwhile.
    const base::Nanos stood_still_ns = scene().now() - began;
    scene().recorder.add_lag(began, stood_still_ns + scene().setup.keeper_ns + scene().setup.tick_ns);
  }
  if (auto cleared = co_await handover.clear(); !cleared) co_return cleared;
  // The map is not the fabric's: a mover that was taken for dead may still say where the shard is.
  if (scene().cluster.shards[shard] == moving && !silent()) commit(shard);
  co_return co_await handover.open();
}

// Words that name what is lost are not to be taken elsewhere: all nodes are there still, and this one has
// forgotten those that have gone, by the map that this player goes by.
bool MovingPlayer::may_copy_from(std::uint32_t node) {
  const auto& nodes = attachment_->region_map().nodes;
  for (std::uint32_t other = 0; other < nodes.size(); ++other) {
    const std::byte* known = scene().store->memory().at(memory::incarnation_at(node, other));
    if (nodes[other].is_gone && fabric::load_word(known) != 0) return false;
  }
  return !shared_fabric()->has_broken_way();
}

// One that stays takes new items again.
coro::Task<Result<void>> MovingPlayer::empty(std::uint32_t node) {
  std::byte* closed = scene().store->memory().at({fabric::control_region_of(node), memory::closed_offset});
  fabric::store_word(closed, 1);
  const auto emptied = co_await evacuate(node);
  if (emptied && *emptied && is_current()) judge_empty(node);
  fabric::store_word(closed, 0);
  if (!emptied) co_return std::unexpected(emptied.error());
  co_return Result<void>{};
}

// Whether nothing of it is left there.
coro::Task<Result<bool>> MovingPlayer::evacuate(std::uint32_t node) {
  scene().has_copied = true;
  const auto goes_on = [this, epoch = scene().cluster.epoch] { return scene().cluster.epoch == epoch; };
  constexpr int rounds_max = 3;
  for (int round = 0; round < rounds_max; ++round) {
    const auto since = co_await attachment_->node(node)->session->control().read_time();
    if (!since) break;
    const auto quiet = co_await await_quiet([&] { return shards_->is_quiet(node, *since); });
    if (!quiet || !*quiet) break;
    auto fresh = co_await attachment_->refresh();
    if (!fresh) break;
    const auto emptied = co_await shards_->evacuate(node, goes_on);
    if (!emptied && emptied.error().code == Errc::corrupt && scene().recorder.damages() == 0)
      co_return std::unexpected(emptied.error());
    if (!emptied) break;
    if (emptied->left == 0) co_return true;
  }
  co_return false;
}

// Nothing names what was there.
void MovingPlayer::judge_empty(std::uint32_t node) {
  if (scene().names(node))
    scene().fail_with(
        fmt::format("player {}: node {} was emptied, and a slot names what was there", number(), node));
}

}  // namespace loch::sim
