#include "client/client.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>
#include <vector>

#include "client/last_puts.h"
#include "coro/scope.h"

namespace loch::client {
namespace {

// How many keys of a multi_get take turns: enough to hide a miss to memory behind the others' work.
constexpr std::size_t turns_max = 16;
// How many a remote session asks for together.
constexpr std::size_t group_max = 64;
static_assert(turns_max <= LastPuts::puts_max && group_max <= LastPuts::puts_max);
// Known items that are longer are asked for each by itself: the value of the first can be looked at while the
// last are on their way, and it is not copied.
constexpr std::size_t short_bytes_max = 1'024;
// Whether an item is read whose value is long.
bool reads_long(const hash::Known& known) {
  return !known.has_copy() && known.pointer.length_bytes > short_bytes_max;
}

bool key_fits(std::string_view key) { return !key.empty() && key.size() <= key_bytes_max; }
bool value_fits(std::string_view value) { return value.size() <= value_bytes_max; }
bool time_to_live_fits(const PutOptions& options) {
  return options.time_to_live.count() >= 0 && options.time_to_live <= time_to_live_max;
}

Result<void> check_key(std::string_view key, const char* operation) {
  if (key_fits(key)) [[likely]]
    return {};
  return fail(Errc::invalid_argument, operation,
              fmt::format("a key has 1 to {} bytes, not {}", key_bytes_max, key.size()));
}

Result<void> check_value(std::string_view value, const char* operation) {
  if (value_fits(value)) [[likely]]
    return {};
  return fail(Errc::invalid_argument, operation,
              fmt::format("a value has at most {} bytes, not {}", value_bytes_max, value.size()));
}

// What a get said, as an answer of the operation that asked for it.
Error as_of(const char* operation, Error error) {
  if (std::string_view(error.operation) == "get") error.operation = operation;
  return error;
}

// What request_of checks.
bool is_valid(const Assignment& assignment) {
  return key_fits(assignment.key) && value_fits(assignment.value) && time_to_live_fits(assignment.options);
}

// The keys of those that can be put at all; the others have none.
using KeysToPut = std::array<hash::Key, LastPuts::puts_max>;
KeysToPut keys_to_put(std::span<const Assignment> group, std::uint64_t seed) {
  KeysToPut keys{};
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (is_valid(group[i])) keys[i] = hash::Key::of(group[i].key, seed);
  }
  return keys;
}

LastPuts last_puts(std::span<const Assignment> group, std::uint64_t seed) {
  return LastPuts(std::span<const hash::Key>(keys_to_put(group, seed)).first(group.size()));
}
// Each get is done for itself.
LastPuts last_puts(std::span<const Lookup> group, std::uint64_t /*seed*/) {
  return LastPuts(std::span<const hash::Key>(KeysToPut{}).first(group.size()));
}

base::Nanos expiry_of(const PutOptions& options, base::Nanos now) {
  if (options.time_to_live.count() == 0) return 0;
  return now + static_cast<base::Nanos>(options.time_to_live.count()) * base::millisecond_ns;
}

std::optional<std::chrono::milliseconds> time_left(const hash::ItemView& view, base::Nanos now) {
  if (view.expires_at_ns() == 0) return std::nullopt;
  const base::Nanos left = view.expires_at_ns() > now ? view.expires_at_ns() - now : 0;
  return std::chrono::milliseconds((left + base::millisecond_ns - 1) / base::millisecond_ns);
}

}  // namespace

Client::Client(std::unique_ptr<memory::Attachment> attachment, const ClientOptions& options)
    : attachment_(std::move(attachment)),
      session_(attachment_->nodes().front().session.get()),
      shards_(*attachment_, {.timeout_ns = options.timeout_ns,
                             .cache_bytes = options.cache_bytes,
                             .locations = options.locations}),
      hash_seed_(session_->geometry().hash_seed),
      reads_only_(options.read_only || attachment_->memory().fabric().read_only()) {
  if (hash::Table* const only = shards_.only(); only != nullptr && only->works_here()) here_ = only;
}

Result<std::unique_ptr<Client>> Client::open(const std::shared_ptr<memory::StoreMemory>& memory,
                                             const ClientOptions& options) {
  auto begun = begin(memory, options);
  // A host of a cluster may end in the midst of it. Who begins after that does without it.
  const bool others_are_left = memory->region_map().nodes.size() > 1;
  if (!begun && begun.error().code == Errc::unavailable && others_are_left) begun = begin(memory, options);
  return begun;
}

