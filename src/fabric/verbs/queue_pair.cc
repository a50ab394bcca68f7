#include "fabric/verbs/queue_pair.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>

#include "fabric/verbs/connection_end.h"

namespace loch::fabric::verbs {
namespace {

// Of RDMA over Ethernet in software (Linux's rdma_rxe); of old kernels it has none.
constexpr std::uint32_t soft_roce_vendor = 0xff'ffff;

// Why a connection was rejected (InfiniBand Architecture Specification, "REJ"): by rdma_reject, and since
// nobody listens.
constexpr int consumer_defined = 28;
constexpr int invalid_service_id = 8;

std::unexpected<Error> rejected(const std::string& name, const rdma_cm_event& event) {
  const int reason = event.status;
  if (reason == consumer_defined) {
    const rdma_conn_param& said = event.param.conn;
    const std::uint8_t why =
        said.private_data_len == 0 ? 0 : *static_cast<const std::uint8_t*>(said.private_data);
    return fail(decode_refusal(why), "verbs",
                fmt::format("{}: the host refuses the queue pair; its lochd's log says why", name));
  }
  if (reason == invalid_service_id)
    return fail(Errc::unavailable, "verbs",
                fmt::format("{}: nobody lends over RDMA at that address; does lochd run there with verbs = "
                            "true, and is its RDMA device there (`rdma link`)?",
                            name));
  return fail(Errc::unavailable, "verbs",
              fmt::format("{}: the connection was rejected (reason {})", name, reason));
}

std::unexpected<Error> system_error(const std::string& name, const char* step, int error) {
  const char* hint = error == ENOMEM ? "; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)" : "";
  const Errc code = error == ENOMEM                     ? Errc::no_space
                    : error == EACCES || error == EPERM ? Errc::permission
                                                        : Errc::unavailable;
  return fail(code, "verbs", fmt::format("{}: {}: {}{}", name, step, std::strerror(error), hint));
}

// Kernels before Linux 5.12 may give a page that a device writes to the child of a fork, and a copy of it to
// the parent, which then sees nothing of what the device writes. There, children get no such pages from now
// on; elsewhere this does nothing. It fails in a program that has registered memory before, which has to see
// to that itself.
void prepare_to_fork() { [[maybe_unused]] static const int done = ::ibv_fork_init(); }

int left_ms(base::Nanos deadline) {
  const base::Nanos now = base::Clock().now();
  return static_cast<int>(deadline > now ? (deadline - now) / base::millisecond_ns + 1 : 1);
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::connect(const net::HostPort& to, const std::string& source,
                                                      std::string_view token, base::Nanos deadline) {
  std::unique_ptr<QueuePair> pair(new QueuePair);
  pair->name_ = to.text();
  prepare_to_fork();
  auto events = open_event_channel();
  if (!events) return std::unexpected(std::move(events.error()));
  pair->events_ = std::move(*events);
  Result<void> done = pair->resolve(to, source, deadline);
  if (done) done = pair->make();
  if (done) done = pair->establish(token, deadline);
  if (!done) return std::unexpected(std::move(done.error()));
  return pair;
}

QueuePair::~QueuePair() {
  // So that the other end need not find out by itself.
  if (pair_ != nullptr) ::rdma_disconnect(id_.get());
}

Result<void> QueuePair::resolve(const net::HostPort& to, const std::string& source, base::Nanos deadline) {
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(events_.get(), &id, nullptr, RDMA_PS_TCP) != 0)
    return system_error(name_, "no identifier", errno);
  id_.reset(id);
  auto address = net::look_up(to, deadline);
  if (!address) return std::unexpected(std::move(address.error()));
  net::SocketAddress from;
  if (!source.empty()) {
    auto found = net::look_up({.host = source, .port = "0"}, deadline);
    if (!found) return std::unexpected(std::move(found.error()));
    from = *found;
  }
  if (::rdma_resolve_addr(id, source.empty() ? nullptr : from.get(), address->get(), left_ms(deadline)) != 0)
    return system_error(name_, "no RDMA device leads there", errno);
  if (auto done = await(RDMA_CM_EVENT_ADDR_RESOLVED, "no RDMA device leads there", deadline); !done)
    return done;
  std::uint8_t timeout = ack_timeout;
  if (::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) != 0)
    return system_error(name_, "the ACK timeout can not be set", errno);
  if (::rdma_resolve_route(id, left_ms(deadline)) != 0) return system_error(name_, "no route", errno);
  return await(RDMA_CM_EVENT_ROUTE_RESOLVED, "no route", deadline);
}

Result<void> QueuePair::make() {
  ibv_context* device = id_->verbs;
  domain_.reset(::ibv_alloc_pd(device));
  if (domain_ == nullptr) return system_error(name_, "no protection domain", errno);
  completions_ = open_completion_channel(device);
  if (completions_ == nullptr) return system_error(name_, "no completion channel", errno);
  queue_.reset(::ibv_create_cq(device, depth, nullptr, completions_.get(), 0));
  if (queue_ == nullptr) return system_error(name_, "no completion queue", errno);
  buffer_ = std::make_unique_for_overwrite<Buffer>();
  region_ = register_memory(domain_.get(), buffer(), buffer_bytes, IBV_ACCESS_LOCAL_WRITE);
  if (region_ == nullptr) return system_error(name_, "the session's memory can not be registered", errno);
  // The longest payload that goes inline differs from device to device, and is only known by asking for it.
  int error = 0;
  for (const std::uint32_t inline_bytes : {220U, 64U, 0U}) {
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = wanted.recv_cq = queue_.get();
    wanted.cap = {.max_send_wr = depth,
                  .max_recv_wr = 1,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = inline_bytes};
    pair_ = make_queue_pair(*id_, domain_.get(), wanted);
    if (pair_ != nullptr) {
      inline_bytes_max_ = inline_bytes;
      return {};
    }
    error = errno;
  }
  return system_error(name_, "no queue pair", error);
}

Result<void> QueuePair::establish(std::string_view token, base::Nanos deadline) {
  ibv_device_attr device{};
  if (const int error = ::ibv_query_device(id_->verbs, &device); error != 0)
    return system_error(name_, "the device does not say what it can", error);
  is_in_software_ = device.vendor_id == soft_roce_vendor || device.vendor_id == 0;
  rdma_conn_param wanted{};
  wanted.private_data = token.data();
  wanted.private_data_len = static_cast<std::uint8_t>(token.size());
  // The other end may lower it, and the device holds back those beyond it.
  wanted.initiator_depth = asked_depth(device.max_qp_init_rd_atom);
  wanted.retry_count = retry_count;
  wanted.rnr_retry_count = receiver_not_ready_retry_count;
  if (::rdma_connect(id_.get(), &wanted) != 0) return system_error(name_, "no connection", errno);
  return await(RDMA_CM_EVENT_ESTABLISHED, "no connection", deadline);
}

Result<void> QueuePair::await(rdma_cm_event_type wanted, const char* step, base::Nanos deadline) {
  const Event event = wait_event(*events_, deadline);
  if (event == nullptr)
    return fail(Errc::timed_out, "verbs", fmt::format("{}: {}: no answer in time", name_, step));
  if (event->event == wanted) return {};
  if (event->event == RDMA_CM_EVENT_REJECTED) return rejected(name_, *event);
  return fail(Errc::unavailable, "verbs",
              fmt::format("{}: {}: {} ({})", name_, step, ::rdma_event_str(event->event),
                          std::strerror(event->status < 0 ? -event->status : event->status)));
}

Result<RdmaConnection> QueuePair::describe() const {
  auto here = connection_end_of(*id_);
  if (!here) return std::unexpected(std::move(here.error()));
  ibv_qp_attr agreed{};
  ibv_qp_init_attr made{};
  const int error = ::ibv_query_qp(pair_->qp, &agreed, IBV_QP_PATH_MTU | IBV_QP_MAX_QP_RD_ATOMIC, &made);
  if (error != 0) return system_error(name_, "the queue pair does not say what it is", error);
  return RdmaConnection{.host = name_,
                        .here = std::move(*here),
                        .packet_bytes = bytes_of(agreed.path_mtu),
                        .reads_max = agreed.max_rd_atomic};
}

int QueuePair::post(ibv_send_wr& chain) {
  ibv_send_wr* refused = nullptr;
  return ::ibv_post_send(pair_->qp, &chain, &refused);
}

std::size_t QueuePair::poll(std::span<ibv_wc> completions) {
  const int count = ::ibv_poll_cq(queue_.get(), static_cast<int>(completions.size()), completions.data());
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

void QueuePair::arm() { ::ibv_req_notify_cq(queue_.get(), 0); }

void QueuePair::disarm() {
  take_notices(*completions_, [](void* /*context*/) {});
}

bool QueuePair::is_broken_off() {
  while (const Event event = next_event(*events_)) {
    is_broken_off_ = is_broken_off_ || event->event == RDMA_CM_EVENT_DISCONNECTED ||
                     event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
  }
  return is_broken_off_;
}

}  // namespace loch::fabric::verbs
