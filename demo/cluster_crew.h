// demo/cluster_crew: what the processes of the demonstration do on a store of a cluster, one of whose hosts
// is lost meanwhile: they go on with all records that are on the others.
//
// I1 A record whose `stored` is set has been put with success, and may be missing only once a host without
//    memory has taken the place of the lost one, until what that had is loaded again. Before that, what the
//    lost host had is unavailable (docs/clusters.md, "A host that is down"): nobody takes it for absent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "demo/crew.h"
#include "lab/hosts.h"

namespace loch::demo {

// What a sample of the records that were stored showed at one time.
struct Look {
  std::uint64_t at_ns = 0;
  std::uint32_t asked = 0;
  std::uint32_t unavailable = 0;
  std::uint32_t gone = 0;
};

// Which of the stored records have to be there. It only goes on, so who sees the same before and after it has
// asked knows that it was so all the time.
enum class Records : std::uint8_t { all_there, may_be_gone, all_there_again };

// What the processes share besides the board. Written by the one that looks, but for `records`.
struct Watch {
  std::array<Look, 4096> looks{};
  std::atomic<std::size_t> count{0};
  std::atomic<Records> records{Records::all_there};  // set by the main process

  [[nodiscard]] std::span<const Look> all() const {
    return std::span(looks).first(count.load(std::memory_order_acquire));
  }
  // For who saw `before` before it asked for a stored record: whether that was to be found.
  [[nodiscard]] bool had_to_be_there(Records before) const {
    // acquire: pairs with the release of the main process, which has seen what was to be before that.
    return before != Records::may_be_gone && records.load(std::memory_order_acquire) == before;
  }
};

struct ClusterScene {
  const Scene& scene;
  const lab::Hosts& hosts;
  Watch& watch;
  std::span<std::atomic<bool>> stored;  // for each record

  // The process of a role begins on a host.
  [[nodiscard]] Result<lab::Process> start(std::size_t host, const std::function<int()>& work) const;
};

inline constexpr std::size_t puts_at_once = 16;

// As those of crew.h.
// All records of the part, those that are unavailable later than others; then some again until the board says
// stop.
int write_part(const ClusterScene& cluster, Slot& slot, Part part);
int read_what_there_is(const ClusterScene& cluster, Slot& slot, std::uint64_t seed);
// Asks for some of the stored records ten times a second, until the board says stop.
int look_what_is_there(const ClusterScene& cluster, Slot& slot);
// Puts those of the stored records again that are not there; its slot counts them as operations.
int load_again(const ClusterScene& cluster, Slot& slot);
// Until the store can be opened and all its hosts are there.
int await_store(const ClusterScene& cluster, Slot& slot);

}  // namespace loch::demo
