#include "fabric/verbs/verbs_port.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "fabric/verbs/connection_end.h"
#include "fabric/words.h"

namespace loch::fabric::verbs {
namespace {

using tcp::piece_bytes_max;

ibv_wr_opcode opcode_of(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::read:
      return IBV_WR_RDMA_READ;
    case Operation::Kind::write:
      return IBV_WR_RDMA_WRITE;
    case Operation::Kind::compare_swap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Operation::Kind::fetch_add:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Operation::Kind::expect:
      break;  // of ports that keep order
  }
  std::unreachable();
}

// From the first byte of any of them to the last; of a region that they have in common.
struct Extent {
  std::uint64_t begin_bytes = 0;
  std::uint64_t end_bytes = 0;
};
Extent extent_of(std::span<const Operation> operations) {
  Extent all{.begin_bytes = operations.front().at.offset_bytes};
  for (const Operation& one : operations) {
    all.begin_bytes = std::min(all.begin_bytes, one.at.offset_bytes);
    all.end_bytes = std::max(all.end_bytes, one.at.offset_bytes + one.length_bytes);
  }
  return all;
}

const char* meaning_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the host does not answer, or has broken the session off";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the host lets this session at its memory no more";
    default:
      return "the queue pair failed";
  }
}

}  // namespace

VerbsPort::VerbsPort(remote::RemoteFabric& fabric, const std::string& source,
                     const std::shared_ptr<remote::Link>& link, remote::Link::Joined joined,
                     base::Nanos within_ns)
    : RemotePort(fabric.location()),
      link_(link),
      id_(joined.port),
      agent_(fabric, link, std::move(joined), within_ns),
      lent_(
          [link, within_ns](const net::Message& question, base::Nanos deadline) {
            return link->ask(question, std::min(deadline, base::Clock().now() + within_ns));
          },
          id_) {
  if (auto opened = open_queue_pair(source, base::Clock().now() + within_ns); !opened)
    severed_ = std::move(opened.error());
}

Result<void> VerbsPort::open_queue_pair(const std::string& source, base::Nanos deadline) {
  const auto offer = link_->ask({{"do", "queue_pair"}, {"port", id_}}, deadline);
  if (!offer) return std::unexpected(offer.error());
  device_changes_ = net::flag_of(*offer, "device_changes");
  // The host's name may have several addresses; the data connection has found the host at this one.
  const auto peer = net::parse_host_port(agent_.peer(), default_port);
  if (!peer) return std::unexpected(peer.error());
  auto pair = QueuePair::connect(*peer, source, net::text_of(*offer, "token"), deadline);
  if (!pair) return std::unexpected(std::move(pair.error()));
  pair_ = std::move(*pair);
  return {};
}

Result<Mapping> VerbsPort::map(RegionId region) { return agent_.map(region); }

Result<std::uint64_t> VerbsPort::length_bytes(RegionId region) {
  if (severed_) return std::unexpected(*severed_);
  return agent_.length_bytes(region);
}

Result<bool> VerbsPort::claim_presence(std::uint32_t client) {
  if (severed_) return std::unexpected(*severed_);
  return agent_.claim_presence(client);
}

void VerbsPort::release_presence(std::uint32_t client) {
  if (!severed_) agent_.release_presence(client);  // else the host does it
}

bool VerbsPort::present(std::uint32_t client) { return severed_ || agent_.present(client); }

Result<std::vector<RdmaConnection>> VerbsPort::rdma_connections() {
  if (severed_) return std::unexpected(*severed_);
  auto connection = pair_->describe();
  if (!connection) return std::unexpected(std::move(connection.error()));
  const auto answer = link_->ask({{"do", "connection"}, {"port", id_}});
  if (!answer) return std::unexpected(answer.error());
  auto there = connection_end_of(*answer);
  if (!there) return std::unexpected(std::move(there.error()));
  connection->there = std::move(*there);
  connection->device_changes = device_changes_;
  return std::vector{std::move(*connection)};
}

void VerbsPort::post(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
  if (severed_) return done.complete(done, std::unexpected(*severed_));
  const bool is_read = std::ranges::all_of(
      batch, [](const Operation& operation) { return operation.kind == Operation::Kind::read; });
  if (batch.empty() || (!is_read && !device_changes_)) return agent_.post(batch, deadline, done);
  last_region_ = batch.front().at.region;
  flights_.post(batch, deadline, done);
}

bool VerbsPort::progress() {
  if (severed_) return false;
  for (;;) {
    ring();
    const bool has_come = !severed_ && drain();
    const bool has_ended = flights_.settle();
    // A look at a connection on which nothing is under way would cost more than one at the device.
    const bool has_agent_ended = !agent_.is_idle() && agent_.progress();
    const bool is_over = check();
    if (has_agent_ended || has_ended || is_over) return true;
    if (!has_come) return false;
  }
}

// ---- what is asked