Result<std::unique_ptr<Client>> Client::begin(std::shared_ptr<memory::StoreMemory> memory,
                                              const ClientOptions& options) {
  auto attachment = memory::Attachment::open(std::move(memory), options.placement);
  if (!attachment) return std::unexpected(std::move(attachment.error()));
  std::unique_ptr<Client> client(new Client(std::move(*attachment), options));
  auto ready = client->run(client->settle_predecessors());
  if (ready) ready = client->run(client->shards_.open());
  if (!ready) return std::unexpected(std::move(ready.error()));
  return client;
}

Result<void> Client::may_change(const char* operation) const {
  if (!reads_only_) [[likely]]
    return {};
  return fail(Errc::permission, operation,
              fmt::format("this client may only read {}: it was opened so, or its key is one for reading",
                          attachment_->memory().fabric().location()));
}

// What those left who had this client's numbers and died.
coro::Task<Result<void>> Client::settle_predecessors() {
  for (const auto& node : attachment_->nodes()) {
    if (!node.session->took_over()) continue;
    node.session->count(Counter::sessions_reaped);
    if (auto settled = co_await node.allocator->settle_blocks(node.session->client()); !settled)
      co_return settled;
  }
  co_return Result<void>{};
}

coro::Task<Result<void>> Client::get_near(std::string_view key, std::string* into) {
  if (auto valid = check_key(key, "get"); !valid) co_return valid;
  const DuringOperation during(*attachment_);
  for (;;) {
    auto found = co_await shards_.get(key_of(key));
    if (!found) {
      session_->count(Counter::get_miss);
      co_return std::unexpected(std::move(found.error()));
    }
    into->assign(found->view.value());
    if (attachment_->may_act()) break;
  }
  session_->count(Counter::get_hit);
  co_return Result<void>{};
}

// Of a remote session: the value of a known item that is long is read to where it is wanted.
coro::Task<Result<void>> Client::get_far(std::string_view key, std::string* into) {
  if (auto valid = check_key(key, "get"); !valid) co_return valid;
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) {
    session_->count(Counter::get_miss);
    co_return std::unexpected(table.error());
  }
  const DuringOperation during(*attachment_);
  // What it knows does not count before it has refreshed.
  bool looks_up = attachment_->refresh_due();
  auto known = looks_up ? std::nullopt : (*table)->known(hashed);
  if (known && reads_long(*known)) {
    const bool found = co_await (*table)->read_value(&*known, into);
    known->was_asked = true;
    looks_up = !attachment_->may_act();
    if (found && !looks_up) {
      session_->count(Counter::get_hit);
      co_return Result<void>{};
    }
  }
  const hash::Known nothing{.key = hashed};
  for (;;) {
    auto found = co_await (*table)->get(hashed, looks_up ? nullptr : known ? &*known : &nothing);
    if (!found) {
      session_->count(Counter::get_miss);
      co_return std::unexpected(std::move(found.error()));
    }
    into->assign(found->view.value());
    if (attachment_->may_act()) break;
    looks_up = true;
  }
  session_->count(Counter::get_hit);
  co_return Result<void>{};
}

coro::Task<Result<Item>> Client::read(std::string_view key) {
  if (auto valid = check_key(key, "read"); !valid) co_return std::unexpected(std::move(valid.error()));
  const auto table = shards_.table_of(key_of(key).hash);
  if (!table) co_return std::unexpected(table.error());
  const DuringOperation during(*attachment_);
  Item item;
  for (;;) {
    auto found = co_await shards_.get(key_of(key));
    session_->count(found ? Counter::get_hit : Counter::get_miss);
    if (!found) co_return std::unexpected(as_of("read", std::move(found.error())));
    item.value.assign(found->view.value());
    item.version = {found->view.version()};
    item.time_to_live = time_left(found->view, (*table)->newest_time());
    if (attachment_->may_act()) co_return item;
  }
}

coro::Task<Result<hash::Found>> Client::find(std::string_view key) {
  if (auto valid = check_key(key, "view"); !valid) co_return std::unexpected(std::move(valid.error()));
  const DuringOperation during(*attachment_);
  Result<hash::Found> found;
  do {
    found = co_await shards_.get(key_of(key));
  } while (!attachment_->may_act());
  session_->count(found ? Counter::get_hit : Counter::get_miss);
  if (!found) co_return std::unexpected(as_of("view", std::move(found.error())));
  co_return found;
}

