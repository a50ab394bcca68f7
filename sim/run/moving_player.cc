#include "sim/run/moving_player.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"

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
  if (!attachment || (*attachment)->nodes().size() != scene.setup.nodes) return;
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

bool MovingPlayer::is_unsettled(const Scene& scene) {
  const RegionMap map = scene.region_map();
  for (std::uint32_t shard = 0; shard < scene.cluster.shards.size(); ++shard) {
    const auto directory = hash::Directory::decode(
        fabric::load_word(scene.store->memory().at(place_of(map, shard).directory())));
    if (scene.cluster.shards[shard].next || !directory.is_open()) return true;
  }
  return false;
}

coro::Task<void> MovingPlayer::act(Act /*what*/) {
  has_moved_ = true;
  Result<void> done = co_await settle();
  if (done && !is_unsettled(scene())) {
    const auto node = static_cast<std::uint32_t>(random().below(scene().setup.nodes));
    if (random().below(4) == 0) {
      done = co_await empty(node);
    } else {
      const auto shard = static_cast<std::uint32_t>(random().below(scene().setup.shards));
      if (scene().cluster.shards[shard].home.node != node) {
        announce(shard, node);
        done = co_await move(shard);
      }
    }
  }
  const bool is_excused = done || done.error().code == Errc::timed_out || done.error().code == Errc::moved ||
                          done.error().code == Errc::no_space || fenced() || silent();
  if (!is_excused && done.error().code != Errc::unavailable)
    scene().fail_with(fmt::format("player {}, moving: {}", number(), done.error().message()));
}

// Goes on with what somebody else has begun.
coro::Task<Result<void>> MovingPlayer::settle() {
  for (std::uint32_t node = 0; node < scene().setup.nodes; ++node)
    fabric::store_word(scene().store->memory().at({fabric::control_region_of(node), memory::closed_offset}),
                       0);
  for (std::uint32_t shard = 0; shard < scene().cluster.shards.size(); ++shard) {
    auto opened = co_await hash::Handover::open(endpoint(), place_of(scene().region_map(), shard));
    if (!opened) co_return opened;
    if (!scene().cluster.shards[shard].next) continue;
    if (auto moved = co_await move(shard); !moved) co_return moved;
  }
  co_return Result<void>{};
}

void MovingPlayer::announce(std::uint32_t shard, std::uint32_t node) {
  ClusterMap::Shard& moving = scene().cluster.shards[shard];
  const unsigned turn = moving.home.index == fabric::index_region_of(shard, 0) ? 1 : 0;
  moving.next = ClusterMap::Place{.node = node, .index = fabric::index_region_of(shard, turn)};
}

// All hosts learn of it, some later than others.
void MovingPlayer::commit(std::uint32_t shard) {
  Scene& here = scene();
  ClusterMap::Shard& moving = here.cluster.shards[shard];
  moving.home = *moving.next;
  moving.next.reset();
  const std::uint64_t epoch = ++here.cluster.epoch;
  here.on_arrival(shard);
  constexpr base::Nanos learns_max_ns = 20 * base::millisecond_ns;
  for (std::uint32_t node = 0; node < here.setup.nodes; ++node) {
    std::byte* word = here.store->memory().at({fabric::control_region_of(node), memory::map_epoch_offset});
    here.store->simulation().after(random().below(learns_max_ns), [word, epoch] {
      if (fabric::load_word(word) < epoch) fabric::store_word(word, epoch);
    });
  }
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
  const base::Nanos began = scene().now();
  const ClusterMap::Shard moving = scene().cluster.shards[shard];
  hash::Handover handover(*attachment_, RegionMap::shard_at(shard, moving.home),
                          RegionMap::shard_at(shard, *moving.next));
  const auto stage = co_await handover.begin();
  if (!stage) co_return std::unexpected(stage.error());
  if (*stage == hash::ShardStage::leaves) {
    const auto quiet = co_await await_quiet([&] { return handover.is_quiet(); });
    if (!quiet) co_return std::unexpected(quiet.error());
    if (!*quiet) {
      auto undone = co_await handover.undo();
      if (undone && !silent()) undo(shard);
      co_return undone;
    }
    if (auto copied = co_await handover.copy(); !copied) co_return copied;
  }
  if (auto cleared = co_await handover.clear(); !cleared) co_return cleared;
  // The map is not the fabric's: a mover that was taken for dead may still say where the shard is.
  if (scene().cluster.shards[shard] == moving && !silent()) {
    scene().time_astray_ns += scene().now() - began + scene().setup.keeper_ns + scene().setup.tick_ns;
    commit(shard);
  }
  co_return co_await handover.open();
}

coro::Task<Result<void>> MovingPlayer::empty(std::uint32_t node) {
  std::byte* closed = scene().store->memory().at({fabric::control_region_of(node), memory::closed_offset});
  fabric::store_word(closed, 1);
  scene().has_copied = true;
  const auto reopen = [&] { fabric::store_word(closed, 0); };
  constexpr int rounds_max = 3;
  for (int round = 0; round < rounds_max; ++round) {
    const auto since = co_await attachment_->node(node)->session->control().read_time();
    if (!since) break;
    const auto quiet = co_await await_quiet([&] { return shards_->is_quiet(node, *since); });
    if (!quiet || !*quiet) break;
    auto fresh = co_await attachment_->refresh();
    if (!fresh) break;
    const auto emptied = co_await shards_->evacuate(node);
    if (!emptied && emptied.error().code == Errc::corrupt && scene().recorder.damages() == 0) {
      reopen();
      co_return std::unexpected(emptied.error());
    }
    if (!emptied) break;
    if (emptied->left != 0) continue;
    if (!silent() && !fenced()) judge_empty(node);
    break;
  }
  reopen();
  co_return Result<void>{};
}

// Nothing names what was there.
void MovingPlayer::judge_empty(std::uint32_t node) {
  const RegionMap map = scene().region_map();
  const auto& memory = scene().store->memory();
  for (const RegionMap::Shard& shard : map.shards) {
    const std::uint64_t bytes = memory.length_bytes(shard.index);
    for (std::uint64_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const hash::SlotWord word{fabric::load_word(memory.at({shard.index, at}))};
      if (word.names_item() && map.node_of(word.item().region) == node)
        scene().fail_with(
            fmt::format("player {}: node {} was emptied, and a slot names what was there", number(), node));
    }
  }
}

}  // namespace loch::sim