// Whether the operation is inside its region. May ask the host, which counts to nobody's time afterwards.
bool VerbsPort::is_covered(const Flight& flight, const Operation& operation) {
  if (operation.is_atomic() && operation.at.offset_bytes % word_bytes != 0) return false;
  const bool is_lent = lent_.covers(operation.at, operation.length_bytes, flight.deadline);
  if (const base::Nanos asked_ns = lent_.take_asked_ns(); asked_ns != 0) {
    flights_.stood_still(asked_ns);
    agent_.stood_still(asked_ns);
  }
  return is_lent;
}

// A part of the buffer, if there is room.
std::optional<std::size_t> VerbsPort::take_buffer(std::size_t bytes) {
  const std::size_t taken = (bytes + word_bytes - 1) / word_bytes * word_bytes;
  const std::size_t begin = buffer_end_ % QueuePair::buffer_bytes;
  const std::size_t skipped = begin + taken > QueuePair::buffer_bytes ? QueuePair::buffer_bytes - begin : 0;
  if (buffer_end_ + skipped + taken - buffer_begin_ > QueuePair::buffer_bytes) return std::nullopt;
  buffer_end_ += skipped + taken;
  return (buffer_end_ - taken) % QueuePair::buffer_bytes;
}

remote::Flights::Put VerbsPort::put(Flight& flight, Operation& operation, std::size_t from) {
  using Wait = remote::Flights::Wait;
  const Operation* previous = operation.after_previous ? &operation - 1 : nullptr;
  if (from == 0 && ((previous != nullptr && previous->bad_address) || !is_covered(flight, operation))) {
    if (lent_.trouble()) return std::unexpected(Wait::for_room);
    operation.bad_address = true;
    return operation.length_bytes;
  }
  if (operation.length_bytes == 0) return 0;
  // What comes after a WRITE on a queue pair executes after it. For the others the device would wait, too, if
  // told to (IBV_SEND_FENCE); but when Soft-RoCE has to send such an operation once more, it waits for that
  // operation itself, for ever.
  const bool waits = from == 0 && previous != nullptr && previous->kind != Operation::Kind::write;
  if (waits && flight.pieces != 0) return std::unexpected(Wait::for_its_flight);
  if (operation.is_atomic() && writes_ != 0 && pair_->is_in_software())
    return std::unexpected(Wait::for_its_flight);
  if (pieces_.size() == QueuePair::depth) return std::unexpected(Wait::for_room);
  const std::span<Operation> operations = from == 0 ? line_from(flight, operation) : std::span(&operation, 1);
  const Extent extent = extent_of(operations);
  const std::uint64_t offset = extent.begin_bytes + from;
  const Keys::Key& key = *lent_.find(operation.at.region, offset);
  const std::size_t length = std::min({static_cast<std::size_t>(extent.end_bytes - offset), piece_bytes_max,
                                       static_cast<std::size_t>(key.end_bytes() - offset)});
  const auto at = take_buffer(length);
  if (!at) return std::unexpected(Wait::for_room);

  ibv_sge& part = parts_[chained_];
  part = {.addr = reinterpret_cast<std::uintptr_t>(pair_->buffer() + *at),
          .length = static_cast<std::uint32_t>(length),
          .lkey = pair_->buffer_key()};
  ibv_send_wr& request = chain();
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = opcode_of(operation.kind);
  const std::uint64_t remote_address = key.address + (offset - key.from_bytes);
  if (operation.is_atomic()) {
    const bool adds = operation.kind == Operation::Kind::fetch_add;
    request.wr.atomic = {.remote_addr = remote_address,
                         .compare_add = adds ? operation.operand : operation.compare,
                         .swap = adds ? 0 : operation.operand,
                         .rkey = key.key};
  } else {
    request.wr.rdma = {.remote_addr = remote_address, .rkey = key.key};
  }
  if (operation.kind == Operation::Kind::write) {
    std::memcpy(pair_->buffer() + *at, operation.local + from, length);
    if (length <= pair_->inline_bytes_max()) request.send_flags = IBV_SEND_INLINE;
    ++writes_;
  }
  ++flight.pieces;
  flight.may_have_swapped = flight.may_have_swapped || operation.is_atomic();
  pieces_.push_back({.flight = &flight,
                     .operations = operations,
                     .from = from,
                     .length = length,
                     .at = *at,
                     .buffer_end = buffer_end_});
  if (operations.size() == 1) return length;
  std::size_t all_bytes = 0;
  for (const Operation& one : operations) all_bytes += one.length_bytes;
  return all_bytes;
}

std::span<Operation> VerbsPort::line_from(const Flight& flight, Operation& operation) {
  const std::span rest(&operation, flight.batch.data() + flight.batch.size());
  const auto is_in_line = [&operation](const Operation& other) {
    const std::uint64_t line = operation.at.offset_bytes / cache_line_bytes;
    return other.kind == Operation::Kind::read && !other.after_previous && other.length_bytes != 0 &&
           other.at.region == operation.at.region && other.at.offset_bytes / cache_line_bytes == line &&
           (other.at.offset_bytes + other.length_bytes - 1) / cache_line_bytes == line;
  };
  const auto end = std::ranges::find_if_not(rest, is_in_line);
  const auto count = static_cast<std::size_t>(end - rest.begin());
  if (count < 2) return rest.first(1);
  const std::span<Operation> line = rest.first(count);
  const Extent extent = extent_of(line);
  const Keys::Key* key = lent_.find(operation.at.region, extent.begin_bytes);
  if (key == nullptr || key->end_bytes() < extent.end_bytes) return rest.first(1);
  for (Operation& other : line) other.bad_address = false;
  return line;
}

