// Any bytes as what a host answers to the operations that a client asks for: answers as they have to be,
// refusals, and from some point on lies. Expect: every batch ends, once; those that were answered before the
// lies are as they were answered; the one that was lied to ends with an error, and so do all that come later;
// and nothing is written but what was read (the address sanitizer watches the ends of the buffers).
//
// The input says how the bytes are cut up and what the client asks for; then how each operation is answered,
// with a byte and operands behind it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/testing/in_seconds.h"
#include "fabric/fabric.h"
#include "fabric/remote/link.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/tcp/tcp_port.h"
#include "fabric/tcp/wire.h"
#include "tests/fuzz/connection.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/lying_host.h"

namespace loch::fabric::tcp {
namespace {

using fuzz::Connection;
using fuzz::Input;
using Kind = Operation::Kind;

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string_view view_of(const std::byte* bytes, std::size_t length) {
  return {reinterpret_cast<const char*>(bytes), length};
}

// The host's memory, which is without end and does not change, whatever is written.
std::string bytes_at(Address at, std::size_t length) {
  std::string bytes;
  for (std::uint64_t i = at.offset_bytes; i < at.offset_bytes + length; ++i)
    bytes += static_cast<char>(i * 7 + (i >> 8) * 13 + at.region);
  return bytes;
}

// ---- what is asked for

constexpr char not_read_yet = '\x5a';
char char_to_write(std::size_t i) { return static_cast<char>(i * 3 + 1); }

struct Batch : Completion {
  struct About {                            // an operation
    std::unique_ptr<std::byte[]> buffer{};  // just as long as it is
    bool is_refused = false;
    bool is_false = false;  // its answer has the right form, and other bytes
  };
  std::vector<Operation> operations{};
  std::vector<About> about{};  // each of them
  int times_over = 0;
  Result<void> outcome{};
  bool has_changed_a_word = false;  // as the host has said

  Batch()
      : Completion{.complete = [](Completion& self, Result<void> result) {
          auto& batch = static_cast<Batch&>(self);
          ++batch.times_over;
          batch.outcome = std::move(result);
        }} {}

  void add(Operation operation) {
    const std::size_t length = operation.is_atomic() ? 0 : operation.length_bytes;
    auto buffer = std::make_unique_for_overwrite<std::byte[]>(length);
    operation.local = buffer.get();
    for (std::size_t i = 0; i < length; ++i)
      buffer[i] = static_cast<std::byte>(writes(operation) ? char_to_write(i) : not_read_yet);
    operations.push_back(operation);
    about.push_back({.buffer = std::move(buffer)});
  }
  static bool writes(const Operation& operation) {
    return operation.kind == Kind::write || operation.kind == Kind::expect;
  }
};

// `left_bytes`: how many more may be asked for.
void add_operations(Batch& batch, Input& input, std::size_t* left_bytes) {
  const std::uint64_t how = input.take(1);
  const RegionId region = (how & 64) != 0 ? 3 : 2;
  const Address at{region, input.take(2) * ((how & 16) == 0 ? word_bytes : 3)};
  const std::uint64_t operand = input.take(1);
  const std::size_t length =
      std::min((how & 8) != 0 ? operand * (3 * piece_bytes_max / 255) : operand, *left_bytes);
  *left_bytes -= length;
  const auto add = [&](Operation operation) {
    operation.after_previous = (how & 32) != 0 && !batch.operations.empty();
    batch.add(operation);
  };
  switch (how & 7) {
    case 0:
      return add(Operation::read(at, nullptr, length));
    case 1:
      return add(Operation::read_settled(at, nullptr, length));
    case 2:
      return add(Operation::write(at, nullptr, length));
    case 3:
      return add(Operation::expect(at, nullptr, length));
    case 4:
      return add(Operation::compare_swap(at, operand, operand + 1));
    case 5:
      return add(Operation::fetch_add(at, operand));
    default:  // words, one after the other
      for (std::uint64_t i = 0; i <= operand % 20; ++i)
        add(Operation::read(at + i * 3 * word_bytes, nullptr, word_bytes));
  }
}

std::deque<Batch> batches_of(Input& input) {
  std::size_t left_bytes = 524'288;
  std::deque<Batch> batches(1 + (input.take(1) & 3));
  for (Batch& batch : batches) {
    const std::uint64_t how = input.take(1);
    if ((how & 128) != 0) batch.urgency = Urgency::background;
    for (std::uint64_t i = 0; i <= (how & 15); ++i) add_operations(batch, input, &left_bytes);
  }
  return batches;
}

// ---- how it is answered

class Host {
 public:
  Host(Input& input, std::deque<Batch>& batches, Connection& connection)
      : input_(input), batches_(batches), connection_(connection) {}

