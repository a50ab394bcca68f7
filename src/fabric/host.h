// Host: lends the stores of this host to clients on others. What lochd is made of, besides its configuration
// and its logs.
//
// It listens for connections (remote/protocol.h). Whoever proves that he knows the key may open a store, and
// then begin sessions, whose operations the agent (tcp/agent.h) carries out. A session's presence ends when
// its connections do, when its host does not answer any more, or when it has been silent for too long; the
// agent has broken off its connection by then, so that nothing it posted happens any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/cluster_map.h"
#include "fabric/readers.h"

namespace loch::fabric {

class Host {
 public:
  enum class Level : std::uint8_t { debug, info, warning };

  struct Options {
    std::vector<net::HostPort> listen{};
    std::string key_file{};        // empty, without a cookie: everybody may open every store, and change it
    std::string other_key_file{};  // whoever knows this one may do the same; there need not be such a file
    std::string read_key_file{};   // whoever knows this one may only read; empty: there is no such key
    // Without a key_file, those alone are let in who know this user's cookie there (net/cookie.h), which is
    // made if need be; empty: there is none.
    std::string cookie_directory{};
    net::TlsFiles tls{};  // with a certificate: inside TLS
    bool verbs = false;   // over RDMA too, at the same addresses and ports
    // Finds a store by its name, mapped here. Called by the host's thread.
    std::function<Result<std::shared_ptr<Fabric>>(const std::string& store)> open_store{};
    // The cluster that a store is of, and which node of it this host is; of none, if there is no such
    // function or it says nothing; it may say something else later. An error refuses whoever would open the
    // store. Any thread of the host calls it.
    struct Cluster {
      ClusterMap map;
      std::uint32_t node = 0;
    };
    std::function<Result<std::optional<Cluster>>(const std::string& store)> cluster_of{};
    // For how many bytes of index and items a store was created; 0, as without this function: for any number.
    // Called by the host's thread.
    std::function<std::uint64_t(const Fabric& store)> bytes_max{};
    // Where the store keeps the time by which sessions on other hosts go (memory/session.h), as long as the
    // store is held: the host raises that word to its clock before each operation over a data connection, and
    // over RDMA five times a second. Null, as without this function: it keeps none. Called by the host's
    // thread.
    std::function<std::byte*(Fabric& store)> time_of{};
    // Called by the host's thread. Without them, read-only sessions are refused.
    Readers readers{};
    // How long a session may be silent before others stop waiting for it.
    base::Nanos silence_max_ns = 10 * base::second_ns;
    std::size_t connections_max = 4'096;
    std::function<void(Level, const std::string&)> log{};
  };

  struct Counts {
    std::uint64_t clients = 0;   // processes with a store open now
    std::uint64_t sessions = 0;  // of theirs
    std::uint64_t refused = 0;   // that did not know the key, or spoke something else
    std::uint64_t fenced = 0;    // sessions that were taken for dead: silent, or gone without a word
    std::uint64_t reads = 0;     // of the agent: one-sided operations
    std::uint64_t writes = 0;
    std::uint64_t atomics = 0;
    std::uint64_t bad_addresses = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::uint64_t sends = 0;
  };

  // The host outlives it.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(std::function<void()> end) : end_(std::move(end)) {}
    ~Pause() {
      if (end_) end_();
    }
    Pause(Pause&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
    Pause& operator=(Pause&&) = delete;
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    std::function<void()> end_;
  };

  // Listens. Errors: invalid_argument, io, permission (addresses, key, cookie and certificates), corrupt (the
  // cookie), unavailable (no RDMA device, no thread, no descriptor).
  static Result<std::unique_ptr<Host>> start(Options options);
  // Breaks off all sessions.
  virtual ~Host() = default;

  // Those that it listens at, in the order of the options.
  [[nodiscard]] virtual std::vector<std::uint16_t> ports() const = 0;
  // Any thread.
  [[nodiscard]] virtual Counts counts() const = 0;
  // Ends all sessions of a store of a cluster, and lets none begin as long as it is there; when it returns,
  // nothing that they posted here happens any more. Several may pause a store at the same time. Any thread
  // but the host's. Errors: timed_out.
  virtual Result<Pause> pause(const std::string& store) = 0;
  // Ends the sessions of a store of a cluster that were silent for longer than this, soon. Any thread.
  virtual void end_idle(const std::string& store, base::Nanos longer_than_ns) = 0;
  // Reads the key and the certificates again; those who are connected stay. Errors: as start; then the old
  // ones are kept.
  virtual Result<void> reload() = 0;
};

}  // namespace loch::fabric
