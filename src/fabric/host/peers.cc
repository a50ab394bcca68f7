#include "fabric/host/peers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>

#include "fabric/host/log.h"
#include "fabric/remote/protocol.h"

namespace loch::fabric::host {

using Level = Host::Level;

namespace {

// While some may be late, or can not be taken on now.
constexpr base::Nanos look_every_ns = 500 * base::millisecond_ns;

// The kernel looks for a descriptor before it looks whether somebody waits for one.
bool is_awaited_by_any(const net::Listener& listener) {
  pollfd waits{.fd = listener.socket.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waits, 1, 0) == 1;
}

}  // namespace

Peer::Peer(std::unique_ptr<net::Stream> stream, base::Nanos until)
    : name(net::peer_of(stream->socket())), messages(std::move(stream)), deadline(until) {
  if (const auto here = net::own_address(messages.stream().socket())) greeting.came_to = here->text();
}

std::vector<std::uint16_t> Peers::ports() const {
  std::vector<std::uint16_t> ports;
  for (const net::Listener& listener : listeners_) ports.push_back(listener.port);
  return ports;
}

std::optional<base::Nanos> Peers::await(std::vector<pollfd>* waits) {
  awaited_.clear();
  const bool accepts = base::Clock().now() >= accepts_from_ns_;
  for (const net::Listener& listener : listeners_)
    waits->push_back({.fd = accepts ? listener.socket.get() : -1, .events = POLLIN, .revents = 0});
  bool some_greet = false;
  bool goes_on = false;
  for (auto& [id, peer] : peers_) {
    short events = POLLIN;
    if (peer.stage == Peer::Stage::tls) events = peer.messages.stream().awaited();
    if (peer.messages.has_unsent()) events = POLLOUT;
    goes_on = goes_on || peer.has_more_to_take();
    waits->push_back({.fd = peer.messages.stream().socket(), .events = events, .revents = 0});
    awaited_.push_back(id);
    some_greet = some_greet || peer.stage != Peer::Stage::is_linked;
  }
  if (goes_on) return 0;
  if (some_greet || !accepts) return look_every_ns;
  return std::nullopt;
}

void Peers::serve(std::span<const pollfd> waits) {
  const auto of_listeners = waits.first(listeners_.size());
  const auto of_peers = waits.subspan(listeners_.size());
  const base::Nanos now = base::Clock().now();
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    const Id id = awaited_[i];
    Peer& peer = peers_.at(id);
    const bool is_late = peer.stage != Peer::Stage::is_linked && now > peer.deadline;
    if (is_late && peer.stage != Peer::Stage::is_refused) {
      refused_.fetch_add(1);
      warn_seldom(options_, late_, fmt::format("{}: refused: it did not greet in time", peer.name));
    }
    const bool is_ready = of_peers[i].revents != 0 || peer.has_more_to_take();
    if (is_late || (is_ready && !serve_one(id, peer))) end(id);
  }
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (of_listeners[i].revents != 0) accept_all(listeners_[i]);
  }
}

void Peers::accept_all(const net::Listener& listener) {
  constexpr int at_once_max = 64;
  for (int i = 0; i < at_once_max; ++i) {
    base::FileDescriptor socket = net::accept(listener);
    if (!socket.is_open()) {
      const int error = errno;
      const bool needs_descriptor = error == EMFILE || error == ENFILE;
      if (needs_descriptor && !is_awaited_by_any(listener)) return;
      if (needs_descriptor && end_oldest_stranger()) continue;
      // One that waits and can not be taken would be told of again and again.
      if (needs_descriptor || error == ENOBUFS || error == ENOMEM) {
        accepts_from_ns_ = base::Clock().now() + base::second_ns;
        log(options_, Level::warning,
            fmt::format("no connection can be taken now: {}; raise LimitNOFILE (ulimit -n), or "
                        "lower connections_max",
                        std::strerror(error)));
      }
      return;
    }
    if (!make_room()) {
      refused_.fetch_add(1);
      warn_seldom(options_, full_,
                  fmt::format("{}: refused, there are {} connections already; raise connections_max",
                              net::peer_of(socket.get()), options_.connections_max));
      continue;
    }
    const Id id = new_id();
    strangers_.insert(id);
    peers_.try_emplace(id, gate_.accept(std::move(socket)), base::Clock().now() + remote::greeting_max_ns);
  }
}