  // Answers all that has come whole. It is well-formed, and in the order in which it was posted.
  void answer_all() {
    heard_ += connection_.take_heard();
    std::string_view left = heard_;
    OperationHead head;
    while (left.size() >= sizeof head && !has_closed_) {
      std::memcpy(&head, left.data(), sizeof head);
      LOCH_CHECK(is_operation(head));
      const std::size_t length = sizeof head + bytes_after(head);
      if (left.size() < length) break;
      answer(head, left.substr(sizeof head, bytes_after(head)));
      left.remove_prefix(length);
    }
    heard_.erase(0, heard_.size() - left.size());
  }

  // How many batches were answered in full before anything else was said; all of them, if nothing was.
  [[nodiscard]] std::size_t sound_batches() const { return has_lied_ ? lied_to_ : batches_.size(); }
  [[nodiscard]] bool has_lied() const { return has_lied_; }
  // Whether a client can not have taken what was said then for an answer.
  [[nodiscard]] bool has_lied_plainly() const {
    return has_lied_ && std::ranges::none_of(takes_for_answer_, [this](const std::string& answer) {
             return said_since_.starts_with(answer);
           });
  }

 private:
  // Operations that are asked for together, or a piece of one.
  struct Piece {
    Batch* batch;
    std::size_t first;
    std::size_t count;
    std::size_t from;
    [[nodiscard]] std::span<const Operation> operations() const {
      return std::span(batch->operations).subspan(first, count);
    }
    [[nodiscard]] std::span<Batch::About> about() const {
      return std::span(batch->about).subspan(first, count);
    }
  };

  void answer(const OperationHead& head, std::string_view rest) {
    enum : std::uint8_t { refuses = 6, is_false, of_other_form, any_bytes, last, again, nothing, part };
    const std::uint64_t how = input_.take(1) % (part + 1);
    const std::size_t to = batch_;
    const Piece piece = take(head, rest);
    const std::string done = done_answer(piece, head);
    const std::string refused = refused_answer(piece, head);
    std::string said = how == refuses ? refused : done;
    if (how == refuses) note_refusal(piece, refused);
    if (how == is_false && said.size() > sizeof(AnswerHead)) {
      said[sizeof(AnswerHead) + input_.take(2) % (said.size() - sizeof(AnswerHead))] ^= '\x10';
      for (Batch::About& each : piece.about()) each.is_false = true;
    }

    const std::string sound = said;
    if (how == of_other_form) {
      const std::size_t at = input_.take(1) % sizeof(AnswerHead);
      // All but the status, since a refusal may be an answer as well.
      said[at] = static_cast<char>(at == 0 ? said[at] | 2 : said[at] ^ static_cast<char>(input_.take(1)));
    }
    if (how == any_bytes) said.insert(0, input_.take_bytes(1 + input_.take(1) % 64));
    if (how == last) said.insert(0, bytes_of(last_words));
    if (how == again) said.insert(0, said_last_);
    if (how == nothing) said.clear();
    if (how == part) said.resize(input_.take(2) % said.size());
    if (said != sound && !std::exchange(has_lied_, true)) {
      lied_to_ = to;
      takes_for_answer_ = {done.substr(0, sizeof(AnswerHead)), refused.substr(0, sizeof(AnswerHead))};
      if (how == part) takes_for_answer_ = {sound, sound};
    }
    if (has_lied_) said_since_ += said;
    if (!has_lied_ && how != refuses && piece.operations().front().is_atomic())
      piece.batch->has_changed_a_word = true;
    said_last_ = sound;
    connection_.tell(said);
    has_closed_ = how == part;
    if (has_closed_) connection_.close();
  }

  // Of the operations that come next.
  Piece take(const OperationHead& head, std::string_view rest) {
    LOCH_CHECK(batch_ < batches_.size());
    Batch& batch = batches_[batch_];
    const bool are_words = kind_of(head) == read_words_kind;
    const std::size_t count = are_words ? head.length_bytes / word_bytes : 1;
    LOCH_CHECK(operation_ + count <= batch.operations.size());
    const Piece piece{.batch = &batch, .first = operation_, .count = count, .from = from_};
    if (are_words) {
      check_words(piece.operations(), head, rest);
      operation_ += count;
    } else {
      const Operation& operation = piece.operations().front();
      check_piece(operation, head, rest);
      from_ += head.length_bytes;
      if (from_ == operation.length_bytes) {
        from_ = 0;
        ++operation_;
      }
    }
    if (operation_ == batch.operations.size()) {
      operation_ = 0;
      ++batch_;
    }
    return piece;
  }

