// VerbsPort: the way of one session to a store on another host, over an RDMA device. It reads and changes the
// host's memory with a queue pair (Kalia et al., Design Guidelines for High Performance RDMA Systems, 3.2:
// chains with one doorbell, inlined payloads, only the last of a chain signalled), and has a data connection
// to the host's agent beside it (tcp/tcp_port.h), over which the host learns that it is alive.
//
// Whose atomics a store's words are changed with is fixed by the store. If they are the processor's, and the
// device's are not atomic against them, the device reads, and the agent changes: it is asked for every batch
// that is not of reads alone.
//
// What fails ends the port, as in TcpPort, and for the same reason.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/remote/flights.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/remote/remote_port.h"
#include "fabric/tcp/tcp_port.h"
#include "fabric/verbs/lent_memory.h"
#include "fabric/verbs/queue_pair.h"

namespace loch::fabric::verbs {

class VerbsPort final : public remote::RemotePort {
 public:
  // The queue pair goes from `source` (net::connect) to the host's end of the data connection, and is there
  // within `within_ns`, or the port is over.
  VerbsPort(remote::RemoteFabric& fabric, const std::string& source,
            const std::shared_ptr<remote::Link>& link, remote::Link::Joined joined, base::Nanos within_ns);

  Result<Mapping> map(RegionId region) override;
  Result<std::uint64_t> length_bytes(RegionId region) override;
  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) override;

  bool progress() override;
  [[nodiscard]] bool is_idle() const override { return severed_ || (flights_.empty() && agent_.is_idle()); }
  bool await(std::vector<pollfd>& waits) override;
  void awoken(std::span<const pollfd> waits) override;
  // By the end of either way: over the other nothing can be asked any more, and what was may be under way.
  [[nodiscard]] const std::optional<Error>& severed() const override {
    return severed_ ? severed_ : agent_.severed();
  }
  void abandon() override { agent_.abandon(); }
  void break_off() override {
    if (!severed_) sever(remote::broken_off());
  }
  void tell_reached(NodeSet nodes) override { agent_.tell_reached(nodes); }
  void give_sign(RegionId region) override { agent_.give_sign(region); }
  void extend_soon(RegionId region, std::uint64_t length_bytes) override {
    foreseen_ = ExtendSoon{.region = region, .length_bytes = length_bytes};
  }

  Result<std::vector<RdmaConnection>> rdma_connections() override;

  Result<bool> claim_presence(std::uint32_t client) override;
  void release_presence(std::uint32_t client) override;
  [[nodiscard]] bool present(std::uint32_t client) override;
  [[nodiscard]] OperationCost operation_cost() const override {
    return pair_ != nullptr && pair_->is_in_software() ? OperationCost::round_trip : OperationCost::message;
  }

 private:
  using Flight = remote::Flights::Flight;
  struct Piece {
    Flight* flight = nullptr;           // null of a message, for which nobody waits
    std::span<Operation> operations{};  // several: reads in one line of memory, by one READ of all
    std::size_t from = 0;               // of a piece of one
    std::size_t length = 0;
    std::size_t at = 0;            // in the buffer
    std::uint64_t buffer_end = 0;  // up to where the buffer is free once it is over
  };

  Result<void> open_queue_pair(const std::string& source, base::Nanos deadline);
  bool is_covered(const Flight& flight, const Operation& operation);
  remote::Flights::Put put(Flight& flight, Operation& operation, std::size_t from);
  // The operation, and those behind it that are reads in the same line of memory as it is one in, if one key
  // is for all of that.
  std::span<Operation> line_from(const Flight& flight, Operation& operation);
  std::optional<std::size_t> take_buffer(std::size_t bytes);
  ibv_send_wr& chain();
  void chain_foreseen();
  void ring();
  bool drain();  // whether anything has completed
  void finish(const Piece& piece);
  bool check();  // whether the port is over
  void sever(Error why);

  const std::shared_ptr<remote::Link> link_;
  const std::uint64_t id_;
  // Null of a port that is severed. It ends after the data connection, by which the session leaves: a queue
  // pair that ends before is that of a session that is gone.
  std::unique_ptr<QueuePair> pair_;
  tcp::TcpPort agent_;
  bool armed_ = false;           // the queue pair tells of completions by its descriptor
  bool device_changes_ = false;  // else the agent does
  RegionId last_region_ = 0;     // that something was posted for

  LentMemory lent_;
  std::deque<Piece> pieces_;        // under way, in the order in which they were posted
  std::uint64_t first_piece_ = 0;   // the number of the first of them
  std::size_t writes_ = 0;          // and messages, of those pieces
  std::uint64_t buffer_begin_ = 0;  // the buffer is a ring: what is in use of it, counted on and on
  std::uint64_t buffer_end_ = 0;
  std::array<ibv_send_wr, QueuePair::depth> chain_{};  // what the next ring posts
  std::array<ibv_sge, QueuePair::depth> parts_{};
  std::size_t chained_ = 0;
  std::optional<ExtendSoon> foreseen_;  // goes with the next chain
};

}  // namespace loch::fabric::verbs
