#include "sim/run/setup.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

#include "base/check.h"
#include "base/fault.h"
#include "sim/value.h"

namespace loch::sim {
namespace {

using base::microsecond_ns;
using base::millisecond_ns;
using base::second_ns;
using fabric::sim::Network;

// "cluster" is any of those before it in a cluster, "moves" one of whose shards and items go to other nodes
// meanwhile, "amnesia" is either, but "damage", with nodes that lose their memory, "readers" is one of those
// before it with players that may only read, "idle" is "jam" with players on other hosts that do nothing for
// long, "ordered" is any of those before "readers" on a network that keeps the order of a batch, "members" is
// "moves", but "damage", with hosts that come and go, and "any" is any of those before it. Behind that, so
// that its seeds stay what they are: "versions" is "mortal" in a cluster or not, with removes of versions.
constexpr std::array<std::string_view, 19> names = {
    "hot",     "churn", "jam",     "crowded", "growth", "large",   "mortal",  "walk", "shortage", "damage",
    "cluster", "moves", "amnesia", "readers", "idle",   "ordered", "members", "any",  "versions"};
constexpr std::span<const std::string_view> names_before(std::string_view name) {
  return {names.begin(), std::ranges::find(names, name)};
}
constexpr auto plain_names = names_before("cluster");
constexpr auto plain_names_undamaged = names_before("damage");
constexpr auto names_of_one_kind = names_before("amnesia");

template <class T, std::size_t n>
T one_of(base::Random& random, const T (&values)[n]) {
  return values[random.below(n)];
}

std::string_view one_of(base::Random& random, std::span<const std::string_view> some) {
  return some[random.below(some.size())];
}

//                  get exists put insert replace remove multi_get multi_put walk collect
constexpr Mix everything = {20, 4, 20, 12, 8, 16, 4, 4, 0, 1};
constexpr Mix mixes[] = {
    everything,
    {10, 2, 0, 40, 0, 40, 0, 0, 0, 1},   // to and fro
    {50, 5, 30, 0, 5, 0, 10, 5, 0, 0},   // mostly reads
    {5, 0, 5, 5, 60, 5, 0, 0, 0, 0},     // conditions
    {10, 0, 40, 10, 0, 30, 0, 10, 0, 4}  // writes, cleared up after
};

Network draw_network(base::Random& random) {
  Network network;
  network.delay_max_ns = one_of(random, {1'000UL, 3'000UL, 50'000UL});
  network.slow_chance = one_of(random, {0U, 0U, 600U, 6'000U});
  network.slow_max_ns = one_of(random, {100 * microsecond_ns, 10 * millisecond_ns, 300 * millisecond_ns});
  network.tear_chance = one_of(random, {0U, Network::always / 2, Network::always});
  network.gap_chance = one_of(random, {0U, 0U, Network::always / 4});
  return network;
}

// How many acts have been done by then.
std::uint64_t draw_moment(base::Random& random, const Setup& setup) {
  return random.below(std::uint64_t{setup.players} * setup.acts);
}

// From a moment to longer than anything that a store waits for.
base::Nanos draw_duration(base::Random& random) {
  return random.below(one_of(random, {100 * microsecond_ns, 30 * millisecond_ns, second_ns, 5 * second_ns}));
}

const char* draw_point(base::Random& random, bool of_mover) {
  const auto of_handovers = base::handover_points();
  if (of_mover && random.below(2) == 0) return of_handovers[random.below(of_handovers.size())];
  const auto points = simulated_fault_points();
  return points[random.below(points.size())];
}

Fault draw_fault(base::Random& random, const Setup& setup) {
  using enum Fault::Kind;
  Fault fault;
  fault.kind = one_of(random, {kill, kill, kill, pause, pause, fail, fail, cut_off, loss, slow, shortage});
  if (setup.remote_chance != 0 && random.below(2) == 0)
    fault.kind = one_of(random, {fence, fence, clock, partition, partition, outage});
  // The one after the last is the mover.
  fault.player = static_cast<std::uint32_t>(random.below(setup.players + (setup.moves != 0 ? 1 : 0)));
  fault.node = static_cast<std::uint32_t>(random.below(std::max(setup.nodes, setup.nodes_max)));
  fault.after_acts = draw_moment(random, setup);
  if (fault.kind == partition) {
    const std::uint64_t way = random.below(3);
    fault.there = way != 0;
    fault.back = way != 1;
  }
  if (fault.kind == clock) {
    constexpr std::uint64_t jump_max_ns = 5 * second_ns;
    fault.jump_ns = static_cast<std::int64_t>(random.below(2 * jump_max_ns)) - std::int64_t{jump_max_ns};
  }
  const bool may_be_at_point = fault.kind == kill || fault.kind == pause || fault.kind == fence;
  const bool at_point = fault.kind == fail || (may_be_at_point && random.below(2) == 0);
  if (at_point) {
    fault.at_point = draw_point(random, fault.player == setup.players);
    fault.nth = 1 + static_cast<std::uint32_t>(random.below(6));
  }
  if (fault.kind != kill) fault.lasts_ns = draw_duration(random);
  return fault;
}

// One that the paper's protocol knows: it has no fault points, and does without memory that can run short.
Fault draw_paper_fault(base::Random& random, const Setup& setup) {
  using enum Fault::Kind;
  Fault fault{.kind = one_of(random, {kill, kill, pause, cut_off, loss, slow})};
  fault.player = static_cast<std::uint32_t>(random.below(setup.players));
  fault.after_acts = draw_moment(random, setup);
  if (fault.kind != kill) fault.lasts_ns = draw_duration(random);
  return fault;
}

// A player stops or fails half way through an insert or a move, for long enough that others meet what it
// left.
Fault draw_stop(base::Random& random, const Setup& setup) {
  constexpr const char* points[] = {"put.after_pending",          "put.before_commit",
                                    "put.before_withdraw",        "put_together.after_pending",
                                    "put_together.before_commit", "move.after_announce",
                                    "move.after_place",           "move.after_mark",
                                    "move.after_commit",          "resolve.before_cas"};
  using enum Fault::Kind;
  Fault fault{.kind = one_of(random, {kill, pause, pause, fail})};
  fault.player = static_cast<std::uint32_t>(random.below(setup.players));
  fault.at_point = points[random.below(std::size(points))];
  fault.nth = 1 + static_cast<std::uint32_t>(random.below(8));
  fault.lasts_ns =
      random.below(one_of(random, {10 * microsecond_ns, 200 * microsecond_ns, 50 * millisecond_ns}));
  return fault;
}

constexpr std::size_t cache_bytes_usual = 4'000'000;

void draw_common(base::Random& random, Setup& setup) {
  setup.geometry.candidates = one_of(random, {2U, 3U, 3U, 4U});
  setup.geometry.expiry_ns = one_of(random, {20 * millisecond_ns, 200 * millisecond_ns, second_ns});
  setup.tick_ns = one_of(random, {base::Nanos{1}, millisecond_ns, 4 * millisecond_ns});
  setup.network = draw_network(random);
  setup.timeout_ns = one_of(random, {300 * millisecond_ns, second_ns, 10 * second_ns});
  setup.cache_bytes = one_of(random, {0UL, 0UL, cache_bytes_usual});
  setup.players = 2 + static_cast<std::uint32_t>(random.below(5));
  setup.remote_chance = one_of(random, {0U, 0U, Network::always / 2, Network::always});
  setup.nodes = 1 + static_cast<std::uint32_t>(random.below(4));
  setup.drift_ppm_max = one_of(random, {0L, 500L, 200'000L});
  setup.keeper_ns = one_of(random, {millisecond_ns, 10 * millisecond_ns, 100 * millisecond_ns});
  setup.acts = 10 + static_cast<std::uint32_t>(random.below(40));
  setup.think_max_ns = one_of(random, {0UL, 100 * microsecond_ns, 20 * millisecond_ns, 400 * millisecond_ns});
  setup.mix = one_of(random, mixes);
  // Long ones, of which few fit into a block, so that blocks are soon looked through and used again.
  setup.value_bytes_max = one_of(random, {100UL, 8'000UL, 8'000UL, 40'000UL});
  setup.value_bytes_min = random.below(2) == 0 ? value_bytes_min : setup.value_bytes_max * 3 / 4;
  setup.keys = 1 + static_cast<std::uint32_t>(random.below(4));
  const unsigned filter_bits = one_of(random, {8U, 8U, 2U, 0U});
  setup.narrowing.filter_mask = static_cast<std::uint8_t>((1U << filter_bits) - 1);
  setup.narrowing.classes_joined = one_of<std::uint8_t>(random, {1, 1, 2, 8});
}

// A few keys in an index of a few rows, so that they are in each other's way and moved about.
void draw_paper(base::Random& random, Setup& setup) {
  setup.paper = one_of(random, {paper::Undo::nothing, paper::Undo::restore, paper::Undo::clear});
  setup.remote_chance = 0;
  setup.nodes = 1;
  setup.geometry.candidates = 2;
  setup.crowd_rows = 2 + static_cast<std::uint32_t>(random.below(3));
  setup.keys = setup.crowd_rows * (1 + static_cast<std::uint32_t>(random.below(3)));
  setup.kept_keys = 1 + static_cast<std::uint32_t>(random.below(2));
  setup.players = 4 + static_cast<std::uint32_t>(random.below(5));
  setup.acts = 100;
  setup.think_max_ns = 0;
  setup.mix = {40, 0, 40, 0, 0, 30, 0, 0, 0, 0};
  setup.value_bytes_min = value_bytes_min;
  setup.value_bytes_max = 100;
  // Some ways take as long as many acts of others, and none as long as an operation may.
  setup.network.slow_chance = 3'000;
  setup.network.slow_max_ns = 2 * millisecond_ns;
  setup.timeout_ns = 100 * millisecond_ns;
}

void draw_workload(base::Random& random, Setup& setup) {
  if (setup.workload == "churn") setup.mix = mixes[1];
  if (setup.workload == "jam") {
    // A few keys that share a few slots, and are moved about all the time.
    setup.geometry.candidates = 2 + static_cast<std::uint32_t>(random.below(2));
    setup.crowd_rows = setup.geometry.candidates == 2 ? 1 : 2;
    setup.crowd_columns = one_of(random, {hash::row_slots / 2, hash::row_slots});
    const std::uint32_t slots = setup.crowd_rows * setup.crowd_columns;
    setup.keys = slots / 2 + 1 + static_cast<std::uint32_t>(random.below(slots / 2));
    setup.players = 4 + static_cast<std::uint32_t>(random.below(4));
    setup.acts = 200;
    setup.think_max_ns = 0;
    setup.mix = {40, 2, 5, 30, 2, 20, 1, 0, 0, 0};
    setup.network.delay_max_ns = one_of(random, {3'000UL, 50'000UL});
    // Others are met in the index, not in each other's items.
    setup.narrowing.filter_mask = 0xff;
    if (random.below(4) != 0) setup.remote_chance = 0;
    setup.value_bytes_max = 3'000;
    setup.value_bytes_min = 2'000;
  }
  if (setup.workload == "crowded" || setup.workload == "growth") {
    setup.crowd_rows = setup.geometry.candidates == 2 ? 2 : 6;
    const bool grows = setup.workload == "growth";
    setup.keys = setup.crowd_rows * hash::row_slots * (grows ? 5U : 3U) / 4;
    setup.acts += setup.keys;
    setup.mix = {20, 2, 20, 60, 5, grows ? 10U : 40U, 2, 2, 0, 0};
    setup.value_bytes_max = std::min(setup.value_bytes_max, std::size_t{8'000});
    setup.value_bytes_min = value_bytes_min;
  }
  if (setup.workload == "large") {
    setup.value_bytes_max = one_of(random, {300'000UL, 1'500'000UL});
    setup.players = std::min(setup.players, 4U);
    setup.acts = std::min(setup.acts, 15U);
  }
  if (setup.workload == "mortal") {
    setup.mortal_chance = Network::always / 2;
    setup.think_max_ns = std::max(setup.think_max_ns, 20 * millisecond_ns);
  }
  if (setup.workload == "versions") {
    setup.mortal_chance = one_of(random, {0U, Network::always / 4});
    setup.mix = {20, 5, 20, 20, 50, 5, 2, 2, 0, 1};
  }
  if (setup.workload == "walk") {
    setup.mix = everything;
    setup.mix[static_cast<std::size_t>(Act::walk)] = 4;
    setup.kept_keys = 1 + static_cast<std::uint32_t>(random.below(20));
  }
  if (setup.workload == literal_paper) draw_paper(random, setup);
  if (setup.workload == "shortage") {
    setup.geometry.max_bytes = (4 + random.below(8)) * memory::block_bytes;
    setup.value_bytes_max = 200'000;
    setup.value_bytes_min = 50'000;
    setup.keys = 4 + static_cast<std::uint32_t>(random.below(40));
  }
}

void draw_cluster(base::Random& random, Setup& setup) {
  setup.shards = one_of(random, {1U, 2U, 4U, 8U});
  setup.nodes = 1 + static_cast<std::uint32_t>(random.below(4));
  setup.remote_chance = Network::always;
  // Whoever looks at all slots goes through those of all shards, some at a time.
  const base::Nanos slow_max_ns = setup.shards > 2 ? 10 * millisecond_ns : 100 * millisecond_ns;
  setup.network.slow_max_ns = std::min(setup.network.slow_max_ns, slow_max_ns);
}

// In half of the runs that have few keys and short values, memory is soon looked for, and used again.
void draw_reuse(Setup& setup) {
  constexpr std::size_t short_bytes_max = 40'000;
  if (base::mix(setup.seed) % 2 == 0 || setup.keys > 4 || setup.value_bytes_max > short_bytes_max) return;
  setup.geometry.expiry_ns = 20 * millisecond_ns;
  setup.think_max_ns = setup.geometry.expiry_ns / 2;
  setup.keeper_ns = millisecond_ns;
  setup.acts = 100;
  setup.mix[static_cast<std::size_t>(Act::collect)] = 8;
}

// A player stops between a look and a change that goes by it, and a host takes it for dead: others perhaps
// not before it goes on.
Fault draw_fence_between(base::Random& random, const Setup& setup) {
  constexpr const char* points[] = {"put_far.item_written", "put.after_pending", "move.after_announce"};
  Fault fault{.kind = Fault::Kind::fence};
  fault.player = static_cast<std::uint32_t>(random.below(setup.players));
  fault.node = static_cast<std::uint32_t>(random.below(setup.nodes));
  fault.at_point = points[random.below(std::size(points))];
  fault.nth = 1 + static_cast<std::uint32_t>(random.below(20));
  fault.lasts_ns = (2 + random.below(20)) * setup.geometry.expiry_ns;
  return fault;
}

void draw_moves(base::Random& random, Setup& setup) {
  setup.nodes = 2 + static_cast<std::uint32_t>(random.below(3));
  setup.moves = 1 + static_cast<std::uint32_t>(random.below(12));
  // The mover takes its time, too.
  setup.network.slow_max_ns = std::min(setup.network.slow_max_ns, 10 * millisecond_ns);
}

// Some of the nodes that there may be are there from the beginning.
void draw_members(base::Random& random, Setup& setup) {
  setup.nodes = 1 + static_cast<std::uint32_t>(random.below(3));
  setup.nodes_max = setup.nodes + static_cast<std::uint32_t>(random.below(4));
}

// In half of the runs, what a reader keeps is over soon, and its memory is used again.
void draw_readers(Setup& setup) {
  setup.reader_chance = Network::always / 2;
  setup.remote_chance = std::max(setup.remote_chance, Network::always / 2);
  setup.cache_bytes = cache_bytes_usual;
  if (base::mix(setup.seed) % 2 == 0) return;
  setup.geometry.expiry_ns = 20 * millisecond_ns;
  setup.think_max_ns = setup.geometry.expiry_ns / 2;
  setup.keeper_ns = millisecond_ns;
  setup.acts = 100;
  setup.keys = std::min(setup.keys, 3U);
}

// Sessions that come back to what they knew for longer than anything is kept for them: its memory is other
// keys' then, and their words differ from those that were there in nothing.
void draw_idle(Setup& setup) {
  setup.remote_chance = Network::always;
  setup.geometry.expiry_ns = 20 * millisecond_ns;
  setup.think_max_ns = 5 * setup.geometry.expiry_ns;
  setup.narrowing.filter_mask = 0;
  setup.value_bytes_min = 60'000;
  setup.value_bytes_max = 100'000;
}

// Players on other hosts go by where items were, half of them when that may have been used again meanwhile.
void draw_ordered(Setup& setup) {
  setup.network.keeps_order = true;
  setup.remote_chance = Network::always;
  if (setup.shards != 0) return;
  setup.nodes = 1;  // a host keeps the order of all that it is asked
  if (base::mix(setup.seed) % 2 == 0) return;
  setup.geometry.expiry_ns = 20 * millisecond_ns;
  setup.network.slow_chance = Network::always / 4;
  setup.network.slow_max_ns = setup.geometry.expiry_ns;
  setup.think_max_ns = 5 * setup.geometry.expiry_ns;
  setup.keys = 1;
  setup.acts = 100;
  setup.mix = {50, 0, 50, 0, 0, 0, 0, 0, 0, 0};
  setup.value_bytes_min = 50'000;
  setup.value_bytes_max = 60'000;
}

Fault draw_fault_of_node(base::Random& random, const Setup& setup, Fault::Kind kind) {
  Fault fault{.kind = kind};
  fault.node = static_cast<std::uint32_t>(random.below(std::max(setup.nodes, setup.nodes_max)));
  fault.after_acts = draw_moment(random, setup);
  fault.lasts_ns = draw_duration(random);
  // Half way through a move, where there are some.
  if (setup.moves != 0 && random.below(2) == 0) {
    const auto points = base::handover_points();
    fault.at_point = points[random.below(points.size())];
    fault.nth = 1 + static_cast<std::uint32_t>(random.below(3));
  }
  return fault;
}

void draw_amnesia(base::Random& random, Setup& setup) {
  const std::uint64_t times = 1 + random.below(3);
  for (std::uint64_t i = 0; i < times; ++i)
    setup.faults.push_back(draw_fault_of_node(random, setup, Fault::Kind::amnesia));
}

void draw_changes(base::Random& random, Setup& setup) {
  using enum Fault::Kind;
  const std::uint64_t times = 2 + random.below(7);
  for (std::uint64_t i = 0; i < times; ++i) {
    const Fault::Kind kind = one_of(random, {join, join, join, drain, drain, drain, death, amnesia});
    setup.faults.push_back(draw_fault_of_node(random, setup, kind));
  }
}

const char* name(Fault::Kind kind) {
  constexpr std::array kinds = {"kill",   "pause",   "fail",     "fence", "clock", "partition",
                                "outage", "amnesia", "death",    "drain", "join",  "cut_off",
                                "loss",   "slow",    "shortage", "flip"};
  return kinds[static_cast<std::size_t>(kind)];
}

const char* name(paper::Undo undo) {
  constexpr std::array undos = {"nothing is undone", "the entry is restored", "the entry is cleared"};
  return undos[static_cast<std::size_t>(undo)];
}

}  // namespace

std::string describe(const Fault& fault) {
  using enum Fault::Kind;
  std::string whom = fault.kind <= partition ? fmt::format(" player {}", fault.player) : "";
  if (fault.kind == clock) whom += fmt::format(" by {} us", fault.jump_ns / std::int64_t{microsecond_ns});
  if (fault.kind == partition) whom += fault.there ? fault.back ? " and" : " to" : " from";
  if (fault.kind >= partition && fault.kind < join) whom += fmt::format(" node {}", fault.node);
  const std::string when = fault.at_point != nullptr
                               ? fmt::format("at {} for time {}", fault.at_point, fault.nth)
                               : fmt::format("after {} acts", fault.after_acts);
  const bool lasts = fault.kind != kill && fault.kind != clock && fault.kind != drain && fault.kind != join &&
                     fault.kind != flip;
  const std::string how_long = lasts ? fmt::format(", for {} us", fault.lasts_ns / microsecond_ns) : "";
  return fmt::format("{}{} {}{}", name(fault.kind), whom, when, how_long);
}

std::string name_of_host(std::uint32_t number) { return fmt::format("host{}", number); }
net::HostPort address_of_host(std::uint32_t number) { return {.host = name_of_host(number), .port = "7457"}; }

fabric::ClusterMap cluster_of(const Setup& setup) {
  LOCH_CHECK(setup.nodes != 0);
  fabric::ClusterMap cluster;
  for (std::uint32_t node = 0; node < setup.nodes; ++node)
    cluster.nodes.push_back({.name = name_of_host(node), .at = address_of_host(node)});
  for (std::uint32_t i = 0; i < regions_of_each * setup.nodes; ++i)
    cluster.nodes[i % setup.nodes].data.push_back(
        static_cast<fabric::RegionId>(memory::first_data_region + i));
  for (std::uint32_t shard = 0; shard < setup.shards; ++shard) {
    cluster.shards.push_back(
        {.home = {.node = static_cast<std::uint32_t>(base::mix(setup.seed + shard) % setup.nodes),
                  .index = fabric::index_region_of(shard)}});
  }
  return cluster;
}

memory::RegionMap region_map_of(const Setup& setup) {
  return setup.shards == 0 ? memory::RegionMap::of_one_host()
                           : memory::RegionMap::of_cluster(cluster_of(setup));
}

std::span<const std::string_view> workloads() { return names; }

std::span<const char* const> simulated_fault_points() {
  static const auto points = [] {
    std::vector<const char*> simulated;
    // What is mapped is not simulated, nor files.
    std::ranges::copy_if(base::fault_points(), std::back_inserter(simulated), [](std::string_view point) {
      return !point.contains("_here.") && point != "session.store_found";
    });
    return simulated;
  }();
  return points;
}

Result<Setup> draw_setup(std::string_view workload, std::uint64_t seed) {
  if (std::ranges::find(names, workload) == names.end() && workload != literal_paper) {
    return fail(Errc::invalid_argument, "sim",
                fmt::format("there is no workload '{}'; there are: {}, {}", workload, fmt::join(names, ", "),
                            literal_paper));
  }
  base::Random random(seed);
  Setup setup;
  setup.seed = seed;
  // Drawn apart: seeds of "any" that are kept are those of the others.
  const auto is_drawn = [seed](std::uint64_t salt) {
    return base::Random(base::mix(seed + salt)).below(13) == 0;
  };
  const bool any = workload == "any";
  const bool readers = workload == "readers" || (any && is_drawn(1));
  const bool idle = workload == "idle" || (any && is_drawn(2));
  const bool ordered = workload == "ordered" || (any && is_drawn(3));
  const bool of_any_kind = any || workload == "ordered" || workload == "readers";
  const bool amnesia = workload == "amnesia" || (of_any_kind && is_drawn(0));
  const bool members = workload == "members" || (any && is_drawn(4));
  setup.workload = of_any_kind ? one_of(random, names_of_one_kind) : workload;
  if (workload == "idle") setup.workload = "jam";
  const bool moves = setup.workload == "moves" || (amnesia && random.below(2) == 0) || members;
  const bool versions = workload == "versions";
  const bool cluster = amnesia || moves || setup.workload == "cluster" || (versions && is_drawn(6));
  if (cluster && !versions)
    setup.workload = one_of(random, amnesia || members ? plain_names_undamaged : plain_names);
  draw_common(random, setup);
  draw_workload(random, setup);
  if (cluster) draw_cluster(random, setup);
  if (moves) draw_moves(random, setup);
  if (members) draw_members(random, setup);
  if (cluster && !moves && !members && !amnesia) draw_reuse(setup);
  if (readers && !setup.paper) draw_readers(setup);
  if (idle && !setup.paper) draw_idle(setup);
  if (ordered) draw_ordered(setup);
  setup.has_barriers = base::mix(seed + 5) % 2 == 0;                  // drawn apart, too
  setup.removes_versions = versions || base::mix(seed + 7) % 2 == 0;  // likewise
  const std::uint64_t faults = random.below(setup.paper ? 16 : 5);
  for (std::uint64_t i = 0; i < faults; ++i)
    setup.faults.push_back(setup.paper ? draw_paper_fault(random, setup) : draw_fault(random, setup));
  if (amnesia) draw_amnesia(random, setup);
  if (members) draw_changes(random, setup);
  const std::uint64_t flips = setup.workload == "damage" ? 1 + random.below(6) : 0;
  for (std::uint64_t i = 0; i < flips; ++i)
    setup.faults.push_back({.kind = Fault::Kind::flip, .after_acts = draw_moment(random, setup)});
  // Where shards move, all wait for the sessions that are fenced.
  const std::uint64_t fences = cluster && !moves && setup.nodes > 1 ? random.below(4) : 0;
  for (std::uint64_t i = 0; i < fences; ++i) setup.faults.push_back(draw_fence_between(random, setup));
  // Where everybody is in everybody's way, those that stop half way are what others have to deal with.
  const std::uint64_t stops = setup.workload == "jam" ? random.below(30) : 0;
  for (std::uint64_t i = 0; i < stops; ++i) setup.faults.push_back(draw_stop(random, setup));
  return setup;
}

std::string describe(const Setup& setup) {
  const memory::Geometry& g = setup.geometry;
  const Network& n = setup.network;
  std::string text = fmt::format(
      "workload {}, seed {}\n"
      "  {} players of {} acts, {} us between them at most, on {} keys{}; values of {} to {} B\n"
      "  {} nodes{}{}; remote {}/65536, of those readers {}/65536, told the time every {} ms, with clocks "
      "that drift by {} ppm at most\n"
      "  {} candidates, expiry {} ms{}, tick {} us, timeout {} ms, cache {} B, max_bytes {}\n"
      "  filter of {} bits, {} size classes in one\n"
      "  ways of {} to {} ns, {}/65536 of up to {} us; torn {}/65536, atomics with a gap {}/65536{}\n",
      setup.workload, setup.seed, setup.players, setup.acts, setup.think_max_ns / microsecond_ns, setup.keys,
      setup.crowd_rows != 0 ? fmt::format(" of {} rows, {} columns", setup.crowd_rows, setup.crowd_columns)
                            : "",
      setup.value_bytes_min, setup.value_bytes_max, setup.nodes,
      setup.shards != 0 ? fmt::format(" of a cluster, {} shards", setup.shards) : "",
      setup.nodes_max != 0 ? fmt::format(", hosts come and go, with {} numbers", setup.nodes_max) : "",
      setup.remote_chance, setup.reader_chance, setup.keeper_ns / millisecond_ns, setup.drift_ppm_max,
      g.candidates, g.expiry_ns / millisecond_ns, setup.has_barriers ? " or a barrier" : "",
      setup.tick_ns / microsecond_ns, setup.timeout_ns / millisecond_ns, setup.cache_bytes, g.max_bytes,
      std::popcount(setup.narrowing.filter_mask), setup.narrowing.classes_joined, n.delay_min_ns,
      n.delay_max_ns, n.slow_chance, n.slow_max_ns / microsecond_ns, n.tear_chance, n.gap_chance,
      n.keeps_order ? "; in order" : "");
  if (setup.paper) text += fmt::format("  of a PUT that failed: {}\n", name(*setup.paper));
  for (const Fault& fault : setup.faults) text += fmt::format("  fault: {}\n", describe(fault));
  return text;
}

}  // namespace loch::sim