coro::Task<Result<bool>> Client::exists(std::string_view key) {
  if (auto valid = check_key(key, "exists"); !valid) co_return std::unexpected(std::move(valid.error()));
  const DuringOperation during(*attachment_);
  session_->count(Counter::exists);
  Result<hash::Found> found;
  do {
    found = co_await shards_.get(key_of(key));
  } while (!attachment_->may_act());
  if (found) co_return true;
  if (found.error().code == Errc::not_found) co_return false;
  co_return std::unexpected(as_of("exists", std::move(found.error())));
}

Result<hash::WriteRequest> Client::request_of(std::string_view key, std::string_view value,
                                              PutOptions options, const char* operation,
                                              base::Nanos now) const {
  if (auto valid = check_key(key, operation); !valid) return std::unexpected(std::move(valid.error()));
  if (auto valid = check_value(value, operation); !valid) return std::unexpected(std::move(valid.error()));
  if (!time_to_live_fits(options)) {
    return fail(
        Errc::invalid_argument, operation,
        fmt::format("a time to live is 1 to {} ms, or 0 for what lives until it is removed; not {} ms",
                    time_to_live_max.count(), options.time_to_live.count()));
  }
  return hash::WriteRequest{.key = key_of(key), .value = value, .expires_at_ns = expiry_of(options, now)};
}

// A time to live counts from now, and a remote session has to ask when that is.
coro::Task<Result<void>> Client::know_time(hash::Table* table, PutOptions options) {
  if (options.time_to_live.count() == 0) co_return Result<void>{};
  if (auto now = co_await table->read_time(); !now) co_return std::unexpected(std::move(now.error()));
  co_return Result<void>{};
}

coro::Task<Result<std::uint64_t>> Client::put(std::string_view key, std::string_view value,
                                              PutOptions options, hash::Condition condition,
                                              std::uint64_t version, const char* operation) {
  if (auto may = may_change(operation); !may) co_return std::unexpected(std::move(may.error()));
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  if (auto known = co_await know_time(*table, options); !known)
    co_return std::unexpected(std::move(known.error()));
  auto request = request_of(key, value, options, operation, (*table)->newest_time());
  if (!request) co_return std::unexpected(std::move(request.error()));
  request->condition = condition;
  request->version = version;
  const DuringOperation during(*attachment_);
  auto written = co_await (*table)->put(*request);
  if (!written) {
    written.error().operation = operation;
    if (written.error().code == Errc::exists) session_->count(Counter::insert_exists);
    if (written.error().code == Errc::changed) session_->count(Counter::replace_changed);
  }
  co_return written;
}

coro::Task<Result<void>> Client::remove(std::string_view key) {
  if (auto may = may_change("remove"); !may) co_return may;
  if (auto valid = check_key(key, "remove"); !valid) co_return valid;
  const DuringOperation during(*attachment_);
  const hash::Key hashed = key_of(key);
  const auto table = shards_.table_of(hashed.hash);
  if (!table) co_return std::unexpected(table.error());
  auto removed = co_await (*table)->remove(hashed);
  session_->count(removed ? Counter::remove_hit : Counter::remove_miss);
  co_return removed;
}

coro::Task<Result<void>> Client::get_one(Lookup* lookup) { return get(lookup->key, &lookup->value); }

coro::Task<Result<void>> Client::put_one(Assignment* assignment) {
  if (auto may = may_change("put"); !may) co_return may;
  const auto table = shards_.table_of(key_of(assignment->key).hash);
  if (!table) co_return std::unexpected(table.error());
  if (auto known = co_await know_time(*table, assignment->options); !known) co_return known;
  auto request =
      request_of(assignment->key, assignment->value, assignment->options, "put", (*table)->newest_time());
  if (!request) co_return std::unexpected(std::move(request.error()));
  const DuringOperation during(*attachment_);
  auto written = co_await (*table)->put(*request);
  if (!written) co_return std::unexpected(std::move(written.error()));
  co_return Result<void>{};
}

bool Client::give_out(hash::ItemView& item, base::Nanos asked_at, std::string& into) {
  if (!here_->parse_here(item) || hash::Table::expired(item.expires_at_ns(), asked_at)) return false;
  bool intact = false;
  // The length that libstdc++ 12 passes may be larger than the one asked for.
  into.resize_and_overwrite(item.value().size(), [&](char* buffer, std::size_t /*length*/) {
    intact = item.copy_value_to(buffer);
    return item.value().size();
  });
  return intact && attachment_->may_act();
}

