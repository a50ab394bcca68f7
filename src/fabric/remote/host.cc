#include "fabric/host.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "fabric/map_message.h"
#include "fabric/remote/fencer.h"
#include "fabric/remote/protocol.h"
#include "fabric/tcp/agent.h"
#include "fabric/verbs/lender.h"
#include "net/credentials.h"
#include "net/message.h"

namespace loch::fabric {
namespace {

using net::Message;
using Id = std::uint64_t;

std::string id_text(Id id) { return fmt::format("{}", id); }

Message membership(const Host::Options::Cluster& of) {
  return {{"cluster", cluster::to_message(of.map)}, {"node", of.node}};
}

Message refusal(Errc code, std::string detail) {
  return net::error_message({.code = code, .detail = std::move(detail)});
}

// Read anew when the host is told to.
Result<net::Credentials> credentials_of(const Host::Options& options) {
  return net::Credentials::of_server(options.key_file, options.read_key_file, options.tls);
}
// As a client of other hosts of its cluster.
Result<net::Credentials> neighbour_credentials_of(const Host::Options& options) {
  if (!options.cluster_of) return net::Credentials{};
  return net::Credentials::of_client(options.key_file, options.tls);
}

// A session's data connection, while the agent has it.
struct DataPort {
  Id link = 0;
  bool reads_only = false;
  std::string session{};              // of a cluster
  std::set<std::uint32_t> clients{};  // whose presence it holds
};

// A session of a cluster that has ended here and may not have on other hosts: its presence is held until it
// has.
struct Condemned {
  std::shared_ptr<Fabric> fabric;
  std::set<std::uint32_t> clients;
};

// A connection that speaks messages: a client that greets, or a link.
struct Peer {
  enum class Stage : std::uint8_t { tls, greets, proves, is_linked };

  Peer(std::unique_ptr<net::Stream> stream, base::Nanos until)
      : name(net::peer_of(stream->socket())), messages(std::move(stream)), deadline(until) {}

  std::string name;
  net::Messages messages;
  Stage stage = Stage::tls;
  base::Nanos deadline;  // until it is linked
  std::string mine;      // the nonces
  std::string theirs;

  // Of a link.
  std::string store;
  net::Secret secret{};
  bool reads_only = false;
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Port> way;  // to the store, for presence
  std::optional<Host::Options::Cluster> cluster;
};

class HostThread final : public Host {
 public:
  HostThread(Options options, net::Credentials credentials, net::Credentials neighbour_credentials,
             std::vector<net::Listener> listeners, std::unique_ptr<verbs::Lender> lender)
      : options_(std::move(options)),
        credentials_(std::move(credentials)),
        neighbour_credentials_(std::move(neighbour_credentials)),
        listeners_(std::move(listeners)),
        lender_(std::move(lender)),
        woken_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        agent_({.gone = [this](Id port) { note_gone(port); }}),
        fencer_([this](Id session) { note_fenced(session); },
                [this](const remote::Target& host) { return is_gone(host); }) {
    LOCH_CHECK(woken_.is_open());
    thread_ = std::thread([this] { run(); });
  }
  ~HostThread() override {
    stop_ = true;
    wake();
    thread_.join();
  }
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;

  [[nodiscard]] std::vector<std::uint16_t> ports() const override {
    std::vector<std::uint16_t> ports;
    for (const net::Listener& listener : listeners_) ports.push_back(listener.port);
    return ports;
  }

  [[nodiscard]] Counts counts() const override {
    const tcp::Agent::Counts agent = agent_.counts();
    return {.clients = clients_,
            .sessions = sessions_,
            .refused = refused_,
            .fenced = fenced_,
            .reads = agent.reads,
            .writes = agent.writes,
            .atomics = agent.atomics,
            .bad_addresses = agent.refused,
            .bytes_in = agent.bytes_in,
            .bytes_out = agent.bytes_out,
            .sends = agent.sends};
  }

