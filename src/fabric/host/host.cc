#include "fabric/host.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fabric/host/gate.h"
#include "fabric/host/log.h"
#include "fabric/host/peers.h"
#include "fabric/host/requests.h"
#include "fabric/host/seldom.h"
#include "fabric/host/sessions.h"
#include "fabric/remote/protocol.h"
#include "fabric/verbs/lender.h"
#include "net/credentials.h"
#include "net/message.h"
#include "net/proof.h"

namespace loch::fabric {
namespace {

using host::Gate;
using host::OpenedStore;
using host::Peer;
using host::Peers;
using host::Sessions;
using net::Message;
using Id = Sessions::Id;

Message refusal(Errc code, std::string detail) {
  return net::error_message({.code = code, .detail = std::move(detail)});
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

// The shorter one of two waits, of which nothing is for ever, as poll(2) has it.
int in_milliseconds(std::optional<base::Nanos> one, std::optional<base::Nanos> other) {
  constexpr base::Nanos for_ever = std::numeric_limits<base::Nanos>::max();
  const base::Nanos wait_ns = std::min(one.value_or(for_ever), other.value_or(for_ever));
  if (wait_ns == for_ever) return -1;
  return static_cast<int>((wait_ns + base::millisecond_ns - 1) / base::millisecond_ns);
}

class HostThread final : public Host {
 public:
  HostThread(Options options, std::unique_ptr<Gate> gate,
             std::shared_ptr<net::ClientCredentials> neighbour_credentials,
             std::vector<net::Listener> listeners, std::unique_ptr<verbs::Lender> lender)
      : options_(std::move(options)),
        gate_(std::move(gate)),
        lender_(std::move(lender)),
        woken_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        sessions_(
            options_, lender_.get(), [this] { wake(); }, std::move(neighbour_credentials)),
        peers_(options_, *gate_, std::move(listeners),
               {.take = [this](Id id, Peer& peer, const Message& said) { return take(id, peer, said); },
                .left = [this](Id id, const Peer& peer) { end_link(id, peer); },
                .sessions = [this] { return sessions_.size(); }}) {
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

  [[nodiscard]] std::vector<std::uint16_t> ports() const override { return peers_.ports(); }

  [[nodiscard]] Counts counts() const override {
    const tcp::Agent::Counts agent = sessions_.agent_counts();
    return {.clients = clients_,
            .sessions = sessions_.count(),
            .refused = peers_.refused(),
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
  Result<void> reload() override { return gate_->reload(); }

 private:
  using Outcome = Peers::Outcome;

  void run();
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
  }
  void log(Level level, const std::string& text) const { host::log(options_, level, text); }
  void serve_lender();

  Outcome take(Id id, Peer& peer, const Message& said);
  Message greet(Peer& peer, const Message& said);
  Message open(Id id, Peer& peer, const Message& said);
  [[nodiscard]] std::byte* time_of(Fabric& store) const {
    return options_.time_of ? options_.time_of(store) : nullptr;
  }
  // Hands the connection on to the agent, or says why not.
  std::optional<Message> join(Peer& peer, const Message& said);
  Message fence(const Peer& peer, const Message& said);
  // Whether a cluster that has the store calls this host so.
  [[nodiscard]] bool is_called(const std::string& node, const std::string& store) const;
  void end_link(Id id, const Peer& peer);
  // Whether there is room for one more of those who know the key for reading alone. They have a part of the
  // connections, so that they keep nobody out either.
  [[nodiscard]] bool has_room_to_read() const;
  Message refuse_to_read(const Peer& peer);
  Message complain(const Peer& peer, const Error& error);

  const Options options_;
  const std::unique_ptr<Gate> gate_;
  const std::unique_ptr<verbs::Lender> lender_;  // of the thread alone; null: no verbs
  const base::FileDescriptor woken_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> clients_ = 0;

  // Of the thread, but for what says otherwise.
  Sessions sessions_;
  Peers peers_;
  host::Requests requests_{options_, sessions_, lender_.get()};
  host::Seldom refused_pairs_{10};
  std::thread thread_;
};

void HostThread::run() {
  std::vector<pollfd> waits;
  while (!stop_) {
    waits.clear();
    waits.push_back({.fd = woken_.get(), .events = POLLIN, .revents = 0});
    waits.push_back({.fd = lender_ != nullptr ? lender_->descriptor() : -1, .events = POLLIN, .revents = 0});
    const std::size_t before_peers = waits.size();
    const int wait_ms = in_milliseconds(peers_.await(&waits), sessions_.look_in());
    if (::poll(waits.data(), waits.size(), wait_ms) < 0) continue;

    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(woken_.get(), &count, sizeof count);
    sessions_.look();
    serve_lender();
    peers_.serve(std::span(waits).subspan(before_peers));
  }
  sessions_.stop();
  peers_.end_all();
}

void HostThread::serve_lender() {
  if (lender_ == nullptr) return;
  const verbs::Lender::Served served = lender_->serve();
  for (const std::string& why : served.refusals)
    host::warn_seldom(options_, refused_pairs_, fmt::format("a queue pair was refused: {}", why));
  for (const std::string& at : served.lost) {
    log(Level::warning,
        fmt::format("{}: its RDMA device is gone, so nobody can open a store over verbs there; it is looked "
                    "for each second",
                    at));
  }
  for (const std::string& at : served.found_again)
    log(Level::info, fmt::format("{}: it has an RDMA device again, and lends over verbs", at));
  for (const auto& [session, foreseen] : served.foreseen) {
    if (auto* store = sessions_.store_of(session); store != nullptr)
      requests_.extend_soon(*store, foreseen.region, foreseen.length_bytes);
  }
  for (const Id session : served.ended) sessions_.end(session, Sessions::End::is_dead);
}

// ---- what peers ask for, by how far they have come

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

Message HostThread::greet(Peer& peer, const Message& said) {
  auto told = gate_->greet(said, peer.greeting);
  if (!told) return peers_.refuse(peer, told.error().code, told.error().detail);
  peer.stage = Peer::Stage::proves;
  return std::move(*told);
}

Message HostThread::open(Id id, Peer& peer, const Message& said) {
  const auto client = gate_->let_open(said, peer.greeting);
  if (!client) return peers_.refuse(peer, client.error().code, client.error().detail);
  const std::string store = net::text_of(said, "open");
  // Of this directory: a folder would be another's.
  if (!is_store_name(store))
    return peers_.refuse(peer, Errc::invalid_argument, "it asks for what is no store's name");
  auto of = options_.cluster_of ? options_.cluster_of(store) : std::nullopt;
  if (!of) return complain(peer, of.error());
  auto fabric = options_.open_store(store);
  if (!fabric) return complain(peer, fabric.error());
  if (client->by_read_key && !has_room_to_read()) return refuse_to_read(peer);
  const bool reads_only = client->reads_only;
  if (reads_only && !options_.readers.admit) return refusal(Errc::unavailable, "nobody can only read here");
  const auto opened = std::make_shared<OpenedStore>(OpenedStore{.name = store,
                                                                .reads_only = reads_only,
                                                                .by_read_key = client->by_read_key,
                                                                .fabric = *fabric,
                                                                .way = (*fabric)->connect(),
                                                                .time = time_of(**fabric),
                                                                .cluster = std::move(*of)});
  if (opened->cluster) {
    if (auto ended = sessions_.end_those_of_before(opened); !ended) return complain(peer, ended.error());
  }
  peer.store = opened;
  peer.link_name = net::random_hex(remote::nonce_bytes);
  peer.secret = client->link_secret;
  peers_.link(id, peer);
  clients_.fetch_add(1);
  log(Level::info, fmt::format("{}: opened {}{}", peer.name, store, reads_only ? ", to read only" : ""));
  Message told{{"proof", client->proof},
               {"link", peer.link_name},
               {"read_only", reads_only},
               {"device_atomics", (*fabric)->atomics() == Atomics::device}};
  if (peer.store->cluster) told.update(host::membership(*peer.store->cluster));
  return told;
}

// Another host takes a session for dead.
Message HostThread::fence(const Peer& peer, const Message& said) {
  const auto proof = gate_->let_fence(said, peer.greeting);
  if (!proof) return peers_.refuse(peer, proof.error().code, proof.error().detail);
  // Else what another host is asked could be passed on to this one, which knows the same key.
  if (!is_called(net::text_of(said, "node"), net::text_of(said, "store")))
    return peers_.refuse(peer, Errc::not_found, "it would have another host than this one end a session");
  sessions_.fence(net::text_of(said, "fence"));
  return Message{{"proof", *proof}};
}

bool HostThread::is_called(const std::string& node, const std::string& store) const {
  const auto of = options_.cluster_of ? options_.cluster_of(store) : std::nullopt;
  if (!of || !*of) return false;
  const auto& nodes = (*of)->map.nodes;
  return (*of)->node < nodes.size() && nodes[(*of)->node].name == node;
}

std::optional<Message> HostThread::join(Peer& peer, const Message& said) {
  const std::string session = net::text_of(said, "session");
  const auto link = peers_.link_of(net::text_of(said, "join"));
  if (!link) {
    log(Level::debug, fmt::format("{}: would join a client that is gone", peer.name));
    return refusal(Errc::not_found, "it belongs to no client that is known here any more");
  }
  const auto& [link_id, client] = *link;
  if (const auto may = Gate::let_join(said, peer.greeting, client->secret); !may)
    return peers_.refuse(peer, may.error().code, may.error().detail);
  const std::shared_ptr<OpenedStore>& store = client->store;
  if (store->cluster.has_value() == session.empty()) {
    return peers_.refuse(peer, Errc::incompatible,
                         session.empty() ? "a session of a cluster says what its hosts know it by"
                                         : "the store is of no cluster");
  }
  if (store->by_read_key && !has_room_to_read()) return refuse_to_read(peer);
  if (store->cluster && !remote::is_session_name(session)) {
    return peers_.refuse(peer, Errc::invalid_argument,
                         fmt::format("what a session is known by has at most {} bytes, of letters and digits",
                                     remote::session_name_bytes_max));
  }
  if (const auto intact = store->fabric->intact(); !intact) return complain(peer, intact.error());
  if (!store->fabric->is_published())
    return refusal(Errc::not_found,
                   fmt::format("{} was removed since it was opened; open it again", store->name));
  if (sessions_.is_paused(store->name))
    return refusal(Errc::moved, "the host sees to what another one has lost; try again");
  const Id its_id = peers_.new_id();
  if (!peer.messages.say({{"port", its_id}}) || peer.messages.has_unsent())
    return peers_.refuse(peer, Errc::unavailable, "it does not take what it asked for");
  sessions_.begin(its_id, link_id, store, session, std::move(peer.messages).take_stream());
  return std::nullopt;
}

void HostThread::end_link(Id id, const Peer& peer) {
  sessions_.end_those_of(id);
  clients_.fetch_sub(1);
  log(Level::info, fmt::format("{}: left {}", peer.name, peer.store->name));
}

bool HostThread::has_room_to_read() const {
  return peers_.links_by_read_key() + sessions_.size_by_read_key() < options_.connections_max / 2;
}

Message HostThread::refuse_to_read(const Peer& peer) {
  return peers_.refuse(peer, Errc::unavailable,
                       fmt::format("clients that know the key for reading alone have half of the {} "
                                   "connections already; raise connections_max there",
                                   options_.connections_max));
}

Message HostThread::complain(const Peer& peer, const Error& error) {
  peers_.note(peer, error.message());
  return net::error_message(error);
}

}  // namespace

Result<std::unique_ptr<Host>> Host::start(Options options) {
  auto gate = Gate::open({.key = options.key_file,
                          .other = options.other_key_file,
                          .read = options.read_key_file,
                          .cookie_directory = options.cookie_directory},
                         options.tls);
  if (!gate) return std::unexpected(std::move(gate.error()));
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
    return std::make_unique<HostThread>(std::move(options), std::move(*gate), std::move(*neighbour),
                                        std::move(listeners), std::move(lender));
  } catch (const std::system_error& error) {
    return exhausted(error.code());
  }
}

}  // namespace loch::fabric
