// Coordinator: where the hosts of a cluster learn which hosts it has, and what is on which.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <loch/error.h>

#include "base/clock.h"
#include "fabric/cluster_map.h"

namespace loch::cluster {

// The map as a coordinator has it.
struct Versioned {
  fabric::ClusterMap map;
  // Of the coordinator. Rises with each change; the first is 1; 0: there is no map.
  std::uint64_t version = 0;
};

// A host that is there now.
struct Present {
  std::string name;  // of its node, or by which it waits to become one
  net::HostPort at;
  bool operator==(const Present&) const = default;
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;

  // "file:PATH": a list that is the same on all hosts, and fixed (file_coordinator.h).
  // "zookeeper://HOST:PORT,HOST:PORT/PATH": kept by ZooKeeper, and may change (zookeeper_coordinator.h).
  // Connects when it is first asked. Errors: invalid_argument.
  static Result<std::unique_ptr<Coordinator>> open(std::string_view where);

  // Each of these, of any thread. Errors of all: unavailable (it does not answer in time), permission, io.
  //
  // The map as it is now. Errors: not_found (there is none yet), corrupt, invalid_argument (names the file
  // and the line).
  virtual Result<Versioned> read_map() = 0;
  // Whether the map may change.
  [[nodiscard]] virtual bool may_change() const = 0;
  // Puts `map` in place of the one of `version`; 0: there is to be none yet. Errors: changed (another one is
  // there), invalid_argument (a fixed list). After `unavailable` it may be there or not.
  virtual Result<void> write_map(const fabric::ClusterMap& map, std::uint64_t version) = 0;
  // Says that this host is there, until this Coordinator goes or its host dies. Errors: exists (another
  // process says so).
  virtual Result<void> announce(const Present& self) = 0;
  // Before announce: has `told` called with why this host can not say any more that it is there, each time
  // that another reason comes up; of a thread of the coordinator's. A fixed list has no reasons.
  virtual void tell_of_lost_name(const std::function<void(const std::string& why)>& /*told*/) {}
  // Those who say so; of a fixed list, nobody does.
  virtual Result<std::vector<Present>> present() = 0;
  // Returns when the map may be another than that of `version`, or after `at_most_ns`.
  virtual void wait_for_change(std::uint64_t version, base::Nanos at_most_ns) = 0;
};

// Changes the map, on the newest one, and says what it is then. Nothing is written if nothing is to change.
// Errors: those of `how`; changed (others change it all the time); as read_map and write_map.
Result<Versioned> change_map(Coordinator& coordinator,
                             const std::function<Result<fabric::ClusterMap>(const fabric::ClusterMap&)>& how);

// What names a coordinator, as everybody may read it: what stands before the last '@' is left out.
std::string without_password(std::string_view where);

}  // namespace loch::cluster
