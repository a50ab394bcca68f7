// What the tests of a cluster share: a store on hosts a, b and c with a lochd each, and workers there and on
// others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/hosts.h"
#include "lab/lochds.h"
#include "tests/store_processes.h"

namespace loch::tests {

// Hosts of the network. The first three are the cluster at first; the others have no lochd unless it is
// started there.
enum Host : std::uint8_t { a, b, c, d, e };
inline constexpr std::size_t hosts_of_network = 5;
inline constexpr std::size_t hosts_of_cluster = 3;

// After so long a host takes a client that says nothing for dead.
inline constexpr milliseconds silence{2'000};
// So long that the hosts take whoever they do not hear for dead.
inline constexpr milliseconds beyond_silence = silence + milliseconds(1'500);
// For one operation of a worker. Where its session was broken off, the first call after that also has as long
// to find out, and to get another session; and a busy machine adds to it.
inline constexpr milliseconds worker_timeout{2'000};
inline constexpr milliseconds worker_time_max = 3 * worker_timeout + milliseconds(1'000);

class ClusterProcesses : public StoreProcesses {
 protected:
  // By which the hosts know of each other (lochd.toml); empty: a list in a file. Asked once there is a
  // network.
  virtual std::string coordinator() { return ""; }

  void SetUp() override;
  void TearDown() override;
  Result<Store> open_store(const Options& options) override;

  void start_lochd(Host host, std::vector<std::string> environment = {});
  void kill_lochd(Host host);
  // As systemd does it: it has to end well, and soon.
  void end_lochd(Host host);
  // It answers nobody, and its connections stand; returns once it is so. Then it goes on where it was.
  void stop_lochd(Host host);
  void continue_lochd(Host host);
  // Waits until it was stopped, or killed, by its own hand (base/fault.h).
  void await_own_stop(Host host);
  void await_own_kill(Host host);
  // Waits until its lochd goes by that epoch of the cluster's map, or a later one.
  void await_epoch(Host host, std::uint64_t epoch);
  // Of a host whose lochd is not running.
  void lose_memory(Host host);

  // One that may be cut off, and lets others have the processors now and then.
  [[nodiscard]] WorkerSpec spec() const;
  // The same for one that is killed or stopped, which is to be in the midst of something then.
  [[nodiscard]] WorkerSpec busy_spec() const;
  Worker start_on(Host host, const WorkerSpec& spec);
  // One on each host of the cluster and on one that has no lochd, each at work with another mix, and putting
  // its items elsewhere.
  struct Placed {
    Host host;
    Worker worker;
  };
  std::vector<Placed> start_crew();
  // Keys that are written before that, and by nobody later: those that are there, with their values.
  static constexpr std::uint64_t quiet_keys = 60;
  using Items = std::map<std::string, std::string>;
  Items quiet_items();

  // Not waiting for anything: what is broken is to stay so for a time, while the others go on.
  static void for_a_while(milliseconds time);
  // What is done to the network, or to hosts, must be done.
  static void must(const Result<void>& done) { ASSERT_TRUE(done.has_value()) << done.error().message(); }
  [[nodiscard]] const lab::Hosts& hosts() const { return *hosts_; }

  // Waits until those of the crew on these hosts have answers about all keys, from now on.
  static void await_answers_on(const std::vector<Placed>& crew, std::initializer_list<Host> hosts);
  // Waits until those have noticed that something was wrong, since then.
  static void await_trouble_on(const std::vector<Placed>& crew, std::initializer_list<Host> hosts,
                               std::uint64_t since_ns);
  // Waits until some of the quiet keys are there, and of the others nobody can say so. Those that are need
  // nothing that is out of reach.
  Items expect_some_quiet_out_of_reach();
  // What was within reach when a host was lost is still there, and something else is not.
  void expect_lost_all_but(const Items& within_reach);
  // Waits until all of the store is there again, and all of the crew have answers about all keys.
  void await_recovery(const std::vector<Placed>& crew);
  // They end well, and none of their operations took longer than it may. Those that were stopped meanwhile
  // are finished apart.
  std::map<Host, WorkerReport> finish_all(std::vector<Placed>& crew, milliseconds at_most = worker_time_max);
  // Once all workers have ended: everything is right, and the memory comes back.
  void expect_in_order();

 private:
  std::optional<lab::Hosts> hosts_;
  std::optional<lab::Lochds> lochds_;
};

}  // namespace loch::tests