// Whoever gets here can have strangers greet for as long as they may, so these have a part of the connections
// alone, and keep nobody out: the one that has greeted for longest gives way.
bool Peers::make_room() {
  constexpr std::size_t part = 4;
  constexpr std::size_t at_once = 64;  // that one process may well begin together
  const bool is_full = peers_.size() + calls_.sessions() >= options_.connections_max;
  if (!is_full && strangers_.size() < std::max(options_.connections_max / part, at_once)) return true;
  return end_oldest_stranger();
}

bool Peers::end_oldest_stranger() {
  if (strangers_.empty()) return false;
  const Id oldest = *strangers_.begin();
  refused_.fetch_add(1);
  warn_seldom(options_, crowded_,
              fmt::format("{}: refused: it had not greeted yet, and others came", peers_.at(oldest).name));
  end(oldest);
  return true;
}

bool Peers::serve_one(Id id, Peer& peer) {
  if (peer.stage == Peer::Stage::tls && !establish(peer)) return true;
  if (peer.stage == Peer::Stage::is_refused) return !peer.messages.stream().leave();
  if (auto flushed = peer.messages.flush(); !flushed) return false;
  return serve_messages(id, peer);
}

bool Peers::establish(Peer& peer) {
  const auto established = peer.messages.stream().establish();
  if (!established) {
    // TLS has told the client why, who may have gone on meanwhile.
    refuse(peer, established.error().code, established.error().detail);
    peer.stage = Peer::Stage::is_refused;
    return true;
  }
  if (*established) peer.stage = Peer::Stage::greets;
  return *established;
}

// A peer that does not take its answers is not listened to until it does, and none holds up the others.
bool Peers::serve_messages(Id id, Peer& peer) {
  constexpr int at_once_max = 64;
  peer.stopped_early = true;
  for (int i = 0; i < at_once_max && !peer.messages.has_unsent(); ++i) {
    const auto said = peer.messages.next();
    if (!said) {
      if (peer.stage != Peer::Stage::is_linked) refuse(peer, said.error().code, said.error().detail);
      return false;
    }
    if (!*said) {
      peer.stopped_early = false;
      return true;
    }
    const Outcome outcome = calls_.take(id, peer, **said);
    if (outcome.told && !peer.messages.say(*outcome.told)) return false;
    if (!outcome.goes_on) return false;
  }
  return true;
}

net::Message Peers::refuse(const Peer& peer, Errc code, const std::string& why) {
  refused_.fetch_add(1);
  const base::Nanos now = base::Clock().now();
  if (!repeats_.has(peer.name, why, now) &&
      warn_seldom(options_, refusals_, fmt::format("{}: refused: {}", peer.name, why)))
    repeats_.note(peer.name, why, now);
  return net::error_message({.code = code, .detail = why});
}

void Peers::note(const Peer& peer, const std::string& why) {
  const base::Nanos now = base::Clock().now();
  if (!repeats_.has(peer.name, why, now) &&
      log_seldom(options_, Level::info, notes_, fmt::format("{}: {}", peer.name, why)))
    repeats_.note(peer.name, why, now);
}

void Peers::link(Id id, Peer& peer) {
  peer.stage = Peer::Stage::is_linked;
  strangers_.erase(id);
}

std::optional<std::pair<Peers::Id, const Peer*>> Peers::link_of(std::string_view name) const {
  const auto link = std::ranges::find_if(peers_, [name](const auto& each) {
    return each.second.stage == Peer::Stage::is_linked && each.second.link_name == name;
  });
  if (link == peers_.end()) return std::nullopt;
  return std::pair{link->first, &link->second};
}

std::size_t Peers::links_by_read_key() const {
  return static_cast<std::size_t>(std::ranges::count_if(peers_, [](const auto& each) {
    return each.second.store != nullptr && each.second.store->by_read_key;
  }));
}

void Peers::end(Id id) {
  const auto found = peers_.find(id);
  if (found->second.stage == Peer::Stage::is_linked) calls_.left(id, found->second);
  strangers_.erase(id);
  peers_.erase(found);
}

void Peers::end_all() {
  while (!peers_.empty()) end(peers_.begin()->first);
}

}  // namespace loch::fabric::host
