#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include <loch/loch.h>

#include "base/check.h"
#include "client/arguments.h"
#include "client/impl.h"
#include "client/opening.h"

namespace loch {
namespace {

using client::Client;

std::atomic<std::uint64_t> next_impl_id{1};

// The last client that this thread used: nearly always the one wanted. At a place that is known when the
// program starts, so that it is found without a call; that takes 24 bytes of what a library has that is
// loaded later.
struct LastUsed {
  std::uint64_t id = 0;  // of its Impl; 0: none yet
  Client* client = nullptr;
  bool thread_ends = false;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit LastUsed last;

}  // namespace

// The clients of one thread, by the store they are of. They go back to their stores when the thread ends.
// Destructors of thread-local objects that are older than it run after that, and may use the stores too:
// `last` has no destructor and tells them.
struct ThreadClients {
  struct Entry {
    std::uint64_t id = 0;
    Client* client = nullptr;
    std::weak_ptr<Store::Impl> impl;
  };
  std::vector<Entry> entries;

  ~ThreadClients() {
    last = {.thread_ends = true};
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

std::shared_ptr<memory::StoreMemory> Store::Impl::memory() const {
  const std::scoped_lock lock(mutex_);
  return memory_;
}

inline Client* Store::Impl::client_at_hand() const {
  if (last.id != id_) return nullptr;
  __builtin_assume(last.client != nullptr);
  return last.client;
}

Result<Store::Impl::Hold> Store::Impl::client() {
  if (last.id != id_) {
    if (last.thread_ends) [[unlikely]] {
      auto lent = lend_client();
      if (!lent) return std::unexpected(std::move(lent.error()));
      return Hold(*lent, this);
    }
    const auto entry = std::ranges::find(thread_clients.entries, id_, &ThreadClients::Entry::id);
    if (entry == thread_clients.entries.end()) {
      // It may be one that another thread left, long ago.
      if (auto first = first_client_of_thread(); !first) return std::unexpected(std::move(first.error()));
    } else {
      last.id = id_;
      last.client = entry->client;
    }
  }
  Client* mine = last.client;
  LOCH_CHECK(mine != nullptr);
  if (mine->is_remote()) [[unlikely]] {
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
  last.client = *next;
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
  const base::Nanos now = base::Clock().now();
  if (before->region_map().epoch >= epoch || now < renewed_at_ + pause_ns) return;
  renewed_at_ = now;
  auto opened = client::open_memory(before->fabric().location(), asked_);
  // Hosts that have gone may be all that it knows: then by what it was told first.
  if (!opened) opened = client::open_memory(url_, asked_);
  if (!opened || opened->memory->region_map().epoch <= before->region_map().epoch) return;
  const std::scoped_lock lock(mutex_);
  memory_ = std::move(opened->memory);
  epoch_ = memory_->region_map().epoch;
  renewed_at_ = 0;
  options_.placement =
      opened->placement.value_or(memory::Placement{.policy = memory::Placement::Policy::gone});
}

Result<void> Store::Impl::wait_for_move(Client& mine, std::optional<base::Nanos>* since) const {
  constexpr auto pause = std::chrono::milliseconds(5);
  const base::Nanos now = base::Clock().now();
  if (!*since) *since = now;
  if (now - **since > options_.timeout_ns) {
    return fail(
        Errc::timed_out, "store",
        "what is asked for moves to another host of the cluster, and has not arrived there in time; it did "
        "not happen");
  }
  // What this client has done before is over, and its hosts are to know.
  if (const auto fresh = mine.run(mine.attachment().refresh()); !fresh && !mine.is_lost())
    return std::unexpected(fresh.error());
  std::this_thread::sleep_for(pause);
  return {};
}

void Store::Impl::bury(Client* lost) {
  Clients over;
  const std::scoped_lock lock(mutex_);
  bury_locked(lost, &over);
}

// Views may still be pinned to one that is lost; it goes when none are. To `over`, which ends without the
// lock: a session whose host is there takes its leave of it.
void Store::Impl::bury_locked(Client* lost, Clients* over) {
  const auto found = std::ranges::find(clients_, lost, [](const auto& client) { return client.get(); });
  counted_by_lost_ += lost->attachment().stats();
  lost_.push_back(std::move(*found));
  clients_.erase(found);
  const auto pinned =
      std::ranges::partition(lost_, [](const auto& client) { return client->attachment().has_pins(); });
  std::ranges::move(pinned, std::back_inserter(*over));
  lost_.erase(pinned.begin(), pinned.end());
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

// One that Views are still pinned to, which live longer than the thread's clients, is nobody else's.
void Store::Impl::give_back(Client* client) {
  const std::scoped_lock lock(mutex_);
  if (!client->attachment().has_pins()) idle_.push_back(client);
}

Result<Client*> Store::Impl::first_client_of_thread() {
  auto mine = lend_client();
  if (!mine) return mine;
  std::erase_if(thread_clients.entries,
                [](const ThreadClients::Entry& entry) { return entry.impl.expired(); });
  thread_clients.entries.push_back({.id = id_, .client = *mine, .impl = weak_from_this()});
  last.id = id_;
  last.client = *mine;
  return mine;
}

Result<void> Store::Impl::get(std::string_view key, std::string& into) {
  return ask([&](Client& mine) -> Result<void> {
    if (mine.get_here(key, into)) return {};
    return mine.run(mine.get(key, &into));
  });
}

Stats Store::Impl::stats() {
  const std::scoped_lock lock(mutex_);
  Stats sum = counted_by_lost_;
  for (const auto& client : clients_) sum += client->attachment().stats();
  return sum;
}

Store::Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<std::string> Store::create(std::string_view url, const Options& options) {
  if (auto valid = client::check_options(options, "create"); !valid)
    return std::unexpected(std::move(valid.error()));
  if (auto may = client::check_may_change(options, "create"); !may)
    return std::unexpected(std::move(may.error()));
  const auto created = client::create_store(url, options);
  if (!created) return std::unexpected(created.error());
  return (*created)->location();
}

Result<Store> Store::open(std::string_view url, const Options& options) {
  if (!__builtin_cpu_supports("sse4.2")) {
    return fail(
        Errc::unavailable, "open",
        "this processor has no CRC32C instruction (SSE 4.2), and Loch is built for those that have; in a "
        "virtual machine, have it show the host's processor (QEMU: -cpu host)");
  }
  if (auto valid = client::check_options(options, "open"); !valid)
    return std::unexpected(std::move(valid.error()));
  if (options.atomics == Atomics::device && options.mode != Options::Mode::attach) {
    return fail(
        Errc::invalid_argument, "open",
        "a store whose words a device changes is made by Store::create, and opened as verbs://HOST/NAME");
  }
  auto opened = client::open_memory(url, options);
  if (!opened) return std::unexpected(std::move(opened.error()));
  if (auto same =
          client::check_geometry(options, opened->memory->geometry(), opened->memory->fabric().location());
      !same)
    return std::unexpected(std::move(same.error()));
  if (!opened->placement) return std::unexpected(std::move(opened->placement.error()));
  auto impl =
      std::make_shared<Impl>(std::string(url), options, *opened->placement, std::move(opened->memory));
  // The first client now, so that a store that can not be used is an error of open.
  if (auto client = impl->client(); !client) return std::unexpected(std::move(client.error()));
  return Store(std::move(impl));
}

Result<void> Store::destroy(std::string_view url, const Options& options) {
  if (auto may = client::check_may_change(options, "destroy"); !may) return may;
  return fabric::destroy(url, client::access_of(options));
}

Result<std::vector<std::string>> Store::list(const Options& options) {
  return fabric::list(client::access_of(options));
}

Result<std::string> Store::get(std::string_view key) {
  std::string value;
  // The plain way is for a string that is as long as the value already.
  if (auto got = impl_->get(key, value); !got) return std::unexpected(std::move(got.error()));
  return value;
}

// Keys of two words are hashed by the fewest instructions; all others have another function, so that they are
// not in the way of these.
constexpr std::size_t two_words_min = 9;
constexpr std::size_t two_words_max = 16;
constexpr std::size_t plain_key_bytes_max = 128;

bool Store::get_plain(std::string_view key, std::string& into) {
  Client* mine = impl_->client_at_hand();
  return mine != nullptr && mine->get_plain<two_words_min, two_words_max>(key, into);
}

Result<void> Store::get_otherwise(std::string_view key, std::string& into) {
  const bool was_tried = key.size() >= two_words_min && key.size() <= two_words_max;
  Client* mine = was_tried ? nullptr : impl_->client_at_hand();
  if (mine != nullptr && mine->get_plain<1, plain_key_bytes_max>(key, into)) return {};
  return impl_->get(key, into);
}

Result<Item> Store::read(std::string_view key) {
  return impl_->ask([&](Client& mine) { return mine.run(mine.read(key)); });
}

Result<bool> Store::exists(std::string_view key) {
  return impl_->ask([&](Client& mine) { return mine.run(mine.exists(key)); });
}

Result<void> Store::put(std::string_view key, std::string_view value, PutOptions options) {
  if (Client* mine = impl_->client_at_hand(); mine != nullptr && mine->put_here(key, value, options))
    return {};
  auto written = impl_->ask(
      [&](Client& mine) { return mine.run(mine.put(key, value, options, hash::Condition::none, 0, "put")); });
  if (!written) return std::unexpected(std::move(written.error()));
  return {};
}

Result<void> Store::insert(std::string_view key, std::string_view value, PutOptions options) {
  auto written = impl_->ask([&](Client& mine) {
    return mine.run(mine.put(key, value, options, hash::Condition::absent, 0, "insert"));
  });
  if (!written) return std::unexpected(std::move(written.error()));
  return {};
}

Result<Version> Store::replace(std::string_view key, std::string_view value, Version expected,
                               PutOptions options) {
  auto written = impl_->ask([&](Client& mine) {
    return mine.run(mine.put(key, value, options, hash::Condition::version, expected.token, "replace"));
  });
  if (!written) return std::unexpected(std::move(written.error()));
  return Version{*written};
}

Result<void> Store::remove(std::string_view key) {
  return impl_->ask([&](Client& mine) { return mine.run(mine.remove(key)); });
}

namespace {

bool has_moved(const auto& request) { return !request.result && request.result.error().code == Errc::moved; }

}  // namespace

// What is on its way to another host of the cluster is asked for again, together, for as long as one
// operation may take; but for what is not `wanted` any more. False if there was nothing of that.
template <class Request, class Wanted>
bool Store::Impl::ask_for_each(std::span<Request> requests,
                               coro::Task<void> (Client::*several)(std::span<Request>), Wanted wanted) {
  const auto ask = [several](Result<Hold>& mine, std::span<Request> some) {
    if (mine) return (*mine)->run(((**mine).*several)(some));
    for (Request& one : some) one.result = std::unexpected(mine.error());
  };
  auto mine = client();
  ask(mine, requests);
  if (std::ranges::none_of(requests, has_moved<Request>)) [[likely]]
    return false;
  std::vector<Request*> waiting;
  for (Request& one : requests) {
    if (has_moved(one) && wanted(one)) waiting.push_back(&one);
  }
  for (std::optional<base::Nanos> since; !waiting.empty();) {
    if (auto waited = wait_for_move(**mine, &since); !waited) {
      for (Request* one : waiting) one->result = std::unexpected(waited.error());
      break;
    }
    std::vector<Request> again;
    for (Request* one : waiting) again.push_back(std::move(*one));
    mine = client();
    ask(mine, again);
    for (std::size_t i = 0; i < again.size(); ++i) *waiting[i] = std::move(again[i]);
    std::erase_if(waiting, [](const Request* one) { return !has_moved(*one); });
  }
  return true;
}

void Store::multi_get(std::span<Lookup> lookups) {
  impl_->ask_for_each(lookups, &Client::multi_get, [](const Lookup&) { return true; });
}

// A put that another one of its key follows counts as done right before it, and is not done after it.
void Store::multi_put(std::span<Assignment> assignments) {
  std::map<std::string_view, const Assignment*> last_of;
  const auto is_last = [&](const Assignment& one) {
    if (last_of.empty()) {
      for (const Assignment& each : assignments) {
        if (client::is_valid(each)) last_of[each.key] = &each;
      }
    }
    return last_of.at(one.key) == &one;
  };
  if (!impl_->ask_for_each(assignments, &Client::multi_put, is_last)) [[likely]]
    return;
  for (Assignment& one : assignments) {
    if (has_moved(one)) one.result = last_of.at(one.key)->result;
  }
}

Result<void> Store::for_each(const std::function<bool(const Entry&)>& visit) {
  bool has_visited = false;
  const std::function<bool(const Entry&)> noting = [&](const Entry& entry) {
    has_visited = true;
    return visit(entry);
  };
  return impl_->ask([&](Client& mine) {
    auto walked = mine.run(mine.for_each(&noting));
    // Not from the beginning, when something was given out already.
    if (!walked && walked.error().code == Errc::moved && has_visited) {
      walked.error().code = Errc::unavailable;
      walked.error().detail = "hosts joined or left the cluster while all items were looked at; begin again";
    }
    return walked;
  });
}

Result<std::uint64_t> Store::count() {
  return impl_->ask([](Client& mine) { return mine.run(mine.count()); });
}

Stats Store::stats() const { return impl_->stats(); }

Result<Info> Store::info() {
  Info info;
  const auto parsed = fabric::parse_url(impl_->url());
  if (parsed) info.name = parsed->name;
  info.directory = impl_->memory()->fabric().location();
  const Info nothing_counted = info;
  auto described = impl_->ask([&](Client& mine) {
    info = nothing_counted;
    return mine.run(mine.describe(&info));
  });
  if (!described) return std::unexpected(std::move(described.error()));
  return info;
}

Result<Collected> Store::collect() {
  return impl_->ask([](Client& mine) { return mine.run(mine.collect()); });
}

Result<Report> Store::check() {
  return impl_->ask([](Client& mine) { return mine.run(mine.check()); });
}

// ---- View

struct View::Pin {
  std::shared_ptr<Store::Impl> impl;  // keeps the mapping
  Store::Impl::Hold client;
  memory::Attachment::Pin pin;
  hash::Found found;

  Pin(std::shared_ptr<Store::Impl> store, memory::Attachment& attachment)
      : impl(std::move(store)), pin(attachment) {}
};

View::View() noexcept = default;
View::View(View&&) noexcept = default;
View& View::operator=(View&&) noexcept = default;
View::~View() = default;

Result<View> Store::view(std::string_view key) {
  return impl_->ask_holding([&](Impl::Hold& mine) -> Result<View> {
    View view;
    view.pin_ = std::make_unique<View::Pin>(impl_, mine->attachment());
    auto found = mine->run(mine->find(key));
    if (!found) return std::unexpected(std::move(found.error()));
    view.pin_->client = std::move(mine);
    view.pin_->found = std::move(*found);
    view.value_ = view.pin_->found.view.value();
    view.version_ = {view.pin_->found.view.version()};
    return view;
  });
}

}  // namespace loch
