// Link: the control connection of one process to the Host of another machine, for one store. When it ends,
// the host takes all of the process's sessions of that store for dead. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "fabric/fabric.h"
#include "fabric/remote/protocol.h"
#include "net/credentials.h"
#include "net/message.h"

namespace loch::fabric::remote {

// Where a store is, and what it takes to get there.
struct Target {
  std::string scheme;  // of the fabric: "verbs" or "tcp"
  net::HostPort host;
  std::string store;
  bool read_only = false;
  std::string source{};                                   // the address to go from; empty: as the routes say
  std::shared_ptr<net::ClientCredentials> credentials{};  // null: neither a key nor certificates
  std::string node{};  // what its cluster calls the host; for `fence` alone

  [[nodiscard]] std::string text() const;  // "verbs://host:port/store"
};

class Link {
 public:
  // Errors: unavailable, timed_out, permission (another key, a certificate), incompatible (another protocol),
  // not_found (no such store there), those of the store.
  static Result<std::shared_ptr<Link>> open(const Target& target, base::Nanos within_ns = greeting_max_ns);

  // A data connection, to the address that the link has; `port` is what the host calls it. Errors: as open;
  // unavailable if the host has ended the link, too, and then it is not alive, or has no room for it now;
  // moved if the host takes none for a moment (Host::pause).
  struct Joined {
    std::unique_ptr<net::Stream> stream;
    std::uint64_t port = 0;
  };
  // `session` is what all hosts of a cluster know the session by; empty if it has one host.
  Result<Joined> join(const std::string& session);

  // Asks, and waits for the answer. Errors: what the host answers; unavailable, timed_out, after which the
  // link is of no more use.
  Result<net::Message> ask(const net::Message& message);
  // The same, waiting until then at most, also for others who ask. What was not answered in time may happen
  // still, and the link is of use until the host has been silent for as long as an answer may take.
  // `if_late`: what is said behind it then, if there is anything, so that it does not go on unknown.
  Result<net::Message> ask(const net::Message& message, base::Nanos deadline,
                           const net::Message* if_late = nullptr);
  // Says what needs no answer, though it gets one. False if it could not be said until then.
  bool say(const net::Message& message, base::Nanos deadline);
  // One that another thread asks right now is taken for alive, since it may be waited for.
  [[nodiscard]] bool is_alive();
  // Says what is not answered, and may be lost.
  void tell(const net::Message& message);
  // Of the store.
  [[nodiscard]] Atomics atomics() const { return atomics_; }
  // Whether the host lets this client read, and no more.
  [[nodiscard]] bool read_only() const { return read_only_; }
  // What the host says of the cluster that the store is of; null if it is of none.
  [[nodiscard]] const net::Message& cluster() const { return cluster_; }
  // Which node of it the host is.
  [[nodiscard]] std::uint64_t node() const { return node_; }

 private:
  explicit Link(Target target);
  friend Result<void> fence(const Target& target, const std::string& session, base::Nanos deadline);
  struct Greeting {
    net::Credentials shown;  // as they were when it began
    std::unique_ptr<net::Messages> messages;
    std::string mine;  // the nonces
    std::string theirs;
    std::string at;                    // the host's end of the connection
    std::optional<uid_t> cookie_of{};  // whose cookie the host, which is this one, asks for
  };
  Result<Greeting> greet(base::Nanos deadline) const;
  // What the host is to be shown: the key of this client, or if it has none, the cookie.
  [[nodiscard]] Result<net::Secret> key_for(const Greeting& greeting) const;
  // Waits until then at most for others who ask.
  std::unique_lock<std::timed_mutex> await_turn(base::Nanos deadline);
  Result<net::Message> ask_now(const net::Message& message, base::Nanos within_ns,
                               const net::Message* if_late = nullptr);
  bool say_now(const net::Message& message);
  [[nodiscard]] Error explained(Error error, const char* step) const;

  const Target target_;
  net::HostPort at_;  // once it is open: of the addresses of its host, the one that it has
  Atomics atomics_ = Atomics::processor;
  bool read_only_ = false;
  net::Message cluster_;
  std::uint64_t node_ = 0;
  std::timed_mutex mutex_;
  std::unique_ptr<net::Messages> messages_;  // null: it has ended
  std::size_t owed_ = 0;                     // answers that are to come; all but the last come too late
  base::Nanos silent_since_ns_ = 0;          // while there are any
  std::string id_;
  net::Secret secret_{};
};

// Has a host end all that a session of a cluster still has there; it has ended when the host, and nobody in
// its place, has said so. Errors: those of a greeting; permission, if whoever answers does not know the key;
// not_found, if it is another host.
Result<void> fence(const Target& target, const std::string& session, base::Nanos deadline);

}  // namespace loch::fabric::remote