bool Client::get_here(std::string_view key, std::string& into) {
  if (here_ == nullptr || !key_fits(key)) return false;
  const DuringOperation during(*attachment_);
  hash::Probe probe;
  probe.key = key_of(key);
  hash::Here& here = here_->here();
  if (!here.step1_find_slots(probe) || !here.step2_match_filter(probe, hash::item_bytes(key.size(), 0)) ||
      !hash::Here::step3_compare_key(probe) || !give_out(probe.item, during.start(), into)) {
    return false;
  }
  session_->count(Counter::get_hit);
  return true;
}

bool Client::put_here(std::string_view key, std::string_view value, const PutOptions& options) {
  Assignment one{.key = key, .value = value, .options = options, .result = {}};
  bool done = false;
  multi_put_here({&one, 1}, {&done, 1});
  return done;
}

// Up to turns_max keys: each step for all of them before the next.
void Client::multi_get_here(std::span<Lookup> lookups, std::span<bool> done) {
  if (here_ == nullptr) return;
  const DuringOperation during(*attachment_);
  hash::Here& here = here_->here();
  std::array<hash::Probe, turns_max> probes;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const std::string_view key = lookups[i].key;
    probes[i].key = key_of(key);
    done[i] = key_fits(key) && here.step1_find_slots(probes[i]);
  }
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    done[i] = done[i] && here.step2_match_filter(
                             probes[i], hash::item_bytes(lookups[i].key.size(), lookups[i].value.size()));
  }
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    if (!done[i]) continue;
    const std::string_view key = lookups[i].key;
    std::string& into = lookups[i].value;
    hash::ItemView& item = probes[i].item;
    if (into.size() <= base::crc_in_line_bytes_max && item.is_plain(key, into.size())) {
      done[i] = item.copy_just_value_to(into.data());
    } else {
      done[i] = hash::Here::step3_compare_key(probes[i]) && give_out(item, during.start(), into);
    }
  }
  if (attachment_->may_act()) {
    session_->count(Counter::get_hit, static_cast<std::uint64_t>(std::ranges::count(done, true)));
  } else {
    std::ranges::fill(done, false);
  }
}

void Client::multi_put_here(std::span<Assignment> assignments, std::span<bool> done) {
  if (here_ == nullptr || reads_only_) return;
  const DuringOperation during(*attachment_);
  const base::Nanos start = during.start();
  hash::Here& here = here_->here();
  std::array<hash::Probe, turns_max> probes;
  std::array<memory::Allocator::Place, turns_max> places;
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    const Assignment& assignment = assignments[i];
    if (!is_valid(assignment)) continue;
    probes[i].key = key_of(assignment.key);
    done[i] = here.step1_find_slots(probes[i]);
  }
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    if (!done[i]) continue;
    const Assignment& assignment = assignments[i];
    places[i] =
        here_->prepare_item_here(hash::item_bytes(assignment.key.size(), assignment.value.size()), start);
    done[i] = places[i].at != nullptr;
  }
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    done[i] = done[i] && here.step2_match_filter<hash::Here::Asks::for_wanted>(
                             probes[i], hash::item_bytes(assignments[i].key.size(), 0));
  }
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    done[i] = done[i] && hash::Here::step3_compare_key(probes[i]) &&
              here_->update_here(probes[i], places[i], assignments[i].value,
                                 expiry_of(assignments[i].options, start), start);
  }
  const base::Nanos unlinked = session_->now();
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    if (done[i]) {
      here_->retire_here(probes[i].word, unlinked);
      // Now, since the memory is not busy with anything else until the next call.
      here_->fetch_items_here(places[i].ref, i);
    } else if (places[i].at != nullptr) {
      here_->discard_here(places[i]);
    }
  }
}

// Some at a time: what `here` could not do at once, as coroutines that take turns.
template <class Request>
coro::Task<void> Client::in_turns(std::span<Request> requests,
                                  void (Client::*here)(std::span<Request>, std::span<bool>),
                                  coro::Task<Result<void>> (Client::*one)(Request*)) {
  const fabric::Endpoint::Turns turns(attachment_->endpoint());
  std::array<coro::Task<Result<void>>, turns_max> tasks;
  for (std::size_t first = 0; first < requests.size(); first += turns_max) {
    const auto group = requests.subspan(first, std::min(turns_max, requests.size() - first));
    std::array<bool, turns_max> done{};
    const auto done_here = std::span(done).first(group.size());
    (this->*here)(group, done_here);
    if (std::ranges::all_of(done_here, std::identity{})) [[likely]] {
      for (Request& request : group) request.result = {};
      continue;
    }
    coro::Scope scope(attachment_->endpoint().queue());
    const LastPuts last = last_puts(group, hash_seed_);
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (done[i] || !last.is_last(i)) continue;
      tasks[i] = (this->*one)(&group[i]);
      scope.start(tasks[i]);
    }
    co_await scope.join();
    for (std::size_t i = group.size(); i-- > 0;) {
      if (done[i]) {
        group[i].result = {};
      } else {
        group[i].result = last.is_last(i) ? tasks[i].take() : group[last.of(i)].result;
      }
    }
  }
}

