// Small owners of what libibverbs and librdmacm hand out. Destroy them in the reverse order of their making:
// a device that is gone from the host is closed with the last identifier that came to it, and what was made
// on it may not be touched any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <infiniband/verbs.h>
#include <memory>
#include <rdma/rdma_cma.h>

#include <loch/devices.h>
#include <loch/error.h>

#include "base/clock.h"
#include "fabric/fabric.h"

namespace loch::fabric::verbs {

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* thing) const {
    Destroy(thing);
  }
};

using EventChannel = std::unique_ptr<rdma_event_channel, Destroyer<&::rdma_destroy_event_channel>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroyer<&::ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroyer<&::ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroyer<&::ibv_destroy_cq>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroyer<&::ibv_dereg_mr>>;

// A communication identifier. It ends after the queue pair that was made for it.
using Id = std::unique_ptr<rdma_cm_id, Destroyer<&::rdma_destroy_id>>;
// That queue pair; what is pointed to is the identifier.
using PairOfId = std::unique_ptr<rdma_cm_id, Destroyer<&::rdma_destroy_qp>>;

// A channel that does not block. Errors: unavailable (says what this host lacks).
Result<EventChannel> open_event_channel();

// The next event of the channel; null if there is none. To be acknowledged by its destruction before the
// identifier that it is about is destroyed.
using Event = std::unique_ptr<rdma_cm_event, Destroyer<&::rdma_ack_cm_event>>;
Event next_event(rdma_event_channel& channel);
// The same, waiting; null if the deadline passed.
Event wait_event(rdma_event_channel& channel, base::Nanos deadline);

// Without waiting. Null, and errno, if the device gives none.
CompletionChannel open_completion_channel(ibv_context* device);
// Takes what the channel tells of, and tells of each with the context of its completion queue.
void take_notices(ibv_comp_channel& channel, const std::function<void(void* context)>& each);

// Null, and errno, if the device makes none.
PairOfId make_queue_pair(rdma_cm_id& id, ibv_pd* domain, ibv_qp_init_attr wanted);

// Null, and errno, if it can not be registered. Nothing here asks for relaxed ordering.
MemoryRegion register_memory(ibv_pd* domain, std::byte* at, std::size_t bytes, int access);

constexpr std::uint32_t bytes_of(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }
RdmaDevice::Atomicity atomicity_of(ibv_atomic_cap cap);

// Of a client's end of a connection. 7 would mean for ever, and an unanswered packet is sent again after
// 4.096 us << ack_timeout: a host that is cut off is noticed after half a second.
inline constexpr std::uint8_t retry_count = 6;
inline constexpr std::uint8_t ack_timeout = 14;
// Of both ends.
inline constexpr std::uint8_t receiver_not_ready_retry_count = 6;
// READs and atomics of a client that are under way at a time, by what a device says that it bears: how many
// its own end may ask for, and how many the host's grants, which that end takes over unseen. So it is never
// more than was asked for.
constexpr std::uint8_t asked_depth(int initiator_max) {
  return static_cast<std::uint8_t>(std::clamp(initiator_max, 1, 255));
}
constexpr std::uint8_t granted_depth(int responder_max, std::uint8_t asked) {
  return std::min(static_cast<std::uint8_t>(std::clamp(responder_max, 1, 255)), asked);
}
// What a client shows when it connects, to be told from others: made by the host for each session, and good
// for one connection. In hexadecimal digits.
inline constexpr std::size_t token_bytes = 16;
inline constexpr std::size_t token_digits = 2 * token_bytes;

// Why a host takes on no queue pair: the one byte of private data with which it rejects it.
constexpr std::uint8_t encode_refusal(Errc why) { return static_cast<std::uint8_t>(why); }
// What no host says is unavailable.
constexpr Errc decode_refusal(std::uint8_t said) {
  for (const Errc why : {Errc::permission, Errc::incompatible}) {
    if (said == encode_refusal(why)) return why;
  }
  return Errc::unavailable;
}

// Port::extend_soon, as a client says it: a SEND of nothing but these 32 bits (Kalia et al., Design
// Guidelines for High Performance RDMA Systems, 3.2.2: a message that is its header needs no payload to be
// fetched, or to be placed).
struct ExtendSoon {
  RegionId region = 0;
  std::uint64_t length_bytes = 0;  // in the message, whole MiB

  [[nodiscard]] constexpr std::uint32_t encode() const {
    const std::uint64_t mebibytes = (length_bytes + (std::uint64_t{1} << 20) - 1) >> 20;
    return std::uint32_t{region} << 24 | static_cast<std::uint32_t>(mebibytes & 0xff'ffff);
  }
  static constexpr ExtendSoon decode(std::uint32_t immediate) {
    return {.region = static_cast<RegionId>(immediate >> 24),
            .length_bytes = std::uint64_t{immediate & 0xff'ffff} << 20};
  }
};
static_assert(region_bytes_max >> 20 <= 0xff'ffff);

}  // namespace loch::fabric::verbs
