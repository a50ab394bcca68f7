#include "fabric/host.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fabric/remote/protocol.h"
#include "fabric/remote/requests.h"
#include "fabric/remote/seldom.h"
#include "fabric/remote/sessions.h"
#include "fabric/verbs/lender.h"
#include "net/cookie.h"
#include "net/credentials.h"
#include "net/message.h"

namespace loch::fabric {
namespace {

using net::Message;
using Id = remote::Sessions::Id;
using End = remote::Sessions::End;

std::string id_text(Id id) { return fmt::format("{}", id); }

Message refusal(Errc code, std::string detail) {
  return net::error_message({.code = code, .detail = std::move(detail)});
}

// Read anew when the host is told to.
Result<net::Credentials> credentials_of(const Host::Options& options) {
  return net::Credentials::of_server({.key = options.key_file,
                                      .other = options.other_key_file,
                                      .read = options.read_key_file,
                                      .cookie_directory = options.cookie_directory},
                                     options.tls);
}
// Whether its key is this user's cookie.
bool has_cookie(const Host::Options& options) {
  return options.key_file.empty() && !options.cookie_directory.empty();
}
// As a client of other hosts of its cluster; null if it has none.
Result<std::shared_ptr<net::ClientCredentials>> neighbour_credentials_of(const Host::Options& options) {
  if (!options.cluster_of) return nullptr;
  return net::ClientCredentials::open(options.key_file, options.tls);
}

// What a host takes for itself, where the kernel has no more.
std::unexpected<Error> exhausted(std::error_code code) {
  const bool is_threads = code == std::errc::resource_unavailable_try_again;
  return fail(
      Errc::unavailable, "listen",
      fmt::format("no {} for it: {}; raise {} of the unit", is_threads ? "thread" : "descriptor",
                  code.message(), is_threads ? "`ulimit -u`, or TasksMax" : "`ulimit -n`, or LimitNOFILE"));
}

// A connection that speaks messages: a client that greets, or a link.
struct Peer {
  enum class Stage : std::uint8_t { tls, greets, proves, is_linked, is_refused };

  Peer(std::unique_ptr<net::Stream> stream, base::Nanos until)
      : name(net::peer_of(stream->socket())), messages(std::move(stream)), deadline(until) {
    if (const auto here = net::own_address(messages.stream().socket())) came_to = here->text();
  }

  std::string name;
  std::string came_to{};  // the address of this host
  net::Messages messages;
  Stage stage = Stage::tls;
  base::Nanos deadline;  // until it is linked, or has taken its refusal
  std::string mine;      // the nonces
  std::string theirs;
  bool stopped_early = false;  // it may have said more, though there be nothing to read
  [[nodiscard]] bool has_more_to_take() const { return stopped_early && !messages.has_unsent(); }

  // Of a link.
  net::Secret secret{};
  std::shared_ptr<remote::OpenedStore> store{};
};

class HostThread final : public Host {
 public:
  HostThread(Options options, net::Credentials credentials,
             std::shared_ptr<net::ClientCredentials> neighbour_credentials,
             std::vector<net::Listener> listeners, std::unique_ptr<verbs::Lender> lender)
      : options_(std::move(options)),
        credentials_(std::move(credentials)),
        listeners_(std::move(listeners)),
        lender_(std::move(lender)),
        woken_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        sessions_(options_, lender_.get(), [this] { wake(); }, std::move(neighbour_credentials)) {
    if (!woken_.is_open()) throw std::system_error(errno, std::generic_category());
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
    const tcp::Agent::Counts agent = sessions_.agent_counts();
    return {.clients = clients_,
            .sessions = sessions_.count(),
            .refused = refused_,
            .fenced = sessions_.fenced(),
            .reads = agent.reads,
            .writes = agent.writes,
            .atomics = agent.atomics,
            .bad_addresses = agent.bad_addresses,
            .bytes_in = agent.bytes_in,
            .bytes_out = agent.bytes_out,
            .sends = agent.sends};
  }

