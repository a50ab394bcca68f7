#include "fabric/tcp/agent.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "fabric/tcp/wire.h"

namespace loch::fabric::tcp {
namespace {

constexpr std::size_t in_bytes_max = 4 * operation_bytes_max;
constexpr std::size_t out_bytes_max = 4 * answer_bytes_max;
// How often a connection is read before others have their turn.
constexpr int turns_at_once = 8;

// Of counters that one thread changes and others read.
void raise(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

std::uint64_t load(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, word_bytes);
  return word;
}

}  // namespace

struct Agent::Connection {
  Id id = 0;
  std::unique_ptr<net::Stream> stream;
  std::shared_ptr<Fabric> memory;
  bool may_change = false;            // a store whose words a device changes is not the agent's to change
  Range may_write{};                  // though it may not change all
  std::shared_ptr<Endpoint> regions;  // of the agent's thread
  std::vector<std::byte> in;          // the beginning of an operation
  std::vector<std::byte> out;         // answers that could not be sent yet
  std::uint32_t watched = 0;
  bool refused_last = false;  // the operation before
  std::atomic<base::Nanos> last_heard{0};
};

Agent::Agent(Options options)
    : options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      woken_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      in_(std::make_unique_for_overwrite<std::uint64_t[]>(in_bytes_max / word_bytes)),
      out_(std::make_unique_for_overwrite<std::uint64_t[]>(out_bytes_max / word_bytes)) {
  LOCH_CHECK(epoll_.is_open() && woken_.is_open());
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  LOCH_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, woken_.get(), &event) == 0);
  thread_ = std::thread([this] { run(); });
}

Agent::~Agent() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
}

void Agent::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
}

void Agent::add(Id id, std::unique_ptr<net::Stream> stream, std::shared_ptr<Fabric> memory, May may) {
  auto connection = std::make_shared<Connection>();
  connection->id = id;
  connection->stream = std::move(stream);
  connection->may_change = may == May::change_all && memory->atomics() == Atomics::processor;
  connection->memory = std::move(memory);
  connection->last_heard = base::Clock().now();
  {
    const std::scoped_lock lock(mutex_);
    known_[id] = connection;
    added_.push_back(std::move(connection));
    ++commands_given_;
  }
  wake();
}

void Agent::remove(Id id) {
  std::unique_lock lock(mutex_);
  if (!known_.contains(id)) return;
  removed_.push_back(id);
  wait_for(lock, ++commands_given_);
}

void Agent::set_range(Id id, Range range) {
  std::unique_lock lock(mutex_);
  ranges_.emplace_back(id, range);
  wait_for(lock, ++commands_given_);
}

void Agent::wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t command) {
  wake();
  done_.wait(lock, [&] { return commands_done_ >= command || stop_; });
}

base::Nanos Agent::last_heard(Id id) {
  const std::scoped_lock lock(mutex_);
  const auto found = known_.find(id);
  return found == known_.end() ? 0 : found->second->last_heard.load(std::memory_order_relaxed);
}

Agent::Counts Agent::counts() const {
  return {.reads = counts_.reads,
          .writes = counts_.writes,
          .atomics = counts_.atomics,
          .refused = counts_.refused,
          .bytes_in = counts_.bytes_in,
          .bytes_out = counts_.bytes_out,
          .sends = counts_.sends};
}

// ---- the thread

void Agent::take_commands() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(woken_.get(), &count, sizeof count);
  std::vector<std::shared_ptr<Connection>> added;
  std::vector<Id> removed;
  std::vector<std::pair<Id, Range>> ranges;
  std::uint64_t given = 0;
  {
    const std::scoped_lock lock(mutex_);
    added = std::exchange(added_, {});
    removed = std::exchange(removed_, {});
    ranges = std::exchange(ranges_, {});
    given = commands_given_;
  }
  for (auto& connection : added) {
    auto& memory = memories_[connection->memory.get()];
    connection->regions = memory.lock();
    if (connection->regions == nullptr) {
      connection->regions = std::make_shared<Endpoint>(connection->memory, connection->memory->connect());
      memory = connection->regions;
    }
    watch(*connection, EPOLLIN);
    // What it sent before it was taken on may be with the stream already.
    unfinished_.push_back(connection->id);
    connections_[connection->id] = std::move(connection);
  }
  for (const auto& [id, range] : ranges) {
    if (const auto found = connections_.find(id); found != connections_.end())
      found->second->may_write = range;
  }
  for (const Id id : removed) drop(id);
  std::erase_if(memories_, [](const auto& memory) { return memory.second.expired(); });
  {
    const std::scoped_lock lock(mutex_);
    commands_done_ = given;
  }
  done_.notify_all();
}

