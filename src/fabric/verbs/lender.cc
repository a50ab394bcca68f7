#include "fabric/verbs/lender.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <span>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

#include "net/proof.h"

namespace loch::fabric::verbs {
namespace {

// No registration takes longer than a tenth of a second or so, since others wait for the thread meanwhile.
constexpr std::uint64_t lent_bytes_max = std::uint64_t{256} << 20;
// How long what no session uses any more stays registered, and how often one of its pieces is let go of then.
constexpr base::Nanos rest_ns = 5 * base::second_ns;
constexpr base::Nanos let_go_every_ns = 100 * base::millisecond_ns;
// Messages of a session that may come before they are looked at; more wait at its own end.
constexpr int messages_max = 4;

// 0, or the error.
int expect_message(ibv_qp* pair) {
  ibv_recv_wr request{};  // of nothing but an immediate
  ibv_recv_wr* refused = nullptr;
  return ::ibv_post_recv(pair, &request, &refused);
}

// 0: never.
void tick_every(const base::FileDescriptor& timer, base::Nanos interval_ns) {
  const timespec interval{.tv_sec = static_cast<time_t>(interval_ns / base::second_ns),
                          .tv_nsec = static_cast<long>(interval_ns % base::second_ns)};
  const itimerspec times{.it_interval = interval, .it_value = interval};
  ::timerfd_settime(timer.get(), 0, &times, nullptr);
}

// Whether it has ticked since the last time.
bool has_ticked(const base::FileDescriptor& timer) {
  std::uint64_t times = 0;
  return ::read(timer.get(), &times, sizeof times) == sizeof times;
}

template <class Address>
void copy_without_port(const sockaddr* from, in_port_t Address::* port, sockaddr_storage* into) {
  Address address;
  std::memcpy(&address, from, sizeof address);
  address.*port = 0;
  std::memcpy(into, &address, sizeof address);
}

// At the address of this end of a connection. Null, and errno, if there is none.
Id make_anchor(rdma_event_channel* events, rdma_cm_id& connection) {
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(events, &made, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  Id anchor(made);
  const sockaddr* const here = ::rdma_get_local_addr(&connection);
  net::SocketAddress at;
  if (here->sa_family == AF_INET6) {
    copy_without_port(here, &sockaddr_in6::sin6_port, &at.storage);
  } else {
    copy_without_port(here, &sockaddr_in::sin_port, &at.storage);
  }
  return ::rdma_bind_addr(made, at.get()) == 0 ? std::move(anchor) : nullptr;
}

}  // namespace

// Memory of a store, registered with a device.
struct Lender::Lent {
  std::shared_ptr<Fabric> memory;  // for as long as it is registered
  std::unique_ptr<Port> way = memory->connect();
  Keys keys{};
  std::vector<MemoryRegion> registered{};  // that they are of
};

// One protection domain of a device.
struct Lender::Device {
  Id anchor{};  // which keeps the device open, whatever becomes of sessions
  ProtectionDomain domain{};
  CompletionChannel channel{};  // tells of the sessions' completion queues
  std::map<Fabric*, std::weak_ptr<Lent>> lent{};
  bool is_gone = false;  // from the host
};

// What was lent by a device, and no session uses any more.
struct Lender::Resting {
  std::shared_ptr<Device> device;  // ends after what is on it
  std::shared_ptr<Lent> lent;
  base::Nanos until = 0;
};

struct Lender::Session {
  std::string token;
  std::shared_ptr<Fabric> memory;
  bool device_changes = false;
  Id id{};                           // ends after all that is on its device
  std::shared_ptr<Device> device{};  // null until it has come
  std::shared_ptr<Lent> lent{};
  CompletionQueue completions{};  // of what it receives
  PairOfId pair{};                // ends before what it uses
};

Lender::~Lender() = default;

Result<std::unique_ptr<Lender>> Lender::start(const std::vector<net::HostPort>& at) {
  std::unique_ptr<Lender> lender(new Lender);
  auto events = open_event_channel();
  if (!events) return std::unexpected(std::move(events.error()));
  lender->events_ = std::move(*events);
  lender->ready_ = base::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (auto watched = lender->watch(lender->events_->fd); !watched)
    return std::unexpected(std::move(watched.error()));
  for (base::FileDescriptor* timer : {&lender->listening_timer_, &lender->letting_go_timer_}) {
    *timer = base::FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (auto watched = lender->watch(timer->get()); !watched)
      return std::unexpected(std::move(watched.error()));
  }
  for (const net::HostPort& each : at) {
    auto address = net::look_up(each, base::Clock().now() + net::look_up_max_ns);
    if (!address) return std::unexpected(std::move(address.error()));
    Listener& listener = lender->listeners_.emplace_back(Listener{.at = each, .address = *address});
    if (auto listening = lender->listen(listener); !listening)
      return std::unexpected(std::move(listening.error()));
  }
  return lender;
}

Result<void> Lender::listen(Listener& listener) const {
  const auto failed = [&](const char* step) {
    const int error = errno;
    return fail(error == ENODEV || error == EADDRNOTAVAIL ? Errc::unavailable : Errc::io, "verbs",
                fmt::format("{}: {}: {}", listener.at.text(), step, std::strerror(error)));
  };
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(events_.get(), &made, nullptr, RDMA_PS_TCP) != 0) return failed("no identifier");
  Id id(made);
  constexpr int backlog = 128;
  if (::rdma_bind_addr(made, listener.address.get()) != 0)
    return failed("no RDMA device has this address (`rdma link` lists them)");
  if (::rdma_listen(made, backlog) != 0) return failed("it can not be listened at");
  listener.id = std::move(id);
  return {};
}

Result<void> Lender::watch(int descriptor) const {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return fail(Errc::io, "verbs", fmt::format("a device can not be waited for: {}", std::strerror(errno)));
}

Lender::Served Lender::serve() {
  Served served;
  // First, so that no message is taken for one of a session that gets the same queue pair's number.
  for (const auto& [of, known] : devices_) {
    if (const auto device = known.lock(); device != nullptr) {
      take_notices(*device->channel, [&](void* context) {
        const auto& [id, session] = *static_cast<const decltype(sessions_)::value_type*>(context);
        take_messages(id, session, &served);
      });
    }
  }
  serve_events(&served);
  listen_again(&served);
  let_go();
  return served;
}

void Lender::lose(Listener& listener, Served* served) {
  listener.id = nullptr;
  served->lost.push_back(listener.at.text());
  tick_every(listening_timer_, base::second_ns);
}

// Nothing that is on them may be kept any longer than the sessions that use it.
void Lender::lose_devices(const ibv_context* context) {
  for (const auto& [of, known] : devices_) {
    if (const auto device = known.lock(); device != nullptr && of.first == context) device->is_gone = true;
  }
  std::erase_if(resting_, [](const Resting& each) { return each.device->is_gone; });
}

void Lender::listen_again(Served* served) {
  const auto is_lost = [](const Listener& listener) { return listener.id == nullptr; };
  if (std::ranges::none_of(listeners_, is_lost)) return;
  if (!has_ticked(listening_timer_)) return;
  for (Listener& listener : listeners_) {
    if (is_lost(listener) && listen(listener)) served->found_again.push_back(listener.at.text());
  }
  if (std::ranges::none_of(listeners_, is_lost)) tick_every(listening_timer_, 0);
}

// Of what has rested, one piece.
void Lender::let_go() {
  if (!has_ticked(letting_go_timer_)) return;
  if (!resting_.empty() && base::Clock().now() >= resting_.front().until) {
    const auto& [device, lent, until] = resting_.front();
    device->lent.erase(lent->memory.get());  // who comes now is lent it anew
    if (!lent->registered.empty()) lent->registered.pop_back();
    if (lent->registered.empty()) resting_.erase(resting_.begin());
  }
  if (resting_.empty()) tick_every(letting_go_timer_, 0);
}

void Lender::take_messages(SessionId id, const Session& session, Served* served) {
  ::ibv_req_notify_cq(session.completions.get(), 0);
  std::array<ibv_wc, messages_max> received;
  const int count = ::ibv_poll_cq(session.completions.get(), messages_max, received.data());
  for (const ibv_wc& message : std::span(received).first(static_cast<std::size_t>(std::max(count, 0)))) {
    // Of a queue pair that has ended: its event comes, too.
    if (message.status != IBV_WC_SUCCESS || expect_message(session.pair->qp) != 0) continue;
    if ((message.wc_flags & IBV_WC_WITH_IMM) != 0)
      served->foreseen.emplace_back(id, ExtendSoon::decode(ntohl(message.imm_data)));
  }
}

void Lender::serve_events(Served* served) {
  constexpr int at_once_max = 64;  // the others wait with the kernel
  for (int i = 0; i < at_once_max; ++i) {
    Event event = next_event(*events_);
    if (event == nullptr) return;
    rdma_cm_id* id = event->id;
    switch (event->event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        const rdma_conn_param& conn = event->param.conn;
        const Shown shown{.token{static_cast<const char*>(conn.private_data),
                                 std::min<std::size_t>(conn.private_data_len, token_digits)},
                          .depth = conn.responder_resources};
        event = nullptr;
        if (const auto taken = take_request(Id(id), shown); !taken)
          served->refusals.push_back(taken.error().detail);
        break;
      }
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        event = nullptr;
        lose_devices(id->verbs);
        if (const auto listener =
                std::ranges::find(listeners_, id, [](const Listener& each) { return each.id.get(); });
            listener != listeners_.end()) {
          lose(*listener, served);
          break;
        }
        [[fallthrough]];
      case RDMA_CM_EVENT_DISCONNECTED:
      case RDMA_CM_EVENT_CONNECT_ERROR:
      case RDMA_CM_EVENT_UNREACHABLE:
      case RDMA_CM_EVENT_REJECTED: {
        const auto found =
            std::ranges::find_if(sessions_, [id](const auto& s) { return s.second.id.get() == id; });
        if (found != sessions_.end()) served->ended.push_back(found->first);
        break;
      }
      default:
        break;
    }
  }
}