  Result<void> pause(const std::string& store) override {
    std::unique_lock lock(mutex_);
    paused_[store] = false;
    wake();
    if (paused_changed_.wait_for(lock, std::chrono::nanoseconds(remote::answer_max_ns),
                                 [&] { return paused_[store]; })) {
      return {};
    }
    paused_.erase(store);
    return fail(Errc::timed_out, "pause",
                fmt::format("the sessions of {} have not ended in time; it is tried again", store));
  }
  void resume(const std::string& store) override {
    const std::scoped_lock lock(mutex_);
    paused_.erase(store);
  }

  void end_idle(const std::string& store, base::Nanos longer_than_ns) override {
    {
      const std::scoped_lock lock(mutex_);
      idle_max_ns_[store] = longer_than_ns;
    }
    wake();
  }

  Result<void> reload() override {
    auto credentials = credentials_of(options_);
    if (!credentials) return std::unexpected(std::move(credentials.error()));
    auto neighbour = neighbour_credentials_of(options_);
    if (!neighbour) return std::unexpected(std::move(neighbour.error()));
    const std::scoped_lock lock(mutex_);
    credentials_ = std::move(*credentials);
    neighbour_credentials_ = std::move(*neighbour);
    return {};
  }

 private:
  void run();
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
  }
  void log(Level level, const std::string& text) const {
    if (options_.log) options_.log(level, text);
  }
  net::Credentials credentials() const {
    const std::scoped_lock lock(mutex_);
    return credentials_;
  }
  net::Credentials neighbour_credentials() const {
    const std::scoped_lock lock(mutex_);
    return neighbour_credentials_;
  }

  // Of the agent's thread.
  void note_gone(Id port) {
    {
      const std::scoped_lock lock(mutex_);
      gone_.push_back(port);
    }
    wake();
  }

  // Of the fencer's thread: whether the cluster does without this host now.
  [[nodiscard]] bool is_gone(const remote::Target& host) const {
    const auto of = options_.cluster_of(host.store);
    if (!of || !*of) return false;
    const auto& nodes = (*of)->map.nodes;
    return std::ranges::find(nodes, host.host, &ClusterMap::Node::at) == nodes.end();
  }
  void note_fenced(Id condemned) {
    {
      const std::scoped_lock lock(mutex_);
      fenced_everywhere_.push_back(condemned);
    }
    wake();
  }

  void accept_all(const net::Listener& listener);
  // False if the peer is done with.
  bool serve(Id id, Peer& peer);
  bool serve_messages(Id id, Peer& peer);
  Message greet(Peer& peer, const Message& said);
  Message open(Id id, Peer& peer, const Message& said);
  std::optional<Message> join(Peer& peer, const Message& said);
  Message fence(Peer& peer, const Message& said);
  Message answer(Id id, Peer& peer, const Message& asked);
  Result<Message> carry_out(Id id, Peer& peer, const Message& asked);
  Result<bool> claim(Peer& peer, Id port_id, DataPort& port, std::uint32_t client);
  Result<Message> offer_queue_pair(Id port, const Peer& peer);
  Result<Message> lend(Id port, RegionId region, const Message& asked);
  Message refuse(Peer& peer, Errc code, const std::string& why);
  DataPort* port_of(Id link, const Message& asked, Id* id);
  void end_peer(Id id);
  // How a session ends: it leaves, and nothing that it posted anywhere is under way; or it is taken for dead.
  enum class End : std::uint8_t { leaves, is_dead };
  void end_port(Id id, End how);
  void release(Id id, End how);
  static void let_go(const Peer& link, const DataPort& port, std::uint32_t client);
  void condemn(Peer& link, const std::string& session, std::set<std::uint32_t> clients);
  void condemn_those_of_before(Peer& link);
  void pardon(Id condemned);
  void end_silent_ports();
  void end_ports_silent_for(base::Nanos longest_ns, const std::string& store);
  void end_idle_ports();
  // The cluster of a link's store, as it is now.
  const Options::Cluster* cluster_of(Peer& link) const;
  void end_those_of_paused_stores();
  bool is_paused(const std::string& store) const {
    const std::scoped_lock lock(mutex_);
    return paused_.contains(store);
  }