  Result<Pause> pause(const std::string& store) override { return sessions_.pause(store); }
  void end_idle(const std::string& store, base::Nanos longer_than_ns) override {
    sessions_.end_idle(store, longer_than_ns);
  }

  Result<void> reload() override {
    auto credentials = credentials_of(options_);
    if (!credentials) return std::unexpected(std::move(credentials.error()));
    const std::scoped_lock lock(mutex_);
    credentials_ = std::move(*credentials);
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
  void warn_seldom(remote::Seldom& seldom, const std::string& text) const {
    const auto left_out = seldom.tell(base::Clock().now());
    if (!left_out) return;
    log(Level::warning, *left_out == 0 ? text : fmt::format("{} (and {} more before it)", text, *left_out));
  }
  net::Credentials credentials() const {
    const std::scoped_lock lock(mutex_);
    return credentials_;
  }

  // What to wait for, the peers of `order` last, and for how many milliseconds.
  int fill(std::vector<pollfd>* waits, std::vector<Id>* order);
  void serve_lender();
  void accept_all(const net::Listener& listener);
  // Whether there is room for one more; a stranger may have to make it.
  bool make_room();
  // Whether there is room for one more of those who know the key for reading alone. They have a part of the
  // connections, so that they keep nobody out either.
  [[nodiscard]] bool has_room_to_read() const;
  Message refuse_to_read(Peer& peer);
  // False if TLS has to wait.
  bool establish(Peer& peer);
  // False if the peer is done with.
  bool serve(Id id, Peer& peer);
  bool serve_messages(Id id, Peer& peer);
  // What comes of a message.
  struct Outcome {
    std::optional<Message> told{};
    bool goes_on = true;  // else the peer is done with
  };
  Outcome take(Id id, Peer& peer, const Message& said);
  Message greet(Peer& peer, const Message& said);
  Message open(Id id, Peer& peer, const Message& said);
  std::optional<Message> join(Peer& peer, const Message& said);
  Message fence(Peer& peer, const Message& said);
  Message refuse(Peer& peer, Errc code, const std::string& why);
  // What is wrong with a client that knows no key of this host.
  [[nodiscard]] std::string why_unknown() const;
  void end_peer(Id id);

  const Options options_;
  mutable std::mutex mutex_;
  net::Credentials credentials_;
  const std::vector<net::Listener> listeners_;
  const std::unique_ptr<verbs::Lender> lender_;  // of the thread alone; null: no verbs
  const base::FileDescriptor woken_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> clients_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;

  // Of the thread alone.
  std::map<Id, Peer> peers_;
  std::set<Id> strangers_;  // those of them that have not proved that they know a key, the oldest first
  Id next_id_ = 1;          // of peers and of sessions
  base::Nanos accepts_from_ns_ = 0;
  remote::Seldom refusals_{10};
  remote::Seldom refused_pairs_{10};
  remote::Seldom full_;
  remote::Seldom crowded_;
  remote::Seldom late_;

  remote::Sessions sessions_;
  remote::Requests requests_{options_, sessions_, lender_.get()};
  std::thread thread_;
};

int HostThread::fill(std::vector<pollfd>* waits, std::vector<Id>* order) {
  waits->clear();
  order->clear();
  waits->push_back({.fd = woken_.get(), .events = POLLIN, .revents = 0});
  waits->push_back({.fd = lender_ != nullptr ? lender_->descriptor() : -1, .events = POLLIN, .revents = 0});
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
    order->push_back(id);
    some_greet = some_greet || peer.stage != Peer::Stage::is_linked;
  }
  // Asleep as long as nobody is there.
  constexpr int look_every_ms = 500;
  const bool looks = some_greet || !accepts || sessions_.size() != 0;
  return goes_on ? 0 : looks ? look_every_ms : -1;
}

void HostThread::run() {
  constexpr std::size_t before_listeners = 2;
  std::vector<pollfd> waits;
  std::vector<Id> order;
  while (!stop_) {
    const int wait_ms = fill(&waits, &order);
    if (::poll(waits.data(), waits.size(), wait_ms) < 0) continue;

    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(woken_.get(), &count, sizeof count);
    sessions_.look();
    serve_lender();
    const base::Nanos now = base::Clock().now();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const pollfd& ready = waits[before_listeners + listeners_.size() + i];
      Peer& peer = peers_.at(order[i]);
      const bool is_late = peer.stage != Peer::Stage::is_linked && now > peer.deadline;
      if (is_late && peer.stage != Peer::Stage::is_refused) {
        refused_.fetch_add(1);
        warn_seldom(late_, fmt::format("{}: refused: it did not greet in time", peer.name));
      }
      const bool is_ready = ready.revents != 0 || peer.has_more_to_take();
      if (is_late || (is_ready && !serve(order[i], peer))) end_peer(order[i]);
    }
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[before_listeners + i].revents != 0) accept_all(listeners_[i]);
    }
  }
  sessions_.stop();
  while (!peers_.empty()) end_peer(peers_.begin()->first);
}

