// Endpoint: the one-sided operations of one session.
//
//   Result<void> read = co_await endpoint.read_words(addresses, words);
//   Result<std::uint64_t> before = co_await endpoint.compare_swap(slot, expected, desired);
//
// Memory that is mapped here is touched in place: the awaitable is ready at once and inlines to loads, a
// store or a locked instruction. What is not mapped is posted to the Port, and the coroutine goes on when it
// has completed. When several coroutines take turns (`Turns`), an operation on mapped memory prefetches, lets
// the others run, and touches the memory when its turn comes again, so that their cache misses overlap.
//
// One thread. Addresses are input: one that is outside its region is Errc::corrupt.
#pragma once

#include <array>
#include <coroutine>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <loch/coro/task.h>

#include "coro/run_queue.h"
#include "fabric/fabric.h"
#include "fabric/words.h"

namespace loch::fabric {

inline constexpr std::size_t batch_words_max = 9;

class Endpoint;
struct Posted;
struct GiveBack {
  void operator()(Posted* posted) const noexcept;  // to its endpoint, which uses it again
};

// Bytes of the store: in place if they are mapped, else a copy that lives as long as this object.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const std::byte* data, std::size_t length) : data_(data), length_(length) {}
  Bytes(std::unique_ptr<std::byte[]> copy, std::size_t length)
      : data_(copy.get()), length_(length), copy_(std::move(copy)) {}

  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return length_; }
  [[nodiscard]] bool in_place() const { return copy_ == nullptr; }
  // The copy, if these are no bytes in place.
  std::unique_ptr<std::byte[]> take_copy() && { return std::move(copy_); }

 private:
  const std::byte* data_ = nullptr;
  std::size_t length_ = 0;
  std::unique_ptr<std::byte[]> copy_;
};

// Carries an operation out on what is mapped at `at`.
void carry_out(Operation& operation, std::byte* at);

class Endpoint {
 public:
  Endpoint(std::shared_ptr<Fabric> fabric, std::unique_ptr<Port> port);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Where [at, at + length) is in this process, or null if it is not mapped or not inside its region.
  std::byte* mapped(Address at, std::size_t length_bytes) {
    std::byte* base = mapped_before(at, length_bytes);
    return base != nullptr || is_elsewhere_[at.region] ? base : remap(at, length_bytes);
  }
  // The same for what was mapped when it was last asked for; calls nothing.
  [[gnu::always_inline]] std::byte* mapped_before(Address at, std::size_t length_bytes) const {
    const Mapping& m = mappings_[at.region];
    if (length_bytes > m.length_bytes || at.offset_bytes > m.length_bytes - length_bytes) [[unlikely]]
      return nullptr;
    return m.base + at.offset_bytes;
  }

  // The same where `at` is what a slot's word may say, and the length that of a short item, so that their sum
  // does not overflow.
  [[gnu::always_inline]] const std::byte* mapped_item(Address at, std::size_t length_bytes) const {
    const Mapping& m = mappings_[at.region];
    if (at.offset_bytes + length_bytes > m.length_bytes) [[unlikely]]
      return nullptr;
    __builtin_assume(m.base != nullptr);
    return m.base + at.offset_bytes;
  }

  // How long `region` is now; 0 if it does not exist. Errors: those of the fabric.
  Result<std::uint64_t> length_bytes(RegionId region);
  // How long it is at least, for all that is known; asks nobody.
  std::uint64_t known_length_bytes(RegionId region);
  // Whether the region goes as far as that, for all that is known; asks only if it is not known.
  bool reaches(Address at, std::size_t length_bytes);

  // The words at `at` (at most batch_words_max) into `into`; one batch.
  auto read_words(std::span<const Address> at, std::uint64_t* into);
  auto read_word(Address at);
  auto compare_swap(Address at, std::uint64_t expected, std::uint64_t desired);
  auto fetch_add(Address at, std::uint64_t added);
  // One word, whole, ordered after what this session wrote and awaited before.
  auto write_word(Address at, std::uint64_t value);
  // `length_bytes` of the store, in place or copied.
  auto fetch(Address at, std::size_t length_bytes);
  // The same of what is `settled`, as items are.
  auto fetch_settled(Address at, std::size_t length_bytes);
  auto write(Address at, std::span<const std::byte> bytes);
  // All of these at once, in any order; what was read or was there before stands in them afterwards. The
  // caller keeps them until then.
  auto perform(std::span<Operation> operations, Urgency urgency = Urgency::awaited);
  // The same for who looks at each of them (Operation::did_nothing). Errors: those of the whole batch.
  auto perform_each(std::span<Operation> operations);
  // The same for who does nothing else until they are over, and is no coroutine of this endpoint; those that
  // are pending run meanwhile.
  Result<void> perform_each_waiting(std::span<Operation> operations);