  const Options options_;
  mutable std::mutex mutex_;
  net::Credentials credentials_;
  net::Credentials neighbour_credentials_;
  std::vector<Id> gone_;                // ports whose connection ended
  std::map<std::string, bool> paused_;  // stores; whether their sessions have ended
  std::condition_variable paused_changed_;
  std::map<std::string, base::Nanos>
      idle_max_ns_;                    // stores, and for how long their sessions may have been silent
  std::vector<Id> fenced_everywhere_;  // of those that are condemned
  const std::vector<net::Listener> listeners_;
  const std::unique_ptr<verbs::Lender> lender_;  // of the thread alone; null: no verbs
  const base::FileDescriptor woken_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> clients_ = 0;
  std::atomic<std::uint64_t> sessions_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<std::uint64_t> fenced_ = 0;

  // Of the thread alone.
  std::map<Id, Peer> peers_;
  std::map<Id, DataPort> ports_;
  std::map<Id, Condemned> condemned_;
  std::set<std::string> looked_for_those_of_before_;  // stores
  Id next_id_ = 1;
  base::Nanos looked_at_ports_ns_ = 0;
  base::Nanos accepts_from_ns_ = 0;

  tcp::Agent agent_;
  remote::Fencer fencer_;
  std::thread thread_;
};

void HostThread::run() {
  std::vector<pollfd> waits;
  std::vector<Id> order;
  while (!stop_) {
    waits.clear();
    order.clear();
    waits.push_back({.fd = woken_.get(), .events = POLLIN, .revents = 0});
    waits.push_back({.fd = lender_ != nullptr ? lender_->descriptor() : -1, .events = POLLIN, .revents = 0});
    const std::size_t before_listeners = waits.size();
    const bool accepts = base::Clock().now() >= accepts_from_ns_;
    for (const net::Listener& listener : listeners_)
      waits.push_back({.fd = accepts ? listener.socket.get() : -1, .events = POLLIN, .revents = 0});
    bool some_greet = false;
    for (auto& [id, peer] : peers_) {
      short events = POLLIN;
      if (peer.stage == Peer::Stage::tls) events = peer.messages.stream().awaited();
      if (peer.messages.has_unsent()) events = POLLIN | POLLOUT;
      waits.push_back({.fd = peer.messages.stream().socket(), .events = events, .revents = 0});
      order.push_back(id);
      some_greet = some_greet || peer.stage != Peer::Stage::is_linked;
    }
    // Asleep as long as nobody is there.
    constexpr int look_every_ms = 500;
    const int wait_ms = some_greet || !accepts || !ports_.empty() ? look_every_ms : -1;
    if (::poll(waits.data(), waits.size(), wait_ms) < 0) continue;

    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(woken_.get(), &count, sizeof count);
    std::vector<Id> gone;
    std::vector<Id> fenced_everywhere;
    {
      const std::scoped_lock lock(mutex_);
      gone = std::exchange(gone_, {});
      fenced_everywhere = std::exchange(fenced_everywhere_, {});
    }
    for (const Id port : gone) end_port(port, End::is_dead);
    for (const Id condemned : fenced_everywhere) pardon(condemned);
    if (lender_ != nullptr) {
      const verbs::Lender::Served served = lender_->serve();
      for (const std::string& why : served.refusals)
        log(Level::warning, fmt::format("a queue pair was refused: {}", why));
      for (const Id port : served.ended) end_port(port, End::is_dead);
    }
    const base::Nanos now = base::Clock().now();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const pollfd& ready = waits[before_listeners + listeners_.size() + i];
      Peer& peer = peers_.at(order[i]);
      const bool is_late = peer.stage != Peer::Stage::is_linked && now > peer.deadline;
      if (is_late) refuse(peer, Errc::timed_out, "it did not greet in time");
      if (is_late || (ready.revents != 0 && !serve(order[i], peer))) end_peer(order[i]);
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[before_listeners + i].revents != 0) accept_all(listeners_[i]);
    }
    end_silent_ports();
    end_idle_ports();
    end_those_of_paused_stores();
  }
  while (!peers_.empty()) end_peer(peers_.begin()->first);
}

