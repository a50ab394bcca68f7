// ClusterFabric: the way of one process to a store that is on several hosts.
//
// The map of the store's regions comes from the hosts, and is that of the latest epoch that one of them
// tells: a host may not have learned yet what has become of it, but of one epoch all say the same. A session
// goes to all of them that can be reached when it begins, and each host knows it by the same name, so that
// one that takes it for dead has the others end it, too (host/fencer.h). What is on a host that it did not
// reach is unavailable to it, and is known to be so at once; a host that is lost later ends the session. One
// that answers and refuses, for whatever reason, is not reached either: what is wrong with one host is not to
// keep anybody from the others.
//
// A host that could not be reached is looked for by a thread of its own, so that nobody who wants something
// of another waits for it. One of the others is asked for the map meanwhile: it may have gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/cluster_map.h"
#include "fabric/remote/remote_fabric.h"

namespace loch::fabric::cluster {

class ClusterFabric final : public Fabric {
 public:
  // `first` is the way to one of the hosts, and `map` is what it says. Errors: incompatible, if hosts that
  // answer do not agree, also on whether this client may only read; if none is reached, those of the first.
  static Result<std::shared_ptr<ClusterFabric>> attach(const remote::Target& first, ClusterMap map);

  std::unique_ptr<Port> connect() override;
  Result<void> extend(RegionId region, std::uint64_t length_bytes) override;
  [[nodiscard]] Atomics atomics() const override { return atomics_; }
  [[nodiscard]] bool read_only() const override { return read_only_; }
  [[nodiscard]] bool is_published() const override { return true; }
  [[nodiscard]] std::string location() const override { return location_; }
  [[nodiscard]] std::uint64_t free_bytes() const override;
  [[nodiscard]] std::uint64_t huge_page_bytes() const override { return 0; }
  [[nodiscard]] const ClusterMap* cluster() const override { return &map_; }
  [[nodiscard]] std::uint64_t hosts_found() const override { return found_; }
  [[nodiscard]] std::uint64_t newest_epoch() const override { return newest_epoch_; }
  ~ClusterFabric() override;
  ClusterFabric(const ClusterFabric&) = delete;
  ClusterFabric& operator=(const ClusterFabric&) = delete;

 private:
  using Host = std::shared_ptr<remote::RemoteFabric>;
  struct Node {
    remote::Target target;
    Result<Host> host;  // or why it can not be reached
  };
  ClusterFabric(ClusterMap map, const remote::Target& first);
  // What a host says of the cluster, for which it has to be one of it. Errors: as RemoteFabric::attach;
  // incompatible.
  struct Reached {
    Host host;
    ClusterMap map;
    std::uint64_t node = 0;  // that it says it is
  };
  Result<Reached> reach(std::uint32_t node) const;
  // Errors: incompatible.
  Result<void> check_agrees(std::uint32_t node, const Reached& reached) const;
  static Result<std::shared_ptr<ClusterFabric>> try_attach(const remote::Target& first, ClusterMap map,
                                                           std::optional<ClusterMap>* newer);
  // One that was lost, if a session can begin there again. Errors: as reach, check_agrees, and
  // RemoteFabric::connect.
  Result<Host> find(std::uint32_t node) const;
  // The host of a region, if it can be reached. Errors: not_found, unavailable.
  Result<Host> host_of(RegionId region) const;
  [[nodiscard]] bool is_gone(std::uint32_t node) const;
  void lose(std::uint32_t node, Error why);
  void look_for_the_lost();
  void ask_for_map(remote::RemoteFabric& host);

  const ClusterMap map_;
  const std::string location_;
  const bool read_only_;
  Atomics atomics_ = Atomics::processor;
  std::atomic<std::uint64_t> found_ = 0;
  std::atomic<std::uint64_t> newest_epoch_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Node> nodes_;
  std::atomic<bool> stop_ = false;  // changed under the lock
  std::thread scout_;               // asleep while no host is lost
};

}  // namespace loch::fabric::cluster
