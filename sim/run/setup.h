// Setup: what one simulated run consists of. A workload and a seed give it, whole.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/narrowing.h"
#include "base/random.h"
#include "fabric/sim/sim_fabric.h"
#include "hash/index.h"
#include "memory/store_memory.h"
#include "sim/paper/client.h"

namespace loch::sim {

// What a player may do, one by one.
enum class Act : std::uint8_t {
  get,
  exists,
  put,
  insert,
  replace,
  remove,
  multi_get,
  multi_put,
  walk,
  collect,
};
inline constexpr std::size_t act_count = static_cast<std::size_t>(Act::collect) + 1;
using Mix = std::array<std::uint32_t, act_count>;  // how often each, relative to the others

// What goes wrong.
struct Fault {
  enum class Kind : std::uint8_t {
    // of one player
    kill,   // it is gone; another one takes up what it had left to do
    pause,  // it does nothing for a while, and then goes on
    fail,   // what it has under way and what it begins fails, for a while
    fence,  // it does nothing for a while, is taken for dead, and finds itself cut off for good
    clock,  // its clock jumps
    // of a player and a node
    partition,  // nothing gets there, or comes back
    // of a node
    outage,   // it does not answer, and then does again, with its memory
    amnesia,  // of a cluster: it is gone, and comes back without its memory
    death,    // likewise: it is gone, and is removed from the cluster after a while
    drain,    // likewise: it is to give away what it has, and is removed when it has
    // of all
    join,      // of a cluster: another host comes to it
    cut_off,   // nothing gets to the memory, or comes back
    loss,      // some batches do not come back
    slow,      // some ways take long
    shortage,  // no memory can be had
    flip,      // a bit of an item that is linked is another
  };
  Kind kind = Kind::kill;
  std::uint32_t player = 0;
  std::uint32_t node = 0;
  bool there = true;  // partition: which way
  bool back = true;
  std::int64_t jump_ns = 0;        // clock
  std::uint64_t after_acts = 0;    // begins when all players together have done so much
  const char* at_point = nullptr;  // instead, when the player comes to this fault point, or of a node,
                                   // anybody; fail: always
  std::uint32_t nth = 1;           // for the nth time
  base::Nanos lasts_ns = 0;        // all but kill, clock, drain, join and flip
  bool operator==(const Fault&) const = default;
};
std::string describe(const Fault& fault);

struct Setup {
  std::string workload;
  std::uint64_t seed = 0;

  memory::Geometry geometry{.hash_seed = 42};  // always the same, so that crowds of keys need be found once
  base::Narrowing narrowing;
  base::Nanos tick_ns = 1;
  fabric::sim::Network network;
  std::uint64_t free_bytes = std::uint64_t{1} << 30;
  base::Nanos timeout_ns = base::second_ns;
  std::size_t cache_bytes = 0;
  bool has_barriers = false;  // of processes of one host; else what was unlinked rests for an expiry

  std::uint32_t players = 3;
  std::uint32_t nodes = 1;
  // Of a cluster: of how many shards its index is, and each node has a control region. 0: a store of one
  // host, whose data regions are on all nodes in turn, and the rest on the first.
  std::uint32_t shards = 0;
  // Of a cluster: how often a shard goes to another node, or a node is emptied, by a player of its own.
  std::uint32_t moves = 0;
  // Of a cluster whose hosts come and go: so many nodes have numbers of their own; who comes then has that of
  // one that is gone. 0: those that there are stay.
  std::uint32_t nodes_max = 0;
  std::int64_t drift_ppm_max = 0;                // of the clocks of other hosts
  std::uint32_t remote_chance = 0;               // that a player is on another host; of 65536
  std::uint32_t reader_chance = 0;               // that one of those may only read; likewise
  base::Nanos keeper_ns = base::millisecond_ns;  // how often the host tells the time to those
  std::uint32_t acts = 30;                       // of each player
  base::Nanos think_max_ns = 0;                  // between two acts
  Mix mix{};
  bool removes_versions = false;  // half of the replaces remove what they expect
  std::size_t value_bytes_min = 16;
  std::size_t value_bytes_max = 16;
  std::uint32_t keys = 4;        // that all acts are on
  std::uint32_t crowd_rows = 0;  // the rows of the index that these share; 0: any
  std::uint32_t crowd_columns = hash::row_slots;
  std::uint32_t kept_keys = 0;      // there from the beginning, and never touched
  std::uint32_t mortal_chance = 0;  // that a put gives a time to live; of 65536
  std::vector<Fault> faults;
  // The paper's protocol is played instead of the store's, and read so (sim/paper).
  std::optional<paper::Undo> paper;
};

// The workload that plays the paper's protocol. It is none of `workloads`: it has to fail.
inline constexpr std::string_view literal_paper = "literal_paper";

// How many data regions each node of a cluster has.
inline constexpr std::uint32_t regions_of_each = 3;
// The name of a host of a cluster, by its number in the order of their coming; and its address, which nobody
// asks.
std::string name_of_host(std::uint32_t number);
net::HostPort address_of_host(std::uint32_t number);
// Of a cluster: its map at the beginning.
fabric::ClusterMap cluster_of(const Setup& setup);
// Which regions the store has at the beginning, and on which nodes they are.
memory::RegionMap region_map_of(const Setup& setup);

std::span<const std::string_view> workloads();
// The fault points that clients come to in the simulator: all but those of the plain steps on memory that is
// mapped, as the simulator's is not.
std::span<const char* const> simulated_fault_points();
// Errors: invalid_argument, naming the workloads that there are.
Result<Setup> draw_setup(std::string_view workload, std::uint64_t seed);
// In lines, for people.
std::string describe(const Setup& setup);

}  // namespace loch::sim