void HostThread::accept_all(const net::Listener& listener) {
  constexpr int at_once_max = 64;
  for (int i = 0; i < at_once_max; ++i) {
    base::FileDescriptor socket = net::accept(listener);
    if (!socket.is_open()) {
      // One that waits and can not be taken would be told of again and again.
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        accepts_from_ns_ = base::Clock().now() + base::second_ns;
        log(Level::warning,
            fmt::format("no connection can be taken now: {}; raise LimitNOFILE (ulimit -n), or "
                        "lower connections_max",
                        std::strerror(error)));
      }
      return;
    }
    if (peers_.size() + ports_.size() >= options_.connections_max) {
      refused_.fetch_add(1);
      log(Level::warning, fmt::format("{}: refused, there are {} connections already",
                                      net::peer_of(socket.get()), options_.connections_max));
      continue;
    }
    const auto& tls = credentials().tls;
    auto stream = tls ? tls->accept(std::move(socket)) : std::make_unique<net::Stream>(std::move(socket));
    peers_.try_emplace(next_id_++, std::move(stream), base::Clock().now() + remote::greeting_max_ns);
  }
}

bool HostThread::serve(Id id, Peer& peer) {
  if (peer.stage == Peer::Stage::tls) {
    const auto established = peer.messages.stream().establish();
    if (!established) {
      refuse(peer, established.error().code, established.error().detail);
      return false;
    }
    if (!*established) return true;
    peer.stage = Peer::Stage::greets;
  }
  if (auto flushed = peer.messages.flush(); !flushed) return false;
  return serve_messages(id, peer);
}

bool HostThread::serve_messages(Id id, Peer& peer) {
  for (;;) {
    const auto said = peer.messages.next();
    if (!said) {
      if (peer.stage != Peer::Stage::is_linked) refuse(peer, said.error().code, said.error().detail);
      return false;
    }
    if (!*said) return true;
    Message told;
    bool goes_on = true;
    switch (peer.stage) {
      case Peer::Stage::tls:
      case Peer::Stage::greets:
        told = greet(peer, **said);
        goes_on = peer.stage == Peer::Stage::proves;
        break;
      case Peer::Stage::proves: {
        if ((**said).contains("fence")) {
          told = fence(peer, **said);
          goes_on = false;
          break;
        }
        if (!(**said).contains("join")) {
          told = open(id, peer, **said);
          goes_on = peer.stage == Peer::Stage::is_linked;
          break;
        }
        const auto refused = join(peer, **said);
        if (!refused) return false;  // the agent has it now
        told = *refused;
        goes_on = false;
        break;
      }
      case Peer::Stage::is_linked:
        told = answer(id, peer, **said);
        break;
    }
    if (auto sent = peer.messages.say(told); !sent || !goes_on) return false;
  }
}

Message HostThread::refuse(Peer& peer, Errc code, const std::string& why) {
  refused_.fetch_add(1);
  log(Level::warning, fmt::format("{}: refused: {}", peer.name, why));
  return refusal(code, why);
}

Message HostThread::greet(Peer& peer, const Message& said) {
  const auto version = net::number_of(said, "protocol");
  peer.theirs = net::text_of(said, "nonce");
  if (version != remote::protocol_version || peer.theirs.size() != 2 * remote::nonce_bytes) {
    return refuse(peer, Errc::incompatible,
                  fmt::format("the client speaks protocol {}, this host {}", version.value_or(0),
                              remote::protocol_version));
  }
  peer.mine = net::random_hex(remote::nonce_bytes);
  peer.stage = Peer::Stage::proves;
  return {{"protocol", remote::protocol_version}, {"nonce", peer.mine}};
}