void HostThread::serve_lender() {
  if (lender_ == nullptr) return;
  const verbs::Lender::Served served = lender_->serve();
  for (const std::string& why : served.refusals)
    warn_seldom(refused_pairs_, fmt::format("a queue pair was refused: {}", why));
  for (const auto& [session, foreseen] : served.foreseen) {
    if (auto* store = sessions_.store_of(session); store != nullptr)
      requests_.extend_soon(*store, foreseen.region, foreseen.length_bytes);
  }
  for (const Id session : served.ended) sessions_.end(session, End::is_dead);
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
    if (!make_room()) {
      refused_.fetch_add(1);
      warn_seldom(full_, fmt::format("{}: refused, there are {} connections already; raise connections_max",
                                     net::peer_of(socket.get()), options_.connections_max));
      continue;
    }
    const auto& tls = credentials().tls;
    auto stream = tls ? tls->accept(std::move(socket)) : std::make_unique<net::Stream>(std::move(socket));
    strangers_.insert(next_id_);
    peers_.try_emplace(next_id_++, std::move(stream), base::Clock().now() + remote::greeting_max_ns);
  }
}

// Whoever gets here can have strangers greet for as long as they may, so these have a part of the connections
// alone, and keep nobody out: the one that has greeted for longest gives way.
bool HostThread::make_room() {
  constexpr std::size_t part = 4;
  constexpr std::size_t at_once = 64;  // that one process may well begin together
  const bool is_full = peers_.size() + sessions_.size() >= options_.connections_max;
  if (!is_full && strangers_.size() < std::max(options_.connections_max / part, at_once)) return true;
  if (strangers_.empty()) return false;
  const Id oldest = *strangers_.begin();
  refused_.fetch_add(1);
  warn_seldom(crowded_,
              fmt::format("{}: refused: it had not greeted yet, and others came", peers_.at(oldest).name));
  end_peer(oldest);
  return true;
}

bool HostThread::has_room_to_read() const {
  const auto is_one = [](const auto& peer) {
    return peer.second.store != nullptr && peer.second.store->by_read_key;
  };
  const auto links = static_cast<std::size_t>(std::ranges::count_if(peers_, is_one));
  return links + sessions_.size_by_read_key() < options_.connections_max / 2;
}

Message HostThread::refuse_to_read(Peer& peer) {
  return refuse(peer, Errc::unavailable,
                fmt::format("clients that know the key for reading alone have half of the {} connections "
                            "already; raise connections_max there",
                            options_.connections_max));
}

