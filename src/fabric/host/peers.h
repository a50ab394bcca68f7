// Peers: the connections of a host that speak messages (net/message.h): clients that greet, and links. It
// takes them on, hears what each says, in turn and without waiting for any, and turns away those who say
// nothing in time or for whom there is no room.
//
// Of the host's thread, but for what says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/host.h"
#include "fabric/host/gate.h"
#include "fabric/host/repeats.h"
#include "fabric/host/seldom.h"
#include "fabric/host/sessions.h"
#include "net/message.h"
#include "net/socket.h"

namespace loch::fabric::host {

struct Peer {
  enum class Stage : std::uint8_t { tls, greets, proves, is_linked, is_refused };

  Peer(std::unique_ptr<net::Stream> stream, base::Nanos until);
  [[nodiscard]] bool has_more_to_take() const { return stopped_early && !messages.has_unsent(); }

  std::string name;
  net::Messages messages;
  Stage stage = Stage::tls;
  base::Nanos deadline;  // until it is linked, or has taken its refusal
  Gate::Greeting greeting{};
  bool stopped_early = false;  // it may have said more, though there be nothing to read

  // Of a link.
  std::string link_name{};  // which no other has, nor one of a host that is started later
  net::Secret secret{};
  std::shared_ptr<OpenedStore> store{};
};

class Peers {
 public:
  using Id = Sessions::Id;

  // What comes of a message.
  struct Outcome {
    std::optional<net::Message> told{};
    bool goes_on = true;  // else the peer is done with
  };
  struct Calls {
    std::function<Outcome(Id, Peer&, const net::Message&)> take;
    std::function<void(Id, const Peer&)> left;  // a link
    std::function<std::size_t()> sessions;      // that are connections, too
  };

  // `options` and `gate` outlive it.
  Peers(const Host::Options& options, const Gate& gate, std::vector<net::Listener> listeners, Calls calls)
      : options_(options), gate_(gate), listeners_(std::move(listeners)), calls_(std::move(calls)) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Adds what to wait for, and says for how many nanoseconds at most; nothing: for as long as it takes.
  std::optional<base::Nanos> await(std::vector<pollfd>* waits);
  // What has come of the waits that `await` added last.
  void serve(std::span<const pollfd> waits);
  void end_all();

  // The peer has proved that it knows a key.
  void link(Id id, Peer& peer);
  // By its name, as a client says it.
  std::optional<std::pair<Id, const Peer*>> link_of(std::string_view name) const;
  [[nodiscard]] std::size_t links_by_read_key() const;
  // Of a peer or of a session, which have their numbers in common.
  Id new_id() { return next_id_++; }
  // Says why it is turned away, to the log, too, unless others from there were told the same not long ago.
  net::Message refuse(const Peer& peer, Errc code, const std::string& why);
  // Says to the log alone what a peer that knows a key can not have; likewise.
  void note(const Peer& peer, const std::string& why);

  // Those that it listens at. Any thread.
  [[nodiscard]] std::vector<std::uint16_t> ports() const;
  // How many were turned away. Any thread.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  void accept_all(const net::Listener& listener);
  // Whether there is room for one more; a stranger may have to make it.
  bool make_room();
  // False if there is none.
  bool end_oldest_stranger();
  // False if TLS has to wait.
  bool establish(Peer& peer);
  // False if the peer is done with.
  bool serve_one(Id id, Peer& peer);
  bool serve_messages(Id id, Peer& peer);
  void end(Id id);

  const Host::Options& options_;
  const Gate& gate_;
  const std::vector<net::Listener> listeners_;
  const Calls calls_;
  std::map<Id, Peer> peers_;
  std::set<Id> strangers_;  // those of them that have not proved that they know a key, the oldest first
  Id next_id_ = 1;
  std::vector<Id> awaited_;  // in the order of their waits
  base::Nanos accepts_from_ns_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  Seldom refusals_{10};
  Seldom notes_{10};
  Repeats repeats_;
  Seldom full_;
  Seldom crowded_;
  Seldom late_;
};

}  // namespace loch::fabric::host
