// Lender: the host's end of the queue pairs of clients on other hosts. It registers the memory of stores with
// the devices that the clients come in by, piece by piece as they ask for it, takes their messages
// (ExtendSoon, rdma.h), and breaks their queue pairs off.
//
// What was registered stays so for some seconds after the last session that used it: one that comes back, as
// after a timeout, finds it, and does not begin again. After that it is let go of piece by piece, since
// others wait for the thread meanwhile.
//
// A device gets at what its protection domain has registered, for whoever has a queue pair of that domain;
// so a queue pair that is gone is all that a client needs to lose. And clients that may only read have a
// domain of their own, in which nothing is registered that could be changed.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "fabric/fabric.h"
#include "fabric/verbs/connection_end.h"
#include "fabric/verbs/keys.h"
#include "fabric/verbs/rdma.h"
#include "net/socket.h"

namespace loch::fabric::verbs {

class Lender {
 public:
  using SessionId = std::uint64_t;

  // Listens at these addresses, at those ports. Errors: unavailable (no device, or none with that address),
  // io, permission.
  static Result<std::unique_ptr<Lender>> start(const std::vector<net::HostPort>& at);
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  ~Lender();

  // Readable when there is something to serve.
  [[nodiscard]] int descriptor() const { return ready_.get(); }
  struct Served {
    std::vector<std::pair<SessionId, ExtendSoon>> foreseen{};
    std::vector<SessionId> ended{};       // whose queue pair the client, or the device, has ended
    std::vector<std::string> refusals{};  // why somebody was turned away, for the log
    // Addresses whose device is gone, so that nobody can come there, and those of them that have one again.
    std::vector<std::string> lost{};
    std::vector<std::string> found_again{};
  };
  Served serve();

  // Waits for the queue pair of a session, which is to show this token.
  struct Offer {
    std::string token;
    bool device_changes = false;  // else the device only reads `memory`
  };
  Offer expect(SessionId session, std::shared_ptr<Fabric> memory, bool reads_only);
  // This end of a session's queue pair. Errors: unavailable (it has none), io.
  [[nodiscard]] Result<ConnectionEnd> end_of(SessionId session) const;
  // When it returns, nothing that was posted over the session's queue pair happens any more. What was lent to
  // it rests.
  void remove(SessionId session);

  // The memory around `offset_bytes` of `region` that the device of a session's queue pair may get at.
  // Errors: not_found (the region does not go as far), unavailable (the session has no queue pair), no_space
  // (of what may be locked), io.
  Result<Keys::Key> key(SessionId session, RegionId region, std::uint64_t offset_bytes);

 private:
  struct Device;
  struct Lent;
  struct Session;
  struct Resting;
  struct Listener {
    net::HostPort at;
    net::SocketAddress address;
    Id id{};  // null: the device with that address is gone
  };

  Lender() = default;
  Result<void> watch(int descriptor) const;
  // Errors: unavailable, io.
  Result<void> listen(Listener& listener) const;
  void serve_events(Served* served);
  void lose(Listener& listener, Served* served);
  void lose_devices(const ibv_context* context);
  // When it is time to.
  void listen_again(Served* served);
  void let_go();
  static void take_messages(SessionId id, const Session& session, Served* served);
  // What a client says when it comes.
  struct Shown {
    std::string token;
    std::uint8_t depth = 0;  // how many READs and atomics it would have under way (granted_depth)
  };
  // Errors: why the client is turned away.
  Result<void> take_request(Id id, const Shown& shown);
  // Errors: unavailable.
  [[nodiscard]] Result<const Session*> connected(SessionId session) const;
  [[nodiscard]] bool may_use(const Device& device, const Session& session) const;
  // That of a connection. Errors: io.
  Result<std::shared_ptr<Device>> device_of(rdma_cm_id& id, bool changes);

  base::FileDescriptor ready_;  // of epoll: the channels of the events and of the devices, and the timers
  base::FileDescriptor listening_timer_;   // each second, as long as a listener is lost
  base::FileDescriptor letting_go_timer_;  // as long as something rests
  EventChannel events_;
  std::vector<Listener> listeners_;
  std::map<std::pair<ibv_context*, bool>, std::weak_ptr<Device>> devices_;  // whether they change anything
  std::map<SessionId, Session> sessions_;
  std::list<Resting> resting_;  // in the order in which they came
};

}  // namespace loch::fabric::verbs