bool HostThread::establish(Peer& peer) {
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

bool HostThread::serve(Id id, Peer& peer) {
  if (peer.stage == Peer::Stage::tls && !establish(peer)) return true;
  if (peer.stage == Peer::Stage::is_refused) return !peer.messages.stream().leave();
  if (auto flushed = peer.messages.flush(); !flushed) return false;
  return serve_messages(id, peer);
}

// A peer that does not take its answers is not listened to until it does, and none holds up the others.
bool HostThread::serve_messages(Id id, Peer& peer) {
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
    const Outcome outcome = take(id, peer, **said);
    if (outcome.told && !peer.messages.say(*outcome.told)) return false;
    if (!outcome.goes_on) return false;
  }
  return true;
}

HostThread::Outcome HostThread::take(Id id, Peer& peer, const Message& said) {
  switch (peer.stage) {
    case Peer::Stage::tls:
    case Peer::Stage::greets: {
      Message told = greet(peer, said);
      return {.told = std::move(told), .goes_on = peer.stage == Peer::Stage::proves};
    }
    case Peer::Stage::proves: {
      if (said.contains("fence")) return {.told = fence(peer, said), .goes_on = false};
      if (said.contains("join")) return {.told = join(peer, said), .goes_on = false};
      Message told = open(id, peer, said);
      return {.told = std::move(told), .goes_on = peer.stage == Peer::Stage::is_linked};
    }
    case Peer::Stage::is_linked:
      if (net::text_of(said, "do") != "extend_soon") return {.told = requests_.answer(id, *peer.store, said)};
      requests_.extend_soon(*peer.store, net::number_of(said, "region").value_or(region_count_max),
                            net::number_of(said, "bytes").value_or(0));
      return {};
    case Peer::Stage::is_refused:
      break;
  }
  std::unreachable();
}

Message HostThread::refuse(Peer& peer, Errc code, const std::string& why) {
  refused_.fetch_add(1);
  warn_seldom(refusals_, fmt::format("{}: refused: {}", peer.name, why));
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
  Message told{{"protocol", remote::protocol_version}, {"nonce", peer.mine}};
  if (has_cookie(options_)) told["cookie"] = ::geteuid();
  return told;
}

std::string HostThread::why_unknown() const {
  if (!options_.key_file.empty()) return "the client does not know this host's key";
  if (!has_cookie(options_)) return "the client has a key, and this host has none";
  return fmt::format(
      "this lochd has no key_file, and lets in its own user ({}) and root alone, by {}, which clients "
      "without a key look for in their --directory, and use at its own addresses alone, not at one that "
      "leads on to it; others need a key_file (there, and here by --key-file), or its open_to_all",
      ::geteuid(), net::cookie_path(options_.cookie_directory, ::geteuid()));
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
  const bool has_other = !is_reader && all.other_key && knows(*all.other_key);
  const net::Secret own = has_cookie(options_) ? net::cookie_key(all.key, peer.came_to) : all.key;
  const net::Secret& key = is_reader ? *all.read_key : has_other ? *all.other_key : own;
  if (!is_reader && !has_other && !knows(key)) return refuse(peer, Errc::permission, why_unknown());
  const auto complain = [&](const Error& error) {
    log(Level::info, fmt::format("{}: {}", peer.name, error.message()));
    return net::error_message(error);
  };
  // Of this directory: a folder would be another's.
  if (!is_store_name(store))
    return refuse(peer, Errc::invalid_argument, "it asks for what is no store's name");
  auto of = options_.cluster_of ? options_.cluster_of(store) : std::nullopt;
  if (!of) return complain(of.error());
  auto fabric = options_.open_store(store);
  if (!fabric) return complain(fabric.error());
  if (is_reader && !has_room_to_read()) return refuse_to_read(peer);
  const bool reads_only = is_reader || asks_to_read;
  if (reads_only && !options_.readers.admit) return refusal(Errc::unavailable, "nobody can only read here");
  peer.store = std::make_shared<remote::OpenedStore>(remote::OpenedStore{.name = store,
                                                                         .reads_only = reads_only,
                                                                         .by_read_key = is_reader,
                                                                         .fabric = *fabric,
                                                                         .way = (*fabric)->connect(),
                                                                         .cluster = std::move(*of)});
  peer.secret = net::digest(key, {"link", peer.mine, peer.theirs});
  peer.stage = Peer::Stage::is_linked;
  strangers_.erase(id);
  if (peer.store->cluster) sessions_.end_those_of_before(peer.store);
  clients_.fetch_add(1);
  log(Level::info, fmt::format("{}: opened {}{}", peer.name, store, reads_only ? ", to read only" : ""));
  Message told{
      {"proof", net::proof(key, {"host", peer.mine, peer.theirs, store, remote::access_text(reads_only)})},
      {"link", id_text(id)},
      {"read_only", reads_only},
      {"device_atomics", (*fabric)->atomics() == Atomics::device}};
  if (peer.store->cluster) told.update(remote::membership(*peer.store->cluster));
  return told;
}

