#include "fabric/verbs/rdma.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include "net/socket.h"

namespace loch::fabric::verbs {

Result<EventChannel> open_event_channel() {
  EventChannel channel(::rdma_create_event_channel());
  if (channel == nullptr) {
    const int error = errno;
    return fail(
        error == EACCES || error == EPERM ? Errc::permission : Errc::unavailable, "verbs",
        fmt::format("this host has no way to an RDMA device: {}; it needs a device (ibv_devices lists them), "
                    "the kernel module rdma_ucm, and access to /dev/infiniband",
                    std::strerror(error)));
  }
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return fail(Errc::io, "verbs", fmt::format("the event channel: {}", std::strerror(errno)));
  return channel;
}

Event next_event(rdma_event_channel& channel) {
  rdma_cm_event* event = nullptr;
  return Event(::rdma_get_cm_event(&channel, &event) == 0 ? event : nullptr);
}

Event wait_event(rdma_event_channel& channel, base::Nanos deadline) {
  for (;;) {
    if (Event event = next_event(channel); event != nullptr) return event;
    // A channel that has failed is ready at once, and has no event.
    if (!net::wait_for(channel.fd, POLLIN, deadline) || base::Clock().now() >= deadline) return nullptr;
  }
}

CompletionChannel open_completion_channel(ibv_context* device) {
  CompletionChannel channel(::ibv_create_comp_channel(device));
  if (channel == nullptr) return nullptr;
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) return nullptr;
  return channel;
}

void take_notices(ibv_comp_channel& channel, const std::function<void(void* context)>& each) {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (::ibv_get_cq_event(&channel, &queue, &context) == 0) {
    ::ibv_ack_cq_events(queue, 1);
    each(context);
  }
}

RdmaDevice::Atomicity atomicity_of(ibv_atomic_cap cap) {
  switch (cap) {
    case IBV_ATOMIC_NONE:
      return RdmaDevice::Atomicity::none;
    case IBV_ATOMIC_HCA:
      return RdmaDevice::Atomicity::device;
    case IBV_ATOMIC_GLOB:
      return RdmaDevice::Atomicity::host;
  }
  return RdmaDevice::Atomicity::none;
}

PairOfId make_queue_pair(rdma_cm_id& id, ibv_pd* domain, ibv_qp_init_attr wanted) {
  return PairOfId(::rdma_create_qp(&id, domain, &wanted) == 0 ? &id : nullptr);
}

MemoryRegion register_memory(ibv_pd* domain, std::byte* at, std::size_t bytes, int access) {
  return MemoryRegion(::ibv_reg_mr(domain, at, bytes, access));
}

}  // namespace loch::fabric::verbs
