#include "client/impl.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <pthread.h>
#include <thread>

#include "base/check.h"
#include "client/opening.h"

namespace loch {
namespace {

using client::Client;

std::atomic<std::uint64_t> next_impl_id{1};

// How many forks there are between this process and the first that opened a store. It changes in a child that
// has just been forked, and has one thread.
std::uint64_t forks = 0;

// From here on; how many there were.
std::uint64_t count_forks() {
  static const int error = ::pthread_atfork(nullptr, nullptr, [] {
    ++forks;
    last_used.id = 0;
    last_used.client = nullptr;
  });
  LOCH_CHECK(error == 0);
  return forks;
}

}  // namespace

// The clients of one thread, by the store they are of. They go back to their stores when the thread ends.
// Destructors of thread-local objects that are older than it run after that, and may use the stores too:
// `last_used` has no destructor and tells them.
struct ThreadClients {
  struct Entry {
    std::uint64_t id = 0;
    Client* client = nullptr;
    std::weak_ptr<Store::Impl> impl;
  };
  std::vector<Entry> entries;

  ~ThreadClients() {
    last_used = {.thread_ends = true};
    for (const Entry& entry : entries) {
      if (const auto impl = entry.impl.lock()) {
        impl->give_back(entry.client);
      }
    }
  }
};

namespace {

thread_local ThreadClients thread_clients;

}  // namespace

Store::Impl::Impl(std::string url, const Options& options, const memory::Placement& placement,
                  std::shared_ptr<memory::StoreMemory> memory)
    : id_(next_impl_id.fetch_add(1)),
      made_after_forks_(count_forks()),
      url_(std::move(url)),
      asked_(options),
      locations_(options.location_cache_bytes),
      options_{.timeout_ns = client::nanos(options.timeout),
               .cache_bytes = options.cache_bytes,
               .locations = &locations_,
               .placement = placement,
               .read_only = options.read_only},
      memory_(std::move(memory)),
      epoch_(memory_->region_map().epoch) {}

std::shared_ptr<Store::Impl> Store::Impl::make(std::string url, const Options& options,
                                               const memory::Placement& placement,
                                               std::shared_ptr<memory::StoreMemory> memory) {
  const auto end = [](Impl* impl) {
    if (!impl->is_inherited()) {
      delete impl;
      return;
    }
    // What is still to be found is no leak.
    static auto* const kept = new std::vector<Impl*>;
    kept->push_back(impl);
  };
  return {new Impl(std::move(url), options, placement, std::move(memory)), end};
}

Store::Impl::~Impl() {
  const base::Clock clock;
  base::Nanos asks_from = clock.now() + options_.timeout_ns;
  bool is_silent = false;
  for (Clients* clients : {&clients_, &lost_}) {
    for (auto& client : *clients) {
      if (!is_silent && client->is_remote() && clock.now() >= asks_from) {
        // It takes long: because there are many, or nobody answers.
        is_silent = !client->run(client->attachment().refresh());
        asks_from = clock.now() + options_.timeout_ns;
      }
      if (is_silent) client->attachment().endpoint().port().break_off();
      client.reset();
    }
  }
}

bool Store::Impl::is_inherited() const { return made_after_forks_ != forks; }

Error Store::Impl::inherited(const char* operation) const {
  return {.code = Errc::unavailable,
          .operation = operation,
          .key_hash = 0,
          .detail =
              fmt::format("{} was opened before a fork, by the parent; open it again in this process", url_)};
}

Change Store::Impl::until_forked(const Change& change) const {
  return [this, &change](std::optional<std::string_view> value) {
    auto next = change(value);
    if (is_inherited()) next.reset();
    return next;
  };
}

std::shared_ptr<memory::StoreMemory> Store::Impl::memory() const {
  const std::scoped_lock lock(mutex_);
  return memory_;
}

Result<void> Store::Impl::look_whether_intact() const {
  if (is_inherited()) return {};
  return memory()->fabric().intact();
}

Result<Store::Impl::Hold> Store::Impl::client() {
  if (last_used.id != id_) {
    if (is_inherited()) [[unlikely]]
      return std::unexpected(inherited("store"));
    if (last_used.thread_ends) [[unlikely]] {
      auto lent = lend_client();
      if (!lent) return std::unexpected(std::move(lent.error()));
      return Hold(*lent, this);
    }
    const auto entry = std::ranges::find(thread_clients.entries, id_, &ThreadClients::Entry::id);
    if (entry == thread_clients.entries.end()) {
      // It may be one that another thread left, long ago.
      if (auto first = first_client_of_thread(); !first) return std::unexpected(std::move(first.error()));
    } else {
      last_used.id = id_;
      last_used.client = entry->client;
    }
  }
  Client* mine = last_used.client;
  LOCH_CHECK(mine != nullptr);
  if (mine->is_remote() && !mine->is_fresh()) [[unlikely]] {
    auto living = living_client_of_thread(mine);
    if (!living) return std::unexpected(std::move(living.error()));
    mine = *living;
  }
  return Hold(mine);
}

// The thread's client, `mine`, or another in its place if its session was broken off.
Result<Client*> Store::Impl::living_client_of_thread(Client* mine) {
  if (lives(*mine)) return mine;
  auto next = lend_client();
  if (!next) return next;
  bury(mine);
  std::ranges::find(thread_clients.entries, id_, &ThreadClients::Entry::id)->client = *next;
  last_used.client = *next;
  return next;
}

// One that was idle finds out before it does anything else.
bool Store::Impl::lives(Client& client) {
  if (!client.is_lost() && client.attachment().refresh_due()) {
    [[maybe_unused]] const auto fresh = client.run(client.attachment().refresh());
  }
  // A store of one host has no other map.
  if (!client.attachment().is_of_cluster()) return !client.is_lost();
  if (const std::uint64_t epoch = client.attachment().newest_epoch(); epoch > client.epoch())
    renew_memory(epoch);
  return !client.is_lost() && is_of_now(client);
}

// Whether another that began now would not reach more, or go by a later map.
bool Store::Impl::is_of_now(Client& client) const {
  return !client.attachment().is_behind() && client.epoch() == epoch_.load(std::memory_order_relaxed);
}

void Store::Impl::renew_memory(std::uint64_t epoch) {
  const std::scoped_lock renewing(renewing_);
  const auto before = memory();
  // Not with each call, while the map is not to be had; but soon, since operations wait for it.
  constexpr base::Nanos pause_ns = 50 * base::millisecond_ns;
  if (before->region_map().epoch >= epoch || base::Clock().now() < renewed_at_ + pause_ns) return;
  auto opened = client::open_memory(before->fabric().location(), asked_);
  // Hosts that have gone may be all that it knows: then by what it was told first.
  if (!opened) opened = client::open_memory(url_, asked_);
  if (!opened || opened->memory->region_map().epoch <= before->region_map().epoch) {
    // An attempt may take seconds: the pause is for those that have waited for it.
    renewed_at_ = base::Clock().now();
    return;
  }
  const std::scoped_lock lock(mutex_);
  memory_ = std::move(opened->memory);
  epoch_ = memory_->region_map().epoch;
  renewed_at_ = 0;
  options_.placement =
      opened->placement.value_or(memory::Placement{.policy = memory::Placement::Policy::gone});
}

Result<void> Store::Impl::wait_for_move(const Result<Hold>& mine, std::optional<base::Nanos>* since) const {
  constexpr auto pause = std::chrono::milliseconds(5);
  const base::Nanos now = base::Clock().now();
  if (!*since) *since = now;
  if (now - **since > options_.timeout_ns) {
    return fail(
        Errc::timed_out, "store",
        "what is asked for moves to another host of the cluster, or its host ends all sessions, and that was "
        "not over in time; it did not happen");
  }
  // What this client has done before is over, and its hosts are to know.
  if (mine) {
    client::Client& told = **mine;
    if (const auto fresh = told.run(told.attachment().refresh()); !fresh && !told.is_lost())
      return std::unexpected(fresh.error());
  }
  std::this_thread::sleep_for(pause);
  return {};
}

void Store::Impl::bury(Client* lost) {
  Clients over;
  const std::scoped_lock lock(mutex_);
  bury_locked(lost, &over);
}

// One may be in the midst of a call still, or Views pinned to it; it goes when that is over.
// What goes now, to `over`, which ends without the lock: a session whose host is there takes its leave of it.
void Store::Impl::bury_locked(Client* lost, Clients* over) {
  const auto found = std::ranges::find(clients_, lost, [](const auto& client) { return client.get(); });
  counted_by_lost_ += lost->attachment().stats();
  lost_.push_back(std::move(*found));
  clients_.erase(found);
  const auto unused = std::ranges::partition(
      lost_, [](const auto& client) { return client->is_held() || client->attachment().has_pins(); });
  std::ranges::move(unused, std::back_inserter(*over));
  lost_.erase(unused.begin(), unused.end());
}

Result<Client*> Store::Impl::lend_client() {
  // Where a host has gone, nobody can begin by the map that had it, and so learn of another one.
  if (const std::uint64_t epoch = memory()->fabric().newest_epoch(); epoch > epoch_) renew_memory(epoch);
  if (Client* idle = take_idle(); idle != nullptr) {
    if (!idle->is_remote() || lives(*idle)) return idle;
    // What broke it off broke off the others that are idle, and each may take long to find out.
    bury(idle);
  }
  return open_client();
}

// One that nobody uses, if there is one that may be alive.
Client* Store::Impl::take_idle() {
  Clients over;
  const std::scoped_lock lock(mutex_);
  while (!idle_.empty()) {
    Client* idle = idle_.back();
    idle_.pop_back();
    if (!idle->is_lost() && is_of_now(*idle)) return idle;
    bury_locked(idle, &over);
  }
  return nullptr;
}

Result<Client*> Store::Impl::open_client() {
  auto opened = begin_client();
  // Of a cluster, it may be the first one that is told of a later map.
  if (opened && (*opened)->attachment().newest_epoch() > (*opened)->epoch()) {
    renew_memory((*opened)->attachment().newest_epoch());
    if (epoch_ > (*opened)->epoch()) opened = begin_client();
  }
  if (!opened) return std::unexpected(std::move(opened.error()));
  const std::scoped_lock lock(mutex_);
  clients_.push_back(std::move(*opened));
  return clients_.back().get();
}

Result<std::unique_ptr<Client>> Store::Impl::begin_client() {
  std::unique_lock lock(mutex_);
  const auto memory = memory_;
  const client::ClientOptions options = options_;
  lock.unlock();
  auto begun = Client::open(memory, options);
  // Of a store that was there when it was opened, and of no key.
  if (!begun && begun.error().code == Errc::not_found) begun.error().code = Errc::unavailable;
  return begun;
}

// One that Views are still pinned to, which live longer than the thread's clients, is nobody else's, and ends
// with them. A store has so many sessions only, so not all are kept that once were used together.
void Store::Impl::give_back(Client* client) {
  constexpr std::size_t idle_max = 32;
  if (is_inherited()) return;
  Clients over;
  const std::scoped_lock lock(mutex_);
  if (client->attachment().has_pins()) return bury_locked(client, &over);
  idle_.push_back(client);
  if (idle_.size() <= idle_max) return;
  bury_locked(idle_.front(), &over);
  idle_.erase(idle_.begin());
}

Result<Client*> Store::Impl::first_client_of_thread() {
  auto mine = lend_client();
  if (!mine) return mine;
  std::erase_if(thread_clients.entries,
                [](const ThreadClients::Entry& entry) { return entry.impl.expired(); });
  thread_clients.entries.push_back({.id = id_, .client = *mine, .impl = weak_from_this()});
  last_used.id = id_;
  last_used.client = *mine;
  return mine;
}

Result<void> Store::Impl::get(std::string_view key, std::string& into) {
  return ask([&](Client& mine) -> Result<void> {
    if (mine.get_here(key, into)) return {};
    return mine.get_waiting(key, into);
  });
}

Stats Store::Impl::stats() {
  if (is_inherited()) return {};  // this process has no sessions of it
  const std::scoped_lock lock(mutex_);
  Stats sum = counted_by_lost_;
  for (const auto& client : clients_) sum += client->attachment().stats();
  return sum;
}

}  // namespace loch