Message HostThread::open(Id id, Peer& peer, const Message& said) {
  const std::string store = net::text_of(said, "open");
  const bool asks_to_read = net::flag_of(said, "read_only");
  const auto knows = [&](const net::Secret& key) {
    return net::same(net::text_of(said, "proof"), net::proof(key, {"open", peer.mine, peer.theirs, store,
                                                                   remote::access_text(asks_to_read)}));
  };
  const net::Credentials all = credentials();
  const bool is_reader = all.read_key && knows(*all.read_key);
  const net::Secret& key = is_reader ? *all.read_key : all.key;
  if (!is_reader && !knows(key)) {
    return refuse(peer, Errc::permission,
                  options_.key_file.empty() ? "the client has a key, and this host has none"
                                            : "the client does not know this host's key");
  }
  const auto complain = [&](const Error& error) {
    log(Level::info, fmt::format("{}: {}", peer.name, error.message()));
    return net::error_message(error);
  };
  auto of = options_.cluster_of ? options_.cluster_of(store) : std::nullopt;
  if (!of) return complain(of.error());
  auto fabric = options_.open_store(store);
  if (!fabric) return complain(fabric.error());
  if ((is_reader || asks_to_read) && !options_.readers.admit)
    return refusal(Errc::unavailable, "nobody can only read here");
  peer.store = store;
  peer.cluster = std::move(*of);
  peer.fabric = std::move(*fabric);
  peer.way = peer.fabric->connect();
  peer.secret = net::digest(key, {"link", peer.mine, peer.theirs});
  peer.reads_only = is_reader || asks_to_read;
  peer.stage = Peer::Stage::is_linked;
  if (peer.cluster) condemn_those_of_before(peer);
  clients_.fetch_add(1);
  log(Level::info, fmt::format("{}: opened {}{}", peer.name, store, peer.reads_only ? ", to read only" : ""));
  Message told{{"proof", net::proof(key, {"host", peer.mine, peer.theirs, store,
                                          remote::access_text(peer.reads_only)})},
               {"link", id_text(id)},
               {"read_only", peer.reads_only},
               {"device_atomics", peer.fabric->atomics() == Atomics::device}};
  if (peer.cluster) told.update(membership(*peer.cluster));
  return told;
}

// Another host takes a session for dead.
Message HostThread::fence(Peer& peer, const Message& said) {
  const std::string session = net::text_of(said, "fence");
  if (!net::same(net::text_of(said, "proof"),
                 net::proof(credentials().key, {"fence", peer.mine, peer.theirs, session}))) {
    return refuse(peer, Errc::permission, "it would fence, and does not know this host's key");
  }
  std::vector<Id> its_ports;
  for (const auto& [id, port] : ports_) {
    if (!session.empty() && port.session == session) its_ports.push_back(id);
  }
  for (const Id id : its_ports) {
    fenced_.fetch_add(1);
    end_port(id, End::is_dead);
  }
  return Message::object();
}

// Hands the connection on to the agent, or says why not.
std::optional<Message> HostThread::join(Peer& peer, const Message& said) {
  const std::string wanted = net::text_of(said, "join");
  const std::string session = net::text_of(said, "session");
  const auto link = std::ranges::find_if(peers_, [&](const auto& each) {
    return each.second.stage == Peer::Stage::is_linked && id_text(each.first) == wanted;
  });
  if (link == peers_.end()) {
    log(Level::debug, fmt::format("{}: would join a client that is gone", peer.name));
    return refusal(Errc::unavailable, "it belongs to no client that is known here any more");
  }
  if (!net::same(net::text_of(said, "proof"),
                 net::proof(link->second.secret, {"join", peer.mine, peer.theirs, session}))) {
    return refuse(peer, Errc::permission, "it belongs to no client that is known here");
  }
  if (link->second.cluster.has_value() == session.empty()) {
    return refuse(peer, Errc::incompatible,
                  session.empty() ? "a session of a cluster says what its hosts know it by"
                                  : "the store is of no cluster");
  }
  if (is_paused(link->second.store))
    return refusal(Errc::unavailable, "the host sees to what another one has lost; try again");
  const Id port = next_id_++;
  if (!peer.messages.say({{"port", port}}) || peer.messages.has_unsent()) {
    return refuse(peer, Errc::unavailable, "it does not take what it asked for");
  }
  const bool reads_only = link->second.reads_only;
  ports_[port] = {.link = link->first, .reads_only = reads_only, .session = session};
  sessions_.fetch_add(1);
  agent_.add(port, std::move(peer.messages).take_stream(), link->second.fabric,
             reads_only ? tcp::Agent::May::write_range : tcp::Agent::May::change_all);
  return std::nullopt;
}

