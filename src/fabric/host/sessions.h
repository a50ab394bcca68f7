// Sessions: those that clients on other hosts have here, and how they end. A session's client numbers are let
// go of when nothing that it posted can happen any more: here, since the agent and the lender have broken it
// off, and on the other hosts of its cluster, since they have told the fencer so.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/host.h"
#include "fabric/host/fencer.h"
#include "fabric/tcp/agent.h"
#include "fabric/verbs/lender.h"
#include "fabric/words.h"
#include "net/credentials.h"
#include "net/stream.h"

namespace loch::fabric::host {

// A store of this host, as the process at the other end of a link has opened it.
struct OpenedStore {
  std::string name;
  bool reads_only = false;
  bool by_read_key = false;  // who opened it knows the key for reading alone
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Port> way;  // for presence
  std::byte* time = nullptr;  // Host::Options::time_of
  std::optional<Host::Options::Cluster> cluster;

  void raise_time() const {
    if (time != nullptr) raise_word(time, fabric->clock().now());
  }
};

class Sessions {
 public:
  using Id = tcp::Agent::Id;
  // How often the time of a store is raised that is lent over RDMA.
  static constexpr base::Nanos tick_ns = 200 * base::millisecond_ns;

  // `lender` may be null. `wake` has the host's thread call `look` soon; any thread may call it. The other
  // hosts of its clusters are shown `credentials`.
  Sessions(const Host::Options& options, verbs::Lender* lender, std::function<void()> wake,
           std::shared_ptr<net::ClientCredentials> credentials);
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // ---- for the host's thread

  // A session of a link begins: the agent gets its data connection. `name` is what all hosts of its cluster
  // know it by; else empty.
  void begin(Id id, Id link, std::shared_ptr<OpenedStore> store, std::string name,
             std::unique_ptr<net::Stream> stream);
  // It gets a queue pair: what goes over that passes the agent by.
  void note_queue_pair(Id id);
  [[nodiscard]] bool has(Id link, Id id) const;
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  [[nodiscard]] std::size_t size_by_read_key() const;
  // Of which store it is; null if there is no such session.
  [[nodiscard]] OpenedStore* store_of(Id id) const {
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second.store.get();
  }

  // Whether it has the number now. `reached`: the nodes of its cluster that it has a way to. Errors: those of
  // the fabric, permission, no_space (those who may only read have all that they may).
  Result<bool> claim(Id id, std::uint32_t client, NodeSet reached);
  void release(Id id, std::uint32_t client);

  enum class End : std::uint8_t {
    leaves,        // as it wants; nothing that it posted anywhere is under way
    is_dead,       // or is taken for dead: what it posted to other hosts may be under way still
    is_sent_away,  // likewise, but it lives, and may begin anew
  };
  void end(Id id, End how);
  void end_those_of(Id link);
  // As another host wants, which takes it for dead.
  void fence(const std::string& name);
  // Those that this host had before it was started, of a store that is opened: which it may not be unless
  // that has succeeded once. Errors: those of the fabric; unavailable, while the lochd that had them is
  // there.
  Result<void> end_those_of_before(const std::shared_ptr<OpenedStore>& store);
  // Ends those that are gone, silent, idle for too long, of a paused store, of one that was removed or of one
  // whose memory is not here any more, lets go of what is fenced everywhere, and raises the time of stores
  // that are lent over RDMA.
  // When woken, and when `look_in`, in nanoseconds, has passed; nothing: when woken alone.
  void look();
  [[nodiscard]] std::optional<base::Nanos> look_in() const;
  // The host ends. What sessions of a cluster held is noted, and is seen to when it is back.
  void stop() { stopping_ = true; }

  // The cluster of the store, as it is now; null if it is of none.
  const Host::Options::Cluster* cluster_of(OpenedStore& store) const;

  // ---- for any thread; see Host
  Result<Host::Pause> pause(const std::string& store);
  [[nodiscard]] bool is_paused(const std::string& store) const;
  void end_idle(const std::string& store, base::Nanos longer_than_ns);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t fenced() const { return fenced_; }
  [[nodiscard]] tcp::Agent::Counts agent_counts() const { return agent_.counts(); }

 private:
  struct Session {
    Id link = 0;
    std::shared_ptr<OpenedStore> store;
    bool reads_only = false;      // for all that is known
    std::string name;             // of a cluster
    NodeSet reached = all_nodes;  // of it
    bool has_pair = false;
    std::set<std::uint32_t> clients{};  // whose presence it holds
  };
  // Ends those of which `is_meant(id, session)` is true; how many there were.
  template <class IsMeant>
  std::size_t end_where(IsMeant is_meant, End how);
  [[nodiscard]] std::size_t numbers_by_read_key(const std::string& store) const;
  void let_go(const Session& session, std::uint32_t client);
  void condemn(Session session);
  void pardon(Fencer::Id condemned);
  [[nodiscard]] bool is_condemned(const std::string& store, std::uint32_t client) const;
  void resume(const std::string& store);
  void keep_time();
  [[nodiscard]] base::Nanos look_every_ns() const {
    return std::min(base::second_ns, options_.silence_max_ns / 4);
  }
  void look_closely();
  void end_silent_for(base::Nanos longest_ns, const std::string& store, End how);
  void end_idle_now();
  void end_those_of_paused_stores();
  void end_those_of_lost_stores();
  void end_those_of_removed_stores();
  [[nodiscard]] std::optional<remote::Target> find(const Fencer::Other& other) const;
  void note(std::vector<Id>* list, Id id);

  const Host::Options& options_;
  verbs::Lender* const lender_;
  const std::function<void()> wake_;
  const std::shared_ptr<net::ClientCredentials> credentials_;

  mutable std::mutex mutex_;
  std::vector<Id> gone_;               // whose connection ended
  std::vector<Id> fenced_everywhere_;  // of those that are condemned
  struct Paused {
    unsigned pauses = 0;
    bool is_still = false;  // its sessions have ended
  };
  std::map<std::string, Paused> paused_;  // stores
  std::condition_variable paused_changed_;
  std::map<std::string, base::Nanos> idle_max_ns_;  // stores; for how long sessions may have been silent
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<std::uint64_t> fenced_ = 0;

  // Of the host's thread.
  std::map<Id, Session> sessions_;
  // Of clusters, those that have ended here and may not have on other hosts: their presence is held until
  // they have.
  std::map<Fencer::Id, Session> condemned_;
  Fencer::Id next_condemned_ = 1;
  std::set<std::string> looked_for_those_of_before_;  // stores
  std::size_t pairs_ = 0;                             // sessions that have queue pairs
  // By remote::precise_now.
  base::Nanos kept_time_ns_ = 0;
  base::Nanos looked_closely_ns_ = 0;
  bool stopping_ = false;

  tcp::Agent agent_;
  std::unique_ptr<Fencer> fencer_;  // null: the host is of no cluster
};

}  // namespace loch::fabric::host