  static void check_words(std::span<const Operation> words, const OperationHead& head,
                          std::string_view rest) {
    std::uint64_t offset = head.offset_bytes;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i != 0) std::memcpy(&offset, rest.data() + (i - 1) * word_bytes, word_bytes);
      LOCH_CHECK(words[i].kind == Kind::read && words[i].length_bytes == word_bytes);
      LOCH_CHECK(words[i].at == (Address{head.region, offset}));
    }
  }

  void check_piece(const Operation& operation, const OperationHead& head, std::string_view rest) const {
    LOCH_CHECK(kind_of(head) == static_cast<std::uint8_t>(operation.kind));
    LOCH_CHECK((Address{head.region, head.offset_bytes}) == operation.at + from_);
    LOCH_CHECK(head.length_bytes == std::min(operation.length_bytes - from_, piece_bytes_max));
    LOCH_CHECK(is_after_previous(head) == (operation.after_previous || from_ != 0));
    LOCH_CHECK(is_settled(head) == operation.settled);
    if (Batch::writes(operation))
      LOCH_CHECK(rest.starts_with(view_of(operation.local + from_, head.length_bytes)));
    if (operation.kind == Kind::compare_swap)
      LOCH_CHECK(rest == bytes_of(operation.compare) + bytes_of(operation.operand));
    if (operation.kind == Kind::fetch_add) LOCH_CHECK(rest == bytes_of(operation.operand));
  }

  static std::string answer_of(const OperationHead& head, Status status, std::string rest) {
    const AnswerHead told{.status = static_cast<std::uint8_t>(status),
                          .kind = kind_of(head),
                          .number = head.number,
                          .length_bytes = static_cast<std::uint32_t>(rest.size())};
    rest.append(whole_words(rest.size()) - rest.size(), '\0');
    return bytes_of(told) + rest;
  }

  static std::string done_answer(const Piece& piece, const OperationHead& head) {
    std::string rest;
    for (const Operation& operation : piece.operations()) {
      const std::size_t length = piece.count > 1 ? word_bytes : head.length_bytes;
      if (!Batch::writes(operation)) rest += bytes_at(operation.at + piece.from, length);
    }
    return answer_of(head, Status::done, std::move(rest));
  }

  // Of words, which of them there are not.
  std::string refused_answer(const Piece& piece, const OperationHead& head) {
    if (kind_of(head) != read_words_kind) return answer_of(head, Status::bad_address, {});
    const std::uint64_t bad = (head.number % 7 + 1) & ((std::uint64_t{1} << piece.count) - 1);
    std::string rest = bytes_of(bad != 0 ? bad : std::uint64_t{1});
    for (const Operation& word : piece.operations()) rest += bytes_at(word.at, word_bytes);
    return answer_of(head, Status::bad_address, std::move(rest));
  }

  static void note_refusal(const Piece& piece, const std::string& refused) {
    std::uint64_t bad = 1;
    if (refused.size() > sizeof(AnswerHead))
      std::memcpy(&bad, refused.data() + sizeof(AnswerHead), word_bytes);
    for (std::size_t i = 0; i < piece.count; ++i) {
      bool& is_refused = piece.about()[i].is_refused;
      is_refused = is_refused || (bad >> i & 1) != 0;
    }
  }

  Input& input_;
  std::deque<Batch>& batches_;
  Connection& connection_;
  std::string heard_{};
  bool has_closed_ = false;
  std::size_t batch_ = 0;  // that is being answered,
  std::size_t operation_ = 0;
  std::size_t from_ = 0;
  std::string said_last_{};

  bool has_lied_ = false;
  std::size_t lied_to_ = 0;
  std::array<std::string, 2> takes_for_answer_{};
  std::string said_since_{};
};

// ---- what has come of it

void check_answered(const Batch& batch) {
  LOCH_CHECK(batch.outcome.has_value());
  for (std::size_t i = 0; i < batch.operations.size(); ++i) {
    const Operation& operation = batch.operations[i];
    LOCH_CHECK(operation.bad_address == batch.about[i].is_refused);
    if (operation.bad_address || batch.about[i].is_false) continue;
    if (operation.kind == Kind::read) {
      LOCH_CHECK(view_of(operation.local, operation.length_bytes) ==
                 bytes_at(operation.at, operation.length_bytes));
    }
    if (operation.is_atomic()) LOCH_CHECK(bytes_of(operation.result) == bytes_at(operation.at, word_bytes));
  }
}