void Agent::watch(Connection& connection, std::uint32_t events) const {
  if (connection.watched == events) return;
  epoll_event event{.events = events, .data = {.ptr = &connection}};
  const int change = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  LOCH_CHECK(::epoll_ctl(epoll_.get(), change, connection.stream->socket(), &event) == 0);
  connection.watched = events;
}

void Agent::drop(Id id) {
  connections_.erase(id);  // which closes its socket
  const std::scoped_lock lock(mutex_);
  known_.erase(id);
}

void Agent::run() {
  constexpr int events_max = 64;
  std::array<epoll_event, events_max> events;
  base::Nanos last_work_ns = 0;
  timespec time{};
  const auto precise_now = [&time] {
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<base::Nanos>(time.tv_sec) * base::second_ns + static_cast<base::Nanos>(time.tv_nsec);
  };
  std::vector<Id> due;
  for (;;) {
    const bool stays_awake = !unfinished_.empty() || precise_now() - last_work_ns < options_.spin_ns;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events_max, stays_awake ? 0 : -1);
    due = std::exchange(unfinished_, {});
    bool commanded = false;
    for (int i = 0; i < ready; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == nullptr) {
        commanded = true;
      } else {
        due.push_back(static_cast<Connection*>(event.data.ptr)->id);
      }
    }
    if (commanded) {
      take_commands();
      const std::scoped_lock lock(mutex_);
      if (stop_) break;
    }
    for (const Id id : due) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      switch (serve(*found->second)) {
        case After::waits:
          break;
        case After::goes_on:
          if (std::ranges::find(unfinished_, id) == unfinished_.end()) unfinished_.push_back(id);
          break;
        case After::is_gone:
          drop(id);
          if (options_.gone) options_.gone(id);
          break;
      }
    }
    if (!due.empty()) last_work_ns = precise_now();
  }
  connections_.clear();
  const std::scoped_lock lock(mutex_);
  known_.clear();
  done_.notify_all();
}

Agent::After Agent::serve(Connection& connection) {
  auto* in = reinterpret_cast<std::byte*>(in_.get());
  std::size_t left = connection.in.size();
  std::ranges::copy(connection.in, in);
  if (!connection.out.empty()) {
    // Answers that are left come first, and until they are gone nothing is read.
    std::ranges::copy(connection.out, reinterpret_cast<std::byte*>(out_.get()));
    out_bytes_ = connection.out.size();
    if (!send(connection)) return After::is_gone;
    if (!connection.out.empty()) return After::waits;
    watch(connection, EPOLLIN);
    const After after = answer_all(connection, left);
    if (after != After::goes_on) return after;
  }
  for (int turn = 0; turn < turns_at_once; ++turn) {
    left = connection.in.size();
    std::ranges::copy(connection.in, in);
    const iovec room{.iov_base = in + left, .iov_len = in_bytes_max - left};
    const auto got = connection.stream->read({&room, 1});
    if (!got) return After::is_gone;
    if (*got == 0) return After::waits;
    connection.last_heard.store(base::Clock().now(), std::memory_order_relaxed);
    raise(counts_.bytes_in, *got);
    const After after = answer_all(connection, left + *got);
    if (after != After::goes_on) return after;
    if (*got < room.iov_len && !connection.stream->holds_back()) return After::waits;
  }
  return After::goes_on;
}

// Carries out the operations that are whole in the first `have` bytes of in_, and keeps the rest.
Agent::After Agent::answer_all(Connection& connection, std::size_t have) {
  const auto* in = reinterpret_cast<const std::byte*>(in_.get());
  auto* out = reinterpret_cast<std::byte*>(out_.get());
  std::size_t at = 0;
  out_bytes_ = 0;
  while (have - at >= sizeof(OperationHead)) {
    OperationHead head;
    std::memcpy(&head, in + at, sizeof head);
    if (!is_operation(head)) return After::is_gone;  // it speaks something else
    const std::size_t length = sizeof head + bytes_after(head);
    if (have - at < length) break;
    if (out_bytes_max - out_bytes_ < answer_bytes_max) {
      if (!send(connection)) return After::is_gone;
      if (!connection.out.empty()) break;
    }
    out_bytes_ += execute(connection, in + at, out + out_bytes_);
    at += length;
  }
  connection.in.assign(in + at, in + have);
  if (!send(connection)) return After::is_gone;
  return connection.out.empty() ? After::goes_on : After::waits;
}