Message HostThread::answer(Id id, Peer& peer, const Message& asked) {
  auto done = carry_out(id, peer, asked);
  return done ? std::move(*done) : net::error_message(done.error());
}

DataPort* HostThread::port_of(Id link, const Message& asked, Id* id) {
  *id = net::number_of(asked, "port").value_or(0);
  const auto found = ports_.find(*id);
  return found != ports_.end() && found->second.link == link ? &found->second : nullptr;
}

Result<Message> HostThread::carry_out(Id id, Peer& peer, const Message& asked) {
  const std::string what = net::text_of(asked, "do");
  const std::uint64_t region = net::number_of(asked, "region").value_or(region_count_max);
  const auto client = static_cast<std::uint32_t>(net::number_of(asked, "client").value_or(0));
  const auto about_region = [&](const char* field) {
    return net::number_of(asked, field).value_or(region_bytes_max + 1);
  };
  if (peer.reads_only && (what == "extend" || what == "prepare"))
    return fail(Errc::permission, "host", "this client may only read");
  if (what == "length" || what == "extend" || what == "prepare") {
    if (region >= region_count_max)
      return fail(Errc::invalid_argument, "host", fmt::format("there is no region {}", region));
    const auto name = static_cast<RegionId>(region);
    if (const auto* of = cluster_of(peer); of != nullptr && of->map.node_of(name) != of->node)
      return fail(Errc::not_found, "host", fmt::format("region {} is not on this host", region));
    if (what == "prepare") {
      const std::uint64_t to = about_region("to");
      const std::uint64_t from = about_region("from");
      if (from <= to && to <= region_bytes_max) peer.fabric->prepare(name, from, to);
      return Message::object();
    }
    if (what == "extend") {
      const std::uint64_t bytes = about_region("bytes");
      if (bytes > region_bytes_max)
        return fail(Errc::invalid_argument, "host", "a region can not be as long as that");
      if (auto extended = peer.fabric->extend(name, bytes); !extended)
        return std::unexpected(std::move(extended.error()));
    }
    const auto bytes = peer.way->length_bytes(name);
    if (!bytes) return std::unexpected(bytes.error());
    return Message{{"bytes", *bytes}};
  }
  if (what == "membership") {
    const auto* of = cluster_of(peer);
    return of == nullptr ? Message::object() : membership(*of);
  }
  if (what == "free") return Message{{"bytes", peer.fabric->free_bytes()}};
  if (what == "present") return Message{{"present", peer.way->present(client)}};
  Id port_id = 0;
  DataPort* port = port_of(id, asked, &port_id);
  if (port == nullptr) {
    return fail(what == "leave" ? Errc::not_found : Errc::unavailable, "host",
                "the session was broken off, because it was silent or gone");
  }
  if (what == "leave") {
    end_port(port_id, net::flag_of(asked, "dead") ? End::is_dead : End::leaves);
    return Message::object();
  }
  if (what == "queue_pair") return offer_queue_pair(port_id, peer);
  if (what == "key") {
    if (region >= region_count_max) return fail(Errc::not_found, "host", "there is no such region");
    return lend(port_id, static_cast<RegionId>(region), asked);
  }
  if (what == "claim") {
    auto claimed = claim(peer, port_id, *port, client);
    if (!claimed) return std::unexpected(std::move(claimed.error()));
    return Message{{"claimed", *claimed}};
  }
  if (what == "release") {
    if (port->clients.erase(client) == 0) return Message::object();
    if (port->reads_only) {
      agent_.set_range(port_id, {});
      options_.readers.dismiss(*peer.fabric, client);
    }
    let_go(peer, *port, client);
    return Message::object();
  }
  return fail(Errc::invalid_argument, "host", fmt::format("nobody here can '{}'", what));
}

Result<bool> HostThread::claim(Peer& peer, Id port_id, DataPort& port, std::uint32_t client) {
  // One, since it has one range to write to.
  if (port.reads_only && !port.clients.empty())
    return fail(Errc::permission, "host", "a session that only reads has one client number");
  auto claimed = peer.way->claim_presence(client);
  if (!claimed || !*claimed) return claimed;
  if (port.reads_only) {
    const auto range = options_.readers.admit(*peer.fabric, client);
    if (!range || !*range) {
      peer.way->release_presence(client);
      if (!range) return std::unexpected(range.error());
      return false;
    }
    agent_.set_range(port_id, **range);
  }
  port.clients.insert(client);
  if (!port.session.empty()) peer.fabric->note_session(client, port.session);
  return true;
}

