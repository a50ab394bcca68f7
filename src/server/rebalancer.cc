#include "server/rebalancer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <ranges>
#include <tuple>
#include <utility>

#include "cluster/changes.h"

namespace loch::server {
namespace {

using fabric::ClusterMap;
using Level = fabric::Host::Level;

constexpr base::Nanos look_every_ns = 500 * base::millisecond_ns;
// A session that does nothing holds on to what it has seen. One that was silent for so long is ended, so that
// nobody has to wait for it: its client has another one with its next call. One that is in the midst of an
// operation gives signs more often than that (sign_every_ns in fabric/remote/protocol.h).
constexpr base::Nanos idle_ns = 600 * base::millisecond_ns;
// For those that act, which say what is over four times a second. Meanwhile nobody changes what moves.
constexpr base::Nanos quiet_within_ns = 700 * base::millisecond_ns;
// Before a host is emptied, where nobody has to wait.
constexpr base::Nanos calm_within_ns = 5 * base::second_ns;

// For so long a host that leaves gives no shard to one that had no room for it, if there is another one.
constexpr base::Nanos full_for_ns = 120 * base::second_ns;

// How far behind a server of the coordinator may be.
constexpr base::Nanos behind_max_ns = 10 * base::second_ns;

// Sessions of a host that was removed may go on for so long; their clients learn of it four times a second.
constexpr base::Nanos farewell_ns = 3 * base::second_ns;

coro::Task<Result<std::vector<std::uint64_t>>> read_words(fabric::Endpoint* endpoint, fabric::Address at,
                                                          std::size_t count) {
  const auto bytes = co_await endpoint->fetch(at, count * sizeof(std::uint64_t));
  if (!bytes) co_return std::unexpected(bytes.error());
  std::vector<std::uint64_t> words(count);
  std::memcpy(words.data(), bytes->data(), bytes->size());
  co_return words;
}

}  // namespace

Rebalancer::Rebalancer(fabric::Access others, Member& member, fabric::Host& host,
                       std::uint64_t bytes_together)
    : others_(std::move(others)),
      member_(member),
      host_(host),
      bytes_together_(bytes_together),
      thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

void Rebalancer::run(std::stop_token stop) {
  stop_ = std::move(stop);
  while (!stop_.stop_requested()) {
    const auto done = look();
    if (stop_.stop_requested()) break;  // what it had to break off is no trouble
    const std::string trouble = done ? "" : done.error().message();
    if (!trouble.empty() && trouble != told_)
      member_.log(Level::warning, fmt::format("{}; tries again", trouble));
    if (trouble.empty() && !told_.empty()) member_.log(Level::info, "the cluster goes on");
    told_ = trouble;
    // Nothing that is there already is waited for: a map that can not be gone by is tried again after a
    // while.
    if (!done || read_version_ < member_.now().map.version) {
      rest();
    } else {
      member_.coordinator().wait_for_change(read_version_, look_every_ns);
    }
  }
}

void Rebalancer::rest() {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, stop_, std::chrono::nanoseconds(look_every_ns), [] { return false; });
}

Result<void> Rebalancer::look() {
  if (auto followed = follow_map(); !followed) return followed;
  const Member::State state = member_.now();
  if (!state.node) {
    note_absence();
    return {};
  }
  absent_since_ns_ = 0;
  paused_.clear();
  const ClusterMap& map = state.map.map;
  if (cluster::has_too_many(map, *state.node) || !moves_of(state).empty()) return give_away_shards();
  if (state.self().state == ClusterMap::NodeState::leaves) return give_away_items();
  return {};
}

Result<void> Rebalancer::follow_map() {
  auto map = member_.coordinator().read_map();
  const bool is_none = !map && map.error().code == Errc::not_found;
  if (!map && !is_none) return std::unexpected(std::move(map.error()));
  read_version_ = is_none ? 0 : map->version;
  note_older_map(read_version_);
  if (is_none) return {};
  const Member::State before = member_.now();
  if (map->version <= before.map.version) return {};
  if (before.node) last_node_ = {*before.node, before.self().since};
  // As another node, or as the same one again, the host has nothing of what those use who have sessions here.
  const auto node = map->map.find(member_.options().cluster.node);
  if (node && last_node_ && last_node_ != std::pair(*node, map->map.nodes[*node].since)) {
    if (auto paused = pause_all(); !paused) return paused;
  }
  return member_.adopt(*map);
}