  // Lets the pending coroutines run until `task` has finished. What a blocking call does.
  template <class T>
  T run(coro::Task<T> task) {
    task.start();
    while (!task.done()) [[unlikely]]
      step();
    return task.take();
  }
  // One step of progress: runs a coroutine, or polls, or waits for the next timer.
  void step();

  // Waits without holding up the coroutines that take turns; for back-off.
  auto sleep_until(base::Nanos until) { return queue_.sleep_until(until); }

  [[nodiscard]] coro::RunQueue& queue() { return queue_; }
  [[nodiscard]] Fabric& fabric() { return *fabric_; }
  [[nodiscard]] Port& port() { return *port_; }
  [[nodiscard]] base::Nanos now() const { return queue_.now(); }
  // Whether the operations of a batch that are on one node execute in their order (P3).
  [[nodiscard]] bool keeps_order() const { return port_->keeps_order(); }
  [[nodiscard]] OperationCost operation_cost() const { return port_->operation_cost(); }
  // Whether anything that was posted has failed: the session is over.
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  // How long what is posted may take, each batch by itself.
  void set_timeout(base::Nanos timeout_ns) { timeout_ns_ = timeout_ns; }
  [[nodiscard]] base::Nanos timeout_ns() const { return timeout_ns_; }

  // While one of these lives, operations on mapped memory take turns.
  class Turns {
   public:
    explicit Turns(Endpoint& endpoint) : endpoint_(endpoint) { ++endpoint_.taking_turns_; }
    ~Turns() { --endpoint_.taking_turns_; }
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

   private:
    Endpoint& endpoint_;
  };

 private:
  struct Waited;
  friend struct Awaiting;
  friend struct Posted;
  friend struct GiveBack;
  std::byte* remap(Address at, std::size_t length_bytes);

  std::unique_ptr<Posted, GiveBack> take_posted(std::coroutine_handle<> waiter);

  std::array<Mapping, region_count_max> mappings_{};   // of length 0 if not mapped
  std::array<bool, region_count_max> is_elsewhere_{};  // and never is mapped
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<Port> port_;
  coro::RunQueue queue_;
  base::Nanos timeout_ns_ = base::second_ns;
  unsigned taking_turns_ = 0;  // how many Turns live
  bool has_failed_ = false;
  std::vector<std::unique_ptr<Posted>> spare_posted_;
};

// A batch on its way, and the coroutine that waits for it. Made only when something is posted.
struct Posted : Completion {
  Endpoint& endpoint;
  std::coroutine_handle<> waiter;
  std::vector<Operation> batch;
  Result<void> outcome{};

  Posted(Endpoint& e, std::coroutine_handle<> handle) : Completion{&completed}, endpoint(e), waiter(handle) {}
  static void completed(Completion& completion, Result<void> result);
  // The outcome of the batch, a bad address among them; it is what was posted, here or by the caller.
  Result<void> finish() { return finish(batch); }
  Result<void> finish(std::span<const Operation> operations);
};

// What all awaitables of an Endpoint share: the choice between touching and posting.
struct Awaiting {
  Endpoint& endpoint;
  std::unique_ptr<Posted, GiveBack> posted{};

  [[nodiscard]] bool takes_turns() const { return endpoint.taking_turns_ != 0; }
  void wait_for_turn(std::coroutine_handle<> handle) const { endpoint.queue_.push(handle); }
  Posted& prepare(std::coroutine_handle<> handle) {
    posted = endpoint.take_posted(handle);
    return *posted;
  }
  void post() const { post(*posted, posted->batch); }
  void post(Posted& to, std::span<Operation> operations) const {
    endpoint.port_->post(operations, endpoint.now() + endpoint.timeout_ns_, to);
  }
};

