#include "fabric/tcp/agent.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "fabric/remote/wait.h"
#include "fabric/tcp/wire.h"

namespace loch::fabric::tcp {
namespace {

constexpr std::size_t in_bytes_max = 4 * operation_bytes_max;
// How often a connection is read before others have their turn.
constexpr int turns_at_once = 8;

}  // namespace

struct Agent::Connection {
  Id id = 0;
  std::unique_ptr<net::Stream> stream;
  std::shared_ptr<Fabric> memory;
  std::byte* time = nullptr;  // of the memory
  Executor executor;
  std::vector<std::byte> in{};    // the beginning of an operation
  std::vector<std::byte> kept{};  // answers that could not be sent yet
  std::size_t kept_sent = 0;      // how many bytes of them have been since
  std::uint32_t watched = 0;
  std::atomic<base::Nanos> last_heard{0};
};

Agent::Agent(Options options)
    : options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      woken_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      in_(std::make_unique_for_overwrite<std::uint64_t[]>(in_bytes_max / word_bytes)) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!epoll_.is_open() || !woken_.is_open() ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, woken_.get(), &event) != 0)
    throw std::system_error(errno, std::generic_category());
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

void Agent::add(Id id, std::unique_ptr<net::Stream> stream, std::shared_ptr<Fabric> memory, std::byte* time,
                May may) {
  // A store whose words a device changes is not the agent's to change.
  const bool may_change = may == May::change_all && memory->atomics() == Atomics::processor;
  const Executor executor(answers_, executed_, {.may_change = may_change, .gathers = stream->gathers()});
  auto connection = std::make_shared<Connection>(id, std::move(stream), std::move(memory), time, executor);
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

void Agent::set_own_words(Id id, const OwnWords& words) {
  std::unique_lock lock(mutex_);
  own_words_.emplace_back(id, words);
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
  return {.reads = executed_.reads,
          .writes = executed_.writes,
          .atomics = executed_.atomics,
          .bad_addresses = executed_.bad_addresses,
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
  std::vector<std::pair<Id, OwnWords>> own_words;
  std::uint64_t given = 0;
  {
    const std::scoped_lock lock(mutex_);
    added = std::exchange(added_, {});
    removed = std::exchange(removed_, {});
    own_words = std::exchange(own_words_, {});
    given = commands_given_;
  }
  for (auto& connection : added) {
    auto& memory = memories_[connection->memory.get()];
    auto regions = memory.lock();
    if (regions == nullptr) {
      regions = std::make_shared<Endpoint>(connection->memory, connection->memory->connect());
      memory = regions;
    }
    connection->executor.set_regions(std::move(regions));
    const Id id = connection->id;
    const bool is_watched = watch(*connection, EPOLLIN);
    connections_[id] = std::move(connection);
    if (!is_watched) {
      lose(id);
      continue;
    }
    // What it sent before it was taken on may be with the stream already.
    unfinished_.push_back(id);
  }
  for (const auto& [id, words] : own_words) {
    if (const auto found = connections_.find(id); found != connections_.end())
      found->second->executor.set_own_words(words);
  }
  for (const Id id : removed) {
    if (const auto found = connections_.find(id); found != connections_.end()) take_leave(*found->second);
    drop(id);
  }
  std::erase_if(memories_, [](const auto& memory) { return memory.second.expired(); });
  {
    const std::scoped_lock lock(mutex_);
    commands_done_ = given;
  }
  done_.notify_all();
}

bool Agent::watch(Connection& connection, std::uint32_t events) const {
  if (connection.watched == events) return true;
  epoll_event event{.events = events, .data = {.ptr = &connection}};
  const int change = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), change, connection.stream->socket(), &event) != 0) return false;
  connection.watched = events;
  return true;
}

// Says that what is not answered does not happen. What has come since is taken and dropped: a socket that is
// closed with something left to read resets the connection, and the other end may never see what was said.
void Agent::take_leave(Connection& connection) {
  if (!connection.kept.empty()) return;
  answers_.clear();
  std::memcpy(answers_.room(), &last_words, sizeof last_words);
  answers_.add(sizeof last_words);
  if (!connection.stream->write(answers_.parts())) return;
  const iovec room{.iov_base = in_.get(), .iov_len = in_bytes_max};
  for (int turn = 0; turn < turns_at_once; ++turn) {
    if (connection.stream->read({&room, 1}).value_or(0) == 0) break;
  }
}

void Agent::drop(Id id) {
  connections_.erase(id);
  const std::scoped_lock lock(mutex_);
  known_.erase(id);  // which closes its socket
}

void Agent::lose(Id id) {
  drop(id);
  if (options_.gone) options_.gone(id);
}