// Carries out one operation; how many bytes of `answer` it takes.
std::size_t Agent::execute(Connection& connection, const std::byte* operation, std::byte* answer) {
  OperationHead head;
  std::memcpy(&head, operation, sizeof head);
  const std::byte* rest = operation + sizeof head;
  if (kind_of(head) == read_words_kind) return read_words(connection, head, rest, answer);
  const auto kind = static_cast<Operation::Kind>(kind_of(head));
  const bool is_atomic = kind == Operation::Kind::compare_swap || kind == Operation::Kind::fetch_add;
  std::byte* at = connection.regions->mapped({head.region, head.offset_bytes}, head.length_bytes);
  if (is_atomic && head.offset_bytes % word_bytes != 0) at = nullptr;
  if (kind != Operation::Kind::read && !connection.may_change) {
    const bool is_its_own =
        !is_atomic && connection.may_write.contains({head.region, head.offset_bytes}, head.length_bytes);
    if (!is_its_own) at = nullptr;
  }
  if (is_after_previous(head) && connection.refused_last) at = nullptr;
  connection.refused_last = at == nullptr;
  AnswerHead told{.status = static_cast<std::uint8_t>(at == nullptr ? Status::bad_address : Status::done),
                  .kind = kind_of(head),
                  .number = head.number,
                  .length_bytes = 0};
  std::byte* result = answer + sizeof told;
  if (at == nullptr) {
    raise(counts_.refused, 1);
  } else if (kind == Operation::Kind::read) {
    raise(counts_.reads, 1);
    told.length_bytes = head.length_bytes;
    copy_from_region(result, at, head.length_bytes);
    std::memset(result + head.length_bytes, 0, whole_words(head.length_bytes) - head.length_bytes);
  } else if (kind == Operation::Kind::write) {
    raise(counts_.writes, 1);
    copy_to_region(at, rest, head.length_bytes);
  } else {
    raise(counts_.atomics, 1);
    told.length_bytes = word_bytes;
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
    std::uint64_t before = load(rest);
    if (kind == Operation::Kind::fetch_add) {
      before = word.fetch_add(before, std::memory_order_acq_rel);
    } else {
      // acq_rel: as fabric::Atomic.
      word.compare_exchange_strong(before, load(rest + word_bytes), std::memory_order_acq_rel,
                                   std::memory_order_acquire);
    }
    std::memcpy(result, &before, word_bytes);
  }
  std::memcpy(answer, &told, sizeof told);
  return sizeof told + whole_words(told.length_bytes);
}

std::size_t Agent::read_words(Connection& connection, const OperationHead& head, const std::byte* rest,
                              std::byte* answer) {
  std::array<std::uint64_t, words_at_once_max> words{};
  const std::size_t count = head.length_bytes / word_bytes;
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t offset = i == 0 ? head.offset_bytes : load(rest + (i - 1) * word_bytes);
    const std::byte* at =
        offset % word_bytes == 0 ? connection.regions->mapped({head.region, offset}, word_bytes) : nullptr;
    if (at == nullptr) {
      bad |= std::uint64_t{1} << i;
    } else {
      words[i] = load_word(at);
    }
  }
  const auto bad_count = static_cast<std::uint64_t>(std::popcount(bad));
  connection.refused_last = bad != 0;
  raise(counts_.refused, bad_count);
  raise(counts_.reads, count - bad_count);
  AnswerHead told{.status = static_cast<std::uint8_t>(bad == 0 ? Status::done : Status::bad_address),
                  .kind = head.kind,
                  .number = head.number,
                  .length_bytes = head.length_bytes};
  std::byte* to = answer + sizeof told;
  if (bad != 0) {
    told.length_bytes += word_bytes;
    std::memcpy(to, &bad, word_bytes);
    to += word_bytes;
  }
  std::memcpy(to, words.data(), head.length_bytes);
  std::memcpy(answer, &told, sizeof told);
  return sizeof told + told.length_bytes;
}

// Sends the first out_bytes_ of out_; what does not go now is kept. False if the connection is gone.
bool Agent::send(Connection& connection) {
  if (out_bytes_ == 0) return true;
  const auto* out = reinterpret_cast<const std::byte*>(out_.get());
  std::size_t sent = 0;
  while (sent < out_bytes_) {
    const iovec rest{.iov_base = const_cast<std::byte*>(out) + sent, .iov_len = out_bytes_ - sent};
    const auto went = connection.stream->write({&rest, 1});
    raise(counts_.sends, 1);
    if (!went) return false;
    if (*went == 0) break;
    sent += *went;
  }
  raise(counts_.bytes_out, sent);
  connection.out.assign(out + sent, out + out_bytes_);
  out_bytes_ = 0;
  if (!connection.out.empty()) watch(connection, EPOLLOUT);
  return true;
}

}  // namespace loch::fabric::tcp
