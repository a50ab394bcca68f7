// TcpPort: the way of one session to a store on another host, over a data connection (wire.h).
//
// What was posted is sent when the session waits, all of it in one call, or when there is much of it; its
// answers come back in the same order. A read goes right to where it is wanted as soon as it is known to be
// long.
//
// An answer that does not come in time ends the port: nobody knows whether what was asked for still happens,
// until the host has broken the connection off. So the port never posts again, and its session's presence
// is the host's to end. A host that ends a session by itself says so, and what it has not answered by then
// has not happened (Errc::moved).
#pragma once

#include <array>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/remote/flights.h"
#include "fabric/remote/link.h"
#include "fabric/remote/protocol.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/remote/remote_port.h"
#include "fabric/tcp/wire.h"

namespace loch::fabric::tcp {

class TcpPort final : public remote::RemotePort {
 public:
  // A sign of life. It goes behind all that was asked for before, which may take long to be answered. So it
  // has no deadline of its own, but is late once neither end has heard of the other for too long.
  struct Sign : Completion {
    Operation operation{};
    bool is_under_way = false;
    base::Nanos given_ns = base::Clock().now();
    base::Nanos silent_since_ns = 0;  // of one that is under way: since it was given, or bytes moved

    void give(base::Nanos now) {
      given_ns = silent_since_ns = now;
      is_under_way = true;
    }
    // Bytes went over the connection, or came.
    void bytes_moved() {
      if (is_under_way) silent_since_ns = base::Clock().now();
    }
    void stood_still(base::Nanos for_ns) { silent_since_ns += for_ns; }
    [[nodiscard]] bool is_late(base::Nanos now) const {
      return is_under_way && now > silent_since_ns + remote::sign_answer_max_ns;
    }
  };

  // What the session asks of the host itself, and not of its memory, has `answer_within_ns` each.
  TcpPort(remote::RemoteFabric& fabric, std::shared_ptr<remote::Link> link, remote::Link::Joined joined,
          base::Nanos answer_within_ns);
  ~TcpPort() override;

  Result<Mapping> map(RegionId region) override;
  Result<std::uint64_t> length_bytes(RegionId region) override;
  void post(std::span<Operation> batch, base::Nanos deadline, Completion& done) override;
  [[nodiscard]] bool keeps_order() const override { return true; }

  bool progress() override;
  [[nodiscard]] bool is_idle() const override { return severed_ || flights_.empty(); }
  bool await(std::vector<pollfd>& waits) override;
  void abandon() override { abandoned_ = true; }
  void break_off() override {
    if (!severed_) sever(remote::broken_off());
  }
  void tell_reached(NodeSet nodes) override { reached_ = nodes; }
  void give_sign(RegionId region) override;
  void extend_soon(RegionId region, std::uint64_t length_bytes) override;
  // The other end of its connection.
  [[nodiscard]] std::string peer() const { return net::peer_of(stream_->socket()); }
  // See Flights.
  void stood_still(base::Nanos for_ns) {
    flights_.stood_still(for_ns);
    sign_.stood_still(for_ns);
  }
  // The port is over: all that is under way ends with `why`, and so does what will be posted.
  void sever(const Error& why);
  // The same, unless what has come by now says that the host has ended it.
  void sever_after_last_words(const Error& why);

  Result<bool> claim_presence(std::uint32_t client) override;
  void release_presence(std::uint32_t client) override;
  [[nodiscard]] bool present(std::uint32_t client) override;

 private:
  using Flight = remote::Flights::Flight;
  // An operation, or a part of a long one, or some that follow each other and are words of one region.
  struct Piece {
    Flight* flight = nullptr;
    Operation* operation = nullptr;
    std::size_t count = 1;     // of operations
    std::size_t from = 0;      // of one alone
    std::uint32_t length = 0;  // likewise
    std::uint16_t number = 0;
    bool ends_send = false;  // the last of those that were encoded together
  };

  // Of the host itself, by the link.
  [[nodiscard]] Result<net::Message> ask(const net::Message& message,
                                         const net::Message* if_late = nullptr) const;
  [[nodiscard]] bool is_asking() const { return answered_ != asked_.size(); }
  void flush();
  void encode();
  static std::size_t words_from(const Flight& flight, const Operation& first);
  void encode_words(Flight& flight, std::span<Operation> words);
  void encode_piece(Flight& flight, Operation& operation, std::size_t from, std::size_t length);
  // The last that was added was encoded as far as `end`.
  void add_piece(Piece& piece, const std::byte* end);
  void send();
  bool receive();  // whether anything came
  void take_answers();
  bool take_answer_head();
  bool expect_rest(const Piece& piece, const AnswerHead& head, bool is_bad);
  void finish_piece();
  bool check_deadlines();

  remote::RemoteFabric& fabric_;
  const std::shared_ptr<remote::Link> link_;
  const base::Nanos answer_within_ns_;
  base::Nanos unanswered_until_ = 0;  // nobody's presence is asked for before that
  const std::unique_ptr<net::Stream> stream_;
  const std::uint64_t id_;
  bool abandoned_ = false;
  NodeSet reached_ = all_nodes;

  Sign sign_;

  std::size_t operations_waiting_ = 0;  // that were posted since something was last encoded
  std::vector<Piece> asked_;            // that are encoded, of which the first
  std::size_t answered_ = 0;            // so many are answered, too
  std::size_t sends_under_way_ = 0;     // of which some of these are
  bool waits_for_room_ = false;         // something that was posted and is to be encoded
  base::Nanos deadlines_checked_at_ = 0;

  std::unique_ptr<std::byte[]> out_;
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
  std::uint16_t next_number_ = 0;

  std::unique_ptr<std::byte[]> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  bool is_answering_ = false;      // the head of an answer was taken,
  bool is_bad_ = false;            // and it says that there is no such address
  std::byte* filling_ = nullptr;   // where the answer to the first piece goes, while it comes
  std::size_t filling_bytes_ = 0;  // and how much of it is still to come
  std::size_t skip_bytes_ = 0;     // of what fills it up to whole words
  // The answer to what is no read.
  std::array<std::uint64_t, 1 + words_at_once_max> words_{};
};

}  // namespace loch::fabric::tcp