Lender::Offer Lender::expect(SessionId session, std::shared_ptr<Fabric> memory, bool reads_only) {
  Offer offer{.token = net::random_hex(token_bytes),
              .device_changes = memory->atomics() == Atomics::device && !reads_only};
  remove(session);  // with the queue pair that it had, if it asks for another
  sessions_.emplace(
      session,
      Session{.token = offer.token, .memory = std::move(memory), .device_changes = offer.device_changes});
  return offer;
}

// A client has come. What does not show the token of a session that is waited for is turned away.
Result<void> Lender::take_request(Id id, const Shown& shown) {
  const auto refuse = [&id](Errc code, std::string why) {
    const std::uint8_t said = encode_refusal(code);
    ::rdma_reject(id.get(), &said, sizeof said);
    return fail(code, "verbs", std::move(why));
  };
  const auto found = std::ranges::find_if(sessions_, [&shown](const auto& session) {
    return session.second.device == nullptr && net::same(session.second.token, shown.token);
  });
  if (found == sessions_.end())
    return refuse(Errc::permission, "a queue pair of no session that is waited for");
  Session& session = found->second;
  auto device = device_of(*id, session.device_changes);
  if (!device) return refuse(Errc::unavailable, device.error().detail);
  if (!may_use(**device, session)) {
    return refuse(Errc::incompatible,
                  fmt::format("{}: another device than {} changes this store; clients have to come in by one "
                              "device of this host",
                              session.memory->location(), ::ibv_get_device_name(id->verbs->device)));
  }
  const auto failed = [&](const char* step, int error) {
    return refuse(Errc::unavailable, fmt::format("{}: {}: {}", ::ibv_get_device_name(id->verbs->device), step,
                                                 std::strerror(error)));
  };
  ibv_device_attr limits{};
  if (const int error = ::ibv_query_device(id->verbs, &limits); error != 0)
    return failed("it does not say what it can", error);
  if (session.device_changes && limits.atomic_cap == IBV_ATOMIC_NONE) {
    return refuse(Errc::incompatible,
                  fmt::format("{}: a device is to change this store's words, and {} has no atomics; create "
                              "it again with --atomics processor",
                              session.memory->location(), ::ibv_get_device_name(id->verbs->device)));
  }
  CompletionQueue completions(::ibv_create_cq(id->verbs, messages_max, &*found, (*device)->channel.get(), 0));
  if (completions == nullptr) return failed("no completion queue", errno);
  if (const int error = ::ibv_req_notify_cq(completions.get(), 0); error != 0)
    return failed("its completion queue tells of nothing", error);
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = completions.get();
  wanted.cap = {.max_send_wr = 1,
                .max_recv_wr = messages_max,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  PairOfId pair = make_queue_pair(*id, (*device)->domain.get(), wanted);
  if (pair == nullptr) return failed("no queue pair", errno);
  for (int i = 0; i < messages_max; ++i) {
    if (const int error = expect_message(pair->qp); error != 0)
      return failed("nothing can be received", error);
  }
  rdma_conn_param granted{};
  granted.responder_resources = granted_depth(limits.max_qp_rd_atom, shown.depth);
  granted.rnr_retry_count = receiver_not_ready_retry_count;
  if (::rdma_accept(id.get(), &granted) != 0) return failed("no connection", errno);
  std::erase_if((*device)->lent, [](const auto& each) { return each.second.expired(); });
  auto& lent = (*device)->lent[session.memory.get()];
  session.lent = lent.lock();
  if (session.lent == nullptr) {
    session.lent = std::make_shared<Lent>(session.memory);
    lent = session.lent;
  }
  std::erase_if(resting_, [&session](const Resting& each) { return each.lent == session.lent; });
  session.device = std::move(*device);
  session.completions = std::move(completions);
  session.id = std::move(id);
  session.pair = std::move(pair);
  return {};
}

// The atomics of two devices are not atomic against each other, so one alone changes a store.
bool Lender::may_use(const Device& device, const Session& session) const {
  return !session.device_changes || std::ranges::none_of(sessions_, [&](const auto& other) {
    return other.second.device_changes && other.second.memory->location() == session.memory->location() &&
           other.second.device != nullptr && other.second.device.get() != &device;
  });
}

Result<std::shared_ptr<Lender::Device>> Lender::device_of(rdma_cm_id& id, bool changes) {
  std::erase_if(devices_, [](const auto& each) { return each.second.expired(); });
  auto& known = devices_[{id.verbs, changes}];
  if (auto device = known.lock(); device != nullptr) return device;
  auto device = std::make_shared<Device>();
  device->anchor = make_anchor(events_.get(), id);
  if (device->anchor != nullptr) device->domain.reset(::ibv_alloc_pd(id.verbs));
  if (device->domain != nullptr) device->channel = open_completion_channel(id.verbs);
  if (device->channel == nullptr)
    return fail(Errc::io, "verbs", fmt::format("the device takes nothing on: {}", std::strerror(errno)));
  if (auto watched = watch(device->channel->fd); !watched) return std::unexpected(std::move(watched.error()));
  known = device;
  return device;
}

void Lender::remove(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  auto device = found->second.device;
  auto lent = found->second.lent;
  sessions_.erase(found);
  if (lent == nullptr || lent.use_count() != 1 || device->is_gone) return;
  resting_.push_back(
      {.device = std::move(device), .lent = std::move(lent), .until = base::Clock().now() + rest_ns});
  if (resting_.size() == 1) tick_every(letting_go_timer_, let_go_every_ns);
}

Result<const Lender::Session*> Lender::connected(SessionId session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.device == nullptr)
    return fail(Errc::unavailable, "verbs", "the session has no queue pair");
  return &found->second;
}