// Another host takes a session for dead.
Message HostThread::fence(Peer& peer, const Message& said) {
  const std::string session = net::text_of(said, "fence");
  const auto knows = [&](const net::Secret& key) {
    return net::same(net::text_of(said, "proof"),
                     net::proof(key, {"fence", peer.mine, peer.theirs, session}));
  };
  const net::Credentials all = credentials();
  if (!knows(all.key) && !(all.other_key && knows(*all.other_key))) {
    return refuse(peer, Errc::permission, "it would fence, and does not know this host's key");
  }
  sessions_.fence(session);
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
    return refusal(Errc::not_found, "it belongs to no client that is known here any more");
  }
  if (!net::same(net::text_of(said, "proof"),
                 net::proof(link->second.secret, {"join", peer.mine, peer.theirs, session}))) {
    return refuse(peer, Errc::permission, "it belongs to no client that is known here");
  }
  const std::shared_ptr<remote::OpenedStore>& store = link->second.store;
  if (store->cluster.has_value() == session.empty()) {
    return refuse(peer, Errc::incompatible,
                  session.empty() ? "a session of a cluster says what its hosts know it by"
                                  : "the store is of no cluster");
  }
  if (store->by_read_key && !has_room_to_read()) return refuse_to_read(peer);
  if (session.size() > remote::session_name_bytes_max) {
    return refuse(
        peer, Errc::invalid_argument,
        fmt::format("what a session is known by has at most {} bytes", remote::session_name_bytes_max));
  }
  if (const auto intact = store->fabric->intact(); !intact) {
    log(Level::info, fmt::format("{}: {}", peer.name, intact.error().message()));
    return net::error_message(intact.error());
  }
  if (sessions_.is_paused(store->name))
    return refusal(Errc::moved, "the host sees to what another one has lost; try again");
  const Id its_id = next_id_++;
  if (!peer.messages.say({{"port", its_id}}) || peer.messages.has_unsent()) {
    return refuse(peer, Errc::unavailable, "it does not take what it asked for");
  }
  sessions_.begin(its_id, link->first, store, session, std::move(peer.messages).take_stream());
  return std::nullopt;
}

void HostThread::end_peer(Id id) {
  const auto found = peers_.find(id);
  const Peer& peer = found->second;
  if (peer.stage == Peer::Stage::is_linked) {
    sessions_.end_those_of(id);
    clients_.fetch_sub(1);
    log(Level::info, fmt::format("{}: left {}", peer.name, peer.store->name));
  }
  strangers_.erase(id);
  peers_.erase(found);
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
  try {
    return std::make_unique<HostThread>(std::move(options), std::move(*credentials), std::move(*neighbour),
                                        std::move(listeners), std::move(lender));
  } catch (const std::system_error& error) {
    return exhausted(error.code());
  }
}

}  // namespace loch::fabric