Result<Message> HostThread::offer_queue_pair(Id port, const Peer& peer) {
  if (lender_ == nullptr) {
    return fail(
        Errc::unavailable, "host",
        "this host does not lend over verbs; set verbs = true in its lochd.toml, or open tcp:// instead");
  }
  const verbs::Lender::Offer offer = lender_->expect(port, peer.fabric, peer.reads_only);
  return Message{{"token", offer.token}, {"device_changes", offer.device_changes}};
}

Result<Message> HostThread::lend(Id port, RegionId region, const Message& asked) {
  const auto key = lender_ == nullptr
                       ? fail(Errc::unavailable, "host", "the session has no queue pair")
                       : lender_->key(port, region, net::number_of(asked, "at").value_or(region_bytes_max));
  if (!key) {
    if (key.error().code != Errc::not_found) log(Level::warning, key.error().message());
    return std::unexpected(key.error());
  }
  return Message{
      {"from", key->from_bytes}, {"bytes", key->length_bytes}, {"address", key->address}, {"key", key->key}};
}

// ---- ends

void HostThread::end_peer(Id id) {
  const auto found = peers_.find(id);
  if (found->second.stage == Peer::Stage::is_linked) {
    std::vector<Id> its_ports;
    for (const auto& [port, data] : ports_) {
      if (data.link == id) its_ports.push_back(port);
    }
    for (const Id port : its_ports) end_port(port, End::is_dead);
    clients_.fetch_sub(1);
    log(Level::info, fmt::format("{}: left {}", found->second.name, found->second.store));
  }
  peers_.erase(found);
}

void HostThread::end_port(Id id, End how) {
  agent_.remove(id);
  if (lender_ != nullptr) lender_->remove(id);
  release(id, how);  // nothing that it posted here happens any more
}

void HostThread::release(Id id, End how) {
  const auto found = ports_.find(id);
  if (found == ports_.end()) return;
  DataPort port = std::move(found->second);
  ports_.erase(found);
  sessions_.fetch_sub(1);
  const auto link = peers_.find(port.link);
  if (link == peers_.end()) return;
  // Those of a host that ends are noted, and are seen to when it is back: what they held is nobody's until
  // then.
  if (stop_ && link->second.cluster) return;
  // One that holds no number here has seen nothing here that it could rely on elsewhere.
  if (how == End::is_dead && link->second.cluster && !port.clients.empty())
    return condemn(link->second, port.session, std::move(port.clients));
  for (const std::uint32_t client : port.clients) let_go(link->second, port, client);
}

void HostThread::let_go(const Peer& link, const DataPort& port, std::uint32_t client) {
  if (!port.session.empty()) link.fabric->note_session(client, {});
  link.way->release_presence(client);
}

// What it has posted to other hosts of the cluster may happen still, and rely on what it has here.
void HostThread::condemn(Peer& link, const std::string& session, std::set<std::uint32_t> clients) {
  const Id id = next_id_++;
  std::vector<remote::Target> others;
  const Options::Cluster& of = *cluster_of(link);
  for (std::uint32_t node = 0; node < of.map.nodes.size(); ++node) {
    if (node == of.node || of.map.nodes[node].state == ClusterMap::NodeState::gone) continue;
    others.push_back({.scheme = "tcp",
                      .host = of.map.nodes[node].at,
                      .store = link.store,
                      .credentials = neighbour_credentials()});
  }
  condemned_[id] = {.fabric = link.fabric, .clients = std::move(clients)};
  fencer_.fence(id, session, std::move(others));
}

// Sessions that a host had which ended before they did.
void HostThread::condemn_those_of_before(Peer& link) {
  if (!looked_for_those_of_before_.insert(link.store).second) return;
  for (const auto& [client, session] : link.fabric->noted_sessions()) {
    if (const auto claimed = link.way->claim_presence(client); claimed && *claimed)
      condemn(link, session, {client});
  }
}

