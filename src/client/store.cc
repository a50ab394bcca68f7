#include <algorithm>
#include <map>
#include <utility>

#include <loch/loch.h>

#include "client/arguments.h"
#include "client/impl.h"
#include "client/opening.h"

namespace loch {

using client::Client;

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
  auto impl = Impl::make(std::string(url), options, *opened->placement, std::move(opened->memory));
  // The first client now, so that a store that can not be used is an error of open.
  if (auto usable = impl->ask([](Client&) { return Result<void>{}; }); !usable)
    return std::unexpected(std::move(usable.error()));
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

Result<Version> Store::put(std::string_view key, std::string_view value, PutOptions options) {
  if (Client* mine = impl_->client_at_hand(); mine != nullptr) {
    if (const auto version = mine->put_here(key, value, options)) {
      if (auto intact = impl_->intact(); !intact) [[unlikely]]
        return std::unexpected(std::move(intact.error()));
      return Version{*version};
    }
  }
  return version_of(impl_->ask(
      [&](Client& mine) { return mine.run(mine.put({.key = key, .value = value, .options = options})); }));
}

Result<Version> Store::insert(std::string_view key, std::string_view value, PutOptions options) {
  return version_of(
      impl_->ask([&](Client& mine) { return mine.run(mine.put(client::insertion(key, value, options))); }));
}

Result<Version> Store::replace(std::string_view key, std::string_view value, Version expected,
                               PutOptions options) {
  return version_of(impl_->ask(
      [&](Client& mine) { return mine.run(mine.put(client::replacement(key, value, expected, options))); }));
}

Result<Version> Store::update(std::string_view key, const Change& change, PutOptions options) {
  const Change noting = impl_->until_forked(change);
  return version_of(impl_->ask([&](Client& mine) {
    auto updated = mine.run(mine.update(key, &noting, options));
    if (impl_->is_inherited()) updated = std::unexpected(impl_->inherited("update"));
    return updated;
  }));
}

Result<Version> Store::touch(std::string_view key, PutOptions options) {
  return version_of(impl_->ask([&](Client& mine) { return mine.run(mine.touch(key, options)); }));
}

Result<void> Store::remove(std::string_view key) {
  return impl_->ask([&](Client& mine) { return mine.run(mine.remove(key)); });
}

Result<void> Store::remove(std::string_view key, Version expected) {
  return impl_->ask([&](Client& mine) { return mine.run(mine.remove(key, expected.token)); });
}

namespace {

bool has_moved(const auto& request) { return !request.result && request.result.error().code == Errc::moved; }

}  // namespace

// What is on its way to another host of the cluster is asked for again, together, for as long as one
// operation may take; but for what is not `wanted` any more. False if there was nothing of that.
template <class Request, class Wanted>
bool Store::Impl::ask_for_each(std::span<Request> requests,
                               coro::Task<void> (Client::*several)(std::span<Request>), Wanted wanted) {
  const auto ask = [this, several](Result<Hold>& mine, std::span<Request> some) {
    if (mine) (*mine)->run(((**mine).*several)(some));
    const auto usable = mine ? intact() : std::unexpected(mine.error());
    if (usable) [[likely]]
      return;
    for (Request& one : some) one.result = std::unexpected(usable.error());
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
    if (auto waited = wait_for_move(mine, &since); !waited) {
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

// A put that another one of its key follows counts as done right before it, and is not done after it; of
// those that are no puts each is asked for by itself.
void Store::multi_put(std::span<Assignment> assignments) {
  std::map<std::string_view, const Assignment*> last_of;
  const auto is_last = [&](const Assignment& one) {
    if (!client::is_valid(one)) return true;
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
    if (has_moved(one) && client::is_valid(one)) one.result = last_of.at(one.key)->result;
  }
}

void Store::multi_remove(std::span<Removal> removals) {
  impl_->ask_for_each(removals, &Client::multi_remove, [](const Removal&) { return true; });
}

Result<void> Store::for_each(const std::function<bool(const Entry&)>& visit) {
  bool has_visited = false;
  const std::function<bool(const Entry&)> noting = [&](const Entry& entry) {
    has_visited = true;
    return visit(entry) && !impl_->is_inherited();
  };
  return impl_->ask([&](Client& mine) {
    auto walked = mine.run(mine.for_each(&noting));
    // A visit forked, and this is the child.
    if (impl_->is_inherited()) return Result<void>(std::unexpected(impl_->inherited("walk")));
    // Not from the beginning, when something was given out already.
    if (!walked && walked.error().code == Errc::moved && has_visited) {
      walked.error().code = Errc::unavailable;
      walked.error().detail =
          "hosts joined or left the cluster, or ended the session, while all items were looked at; begin "
          "again";
    }
    return walked;
  });
}

Result<std::uint64_t> Store::count() {
  return impl_->ask([](Client& mine) { return mine.run(mine.count()); });
}

Stats Store::stats() const { return impl_->stats(); }

Result<Info> Store::info() {
  if (impl_->is_inherited()) return std::unexpected(impl_->inherited("info"));
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

Result<std::vector<RdmaConnection>> Store::rdma_connections() {
  return impl_->ask([](Client& mine) { return mine.attachment().endpoint().port().rdma_connections(); });
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
View::View(View&& other) noexcept
    : value_(std::exchange(other.value_, {})),
      version_(std::exchange(other.version_, {})),
      pin_(std::move(other.pin_)) {}
View& View::operator=(View&& other) noexcept {
  value_ = std::exchange(other.value_, {});
  version_ = std::exchange(other.version_, {});
  pin_ = std::move(other.pin_);
  return *this;
}
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