void Agent::run() {
  constexpr int events_max = 64;
  std::array<epoll_event, events_max> events;
  base::Nanos last_work_ns = 0;
  remote::Wakefulness wakefulness;
  std::vector<Id> due;
  for (;;) {
    const base::Nanos now = remote::precise_now();
    const bool sleeps = unfinished_.empty() && wakefulness.is_over(now - last_work_ns, now);
    due = std::exchange(unfinished_, {});
    if (const auto alone = sleeps || !due.empty() ? std::nullopt : focus_.next()) {
      due.push_back(*alone);
    } else {
      const int ready = ::epoll_wait(epoll_.get(), events.data(), events_max, sleeps ? -1 : 0);
      if (sleeps) wakefulness.learn(remote::precise_now() - last_work_ns);
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
      focus_.choose(due);
    }
    bool has_worked = false;
    for (const Id id : due) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      const After after = serve(*found->second);
      has_worked = has_worked || after != After::had_nothing;
      if (after == After::goes_on && std::ranges::find(unfinished_, id) == unfinished_.end())
        unfinished_.push_back(id);
      if (after == After::is_gone) lose(id);
    }
    if (has_worked) {
      last_work_ns = remote::precise_now();
    } else if (!sleeps) {
      wakefulness.yield();  // a client of this host may wait for the processor, with what there is to do next
    }
  }
  for (const auto& [id, connection] : connections_) take_leave(*connection);
  connections_.clear();
  const std::scoped_lock lock(mutex_);
  known_.clear();
  done_.notify_all();
}

Agent::After Agent::serve(Connection& connection) {
  auto* in = reinterpret_cast<std::byte*>(in_.get());
  std::size_t left = connection.in.size();
  std::ranges::copy(connection.in, in);
  if (!connection.kept.empty()) {
    // Answers that are left come first, and until they are gone nothing is read.
    const std::size_t sent_before = connection.kept_sent;
    if (!send_kept(connection)) return After::is_gone;
    if (!connection.kept.empty())
      return connection.kept_sent == sent_before ? After::had_nothing : After::waits;
    if (!watch(connection, EPOLLIN)) return After::is_gone;
    const After after = answer_all(connection, left);
    if (after != After::goes_on) return after;
  }
  for (int turn = 0; turn < turns_at_once; ++turn) {
    left = connection.in.size();
    std::ranges::copy(connection.in, in);
    const iovec room{.iov_base = in + left, .iov_len = in_bytes_max - left};
    const auto got = connection.stream->read({&room, 1});
    if (!got) return After::is_gone;
    if (*got == 0) return turn == 0 ? After::had_nothing : After::waits;
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
  if (connection.time != nullptr) raise_word(connection.time, connection.memory->clock().now());
  const auto* in = reinterpret_cast<const std::byte*>(in_.get());
  std::size_t at = 0;
  const std::byte* fetched = in;
  bool gathered_last = false;  // the operation before
  answers_.clear();
  while (have - at >= sizeof(OperationHead)) {
    OperationHead head;
    std::memcpy(&head, in + at, sizeof head);
    if (!is_operation(head)) return After::is_gone;  // it speaks something else
    const std::size_t length = sizeof head + bytes_after(head);
    if (have - at < length) break;
    // What is gathered is read when it is sent: before anything changes that comes after it, and before what
    // comes after it is read now.
    const bool is_read = kind_of(head) == static_cast<std::uint8_t>(Operation::Kind::read);
    const bool gathers = connection.executor.gathers(head);
    const bool may_overtake = is_read ? gathered_last && !gathers : answers_.has_gathered();
    if (answers_.is_full() || (is_after_previous(head) && may_overtake)) {
      if (!send(connection)) return After::is_gone;
      if (!connection.kept.empty()) break;
    }
    if (in + at == fetched) fetched = connection.executor.fetch_ahead(fetched, in + have);
    connection.executor.execute(in + at);
    gathered_last = gathers;
    at += length;
  }
  connection.in.assign(in + at, in + have);
  if (!send(connection)) return After::is_gone;
  return connection.kept.empty() ? After::goes_on : After::waits;
}

bool Agent::is_intact(const Connection& connection) { return connection.memory->intact().has_value(); }

// Sends the answers; what does not go now is kept. False if the connection is gone, or has to go, since
// nobody may be told what was read of memory that is not the store's any more.
bool Agent::send(Connection& connection) {
  if (!is_intact(connection)) return false;
  while (!answers_.is_empty()) {
    raise(counts_.sends, 1);  // before who is answered can ask for the counts
    const auto went = connection.stream->write(answers_.parts());
    if (!went) {
      // The kernel only refuses to read what a file does not have; whoever touches it is told by the guard.
      if (answers_.has_gathered()) std::ignore = answers_.take_rest();
      return false;
    }
    if (*went == 0) break;
    raise(counts_.bytes_out, *went);
    answers_.drop(*went);
  }
  if (answers_.is_empty()) return true;
  connection.kept = answers_.take_rest();
  return watch(connection, EPOLLOUT) && is_intact(connection);
}

bool Agent::send_kept(Connection& connection) {
  const std::span kept(connection.kept);
  while (connection.kept_sent < kept.size()) {
    const auto rest = kept.subspan(connection.kept_sent);
    const iovec part{.iov_base = rest.data(), .iov_len = rest.size()};
    const auto went = connection.stream->write({&part, 1});
    if (!went) return false;
    if (*went == 0) return true;
    // It is not read from meanwhile, and taking what it asked for shows as much.
    connection.last_heard.store(base::Clock().now(), std::memory_order_relaxed);
    raise(counts_.sends, 1);
    raise(counts_.bytes_out, *went);
    connection.kept_sent += *went;
  }
  connection.kept = {};
  connection.kept_sent = 0;
  return true;
}

}  // namespace loch::fabric::tcp