Result<void> Rebalancer::pause_all() {
  const std::vector<std::string> stores = member_.stores();
  while (paused_.size() < stores.size()) {
    auto paused = host_.pause(stores[paused_.size()]);
    if (!paused) return std::unexpected(std::move(paused.error()));
    paused_.push_back(std::move(*paused));
  }
  return {};
}

// A server that is behind catches up in a while. One that does not has lost what it knew.
void Rebalancer::note_older_map(std::uint64_t version) {
  const std::uint64_t own = member_.now().map.version;
  const base::Nanos now = base::Clock().now();
  if (version >= own) {
    older_since_ns_.reset();
    return;
  }
  if (!older_since_ns_) {
    older_since_ns_ = now;
    told_of_older_ = false;
  }
  if (told_of_older_ || now - *older_since_ns_ < behind_max_ns) return;
  told_of_older_ = true;
  const std::string has =
      version == 0 ? "no map any more" : fmt::format("version {} of the map, an older one,", version);
  member_.log(Level::warning,
              fmt::format("the coordinator has {}, and this host goes by version {}: what is newer was lost "
                          "there, or a backup restored. The host goes on with what it has, and heeds no "
                          "changes; do not change the cluster nor restart lochd, and see "
                          "docs/operations.md, \"The map is lost\"",
                          has, own));
}

// Nobody is to find here what the cluster does without, once clients have had the time to learn of it.
void Rebalancer::note_absence() {
  if (paused_.size() == member_.stores().size() || member_.now().map.version == 0) return;
  const base::Nanos now = base::Clock().now();
  if (absent_since_ns_ == 0) absent_since_ns_ = now;
  if (now - absent_since_ns_ < farewell_ns) return;
  if (!pause_all()) return;  // with the next look
  member_.log(Level::info, fmt::format("'{}' is not in the cluster; its stores are not served",
                                       member_.options().cluster.node));
}

