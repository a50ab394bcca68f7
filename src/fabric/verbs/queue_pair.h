// QueuePair: the client's end of a reliable connection to another host's device, and the memory of this
// session that the device reads and writes: registered once, as long as the queue pair.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fabric/verbs/rdma.h"
#include "net/socket.h"

namespace loch::fabric::verbs {

class QueuePair {
 public:
  // How many operations may be under way; those beyond wait in the port.
  static constexpr std::uint32_t depth = 128;
  static constexpr std::size_t buffer_bytes = 262'144;

  // To the Lender that listens there, which knows the session by its token. `source` is the address of this
  // host to go from, which chooses the device; empty: as the routes say. Errors: unavailable (no device, no
  // way there), permission (the token, or /dev/infiniband), timed_out, no_space (memory that may be locked).
  static Result<std::unique_ptr<QueuePair>> connect(const net::HostPort& to, const std::string& source,
                                                    std::string_view token, base::Nanos deadline);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] std::byte* buffer() { return buffer_->bytes.data(); }
  [[nodiscard]] std::uint32_t buffer_key() const { return region_->lkey; }
  [[nodiscard]] std::size_t inline_bytes_max() const { return inline_bytes_max_; }
  // Soft-RoCE, which a processor does the work of. What acknowledges a WRITE or SEND may be taken there for
  // the answer of an atomic that was posted while that was under way: the atomic completes then, and tells
  // nothing of the word (docs/network.md, "RDMA").
  [[nodiscard]] bool is_in_software() const { return is_in_software_; }

  // This end of it, and what both ends have agreed on. Errors: io.
  [[nodiscard]] Result<RdmaConnection> describe() const;

  // Rings the doorbell for a chain; 0, or the error.
  int post(ibv_send_wr& chain);
  // What has completed; how many.
  std::size_t poll(std::span<ibv_wc> completions);

  // To sleep until something completes or the connection ends: arm, poll once more, and wait until one of the
  // descriptors is readable; then disarm.
  void arm();
  void disarm();
  [[nodiscard]] int completion_descriptor() const { return completions_->fd; }
  [[nodiscard]] int event_descriptor() const { return events_->fd; }
  // Whether the other end has broken the connection off.
  [[nodiscard]] bool is_broken_off();

 private:
  QueuePair() = default;
  Result<void> resolve(const net::HostPort& to, const std::string& source, base::Nanos deadline);
  Result<void> make();
  Result<void> establish(std::string_view token, base::Nanos deadline);
  // Waits for `wanted`; any other event is why this did not work.
  Result<void> await(rdma_cm_event_type wanted, const char* step, base::Nanos deadline);

  // Pages that nothing else is on, since a child of this process may have none of them.
  struct alignas(4'096) Buffer {
    std::array<std::byte, buffer_bytes> bytes;
  };

  std::string name_;  // "10.0.0.1:7457", for people
  EventChannel events_;
  Id id_;  // ends after all that is on its device
  ProtectionDomain domain_;
  CompletionChannel completions_;
  CompletionQueue queue_;
  std::unique_ptr<Buffer> buffer_;
  MemoryRegion region_;
  PairOfId pair_;  // ends before what it uses
  std::size_t inline_bytes_max_ = 0;
  bool is_in_software_ = false;
  bool is_broken_off_ = false;
};

}  // namespace loch::fabric::verbs