// The next work request of the chain, which is of the piece that follows.
ibv_send_wr& VerbsPort::chain() {
  ibv_send_wr& request = chain_[chained_];
  request = {};
  request.wr_id = first_piece_ + pieces_.size();
  if (chained_ != 0) chain_[chained_ - 1].next = &request;
  ++chained_;
  return request;
}

void VerbsPort::chain_foreseen() {
  if (!foreseen_ || pieces_.size() == QueuePair::depth) return;
  ibv_send_wr& request = chain();
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(foreseen_->encode());
  pieces_.push_back({.buffer_end = buffer_end_});
  ++writes_;
  foreseen_.reset();
}

// Posts what there is room for: one chain, one doorbell, of which the last is signalled.
void VerbsPort::ring() {
  if (!flights_.is_due()) return;
  agent_.give_sign(last_region_);
  chain_foreseen();
  flights_.ask(base::Clock().now(), [this](Flight& flight, Operation& operation, std::size_t from) {
    return put(flight, operation, from);
  });
  if (const auto& trouble = lent_.trouble()) {
    const bool was_late = trouble->code == Errc::timed_out;
    return sever({.code = was_late ? Errc::timed_out : Errc::unavailable, .detail = trouble->detail});
  }
  if (chained_ == 0) return;
  chain_[chained_ - 1].send_flags |= IBV_SEND_SIGNALED;
  chained_ = 0;
  if (const int error = pair_->post(chain_[0]); error != 0) {
    sever({.code = Errc::unavailable,
           .detail = fmt::format("nothing can be posted: {}", std::strerror(error))});
  }
}

// ---- what has completed

bool VerbsPort::drain() {
  std::array<ibv_wc, 16> completions;
  const std::size_t count = pair_->poll(completions);
  for (const ibv_wc& completion : std::span(completions).first(count)) {
    // A completion says that all before it have succeeded, and if it failed, no more than that.
    const bool is_good = completion.status == IBV_WC_SUCCESS;
    const std::uint64_t end = is_good ? completion.wr_id + 1 : completion.wr_id;
    for (; first_piece_ < end && !pieces_.empty(); ++first_piece_) {
      finish(pieces_.front());
      pieces_.pop_front();
    }
    if (is_good) continue;
    sever({.code = Errc::unavailable,
           .detail = fmt::format("{} ({})", meaning_of(completion.status),
                                 ::ibv_wc_status_str(completion.status))});
    break;
  }
  return count != 0;
}

void VerbsPort::finish(const Piece& piece) {
  buffer_begin_ = piece.buffer_end;
  if (piece.flight == nullptr || piece.operations.front().kind == Operation::Kind::write) --writes_;
  if (piece.flight == nullptr) return;
  const std::byte* from = pair_->buffer() + piece.at;
  const std::uint64_t begin_bytes = extent_of(piece.operations).begin_bytes;
  for (Operation& operation : piece.operations) {
    if (operation.kind == Operation::Kind::read) {
      const bool is_alone = piece.operations.size() == 1;
      std::memcpy(operation.local + piece.from, from + (operation.at.offset_bytes - begin_bytes),
                  is_alone ? piece.length : operation.length_bytes);
    } else if (operation.is_atomic()) {
      std::memcpy(&operation.result, from, word_bytes);
    }
  }
  --piece.flight->pieces;
}

bool VerbsPort::check() {
  if (!severed_ && flights_.any_late(base::Clock().now())) {
    sever({.code = Errc::timed_out, .detail = "no answer in time"});
  } else if (!severed_ && agent_.severed()) {
    sever({.code = Errc::unavailable, .detail = "the connection beside the queue pair was broken off"});
  }
  return severed_.has_value();
}

bool VerbsPort::await(std::vector<pollfd>& waits) {
  if (severed_) return true;
  waits.push_back({.fd = pair_->event_descriptor(), .events = POLLIN, .revents = 0});
  if (!flights_.empty()) {
    pair_->arm();
    armed_ = true;
    waits.push_back({.fd = pair_->completion_descriptor(), .events = POLLIN, .revents = 0});
    // What completed before is not told of.
    if (drain()) return false;
  }
  return agent_.await(waits);
}

void VerbsPort::awoken(std::span<const pollfd> waits) {
  if (severed_) return;
  if (std::exchange(armed_, false)) pair_->disarm();
  if (!waits.empty() && waits.front().revents != 0 && pair_->is_broken_off())
    sever({.code = Errc::unavailable, .detail = "the host has broken the session off"});
}

void VerbsPort::sever(Error why) {
  if (!agent_.severed()) agent_.sever_after_last_words(why);
  if (agent_.severed()->code == Errc::moved)
    why = {.code = Errc::moved, .detail = "the host has ended the session"};
  pieces_.clear();
  chained_ = 0;
  pair_ = nullptr;
  end_flights(why);
}

}  // namespace loch::fabric::verbs