// Together; and beside them, as coroutines, long values that are known, which go to where they are wanted,
// and what is not for several at once to see to.
coro::Task<void> Client::get_group(std::span<Lookup> group) {
  const DuringOperation during(*attachment_);
  std::array<coro::Task<Result<void>>, group_max> tasks;
  std::array<bool, group_max> is_alone{};
  std::vector<hash::PlainGet> plain;
  plain.reserve(group.size());
  const bool may_be_together = !attachment_->refresh_due();
  std::array<hash::Key, group_max> keys;
  for (std::size_t i = 0; i < group.size() && may_be_together; ++i) {
    keys[i] = key_of(group[i].key);
    shards_.fetch_known(keys[i]);
  }
  coro::Scope scope(attachment_->endpoint().queue());
  for (std::size_t i = 0; i < group.size(); ++i) {
    Lookup& one = group[i];
    const auto get = may_be_together && key_fits(one.key) ? plain_get(keys[i], &one) : std::nullopt;
    is_alone[i] = !get;
    if (get) {
      plain.push_back(*get);
    } else {
      tasks[i] = get_far(one.key, &one.value);
      scope.start(tasks[i]);
    }
  }
  coro::Task<void> together;
  if (!plain.empty()) {
    together = shards_.get_together(plain);
    scope.start(together);
  }
  co_await scope.join();
  std::uint64_t hits = 0;
  auto next = plain.begin();
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].result = is_alone[i] ? tasks[i].take() : std::move((next++)->outcome);
    hits += !is_alone[i] && group[i].result.has_value();
  }
  session_->count(Counter::get_hit, hits);
  session_->count(Counter::get_miss, plain.size() - hits);
}

std::optional<hash::PlainGet> Client::plain_get(hash::Key key, Lookup* lookup) const {
  auto known = shards_.known(key);
  if (known && reads_long(*known)) return std::nullopt;
  return hash::PlainGet{.key = key, .known = std::move(known), .into = &lookup->value};
}

coro::Task<void> Client::multi_get_far(std::span<Lookup> lookups) {
  const fabric::Endpoint::Turns turns(attachment_->endpoint());
  for (std::size_t first = 0; first < lookups.size(); first += group_max)
    co_await get_group(lookups.subspan(first, std::min(group_max, lookups.size() - first)));
}

coro::Task<void> Client::multi_get(std::span<Lookup> lookups) {
  if (is_remote()) return multi_get_far(lookups);
  return in_turns(lookups, &Client::multi_get_here, &Client::get_one);
}

// The short and plain ones together, as far as there is memory at hand, and beside them the others as
// coroutines.
coro::Task<void> Client::put_group(std::span<Assignment> group) {
  const DuringOperation during(*attachment_);
  hash::Table* const only = reads_only_ ? nullptr : shards_.only();
  const bool may_be_together = only != nullptr && only->puts_together();
  std::array<coro::Task<Result<void>>, group_max> tasks;
  std::array<bool, group_max> is_alone{};
  std::vector<hash::PlainPut> plain;
  plain.reserve(group.size());
  const auto keys = keys_to_put(group, hash_seed_);
  const LastPuts last(std::span(keys).first(group.size()));
  for (std::size_t i = 0; i < group.size() && may_be_together; ++i) only->fetch_known(keys[i]);
  coro::Scope scope(attachment_->endpoint().queue());
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!last.is_last(i)) continue;
    const Assignment& one = group[i];
    const bool is_plain = may_be_together && !keys[i].bytes.empty() &&
                          one.options.time_to_live.count() == 0 &&
                          hash::item_bytes(one.key.size(), one.value.size()) <= short_bytes_max;
    const auto put = is_plain ? only->plain_put({.key = keys[i], .value = one.value}) : std::nullopt;
    is_alone[i] = !put;
    if (put) {
      plain.push_back(*put);
    } else {
      tasks[i] = put_one(&group[i]);
      scope.start(tasks[i]);
    }
  }
  coro::Task<void> together;
  if (!plain.empty()) {
    together = only->put_together(plain);
    scope.start(together);
  }
  co_await scope.join();
  auto next = plain.rbegin();
  for (std::size_t i = group.size(); i-- > 0;) {
    if (!last.is_last(i)) {
      group[i].result = group[last.of(i)].result;
    } else if (is_alone[i]) {
      group[i].result = tasks[i].take();
    } else {
      auto& outcome = (next++)->outcome;
      group[i].result = outcome ? Result<void>{} : std::unexpected(std::move(outcome.error()));
    }
  }
}