void check_ended(const Batch& batch, const std::string& location) {
  const Error& error = batch.outcome.error();
  LOCH_CHECK(error.code == Errc::unavailable || error.code == Errc::moved || error.code == Errc::timed_out);
  // What came too late to be sent is not the host's fault.
  LOCH_CHECK(error.code == Errc::timed_out ? !error.detail.empty() : error.detail.contains(location));
  // What was moved has not happened.
  LOCH_CHECK(error.code != Errc::moved || !batch.has_changed_a_word);
}

// What is the caller's is as it was, and so is what was not to be read.
void check_buffers(const Batch& batch) {
  for (const Operation& operation : batch.operations) {
    if (operation.is_atomic()) continue;
    const std::string_view bytes = view_of(operation.local, operation.length_bytes);
    for (std::size_t i = 0; Batch::writes(operation) && i < bytes.size(); ++i)
      LOCH_CHECK(bytes[i] == char_to_write(i));
    const bool is_not_read =
        operation.kind == Kind::read && operation.bad_address && bytes.size() <= piece_bytes_max;
    if (is_not_read) LOCH_CHECK(bytes.find_first_not_of(not_read_yet) == std::string_view::npos);
  }
}

// A way to a host, over whose link nothing is asked.
struct Way {
  fuzz::LyingHost host{};
  std::shared_ptr<remote::RemoteFabric> fabric = remote::RemoteFabric::attach(host.target()).value();
  std::shared_ptr<remote::Link> link = remote::Link::open(host.target()).value();
};

void run(Input input) {
  static auto& way = *new Way;
  const std::uint64_t how = input.take(1);
  const std::uint64_t cut = input.take(1);
  std::deque<Batch> batches = batches_of(input);
  std::size_t all_bytes = 0;
  for (const Batch& batch : batches) {
    for (const Operation& operation : batch.operations) all_bytes += operation.length_bytes;
  }
  // So that there are some hundreds of pieces at most.
  const std::size_t cut_bytes = cut == 0 ? std::numeric_limits<std::size_t>::max() : cut + all_bytes / 256;
  const bool falters = (how & 1) != 0;
  const bool all_at_once = (how & 2) != 0;
  const bool is_silent = (how & 0x7c) == 0x7c;
  Connection connection({.bytes_max = cut_bytes, .falters = falters});
  Host host(input, batches, connection);
  TcpPort port(*way.fabric, way.link, {.stream = connection.other_end(), .port = 1}, base::second_ns);

  const base::Nanos deadline =
      is_silent ? base::Clock().now() + 5 * base::millisecond_ns : base::fake::in_seconds(60);
  const base::Nanos at_last = base::fake::in_seconds(15);
  std::size_t posted = 0;
  const auto are_over = [&] {
    return posted == batches.size() && std::ranges::all_of(batches, &Batch::times_over);
  };
  for (int idle = 0; !are_over();) {
    do {
      if (posted < batches.size()) {
        port.post(batches[posted].operations, deadline, batches[posted]);
        ++posted;
      }
    } while (all_at_once && posted < batches.size());
    const std::size_t before = connection.moved_bytes();
    port.progress();
    if (!is_silent) host.answer_all();
    idle = connection.moved_bytes() == before ? idle + 1 : 0;
    if (idle == 4 && !is_silent) connection.close();
    LOCH_CHECK(is_silent ? base::Clock().now() < at_last : idle < 16);
  }
  port.abandon();  // it says no good-bye over the link

  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    LOCH_CHECK(batch.times_over == 1);
    check_buffers(batch);
    if (!batch.outcome) check_ended(batch, way.fabric->location());
    if (is_silent) {
      LOCH_CHECK(!batch.outcome.has_value());
      LOCH_CHECK(i != 0 || batch.outcome.error().code == Errc::timed_out);
    } else if (i < host.sound_batches()) {
      // Who can not send any more may not come to read all that was said before.
      if (!falters || !host.has_lied()) check_answered(batch);
    } else if (host.has_lied_plainly()) {
      LOCH_CHECK(!batch.outcome);
    }
  }
}

}  // namespace
}  // namespace loch::fabric::tcp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::fabric::tcp::run({data, size});
  return 0;
}
