// Member: this host's part in a cluster: the map, which node of it the host is, and its parts of the stores.
//
// Where the map may change, a host is there by its name also before it has a number: it waits until somebody
// adds it (`loch cluster add`), and has no part of any store until then, nor after it was removed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "fabric/fabric.h"
#include "fabric/host.h"
#include "net/proof.h"
#include "server/config.h"

namespace loch::server {

class Member {
 public:
  struct Options {
    Config::Cluster cluster;
    net::HostPort at;                                                    // where others find this host
    std::vector<Config::Store> stores;                                   // those of the cluster
    fabric::Access here;                                                 // where its parts are
    net::Secret key = net::no_key();                                     // the cluster's
    std::function<void(fabric::Host::Level, const std::string&)> log{};  // what becomes of it
  };
  // Whether a fixed list of hosts can be read and has this one; a list that may change is not asked for.
  // Errors: those of the coordinator; invalid_argument.
  static Result<void> check_list(const Config::Cluster& own);
  // The cluster's stores of a configuration, and so on. Errors: those of the key file.
  static Result<Options> options_of(const Config& config, const fabric::Access& here);

  // Says that this host is there, reads the map and makes the parts. Errors: those of the coordinator;
  // invalid_argument, if a fixed list has no such node; as fabric::create.
  static Result<std::unique_ptr<Member>> join(Options options,
                                              std::unique_ptr<cluster::Coordinator> coordinator);
  static Result<std::unique_ptr<Member>> join(Options options);

  // The map as this host goes by it.
  struct State {
    cluster::Versioned map;
    std::optional<std::uint32_t> node;  // nothing: it is not in the map
    fabric::NodeSet drained = 0;        // also those that have gone since

    [[nodiscard]] const fabric::ClusterMap::Node& self() const { return map.map.nodes[*node]; }
  };
  // Any thread.
  [[nodiscard]] State now() const;

  // Goes by this map from now on: makes what it says is here, and has clients learn of it. Nobody has a
  // session here of another node than the map says this host is. Errors: those of the parts; then it goes by
  // the one before. One thread.
  Result<void> adopt(const cluster::Versioned& map);

  // Has shards that were about to leave stay for now. The thread that moves them.
  Result<void> reopen_what_leaves() const;

  // What Host and Keeper want to know of a store; nothing of those that are of this host alone. Errors:
  // unavailable, while this host is not in the cluster. Any thread.
  [[nodiscard]] Result<std::optional<fabric::Host::Options::Cluster>> cluster_of(
      const std::string& store) const;
  [[nodiscard]] std::optional<std::uint32_t> node_of(const std::string& store) const;

  [[nodiscard]] std::vector<std::string> stores() const;
  [[nodiscard]] cluster::Coordinator& coordinator() const { return *coordinator_; }
  [[nodiscard]] const Options& options() const { return options_; }
  void log(fabric::Host::Level level, const std::string& text) const {
    if (options_.log) options_.log(level, text);
  }

 private:
  Member(Options options, std::unique_ptr<cluster::Coordinator> coordinator)
      : options_(std::move(options)), coordinator_(std::move(coordinator)) {}
  [[nodiscard]] bool is_of_cluster(const std::string& store) const;
  // What the map says of this host now, if that is not what it said before.
  void log_change(const State& before) const;
  // Makes this host's part of a store, unless it is there.
  Result<void> make_part(const Config::Store& store, const fabric::ClusterMap& map, std::uint32_t node) const;
  // Removes a part that means nothing any more, and says whether there was one: of an earlier boot, in a
  // directory that outlives it, which has lost its memory as others do; or of a node that the cluster has
  // removed since. Errors: unavailable (a later map has been gone by here); as fabric::destroy.
  [[nodiscard]] Result<bool> clear_void_part(const Config::Store& store, const fabric::ClusterMap& map,
                                             std::uint32_t node) const;
  [[nodiscard]] Result<bool> was_removed(const Config::Store& store, const fabric::ClusterMap& map,
                                         const std::shared_ptr<fabric::Fabric>& here,
                                         std::uint32_t node) const;
  // Has it say and be what the map says.
  Result<void> tend_part(const Config::Store& store, const fabric::ClusterMap& map, std::uint32_t node) const;

  const Options options_;
  const std::unique_ptr<cluster::Coordinator> coordinator_;
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace loch::server