template <class Ask>
Result<bool> Rebalancer::await(base::Nanos at_most_ns, Ask is_so) {
  constexpr auto pause = std::chrono::milliseconds(5);
  const base::Nanos until = base::Clock().now() + at_most_ns;
  while (!stop_.stop_requested()) {
    auto so = is_so();
    if (!so || *so) return so;
    if (base::Clock().now() > until) return false;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

// ---- shards

// Words that name what is lost are not to be taken elsewhere: all hosts know each other as they are, and
// nothing here names what has gone.
Result<void> Rebalancer::check_settled(Way& way) {
  const Member::State state = member_.now();
  const memory::RegionMap& map = way.attachment->region_map();
  std::string missing;
  for (std::uint32_t node = 0; node < map.nodes.size(); ++node) {
    if (map.nodes[node].is_gone || way.attachment->node(node) != nullptr) continue;
    missing += (missing.empty() ? "" : "; ") + way.attachment->describe_unreached(node);
  }
  if (!missing.empty())
    return fail(
        Errc::unavailable, "cluster",
        fmt::format("shards of {} move when all hosts can be used: {}. One that is gone for good, and "
                    "only that: loch cluster remove NODE --lost",
                    way.store, missing));
  const auto own = way.attachment->endpoint().run(
      read_words(&way.attachment->endpoint(), memory::incarnation_at(*state.node, 0), map.nodes.size()));
  if (!own) return std::unexpected(own.error());
  for (std::size_t node = 0; node < own->size(); ++node) {
    if (map.nodes[node].is_gone && (*own)[node] != 0)
      return fail(Errc::unavailable, "cluster",
                  fmt::format("{} is about to forget what was on a host that has gone", way.store));
  }
  return {};
}

Result<void> Rebalancer::give_away_shards() {
  Result<bool> again = true;
  while (again && *again && member_.now().node && !stop_.stop_requested()) again = try_to_give_away_shards();
  if (again) return {};
  // What can not be given away now is used here until then, also if nobody else can be reached.
  if (auto reopened = member_.reopen_what_leaves(); !reopened) return reopened;
  return std::unexpected(std::move(again.error()));
}

Result<bool> Rebalancer::try_to_give_away_shards() {
  if (auto announced = announce_moves(); !announced) return std::unexpected(std::move(announced.error()));
  const Member::State state = member_.now();
  if (!state.node) return false;  // removed meanwhile
  const Moves moves = moves_of(state);
  if (moves.empty()) return false;
  auto all = ways();
  if (!all) return std::unexpected(std::move(all.error()));
  Moves begun;
  for (const Move& move : moves) {
    const auto left = has_left(*all, move);
    if (!left) return std::unexpected(left.error());
    if (*left) begun.push_back(move);
  }
  if (!begun.empty()) {
    if (auto cleared = clear(*all, begun); !cleared) return std::unexpected(std::move(cleared.error()));
    if (auto arrived = arrive(*all, begun); !arrived) return std::unexpected(std::move(arrived.error()));
    return false;
  }
  for (Way& way : *all) {
    if (auto settled = check_settled(way); !settled) return std::unexpected(std::move(settled.error()));
  }
  auto taken_back = take_back(*all, moves);
  if (!taken_back || *taken_back) return taken_back;
  const auto next = next_moves(*all, moves);
  if (!next) return std::unexpected(next.error());
  if (auto handed = hand_over(*all, *next); !handed) {
    for (const Move& move : *next) undo(*all, move);
    return std::unexpected(std::move(handed.error()));
  }
  if (auto arrived = arrive(*all, *next); !arrived) return std::unexpected(std::move(arrived.error()));
  return false;
}

Rebalancer::Moves Rebalancer::moves_of(const Member::State& state) {
  Moves moves;
  const auto& shards = state.map.map.shards;
  for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
    if (shards[shard].home.node != *state.node || !shards[shard].next) continue;
    moves.push_back({.shard = shard,
                     .from = memory::RegionMap::shard_at(shard, shards[shard].home),
                     .to = memory::RegionMap::shard_at(shard, *shards[shard].next)});
  }
  return moves;
}

Result<void> Rebalancer::announce_moves() {
  const Member::State state = member_.now();
  const auto announce = [full = full_nodes(state)](const ClusterMap& map, std::uint32_t node) {
    return cluster::with_moves_announced(map, node, full);
  };
  if (announce(state.map.map, *state.node) == state.map.map) return {};
  return change_map(announce);
}

// Else nobody could be drained to or from whom a shard was to go for which there is no memory.
bool Rebalancer::is_to_be_taken_back(const Member::State& state, const Move& move) const {
  return state.map.map.nodes[move.to.home].state != ClusterMap::NodeState::serves ||
         (full_nodes(state) & fabric::node_bit(move.to.home)) != 0;
}

fabric::NodeSet Rebalancer::full_nodes(const Member::State& state) const {
  if (state.self().state != ClusterMap::NodeState::leaves) return 0;
  const auto& nodes = state.map.map.nodes;
  fabric::NodeSet full = 0;
  bool has_any_room = false;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].state != ClusterMap::NodeState::serves) continue;
    const auto found = full_.find({node, nodes[node].since});
    if (found != full_.end() && base::Clock().now() - found->second < full_for_ns)
      full |= fabric::node_bit(node);
    else
      has_any_room = true;
  }
  return has_any_room ? full : 0;
}

// Of those that are open here in all stores: nobody else begins a move of them.
Result<bool> Rebalancer::take_back(Ways& all, const Moves& moves) {
  const Member::State state = member_.now();
  std::vector<std::uint32_t> shards;
  for (const Move& move : moves) {
    if (!is_to_be_taken_back(state, move)) continue;
    bool stays = true;
    for (Way& way : all) {
      const auto taken_back = way.attachment->endpoint().run(move.on(way).take_back());
      if (!taken_back) return taken_back;
      stays = stays && *taken_back;
    }
    if (stays) shards.push_back(move.shard);
  }
  if (shards.empty()) return false;
  const auto told = change_map([&](const ClusterMap& map, std::uint32_t node) {
    return cluster::with_moves_taken_back(map, node, shards);
  });
  if (!told) return std::unexpected(told.error());
  member_.log(Level::info,
              fmt::format("{} of its shards do not go where they were to go: there is no room for "
                          "them, or the host leaves",
                          shards.size()));
  return true;
}

