// Daemon: what lochd is made of, but for its command line, its signals and where it logs to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "fabric/host.h"
#include "server/config.h"
#include "server/keeper.h"
#include "server/member.h"
#include "server/metrics.h"
#include "server/neighbours.h"
#include "server/rebalancer.h"

namespace loch::server {

class Daemon {
 public:
  struct Options {
    std::function<void(fabric::Host::Level, const std::string&)> log{};
    // Of tests.
    std::unique_ptr<cluster::Coordinator> coordinator{};  // instead of the one that is named
    bool sees_its_neighbours = true;
    std::uint64_t bytes_together = Rebalancer::usual_bytes_together;
  };
  // Makes the stores, joins the cluster if there is one, and lends. Errors: those of Store::create,
  // Member::join, Host::start and Metrics::start; unavailable, if there is no thread for it.
  static Result<std::unique_ptr<Daemon>> start(Config config, Options options);
  ~Daemon() = default;
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Reads keys and certificates again, and makes the stores of this host that are new in the configuration.
  // Those that can not be made are logged. Errors: those of Host::reload; nothing has changed then.
  Result<void> reload(const Config& now);

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Member& member() const { return *member_; }  // of one that is in a cluster
  [[nodiscard]] fabric::Host& host() { return *host_; }

 private:
  using Log = std::function<void(fabric::Host::Level, const std::string&)>;
  Daemon(Config config, Log log) : config_(std::move(config)), log_(std::move(log)) {}
  // Throws std::system_error where the kernel has no thread left.
  Result<void> begin(Options& options);
  [[nodiscard]] fabric::Access here() const;
  // To a store that lochd makes itself, or would have.
  [[nodiscard]] fabric::Access own() const;
  // Returns why those that could not be made were not.
  [[nodiscard]] std::vector<Error> make_stores(const Config& config) const;
  Result<void> join(Options& options);
  Result<void> lend(const Options& options);
  // Those that the configuration allows, as far as there are descriptors for them.
  [[nodiscard]] std::size_t connections_max() const;
  // Those of the configuration are told of, whether or not a client has them open, and are to be lochd's own.
  void expect_stores(const Config& config);

  // Each uses what stands before it.
  const Config config_;
  const Log log_;
  std::unique_ptr<Member> member_;  // null: of no cluster
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<fabric::Host> host_;
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<Rebalancer> rebalancer_;
  std::unique_ptr<Metrics> metrics_;
};

}  // namespace loch::server
