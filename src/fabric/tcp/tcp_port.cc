#include "fabric/tcp/tcp_port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <tuple>
#include <utility>

namespace loch::fabric::tcp {
namespace {

constexpr std::size_t out_bytes_max = 4 * operation_bytes_max;
constexpr std::size_t in_bytes_max = 2 * answer_bytes_max;
// An answer of which so much is missing is not read by way of a buffer.
constexpr std::size_t direct_bytes_min = 4'096;
// When so many operations wait to be sent, the host may begin with them while the session still asks for
// more.
constexpr std::size_t operations_waiting_max = 256;
// Until then, what is asked while so many sends are unanswered waits for one of them: others may join it.
constexpr std::size_t sends_under_way_max = 2;

bool is_word(const Operation& operation) {
  return operation.kind == Operation::Kind::read && operation.length_bytes == word_bytes &&
         operation.at.offset_bytes % word_bytes == 0 && !operation.after_previous;
}

}  // namespace

TcpPort::TcpPort(remote::RemoteFabric& fabric, std::shared_ptr<remote::Link> link,
                 remote::Link::Joined joined, base::Nanos answer_within_ns)
    : RemotePort(fabric.location()),
      fabric_(fabric),
      link_(std::move(link)),
      answer_within_ns_(answer_within_ns),
      stream_(std::move(joined.stream)),
      id_(joined.port),
      out_(std::make_unique_for_overwrite<std::byte[]>(out_bytes_max)),
      in_(std::make_unique_for_overwrite<std::byte[]>(in_bytes_max)) {
  sign_.complete = [](Completion& self, Result<void> /*outcome*/) {
    static_cast<Sign&>(self).is_under_way = false;
  };
}

TcpPort::~TcpPort() {
  // A host that is not told finds out by itself: the connection is closed, and it takes the session for dead.
  if (severed_ || abandoned_) return;
  std::ignore = ask({{"do", "leave"}, {"port", id_}});
}

Result<net::Message> TcpPort::ask(const net::Message& message, const net::Message* if_late) const {
  return link_->ask(message, base::Clock().now() + answer_within_ns_, if_late);
}

Result<Mapping> TcpPort::map(RegionId region) {
  return Mapping{.base = nullptr, .length_bytes = fabric_.known_length(region)};
}

Result<std::uint64_t> TcpPort::length_bytes(RegionId region) {
  if (severed_) return std::unexpected(*severed_);
  return fabric_.ask_length(*link_, region, base::Clock().now() + answer_within_ns_);
}

Result<bool> TcpPort::claim_presence(std::uint32_t client) {
  if (severed_) return std::unexpected(*severed_);
  // A number that the host took for this session's too late, which does not know of it, would keep its items
  // and all that was unlinked since for as long as the session lives.
  const net::Message release{{"do", "release"}, {"port", id_}, {"client", client}};
  const auto answer =
      ask({{"do", "claim"}, {"port", id_}, {"client", client}, {"reached", reached_}}, &release);
  if (!answer) return std::unexpected(answer.error());
  return net::flag_of(*answer, "claimed");
}

void TcpPort::release_presence(std::uint32_t client) {
  if (severed_ || abandoned_) return;  // the host does it
  const net::Message release{{"do", "release"}, {"port", id_}, {"client", client}};
  const auto answer = ask(release);
  if (answer || answer.error().code != Errc::timed_out) return;
  // It may not have been said at all, while others asked. If it can not be, the host does it once the session
  // is over.
  if (!link_->say(release, base::Clock().now() + answer_within_ns_))
    sever({.code = Errc::unavailable, .detail = "the host has not answered for too long"});
}

bool TcpPort::present(std::uint32_t client) {
  // A host that has not answered in time is let be until a sign would have found it gone: to wait for it
  // keeps the session from all others.
  if (severed_ || base::Clock().now() < unanswered_until_) return true;
  const auto answer = ask({{"do", "present"}, {"client", client}});
  if (!answer) unanswered_until_ = base::Clock().now() + remote::sign_answer_max_ns;
  return !answer || net::flag_of(*answer, "present");
}

void TcpPort::give_sign(RegionId region) {
  const base::Nanos now = base::Clock().now();
  if (severed_ || sign_.is_under_way || now - sign_.given_ns < remote::sign_every_ns) return;
  sign_.give(now);
  sign_.operation = {.at = {.region = region}};
  post({&sign_.operation, 1}, remote::Flights::no_deadline, sign_);
}

void TcpPort::extend_soon(RegionId region, std::uint64_t length_bytes) {
  if (!severed_) link_->tell({{"do", "extend_soon"}, {"region", region}, {"bytes", length_bytes}});
}

void TcpPort::post(std::span<Operation> batch, base::Nanos deadline, Completion& done) {
  if (severed_) return done.complete(done, std::unexpected(*severed_));
  if (batch.empty()) return done.complete(done, {});
  flights_.post(batch, deadline, done);
  operations_waiting_ += batch.size();
  if (operations_waiting_ >= operations_waiting_max) {
    encode();
    send();
  }
}

bool TcpPort::progress() {
  if (severed_) return false;
  while (!severed_) {
    flush();
    const bool has_come = !severed_ && receive();
    if (severed_ || flights_.settle() || check_deadlines()) break;
    if (!has_come) return false;
  }
  return true;
}

void TcpPort::flush() {
  // What is long goes on as soon as there is room, so that it takes no round trip for each part of it.
  const bool has_room = waits_for_room_ && out_begin_ == out_end_;
  if (flights_.is_due() && (has_room || sends_under_way_ < sends_under_way_max)) encode();
  send();
}

// ---- what is asked

// Encodes what was posted, as long as there is room.
void TcpPort::encode() {
  operations_waiting_ = 0;
  waits_for_room_ = false;
  if (out_begin_ == out_end_) out_begin_ = out_end_ = 0;
  asked_.erase(asked_.begin(), asked_.begin() + static_cast<std::ptrdiff_t>(std::exchange(answered_, 0)));
  const auto put = [this](Flight& flight, Operation& operation, std::size_t from) -> remote::Flights::Put {
    const std::size_t words = words_from(flight, operation);
    const std::size_t length =
        words > 1 ? words * word_bytes : std::min(operation.length_bytes - from, piece_bytes_max);
    // An atomic has two words, and what asks for several has less than these.
    if (out_bytes_max - out_end_ < sizeof(OperationHead) + std::max(whole_words(length), 2 * word_bytes)) {
      waits_for_room_ = true;
      return std::unexpected(remote::Flights::Wait::for_room);
    }
    if (words > 1) {
      encode_words(flight, {&operation, words});
    } else {
      encode_piece(flight, operation, from, length);
    }
    return length;
  };
  flights_.ask(base::Clock().now(), put);
  if (is_asking() && !std::exchange(asked_.back().ends_send, true)) ++sends_under_way_;
}

// How many operations of the batch, from this one on, are words of one region, which are asked for together.
std::size_t TcpPort::words_from(const Flight& flight, const Operation& first) {
  const auto left = static_cast<std::size_t>(flight.batch.data() + flight.batch.size() - &first);
  const std::span all(&first, std::min(left, words_at_once_max));
  const auto end = std::ranges::find_if_not(all, [&first](const Operation& operation) {
    return is_word(operation) && operation.at.region == first.at.region;
  });
  return static_cast<std::size_t>(end - all.begin());
}

void TcpPort::encode_words(Flight& flight, std::span<Operation> words) {
  const OperationHead head{.kind = read_words_kind,
                           .region = words.front().at.region,
                           .number = next_number_++,
                           .length_bytes = static_cast<std::uint32_t>(words.size() * word_bytes),
                           .offset_bytes = words.front().at.offset_bytes};
  std::byte* to = out_.get() + out_end_;
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  for (const Operation& word : words.subspan(1)) {
    std::memcpy(to, &word.at.offset_bytes, word_bytes);
    to += word_bytes;
  }
  add_piece(asked_.emplace_back(&flight, words.data(), words.size(), 0, 0, head.number), to);
}

void TcpPort::encode_piece(Flight& flight, Operation& operation, std::size_t from, std::size_t length) {
  // Of a long one, each piece goes by the one before it.
  const bool after_previous = operation.after_previous || from != 0;
  const unsigned bits = (after_previous ? after_previous_bit : 0U) | (operation.settled ? settled_bit : 0U);
  const OperationHead head{.kind = static_cast<std::uint8_t>(static_cast<unsigned>(operation.kind) | bits),
                           .region = operation.at.region,
                           .number = next_number_++,
                           .length_bytes = static_cast<std::uint32_t>(length),
                           .offset_bytes = operation.at.offset_bytes + from};
  std::byte* to = out_.get() + out_end_;
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  switch (operation.kind) {
    case Operation::Kind::read:
      break;
    case Operation::Kind::write:
    case Operation::Kind::expect:
      if (length != 0) std::memcpy(to, operation.local + from, length);
      std::memset(to + length, 0, whole_words(length) - length);
      break;
    case Operation::Kind::compare_swap:
      std::memcpy(to, &operation.compare, word_bytes);
      std::memcpy(to + word_bytes, &operation.operand, word_bytes);
      break;
    case Operation::Kind::fetch_add:
      std::memcpy(to, &operation.operand, word_bytes);
      break;
  }
  add_piece(asked_.emplace_back(&flight, &operation, 1, from, head.length_bytes, head.number),
            to + bytes_after(head));
}

void TcpPort::add_piece(Piece& piece, const std::byte* end) {
  out_end_ = static_cast<std::size_t>(end - out_.get());
  ++piece.flight->pieces;
}

void TcpPort::send() {
  while (out_begin_ < out_end_) {
    const iovec rest{.iov_base = out_.get() + out_begin_, .iov_len = out_end_ - out_begin_};
    const auto sent = stream_->write({&rest, 1});
    if (!sent) return sever_after_last_words(sent.error());
    if (*sent == 0) return;
    sign_.bytes_moved();
    out_begin_ += *sent;
  }
}

// ---- what is answered

bool TcpPort::receive() {
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  const bool direct = filling_bytes_ >= direct_bytes_min;  // in_ is empty then
  if (direct) parts[count++] = {.iov_base = filling_, .iov_len = filling_bytes_};
  parts[count++] = {.iov_base = in_.get() + in_end_, .iov_len = in_bytes_max - in_end_};
  const auto got = stream_->read(std::span(parts).first(count));
  if (!got) {
    sever(got.error());
    return true;
  }
  if (*got != 0) sign_.bytes_moved();
  std::size_t to_in = *got;
  if (direct) {
    const std::size_t filled = std::min(filling_bytes_, to_in);
    filling_ += filled;
    filling_bytes_ -= filled;
    to_in -= filled;
  }
  in_end_ += to_in;
  take_answers();
  return *got != 0;
}

void TcpPort::take_answers() {
  while (!severed_) {
    if (const std::size_t here = std::min(filling_bytes_, in_end_ - in_begin_); here != 0) {
      std::memcpy(filling_, in_.get() + in_begin_, here);
      filling_ += here;
      filling_bytes_ -= here;
      in_begin_ += here;
    }
    if (filling_bytes_ != 0) break;
    const std::size_t skipped = std::min(skip_bytes_, in_end_ - in_begin_);
    skip_bytes_ -= skipped;
    in_begin_ += skipped;
    if (skip_bytes_ != 0) break;
    if (is_answering_) finish_piece();
    if (in_end_ - in_begin_ < sizeof(AnswerHead) || !take_answer_head()) break;
  }
  std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
  in_end_ -= in_begin_;
  in_begin_ = 0;
}

bool TcpPort::take_answer_head() {
  AnswerHead head;
  std::memcpy(&head, in_.get() + in_begin_, sizeof head);
  in_begin_ += sizeof head;
  if (head == last_words) {
    sever({.code = Errc::moved, .detail = "the host has ended the session"});
    return false;
  }
  const bool is_bad = head.status == static_cast<std::uint8_t>(Status::bad_address);
  const bool is_known = is_bad || head.status == static_cast<std::uint8_t>(Status::done);
  if (!is_known || !is_asking() || head.number != asked_[answered_].number ||
      !expect_rest(asked_[answered_], head, is_bad)) {
    sever({.code = Errc::unavailable, .detail = "an answer that nobody asked for"});
    return false;
  }
  is_answering_ = true;
  is_bad_ = is_bad;
  return true;
}

// Where what follows the head goes. False if that is not as long as it has to be.
bool TcpPort::expect_rest(const Piece& piece, const AnswerHead& head, bool is_bad) {
  const Operation::Kind kind = piece.operation->kind;
  const bool are_words = piece.count > 1;
  const bool is_read = kind == Operation::Kind::read && !are_words;
  const auto asked_kind = are_words ? read_words_kind : static_cast<std::uint8_t>(kind);
  std::size_t expected = 0;
  if (are_words) {
    expected = (piece.count + (is_bad ? 1U : 0U)) * word_bytes;
  } else if (!is_bad) {
    expected = is_read ? piece.length : piece.operation->is_atomic() ? word_bytes : 0;
  }
  filling_ = is_read ? piece.operation->local + piece.from : reinterpret_cast<std::byte*>(words_.data());
  filling_bytes_ = expected;
  skip_bytes_ = whole_words(expected) - expected;
  return head.kind == asked_kind && head.length_bytes == expected;
}

void TcpPort::finish_piece() {
  const Piece piece = asked_[answered_++];
  if (piece.ends_send) --sends_under_way_;
  is_answering_ = false;
  --piece.flight->pieces;
  Operation& first = *piece.operation;
  piece.flight->may_have_swapped = piece.flight->may_have_swapped || (first.is_atomic() && !is_bad_);
  if (piece.count == 1) {
    if (is_bad_) first.bad_address = true;
    if (first.is_atomic()) first.result = words_[0];
    return;
  }
  const std::uint64_t bad = is_bad_ ? words_[0] : 0;
  const std::uint64_t* words = words_.data() + (is_bad_ ? 1 : 0);
  for (std::size_t i = 0; i < piece.count; ++i) {
    Operation& operation = *(piece.operation + i);
    operation.bad_address = (bad >> i & 1) != 0;
    if (!operation.bad_address) std::memcpy(operation.local, words + i, word_bytes);
  }
}

bool TcpPort::check_deadlines() {
  const base::Nanos now = base::Clock().now();
  if (now == std::exchange(deadlines_checked_at_, now)) return false;
  const bool is_late = sign_.is_late(now) || flights_.any_late(now);
  if (is_late) sever({.code = Errc::timed_out, .detail = "no answer in time"});
  return is_late;
}

bool TcpPort::await(std::vector<pollfd>& waits) {
  // An idle port is not woken by its end; the next post finds out.
  if (is_idle()) return true;
  const bool sends = out_begin_ < out_end_;
  waits.push_back({.fd = stream_->socket(),
                   .events = static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN),
                   .revents = 0});
  return true;
}

void TcpPort::sever_after_last_words(const Error& why) {
  while (!severed_ && receive()) {
  }
  if (!severed_) sever(why);
}

void TcpPort::sever(const Error& why) {
  asked_.clear();
  answered_ = 0;
  sends_under_way_ = 0;
  filling_bytes_ = skip_bytes_ = 0;
  is_answering_ = false;
  out_begin_ = out_end_ = 0;
  end_flights(why);
}

}  // namespace loch::fabric::tcp