Result<void> Rebalancer::change_map(
    const std::function<Result<ClusterMap>(const ClusterMap&, std::uint32_t node)>& how) {
  const Member::State state = member_.now();
  const auto changed =
      cluster::change_map(member_.coordinator(), [&](const ClusterMap& map) -> Result<ClusterMap> {
        if (map.find(state.self().name) != state.node)
          return fail(Errc::unavailable, "cluster", "this host is not in the cluster any more");
        return how(map, *state.node);
      });
  if (!changed) return std::unexpected(changed.error());
  return follow_map();
}

// What a host has to void by a later map it has voided when it says that it goes by it: not what is about to
// be copied there.
Result<void> Rebalancer::check_heard(const Ways& all, const Move& move) const {
  for (const Way& way : all) {
    const auto& control = way.attachment->node(move.to.home)->session->control();
    if (control.word(memory::map_epoch_offset) >= way.attachment->region_map().epoch) continue;
    return fail(Errc::unavailable, "cluster",
                fmt::format("'{}' does not go by the newest map yet, with {}; its log may say why",
                            member_.now().map.map.nodes[move.to.home].name, way.store));
  }
  return {};
}

// Whether the shard has `left` (H4) in all stores, and both its hosts are reached. H5 and H6 need no other
// host.
Result<bool> Rebalancer::has_left(Ways& all, const Move& move) {
  for (Way& way : all) {
    if (!move.is_reached_on(way)) return false;
    const auto directory = way.attachment->endpoint().run(move.on(way).directory());
    if (!directory) return std::unexpected(directory.error());
    if (directory->stage != hash::ShardStage::left) return false;
  }
  return true;
}

// So many that clients hardly notice that they are closed, one at least. The map says of them all together
// where they are, so that clients do not go by another one more often than they have to. Those whose new home
// has no room, or has not heard of the map, stay as they are, and open.
Result<Rebalancer::Moves> Rebalancer::next_moves(Ways& all, const Moves& moves) {
  Moves next;
  std::uint64_t bytes = 0;
  Result<void> can_go;  // or why one of them can not
  for (const Move& move : moves) {
    std::uint64_t bytes_with_it = bytes;
    for (Way& way : all) {
      const auto directory = way.attachment->endpoint().run(move.on(way).directory());
      if (!directory) return std::unexpected(directory.error());
      bytes_with_it += directory->slots() * sizeof(std::uint64_t);
    }
    if (!next.empty() && bytes_with_it > bytes_together_) break;
    auto may_go = check_heard(all, move);
    if (may_go) {
      may_go = make_room(all, move);
      if (!may_go && may_go.error().code != Errc::no_space) return std::unexpected(std::move(may_go.error()));
      if (!may_go)
        full_[{move.to.home, member_.now().map.map.nodes[move.to.home].since}] = base::Clock().now();
    }
    if (!may_go) {
      can_go = std::move(may_go);
      undo(all, move);  // it may have been closed before this host was killed
      continue;
    }
    bytes = bytes_with_it;
    next.push_back(move);
  }
  if (next.empty() && !can_go) return std::unexpected(std::move(can_go.error()));
  return next;
}

Result<void> Rebalancer::make_room(Ways& all, const Move& move) const {
  for (Way& way : all) {
    hash::Handover handover = move.on(way);
    const auto directory = way.attachment->endpoint().run(handover.directory());
    if (!directory) return std::unexpected(directory.error());
    if (directory->stage == hash::ShardStage::left) continue;  // it is there
    auto made = handover.make_room(*directory);
    if (made) continue;
    if (made.error().code != Errc::no_space) return made;
    return fail(
        Errc::no_space, "cluster",
        fmt::format("'{}' has no room for a shard of {}: {}", member_.now().map.map.nodes[move.to.home].name,
                    way.store, made.error().message()));
  }
  return {};
}

// What can not be undone so is reopened by this host alone, or gone on with by the next look.
void Rebalancer::undo(Ways& all, const Move& move) {
  for (Way& way : all) std::ignore = way.attachment->endpoint().run(move.on(way).undo());
}

// H1 to H4; H5 and H6 are `arrive`'s.
Result<void> Rebalancer::hand_over(Ways& all, const Moves& moves) {
  if (auto closed = close(all, moves); !closed) return closed;
  if (auto copied = copy(all, moves); !copied) return copied;
  return clear(all, moves);
}

