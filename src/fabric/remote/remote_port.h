// RemotePort: a port to another host, of which somebody may have several and wait for all of them at once.
// What all of them have in common, whatever network they go by: what is under way, and how that ends when
// the port does.
#pragma once

#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/cluster_map.h"
#include "fabric/fabric.h"
#include "fabric/remote/flights.h"
#include "fabric/remote/wait.h"

namespace loch::fabric::remote {

// Why a port is over that was broken off.
inline Error broken_off() {
  return {.code = Errc::unavailable, .detail = "the session was broken off by this client"};
}

class RemotePort : public Port {
 public:
  // `location` is of the store, for errors.
  explicit RemotePort(std::string location) : flights_(std::move(location)) {}

  void poll(base::Nanos wait_ns) final;

  // Makes progress without waiting; whether anything has ended, or the port has.
  virtual bool progress() = 0;
  // Whether nothing is under way that is waited for.
  [[nodiscard]] virtual bool is_idle() const = 0;
  // Adds what to wait for until there is progress to make; false if there is some already.
  virtual bool await(std::vector<pollfd>& waits) = 0;
  // What has come of the last waits that `await` added.
  virtual void awoken(std::span<const pollfd> /*waits*/) {}

  // Why it is over, if it is: nothing is posted any more.
  [[nodiscard]] virtual const std::optional<Error>& severed() const { return severed_; }
  [[nodiscard]] bool is_severed() const { return severed().has_value(); }
  // Of a session that has failed on another way: the host is to take it for dead, though it leaves.
  virtual void abandon() = 0;
  // Of a session of a cluster: the nodes that it reaches, a bit each, for the hosts that give it a client
  // number. Unless told, any.
  virtual void tell_reached(NodeSet nodes) = 0;
  // Lets the host see that the session is alive, at every sign_every_ns at most (protocol.h), by a read of
  // nothing in this region of it. It ends the port if it is not answered and nothing else comes or goes
  // either (sign_answer_max_ns).
  virtual void give_sign(RegionId region) = 0;

 protected:
  // The port is over: all that is under way ends with `why`, and so does what will be posted.
  void end_flights(const Error& why);

  std::optional<Error> severed_;
  Flights flights_;

 private:
  Wakefulness wakefulness_;
};

// Lets those make progress until something has ended, for `wait_ns` at most. One thread.
void poll_all(std::span<RemotePort* const> ports, Wakefulness& wakefulness, base::Nanos wait_ns);

}  // namespace loch::fabric::remote