Result<ConnectionEnd> Lender::end_of(SessionId session) const {
  const auto its = connected(session);
  if (!its) return std::unexpected(its.error());
  return connection_end_of(*(*its)->id);
}

Result<Keys::Key> Lender::key(SessionId session, RegionId region, std::uint64_t offset_bytes) {
  const auto found = connected(session);
  if (!found) return std::unexpected(found.error());
  const Session& its = **found;
  Lent& lent = *its.lent;
  if (const Keys::Key* known = lent.keys.find(region, offset_bytes); known != nullptr) return *known;
  const std::uint64_t chunk = offset_bytes / lent_bytes_max * lent_bytes_max;
  const std::uint64_t from = std::max(chunk, lent.keys.end_before(region, offset_bytes));
  const auto mapping = lent.way->map(region);
  if (!mapping) return std::unexpected(mapping.error());
  const std::uint64_t to = std::min(chunk + lent_bytes_max, mapping->length_bytes);
  if (offset_bytes >= to || mapping->base == nullptr)
    return fail(Errc::not_found, "verbs", fmt::format("region {} does not go as far as that", region));
  const int access =
      IBV_ACCESS_REMOTE_READ |
      (its.device_changes ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC : 0);
  const auto register_it = [&, from] {
    return register_memory(its.device->domain.get(), mapping->base + from, to - from, access);
  };
  MemoryRegion registered = register_it();
  if (registered == nullptr && errno == ENOMEM && !resting_.empty()) {
    resting_.clear();  // the room is for what is used
    registered = register_it();
  }
  if (registered == nullptr) {
    const int error = errno;
    return fail(
        error == ENOMEM ? Errc::no_space : Errc::io, "verbs",
        fmt::format(
            "{} bytes of region {} can not be registered: {}{}", to - from, region, std::strerror(error),
            error == ENOMEM ? "; raise the limit of locked memory of lochd (LimitMEMLOCK=, ulimit -l)" : ""));
  }
  const Keys::Key key{.from_bytes = from,
                      .length_bytes = to - from,
                      .address = reinterpret_cast<std::uintptr_t>(mapping->base + from),
                      .key = registered->rkey};
  if (!lent.keys.add(region, offset_bytes, key))
    return fail(Errc::corrupt, "verbs", fmt::format("region {} is longer than a region can be", region));
  lent.registered.push_back(std::move(registered));
  return key;
}

}  // namespace loch::fabric::verbs