coro::Task<void> Client::multi_put_far(std::span<Assignment> assignments) {
  const fabric::Endpoint::Turns turns(attachment_->endpoint());
  for (std::size_t first = 0; first < assignments.size(); first += group_max)
    co_await put_group(assignments.subspan(first, std::min(group_max, assignments.size() - first)));
}

coro::Task<void> Client::multi_put(std::span<Assignment> assignments) {
  if (is_remote()) return multi_put_far(assignments);
  return in_turns(assignments, &Client::multi_put_here, &Client::put_one);
}

coro::Task<Result<void>> Client::for_each(const std::function<bool(const Entry&)>* visit) {
  const hash::Shards::Visit visit_item = [this, visit](const hash::ItemView& view) {
    const auto table = shards_.table_of(view.key_hash());
    const base::Nanos now = table ? (*table)->newest_time() : session_->control().newest_time();
    return (*visit)(Entry{.key = view.key(),
                          .value = view.value(),
                          .version = {view.version()},
                          .time_to_live = time_left(view, now)});
  };
  co_return co_await shards_.for_each(&visit_item);
}

coro::Task<Result<std::uint64_t>> Client::count() {
  const DuringOperation during(*attachment_);
  co_return co_await shards_.count();
}

coro::Task<Result<Collected>> Client::collect() {
  if (auto may = may_change("collect"); !may) co_return std::unexpected(std::move(may.error()));
  Result<Collected> collected;
  {
    const DuringOperation during(*attachment_);
    collected = co_await shards_.collect();
  }
  co_return collected;
}

coro::Task<Result<Report>> Client::check() {
  const DuringOperation during(*attachment_);
  co_return co_await shards_.check();
}

Stats Client::totals() const {
  Stats sum;
  for (const auto& node : attachment_->nodes()) sum += node.session->totals();
  return sum;
}

coro::Task<Result<void>> Client::describe(Info* into) {
  Info& info = *into;
  if (is_remote()) {
    if (auto fresh = co_await attachment_->refresh(); !fresh) co_return fresh;
  }
  const memory::StoreMemory& memory = attachment_->memory();
  fabric::Endpoint& endpoint = attachment_->endpoint();
  info.format_version = memory::format_version;
  info.candidates = memory.geometry().candidates;
  if (auto described = co_await shards_.describe(into); !described) co_return described;
  info.block_bytes = memory::block_bytes;
  for (const auto& node : attachment_->nodes()) {
    const auto control = endpoint.length_bytes(node.session->regions().control);
    if (!control) co_return std::unexpected(control.error());
    info.control_bytes += *control;
    for (const fabric::RegionId region : node.session->regions().data) {
      const auto length = endpoint.length_bytes(region);
      if (!length) co_return std::unexpected(length.error());
      info.data_bytes += *length / memory::block_bytes * memory::block_bytes;
    }
    const auto blocks = node.allocator->blocks();
    if (!blocks) co_return std::unexpected(blocks.error());
    memory::DescriptorGroup group;
    for (const memory::BlockNumber block : *blocks) {
      if (auto read = co_await node.allocator->read_descriptors(&*blocks, block, &group); !read)
        co_return read;
      const memory::BlockState state = group.lease(block).state;
      ++info.blocks;
      if (state == memory::BlockState::free) ++info.blocks_free;
      if (state == memory::BlockState::leased || state == memory::BlockState::swept) ++info.blocks_leased;
    }
    info.clients = std::max(info.clients, node.session->living());
  }
  info.totals = totals();
  info.max_bytes = memory.geometry().max_bytes;
  info.huge_page_bytes = memory.fabric().huge_page_bytes();
  info.expiry = std::chrono::milliseconds(memory.geometry().expiry_ns / base::millisecond_ns);
  co_return Result<void>{};
}

}  // namespace loch::client