struct ReadWords : Awaiting {
  std::span<const Address> at;
  std::uint64_t* into;
  std::array<std::byte*, batch_words_max> in_place;  // as many as `at`, once await_ready has filled them

  ReadWords(Endpoint& e, std::span<const Address> addresses, std::uint64_t* words)
      : Awaiting{e}, at(addresses), into(words) {}

  bool await_ready() {
    for (std::size_t i = 0; i < at.size(); ++i) {
      in_place[i] = endpoint.mapped(at[i], sizeof(std::uint64_t));
      if (in_place[i] == nullptr) [[unlikely]] {
        in_place[0] = nullptr;
        return false;
      }
    }
    if (!takes_turns()) return true;
    for (std::size_t i = 0; i < at.size(); ++i) __builtin_prefetch(in_place[i]);
    return false;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    if (in_place[0] != nullptr) return wait_for_turn(handle);
    std::vector<Operation>& batch = prepare(handle).batch;
    for (std::size_t i = 0; i < at.size(); ++i) {
      // Neighbours are one operation.
      if (i != 0 && at[i] == at[i - 1] + sizeof *into) {
        batch.back().length_bytes += sizeof *into;
      } else {
        batch.push_back(Operation::read(at[i], into + i, sizeof *into));
      }
    }
    post();
  }
  Result<void> await_resume() {
    if (posted) [[unlikely]]
      return posted->finish();
    for (std::size_t i = 0; i < at.size(); ++i) into[i] = load_word(in_place[i]);
    return {};
  }
};

struct ReadWord : Awaiting {
  Address at;
  std::uint64_t word = 0;
  std::byte* in_place = nullptr;

  ReadWord(Endpoint& e, Address address) : Awaiting{e}, at(address) {}
  bool await_ready() {
    in_place = endpoint.mapped(at, sizeof word);
    if (in_place == nullptr) [[unlikely]]
      return false;
    if (!takes_turns()) return true;
    __builtin_prefetch(in_place);
    return false;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    if (in_place != nullptr) return wait_for_turn(handle);
    prepare(handle).batch.push_back(Operation::read(at, &word, sizeof word));
    post();
  }
  Result<std::uint64_t> await_resume() {
    if (!posted) [[likely]]
      return load_word(in_place);
    if (auto done = posted->finish(); !done) return std::unexpected(std::move(done.error()));
    return word;
  }
};

struct Atomic : Awaiting {
  Address at;
  std::uint64_t compare;
  std::uint64_t operand;
  Operation::Kind kind;
  std::byte* in_place = nullptr;

  Atomic(Endpoint& e, Operation::Kind k, Address address, std::uint64_t expected, std::uint64_t value)
      : Awaiting{e}, at(address), compare(expected), operand(value), kind(k) {}
  bool await_ready() {
    in_place = endpoint.mapped(at, sizeof(std::uint64_t));
    return in_place != nullptr;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    prepare(handle).batch.push_back(kind == Operation::Kind::fetch_add
                                        ? Operation::fetch_add(at, operand)
                                        : Operation::compare_swap(at, compare, operand));
    post();
  }
  // The word as it was before.
  Result<std::uint64_t> await_resume() {
    if (posted) [[unlikely]] {
      if (auto done = posted->finish(); !done) return std::unexpected(std::move(done.error()));
      return posted->batch[0].result;
    }
    return kind == Operation::Kind::fetch_add ? add_to_word(in_place, operand)
                                              : swap_word(in_place, compare, operand);
  }
};

struct Write : Awaiting {
  Address at;
  const std::byte* from;  // null: `word`
  std::size_t length_bytes;
  std::uint64_t word;
  std::byte* in_place = nullptr;

  Write(Endpoint& e, Address address, std::span<const std::byte> bytes)
      : Awaiting{e}, at(address), from(bytes.data()), length_bytes(bytes.size()), word(0) {}
  Write(Endpoint& e, Address address, std::uint64_t value)
      : Awaiting{e}, at(address), from(nullptr), length_bytes(sizeof value), word(value) {}