void HostThread::pardon(Id condemned) {
  const auto found = condemned_.find(condemned);
  if (found == condemned_.end()) return;
  const auto way = found->second.fabric->connect();
  for (const std::uint32_t client : found->second.clients) {
    found->second.fabric->note_session(client, {});
    way->release_presence(client);
  }
  condemned_.erase(found);
}

void HostThread::end_those_of_paused_stores() {
  std::vector<std::string> stores;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [store, ended] : paused_) {
      if (!ended) stores.push_back(store);
    }
  }
  for (const std::string& store : stores) {
    std::vector<Id> its_ports;
    for (const auto& [id, port] : ports_) {
      const auto link = peers_.find(port.link);
      if (link == peers_.end() || link->second.store == store) its_ports.push_back(id);
    }
    for (const Id id : its_ports) end_port(id, End::is_dead);
    const std::scoped_lock lock(mutex_);
    if (const auto found = paused_.find(store); found != paused_.end()) found->second = true;
  }
  if (!stores.empty()) paused_changed_.notify_all();
}

void HostThread::end_silent_ports() {
  const base::Nanos now = base::Clock().now();
  if (now - looked_at_ports_ns_ < std::min(base::second_ns, options_.silence_max_ns / 4)) return;
  looked_at_ports_ns_ = now;
  end_ports_silent_for(options_.silence_max_ns, {});
}

void HostThread::end_idle_ports() {
  std::map<std::string, base::Nanos> asked;
  {
    const std::scoped_lock lock(mutex_);
    asked = std::exchange(idle_max_ns_, {});
  }
  for (const auto& [store, longest_ns] : asked) end_ports_silent_for(longest_ns, store);
}

// Of one store, or of all if it is not named.
void HostThread::end_ports_silent_for(base::Nanos longest_ns, const std::string& store) {
  const base::Nanos now = base::Clock().now();
  std::vector<Id> silent;
  for (const auto& [id, port] : ports_) {
    if (port.clients.empty()) continue;  // it holds nobody up
    const auto link = peers_.find(port.link);
    if (!store.empty() && (link == peers_.end() || link->second.store != store)) continue;
    const base::Nanos heard = agent_.last_heard(id);
    if (heard != 0 && now - heard > longest_ns) silent.push_back(id);
  }
  for (const Id id : silent) {
    fenced_.fetch_add(1);
    log(Level::debug, fmt::format("session {} was silent for too long", id));
    end_port(id, End::is_dead);
  }
}

const Host::Options::Cluster* HostThread::cluster_of(Peer& link) const {
  if (!link.cluster) return nullptr;
  // What is there in a store that is of none any more is of no use to anybody, and stays as it is.
  if (auto now = options_.cluster_of(link.store); now && *now) link.cluster = std::move(*now);
  return &*link.cluster;
}

}  // namespace

Result<std::unique_ptr<Host>> Host::start(Options options) {
  auto credentials = credentials_of(options);
  if (!credentials) return std::unexpected(std::move(credentials.error()));
  auto neighbour = neighbour_credentials_of(options);
  if (!neighbour) return std::unexpected(std::move(neighbour.error()));
  if (options.listen.empty())
    return fail(Errc::invalid_argument, "listen", "an address to listen at is needed");
  std::vector<net::Listener> listeners;
  for (const net::HostPort& address : options.listen) {
    auto listener = net::listen(address);
    if (!listener) return std::unexpected(std::move(listener.error()));
    listeners.push_back(std::move(*listener));
  }
  std::unique_ptr<verbs::Lender> lender;
  if (options.verbs) {
    std::vector<net::HostPort> at = options.listen;
    for (std::size_t i = 0; i < at.size(); ++i) at[i].port = std::to_string(listeners[i].port);
    auto started = verbs::Lender::start(at);
    if (!started) return std::unexpected(std::move(started.error()));
    lender = std::move(*started);
  }
  return std::make_unique<HostThread>(std::move(options), std::move(*credentials), std::move(*neighbour),
                                      std::move(listeners), std::move(lender));
}

}  // namespace loch::fabric