// H1, and H2: until what began before is over.
Result<void> Rebalancer::close(Ways& all, const Moves& moves) {
  for (const Way& way : all) host_.end_idle(way.store, idle_ns);
  // What is over since the last one of a store was closed is so since the others were.
  std::vector<std::pair<Way*, hash::Handover>> closed;
  for (Way& way : all) {
    std::optional<hash::Handover> last;
    for (const Move& move : moves) {
      hash::Handover handover = move.on(way);
      const auto stage = way.attachment->endpoint().run(handover.begin());
      if (!stage) return std::unexpected(stage.error());
      if (*stage == hash::ShardStage::leaves) last.emplace(handover);
    }
    if (last) closed.emplace_back(&way, *last);
  }
  const auto is_quiet = [&]() -> Result<bool> {
    bool are_all = true;
    for (auto& [way, handover] : closed) {
      const auto quiet = way->attachment->endpoint().run(handover.is_quiet());
      if (!quiet) return quiet;
      are_all = *quiet && are_all;
    }
    return are_all;
  };
  const auto quiet = await(quiet_within_ns, is_quiet);
  if (!quiet) return std::unexpected(quiet.error());
  if (!*quiet) return fail(Errc::timed_out, "cluster", "shards that move wait for operations that take long");
  return {};
}

// H3.
Result<void> Rebalancer::copy(Ways& all, const Moves& moves) {
  for (Way& way : all) {
    if (auto fresh = freshen(way, moves); !fresh) return fresh;
    if (auto settled = check_settled(way); !settled) return settled;
    for (const Move& move : moves) {
      hash::Handover handover = move.on(way);
      const auto directory = way.attachment->endpoint().run(handover.directory());
      if (!directory) return std::unexpected(directory.error());
      if (directory->stage == hash::ShardStage::left) continue;
      if (auto copied = way.attachment->endpoint().run(handover.copy()); !copied) return copied;
    }
  }
  return {};
}

// H4. In all stores before slots are cleared in any, which takes longer: one that is stopped when some have
// left, and others not, needs all hosts to go on.
Result<void> Rebalancer::clear(Ways& all, const Moves& moves) {
  for (const auto half : {&hash::Handover::leave, &hash::Handover::clear}) {
    for (Way& way : all) {
      if (auto fresh = freshen(way, moves); !fresh) return fresh;
      for (const Move& move : moves) {
        hash::Handover handover = move.on(way);
        if (auto done = way.attachment->endpoint().run((handover.*half)()); !done) return done;
      }
    }
  }
  return {};
}

// H5, and H6.
Result<void> Rebalancer::arrive(Ways& all, const Moves& moves) {
  std::vector<std::uint32_t> shards;
  for (const Move& move : moves) shards.push_back(move.shard);
  bool are_there = false;  // by the map, all of them
  const auto told = change_map([&](const ClusterMap& map, std::uint32_t node) {
    ClusterMap with = cluster::with_moves_done(map, node, shards);
    are_there = std::ranges::all_of(moves, [&with](const Move& move) {
      return with.shards[move.shard].home == ClusterMap::Place{.node = move.to.home, .index = move.to.index};
    });
    return with;
  });
  if (!told) return told;
  member_.log(Level::info, fmt::format("gave away {} of its shards", shards.size()));
  // Their new homes do it as well, when they learn of it.
  for (Way& way : all) {
    for (const Move& move : moves) {
      if (auto opened = way.attachment->endpoint().run(move.on(way).open()); !opened) return opened;
    }
  }
  if (are_there) return {};
  return fail(Errc::unavailable, "cluster",
              "the map was changed while shards moved, and does not have all of them where they are");
}

// ---- items

Result<void> Rebalancer::give_away_items() {
  const Member::State state = member_.now();
  const auto drained = cluster::drained(state.map.map, state.self().name);
  if (!drained) return std::unexpected(drained.error());  // a shard is on its way here
  auto all = ways();
  if (!all) return std::unexpected(std::move(all.error()));
  for (Way& way : *all) {
    if (auto emptied = empty(way); !emptied) return emptied;
  }
  if (auto written = member_.coordinator().write_map(*drained, state.map.version); !written) return written;
  member_.log(Level::info, fmt::format("'{}' is drained", state.self().name));
  return follow_map();
}