  bool await_ready() {
    in_place = endpoint.mapped(at, length_bytes);
    return in_place != nullptr;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    const std::byte* bytes = from != nullptr ? from : reinterpret_cast<const std::byte*>(&word);
    prepare(handle).batch.push_back(Operation::write(at, bytes, length_bytes));
    post();
  }
  Result<void> await_resume() {
    if (posted) [[unlikely]]
      return posted->finish();
    if (from == nullptr) {
      store_word(in_place, word);
    } else if (length_bytes != 0) {
      std::memcpy(in_place, from, length_bytes);
    }
    return {};
  }
};

struct Fetch : Awaiting {
  Address at;
  std::size_t length_bytes;
  bool settled;
  std::byte* in_place = nullptr;
  std::unique_ptr<std::byte[]> copy;

  Fetch(Endpoint& e, Address address, std::size_t length, bool is_settled)
      : Awaiting{e}, at(address), length_bytes(length), settled(is_settled) {}
  bool await_ready() {
    in_place = endpoint.mapped(at, length_bytes);
    if (in_place == nullptr) [[unlikely]]
      return false;
    constexpr std::size_t lines_max = 4;  // further ones are fetched by the processor itself
    for (std::size_t line = 0; line < lines_max && line * cache_line_bytes < length_bytes; ++line) {
      __builtin_prefetch(in_place + line * cache_line_bytes);
    }
    return !takes_turns();
  }
  void await_suspend(std::coroutine_handle<> handle) {
    if (in_place != nullptr) return wait_for_turn(handle);
    copy = std::make_unique_for_overwrite<std::byte[]>(length_bytes);
    prepare(handle).batch.push_back(settled ? Operation::read_settled(at, copy.get(), length_bytes)
                                            : Operation::read(at, copy.get(), length_bytes));
    post();
  }
  Result<Bytes> await_resume() {
    if (!posted) [[likely]]
      return Bytes(in_place, length_bytes);
    if (auto done = posted->finish(); !done) return std::unexpected(std::move(done.error()));
    return Bytes(std::move(copy), length_bytes);
  }
};

struct Several : Awaiting {
  std::span<Operation> operations;
  Urgency urgency;

  Several(Endpoint& e, std::span<Operation> of, Urgency how) : Awaiting{e}, operations(of), urgency(how) {}
  bool await_ready() {
    for (const Operation& operation : operations) {
      if (endpoint.mapped(operation.at, operation.length_bytes) == nullptr) return false;
    }
    return true;
  }
  void await_suspend(std::coroutine_handle<> handle) {
    prepare(handle).urgency = urgency;
    post(*posted, operations);
  }
  Result<void> await_resume() {
    if (posted) return posted->finish(operations);
    for (Operation& operation : operations)
      carry_out(operation, endpoint.mapped(operation.at, operation.length_bytes));
    return {};
  }
};

struct SeveralEach : Several {
  using Several::Several;
  Result<void> await_resume() { return posted ? std::move(posted->outcome) : Several::await_resume(); }
};

inline auto Endpoint::read_words(std::span<const Address> at, std::uint64_t* into) {
  return ReadWords(*this, at, into);
}
inline auto Endpoint::read_word(Address at) { return ReadWord(*this, at); }
inline auto Endpoint::compare_swap(Address at, std::uint64_t expected, std::uint64_t desired) {
  return Atomic(*this, Operation::Kind::compare_swap, at, expected, desired);
}
inline auto Endpoint::fetch_add(Address at, std::uint64_t added) {
  return Atomic(*this, Operation::Kind::fetch_add, at, 0, added);
}
inline auto Endpoint::write_word(Address at, std::uint64_t value) { return Write(*this, at, value); }
inline auto Endpoint::write(Address at, std::span<const std::byte> bytes) { return Write(*this, at, bytes); }
inline auto Endpoint::fetch(Address at, std::size_t length_bytes) {
  return Fetch(*this, at, length_bytes, false);
}
inline auto Endpoint::fetch_settled(Address at, std::size_t length_bytes) {
  return Fetch(*this, at, length_bytes, true);
}
inline auto Endpoint::perform(std::span<Operation> operations, Urgency urgency) {
  return Several(*this, operations, urgency);
}
inline auto Endpoint::perform_each(std::span<Operation> operations) {
  return SeveralEach(*this, operations, Urgency::awaited);
}

}  // namespace loch::fabric
