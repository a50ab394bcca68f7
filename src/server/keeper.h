// Keeper: opens the stores of this host for the Host, and says what the Host, which knows nothing of keys and
// values, has to know of them: such as where they keep the time by which clients on other hosts go
// (docs/memory.md, "Remote sessions"), and which stands still where nobody raises it.
//
// It has no session. Of what the store's clients change, the Host changes the latest time alone, which no
// client on another host does, and the Keeper what it says for those that may only read (memory/readers.h).
// So they may do this by the processor's atomics, whosever those of the store are.
//
// Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <loch/stats.h>

#include "fabric/endpoint.h"
#include "fabric/readers.h"
#include "memory/control.h"
#include "memory/usage.h"

namespace loch::server {

class Keeper {
 public:
  // Of a store that is a node of a cluster, `node_of` says which one it is.
  using NodeOf = std::function<std::optional<std::uint32_t>(const std::string& store)>;
  explicit Keeper(fabric::Access access, NodeOf node_of = {});
  ~Keeper() = default;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // The store `name` of the directory that `access` names; it is kept for as long as the pointer is held.
  // Errors: not_found, permission, incompatible, corrupt, io.
  Result<std::shared_ptr<fabric::Fabric>> open(const std::string& name);

  // For how many bytes a store was created that was opened here; 0: for any number.
  std::uint64_t bytes_max(const fabric::Fabric& store);

  // Host::Options::time_of, of stores that were opened here.
  std::byte* time_of(const fabric::Fabric& store);

  // fabric::Readers, of stores that were opened here.
  Result<std::optional<fabric::OwnWords>> admit_reader(fabric::Fabric& store, std::uint32_t client);
  void dismiss_reader(fabric::Fabric& store, std::uint32_t client);
  [[nodiscard]] fabric::Readers readers();

  struct Seen {
    // What all its clients have counted since it was made. No value is ever less than one that was told
    // before, also while a session ends, whose counts are added to the store's before they are taken from its
    // own.
    Stats totals;
    memory::Usage usage;
    std::uint64_t bytes_max = 0;  // 0: no limit
  };
  // Of the stores that are open, and of those that are expected.
  std::map<std::string, Seen> seen();
  struct Expected {
    std::string name;
    bool may_be_of_others = false;  // made by whomever (Access::not_of_others)
  };
  // Those are also seen while no client has them open, if they are there; and opened if they are what lochd
  // itself would have made.
  void expect(std::vector<Expected> stores);
  [[nodiscard]] std::uint64_t count();

 private:
  // The hash seed, and of a part of a cluster's store its incarnation: no other store has both.
  using Identity = std::pair<std::uint64_t, std::uint64_t>;
  struct Kept {
    std::shared_ptr<fabric::Fabric> fabric;
    fabric::RegionId region = 0;
    std::uint64_t bytes_max = 0;
    Identity identity{};
    fabric::Endpoint endpoint{fabric, fabric->connect()};
    memory::Control control{endpoint, region};
  };
  struct Told {
    Identity of{};
    Stats totals{};
  };

  std::vector<std::shared_ptr<fabric::Fabric>> open_expected();
  [[nodiscard]] fabric::Access access_to(const std::string& name);
  // Under the mutex. Null if it is not open here, is damaged, or another store has its name by now.
  [[nodiscard]] std::shared_ptr<Kept> usable(const std::string& name) const;
  // Null if it is not open here.
  std::shared_ptr<Kept> kept(const fabric::Fabric& store);

  const fabric::Access access_;
  const NodeOf node_of_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Kept>> kept_;
  std::vector<Expected> expected_;
  std::map<std::string, Told> told_;  // of those that were seen last
};

}  // namespace loch::server