// Until nothing of the store is left here. The part takes no new items (Member::tend_part). Errors: why
// something is left, which the next look goes on with.
Result<void> Rebalancer::empty(Way& way) {
  const std::uint32_t node = *member_.now().node;
  const auto not_yet = [&](Errc code, const char* why) {
    return fail(code, "cluster",
                fmt::format("the items of {} can not go to other hosts yet: {}", way.store, why));
  };
  if (way.attachment->node(node) == nullptr)
    return not_yet(Errc::unavailable, "this host does not reach its own part");
  fabric::Endpoint& endpoint = way.attachment->endpoint();
  host_.end_idle(way.store, idle_ns);
  const auto since = endpoint.run(way.attachment->node(node)->session->control().read_time());
  if (!since) return std::unexpected(since.error());
  const auto calm = await(calm_within_ns, [&] { return endpoint.run(way.shards->is_quiet(node, *since)); });
  if (!calm) return std::unexpected(calm.error());
  if (!*calm) return not_yet(Errc::timed_out, "operations that began before take long");
  if (auto fresh = endpoint.run(way.attachment->refresh()); !fresh)
    return std::unexpected(std::move(fresh.error()));
  const auto emptied = endpoint.run(way.shards->evacuate(node, [this] { return goes_on(); }));
  if (!emptied) return std::unexpected(emptied.error());
  if (emptied->copied != 0)
    member_.log(Level::info, fmt::format("{}: {} items are on other hosts now", way.store, emptied->copied));
  if (emptied->left != 0) return not_yet(Errc::unavailable, "some could not be copied");
  return {};
}

// Whether what takes long is wanted still: lochd is not to end, and the map is the one that it began with.
bool Rebalancer::goes_on() {
  const base::Nanos now = base::Clock().now();
  const bool is_wanted = !stop_.stop_requested();
  if (!is_wanted || now - looked_ns_ < look_every_ns) return is_wanted;
  const auto map = member_.coordinator().read_map();
  looked_ns_ = base::Clock().now();  // it may take long itself
  return !map || map->version <= member_.now().map.version;
}

// ---- ways

Result<std::vector<Rebalancer::Way>> Rebalancer::ways() {
  std::vector<Way> all;
  const Member::State state = member_.now();
  for (const std::string& store : member_.stores()) {
    auto way = way_to(store, state);
    if (!way) return std::unexpected(std::move(way.error()));
    all.push_back(std::move(*way));
  }
  return all;
}

Result<Rebalancer::Way> Rebalancer::way_to(const std::string& store, const Member::State& state) {
  auto fabric = fabric::attach(fmt::format("tcp://{}/{}", state.self().at.text(), store), others_);
  if (!fabric) return std::unexpected(std::move(fabric.error()));
  const ClusterMap* map = (*fabric)->cluster();
  // This host is asked first, and says what it goes by; another one may know better.
  if (map == nullptr || map->epoch != state.map.map.epoch)
    return fail(Errc::unavailable, "cluster", "the hosts of the cluster are about to learn of another map");
  auto memory = memory::StoreMemory::attach(std::move(*fabric), memory::RegionMap::of_cluster(*map));
  if (!memory) return std::unexpected(std::move(memory.error()));
  auto attachment = memory::Attachment::open(std::move(*memory));
  if (!attachment) return std::unexpected(std::move(attachment.error()));
  Way way{.store = store, .attachment = std::move(*attachment), .shards = nullptr};
  way.shards = std::make_unique<hash::Shards>(*way.attachment, hash::TableOptions{});
  if (auto opened = way.attachment->endpoint().run(way.shards->open()); !opened)
    return std::unexpected(std::move(opened.error()));
  return way;
}

// What one store takes long for may be too long for the others' sessions, which give no signs meanwhile.
Result<void> Rebalancer::freshen(Way& way, const Moves& moves) {
  if (way.attachment->endpoint().run(way.attachment->refresh())) return {};
  auto another = way_to(way.store, member_.now());
  if (!another) return std::unexpected(std::move(another.error()));
  if (!std::ranges::all_of(moves, [&](const Move& move) { return move.is_reached_on(*another); }))
    return fail(Errc::unavailable, "cluster", "a host that shards move to can not be reached any more");
  std::swap(way, *another);
  return {};
}

}  // namespace loch::server
