// Any bytes as what a client sends over a data connection, to an agent that lends small regions with pages
// round them that nobody may touch. Expect: every answer is the one that a plain model of the memory gives,
// and at the end the regions are as the model's, so nothing was read or written outside of them, nor changed
// by who may not; and a connection that says anything else than operations is closed, with nothing done after
// it.
//
// The input says what the client may change and how its bytes are cut up; then it is a row of commands of one
// byte each, with operands behind it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/testing/in_seconds.h"
#include "fabric/fabric.h"
#include "fabric/tcp/agent.h"
#include "fabric/tcp/wire.h"
#include "net/socket.h"
#include "net/stream.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/input.h"

namespace loch::fabric::tcp {
namespace {

using fuzz::byte_of_new;
using fuzz::GuardedFabric;
using fuzz::Input;
using Kind = Operation::Kind;

// One has no bytes. All others are not there.
constexpr std::array<fuzz::Shape, 3> shapes = {{{2, 3 * fuzz::page_bytes}, {3, 1'000}, {9, 0}}};
constexpr std::array<RegionId, 8> named = {2, 2, 2, 3, 3, 9, 0, 255};

// What a client may change: all, nothing, or its own words, by writes alone.
struct May {
  bool change_all = false;
  OwnWords own{};
};

// The same memory as plain bytes, on which operations are carried out one after the other; and what is
// answered.
class Model {
 public:
  explicit Model(May may) : may_(may) {
    for (const fuzz::Shape& shape : shapes) {
      Region& region = regions_[shape.id];
      for (std::size_t i = 0; i < shape.length_bytes; ++i)
        region.bytes += static_cast<char>(byte_of_new(shape.id, i));
      region.changed_by.resize(shape.length_bytes);
    }
  }

  // Carries out all that is whole. False if it is no operation that comes then.
  bool execute_all(std::string_view asked) {
    OperationHead head;
    while (asked.size() >= sizeof head) {
      std::memcpy(&head, asked.data(), sizeof head);
      if (!is_operation(head)) return false;
      LOCH_CHECK(head.length_bytes <= piece_bytes_max);
      const std::size_t length = sizeof head + bytes_after(head);
      if (asked.size() < length) return true;
      ++operation_;
      execute(head, asked.substr(sizeof head, bytes_after(head)));
      asked.remove_prefix(length);
    }
    return true;
  }

  // Whether these may be the first bytes of the answers: what was read as settled may be as it was later.
  [[nodiscard]] bool begins_with(std::string_view got) const {
    if (got.size() > answers_.size()) return false;
    std::vector<bool> may_differ(answers_.size());
    for (const Settled& read : settled_) {
      const std::vector<std::size_t>& changed_by = regions_.at(read.from.region).changed_by;
      for (std::size_t i = 0; i < read.length; ++i)
        may_differ[read.at + i] = changed_by[read.from.offset_bytes + i] > read.until;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != answers_[i] && !may_differ[i]) return false;
    }
    return true;
  }
  [[nodiscard]] std::size_t answer_bytes() const { return answers_.size(); }
  [[nodiscard]] std::string_view bytes_of(RegionId region) const { return regions_.at(region).bytes; }

 private:
  struct Region {
    std::string bytes{};
    std::vector<std::size_t> changed_by{};  // the last operation that did, of each byte; 0: none
  };
  struct Settled {
    std::size_t at;  // in the answers
    std::size_t length;
    Address from;
    std::size_t until;  // what comes after this operation may be seen already
  };
  static constexpr std::size_t never = ~std::size_t{0};

  // Null if it does not have all of that.
  Region* find(Address at, std::uint64_t length) {
    const auto found = regions_.find(at.region);
    if (found == regions_.end()) return nullptr;
    const std::uint64_t there = found->second.bytes.size();
    const bool fits = at.offset_bytes <= there && length <= there - at.offset_bytes;
    return fits ? &found->second : nullptr;
  }

  [[nodiscard]] bool may(Kind kind, Address at, std::uint64_t length) const {
    if (kind == Kind::read || kind == Kind::expect || may_.change_all) return true;
    return kind == Kind::write &&
           std::ranges::any_of(std::array{may_.own.first, may_.own.second}, [&](auto own) {
             return at.region == own.at.region && at.offset_bytes >= own.at.offset_bytes &&
                    at.offset_bytes + length <= own.at.offset_bytes + own.length_bytes;
           });
  }

  void execute(const OperationHead& head, std::string_view rest) {
    if (kind_of(head) == read_words_kind) return read_words(head, rest);
    const auto kind = static_cast<Kind>(kind_of(head));
    const Address at{head.region, head.offset_bytes};
    const bool is_atomic = kind == Kind::compare_swap || kind == Kind::fetch_add;
    // A read before it is over by then, unless both may be late.
    if (is_after_previous(head) && !is_settled(head) && !settled_.empty() &&
        settled_.back().until == operation_ - 1)
      settled_.back().until = never;
    Region* const region = find(at, head.length_bytes);
    const bool is_skipped = is_after_previous(head) && refused_last_;
    refused_last_ = region == nullptr || is_skipped || (is_atomic && at.offset_bytes % word_bytes != 0) ||
                    !may(kind, at, head.length_bytes);
    if (refused_last_) return answer(head, Status::bad_address, {});
    const std::string there = region->bytes.substr(at.offset_bytes, head.length_bytes);
    switch (kind) {
      case Kind::read:
        if (is_settled(head))
          settled_.push_back({answers_.size() + sizeof(AnswerHead), there.size(), at, operation_});
        return answer(head, Status::done, there);
      case Kind::expect:
        refused_last_ = there != rest.substr(0, there.size());
        return answer(head, refused_last_ ? Status::bad_address : Status::done, {});
      case Kind::write:
        change(*region, at.offset_bytes, rest.substr(0, there.size()));
        return answer(head, Status::done, {});
      case Kind::compare_swap:
        if (there == rest.substr(0, word_bytes)) change(*region, at.offset_bytes, rest.substr(word_bytes));
        return answer(head, Status::done, there);
      case Kind::fetch_add: {
        const std::uint64_t sum = word_in(there) + word_in(rest);
        change(*region, at.offset_bytes, {reinterpret_cast<const char*>(&sum), sizeof sum});
        return answer(head, Status::done, there);
      }
    }
  }

  void read_words(const OperationHead& head, std::string_view rest) {
    std::string words;
    std::uint64_t bad = 0;
    for (std::size_t i = 0; i < head.length_bytes / word_bytes; ++i) {
      const Address at{head.region, i == 0 ? head.offset_bytes : word_in(rest.substr((i - 1) * word_bytes))};
      const Region* const region = at.offset_bytes % word_bytes == 0 ? find(at, word_bytes) : nullptr;
      if (region == nullptr) bad |= std::uint64_t{1} << i;
      words += region != nullptr ? region->bytes.substr(at.offset_bytes, word_bytes)
                                 : std::string(word_bytes, '\0');
    }
    refused_last_ = bad != 0;
    const std::string before(reinterpret_cast<const char*>(&bad), bad != 0 ? sizeof bad : 0);
    answer(head, bad != 0 ? Status::bad_address : Status::done, before + words);
  }

  static std::uint64_t word_in(std::string_view bytes) {
    std::uint64_t word = 0;
    LOCH_CHECK(bytes.size() >= sizeof word);
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }

  void change(Region& region, std::size_t offset, std::string_view to) const {
    region.bytes.replace(offset, to.size(), to);
    for (std::size_t i = 0; i < to.size(); ++i) region.changed_by[offset + i] = operation_;
  }

  void answer(const OperationHead& head, Status status, std::string_view rest) {
    const AnswerHead told{.status = static_cast<std::uint8_t>(status),
                          .kind = kind_of(head),
                          .number = head.number,
                          .length_bytes = static_cast<std::uint32_t>(rest.size())};
    answers_.append(reinterpret_cast<const char*>(&told), sizeof told);
    answers_ += rest;
    answers_.append(whole_words(rest.size()) - rest.size(), '\0');
  }

  const May may_;
  std::map<RegionId, Region> regions_{};
  std::size_t operation_ = 0;  // how many there were, with this one
  bool refused_last_ = false;
  std::string answers_{};
  std::vector<Settled> settled_{};
};

// A stream of which so many bytes go at once.
class CutStream final : public net::Stream {
 public:
  struct Cuts {
    std::size_t read_bytes_max;
    std::size_t write_bytes_max;
    bool falters;  // no second write in a row goes
    bool gathers;
  };
  CutStream(base::FileDescriptor socket, Cuts cuts) : Stream(std::move(socket)), cuts_(cuts) {}

  Result<std::size_t> read(std::span<const iovec> into) override {
    return Stream::read(first_of(into, cuts_.read_bytes_max));
  }
  Result<std::size_t> write(std::span<const iovec> from) override {
    has_written_ = !(cuts_.falters && has_written_);
    if (!has_written_) return 0;
    return Stream::write(first_of(from, cuts_.write_bytes_max));
  }
  [[nodiscard]] bool gathers() const override { return cuts_.gathers; }

 private:
  static std::vector<iovec> first_of(std::span<const iovec> parts, std::size_t bytes) {
    std::vector<iovec> first;
    for (const iovec& part : parts) {
      const std::size_t length = std::min(part.iov_len, bytes);
      if (length == 0) break;
      first.push_back({.iov_base = part.iov_base, .iov_len = length});
      bytes -= length;
    }
    return first;
  }

  const Cuts cuts_;
  bool has_written_ = false;  // the last time
};

// ---- what the client sends

class Sender {
 public:
  explicit Sender(Input& input) : input_(input) {}

  std::string make() {
    constexpr std::size_t asked_bytes_max = 262'144;
    while (!input_.empty() && asked_.size() < asked_bytes_max) add();
    return std::move(asked_);
  }

 private:
  void add() {
    const std::uint64_t command = input_.take(1);
    const auto region = named[command >> 5];
    switch (command & 7) {
      case 6: {  // any head
        OperationHead head;
        std::string bytes = input_.take_bytes(sizeof head);
        bytes.resize(sizeof head);
        std::memcpy(&head, bytes.data(), sizeof head);
        asked_ += bytes;
        asked_.append(is_operation(head) ? bytes_after(head) : 0, '\1');
        return;
      }
      case 7:  // any bytes
        asked_ += input_.take_bytes(1 + (command >> 3));
        return;
      case read_words_kind:
        return add_words(region);
      default:
        return add_operation(static_cast<Kind>(command & 7), region, (command & 8) != 0, (command & 16) != 0);
    }
  }

  // All but the address is as it has to be.
  void add_operation(Kind kind, RegionId region, bool after_previous, bool settled) {
    const bool is_atomic = kind == Kind::compare_swap || kind == Kind::fetch_add;
    const std::uint64_t how = input_.take(1);
    const std::uint32_t length = is_atomic ? word_bytes : length_of(region, how);
    const std::uint64_t offset = offset_in(region, length, how >> 2);
    const bool is_settled_read = settled && kind == Kind::read;
    add_head({.kind = static_cast<std::uint8_t>(static_cast<unsigned>(kind) |
                                                (after_previous ? after_previous_bit : 0U) |
                                                (is_settled_read ? settled_bit : 0U)),
              .region = region,
              .number = number_++,
              .length_bytes = length,
              .offset_bytes = offset});
    const bool as_it_is_new = (how & 128) != 0;
    const std::uint64_t fill = kind == Kind::read ? 0 : input_.take(1);
    const auto add_bytes = [&](std::size_t bytes, bool is_new) {
      for (std::size_t i = 0; i < bytes; ++i)
        asked_ += static_cast<char>(is_new ? byte_of_new(region, offset + i) : static_cast<std::byte>(fill));
    };
    if (kind != Kind::read) add_bytes(whole_words(length), as_it_is_new);
    if (kind == Kind::compare_swap) add_bytes(word_bytes, false);
  }

  void add_words(RegionId region) {
    const std::uint64_t how = input_.take(1);
    const std::size_t count = 1 + how % words_at_once_max;
    const auto offset = [&] { return offset_in(region, word_bytes, how >> 4); };
    add_head({.kind = read_words_kind,
              .region = region,
              .number = number_++,
              .length_bytes = static_cast<std::uint32_t>(count * word_bytes),
              .offset_bytes = offset()});
    for (std::size_t i = 1; i < count; ++i) {
      const std::uint64_t further = offset();
      asked_.append(reinterpret_cast<const char*>(&further), sizeof further);
    }
  }

  void add_head(const OperationHead& head) {
    asked_.append(reinterpret_cast<const char*>(&head), sizeof head);
  }

  static std::uint64_t length_of_region(RegionId id) {
    for (const fuzz::Shape& shape : shapes) {
      if (shape.id == id) return shape.length_bytes;
    }
    return 0;
  }
  std::uint32_t length_of(RegionId region, std::uint64_t how) {
    switch (how & 3) {
      case 0:
        return word_bytes;
      case 1:
        return static_cast<std::uint32_t>(input_.take(1));
      case 2:
        return static_cast<std::uint32_t>(input_.take(2));
      default:
        return (how & 64) != 0 ? static_cast<std::uint32_t>(length_of_region(region)) : piece_bytes_max;
    }
  }
  std::uint64_t offset_in(RegionId region, std::uint64_t length, std::uint64_t how) {
    const std::uint64_t end = length_of_region(region);
    const std::uint64_t mask = (how & 4) != 0 ? ~std::uint64_t{0} : ~(word_bytes - 1);
    switch (how & 3) {
      case 0:
        return input_.take(2) & mask;
      case 1:
        return end - length;  // so that it just fits, or begins before the region
      case 2:
        return (end - input_.take(1)) & mask;
      default:
        return input_.take(8) & mask;
    }
  }

  Input& input_;
  std::string asked_{};
  std::uint16_t number_ = 0;
};

// ---- the connection

// All that is answered until the other end closes.
std::string answers_to(const net::Stream& client, std::string_view asked) {
  std::string got;
  const base::Nanos deadline = base::fake::in_seconds(10);
  const auto chunk = std::make_unique<std::array<char, 65'536>>();
  for (bool is_all_said = false;;) {
    while (!asked.empty()) {
      const ssize_t sent = ::send(client.socket(), asked.data(), asked.size(), MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (sent < 0) asked = {};  // it has closed already
      asked.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    }
    if (asked.empty() && !std::exchange(is_all_said, true)) ::shutdown(client.socket(), SHUT_WR);
    const ssize_t some = ::recv(client.socket(), chunk->data(), chunk->size(), 0);
    if (some > 0) {
      got.append(chunk->data(), static_cast<std::size_t>(some));
      continue;
    }
    if (some == 0 || (errno != EAGAIN && errno != EINTR)) return got;
    const bool has_come =
        net::wait_for(client.socket(), static_cast<short>(is_all_said ? POLLIN : POLLIN | POLLOUT), deadline);
    LOCH_CHECK(has_come);
  }
}

// One agent for all inputs, as a host has one for all clients.
struct Lending {
  fuzz::Regions regions{};
  Agent agent{{.gone = {}}};
  Agent::Id next_id = 1;
  std::shared_ptr<Fabric> of_processor{};
  std::shared_ptr<Fabric> of_device{};

  Lending() {
    for (const fuzz::Shape& shape : shapes) regions.try_emplace(shape.id, shape);
    of_processor = std::make_shared<GuardedFabric>(regions, Atomics::processor);
    of_device = std::make_shared<GuardedFabric>(regions, Atomics::device);
  }
};

void run(Input input) {
  static auto& lending = *new Lending;
  for (auto& [id, region] : lending.regions) region.renew();

  const std::uint64_t how = input.take(1);
  const std::uint64_t cut = input.take(1);
  const bool is_devices = (how & 7) == 6;
  const bool has_own_words = (how & 7) == 5 || (how & 7) == 4;
  const bool reads_only = (how & 7) == 7 || has_own_words;
  May may{.change_all = !is_devices && !reads_only};
  if (has_own_words) {
    for (Range* own : {&may.own.first, &may.own.second})
      *own = {.at = {named[input.take(1) & 7], input.take(2)}, .length_bytes = input.take(1)};
  }
  const std::string asked = Sender(input).make();

  std::array<int, 2> ends{};
  LOCH_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const net::Stream client{base::FileDescriptor(ends[0])};
  // So that there are some hundreds of pieces at most.
  constexpr std::size_t uncut = std::numeric_limits<std::size_t>::max();
  const std::size_t cut_bytes = cut == 0 ? uncut : cut + asked.size() / 256;
  const CutStream::Cuts cuts{.read_bytes_max = cut_bytes,
                             .write_bytes_max = (how & 16) != 0 ? 1'024 + cut : uncut,
                             .falters = (how & 32) != 0,
                             .gathers = (how & 64) == 0};
  const Agent::Id id = lending.next_id++;
  lending.agent.add(id, std::make_unique<CutStream>(base::FileDescriptor(ends[1]), cuts),
                    is_devices ? lending.of_device : lending.of_processor, nullptr,
                    reads_only ? Agent::May::write_own : Agent::May::change_all);
  if (has_own_words) lending.agent.set_own_words(id, may.own);
  const std::string got = answers_to(client, asked);

  Model model(may);
  const bool are_operations = model.execute_all(asked);
  // What is wrong may be found before the answers to what came with it have gone.
  LOCH_CHECK(model.begins_with(got) && (!are_operations || got.size() == model.answer_bytes()));
  for (const auto& [region_id, region] : lending.regions)
    LOCH_CHECK(region.bytes() == model.bytes_of(region_id));
}

}  // namespace
}  // namespace loch::fabric::tcp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  loch::fabric::tcp::run({data, size});
  return 0;
}
