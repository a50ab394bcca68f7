// Calls for several keys at once, of the client's own host and of another one.
#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "client/arguments.h"
#include "client/client.h"
#include "client/last_puts.h"
#include "coro/scope.h"

namespace loch::client {
namespace {

// How many keys of a multi_get take turns: enough to hide a miss to memory behind the others' work.
constexpr std::size_t turns_max = 16;
// How many a remote session asks for together.
constexpr std::size_t group_max = 64;
static_assert(turns_max <= LastPuts::puts_max && group_max <= LastPuts::puts_max);

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

Write write_of(const Assignment& assignment) {
  return {.key = assignment.key, .value = assignment.value, .options = assignment.options};
}

Result<void> just_the_error(Result<std::uint64_t> written) {
  if (!written) return std::unexpected(std::move(written.error()));
  return {};
}

}  // namespace

coro::Task<Result<void>> Client::get_one(Lookup* lookup) { return get(lookup->key, &lookup->value); }

coro::Task<Result<void>> Client::put_one(Assignment* assignment) {
  co_return just_the_error(co_await put(write_of(*assignment)));
}

coro::Task<Result<void>> Client::try_put_one(Assignment* assignment) {
  const Write write = write_of(*assignment);
  co_return just_the_error(co_await try_put(&write, 0));
}

// Up to turns_max keys: each step for all of them before the next.
void Client::multi_get_here(std::span<Lookup> lookups, std::span<bool> done) {
  if (here_ == nullptr) return;
  const DuringOperation during(*attachment_);
  const memory::Attachment::Look look(*attachment_);
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
      done[i] = hash::Here::step3_compare_key(probes[i]) && copy_out(item, during.start(), into);
    }
  }
  if (look.holds()) {
    session_->count(Counter::get_hit, static_cast<std::uint64_t>(std::ranges::count(done, true)));
  } else {
    std::ranges::fill(done, false);
  }
}

// As many as `most`.
template <std::size_t most>
std::array<std::uint64_t, most> Client::put_all_here(std::span<const Assignment> assignments,
                                                     std::span<bool> done) {
  std::array<std::uint64_t, most> versions{};
  if (here_ == nullptr || reads_only_) return versions;
  const DuringOperation during(*attachment_);
  const memory::Attachment::Look look(*attachment_);
  const base::Nanos start = during.start();
  hash::Here& here = here_->here();
  std::array<hash::Probe, most> probes;
  std::array<memory::Allocator::Place, most> places;
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
              here_->update_here(look, probes[i], places[i], assignments[i].value,
                                 expiry_of(assignments[i].options, start), start, &versions[i]);
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
  return versions;
}

std::optional<std::uint64_t> Client::put_here(std::string_view key, std::string_view value,
                                              const PutOptions& options) {
  const Assignment one{.key = key, .value = value, .options = options, .result = {}};
  bool done = false;
  const auto versions = put_all_here<1>({&one, 1}, {&done, 1});
  return done ? std::optional(versions.front()) : std::nullopt;
}

void Client::multi_put_here(std::span<Assignment> assignments, std::span<bool> done) {
  put_all_here<turns_max>(assignments, done);
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

// Once for all of a group. What is due still after that, each key finds out for itself.
coro::Task<void> Client::refresh_if_due() {
  if (!attachment_->refresh_due()) co_return;
  [[maybe_unused]] const auto outcome = co_await attachment_->refresh();
}

// Together; and beside them, as coroutines, long values that are known, which go to where they are wanted,
// and what is not for several at once to see to.
coro::Task<void> Client::get_group(std::span<Lookup> group) {
  co_await refresh_if_due();
  const DuringOperation during(*attachment_);
  std::array<coro::Task<Result<void>>, group_max> tasks;
  std::array<bool, group_max> is_alone{};
  std::vector<hash::GroupedGet> plain;
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
    auto together = may_be_together && key_fits(one.key) ? grouped_get(keys[i], &one) : std::nullopt;
    is_alone[i] = !together;
    if (together) {
      plain.push_back(std::move(*together));
    } else {
      tasks[i] = get(one.key, &one.value);
      scope.start(tasks[i]);
    }
  }
  coro::Task<void> together;
  if (!plain.empty()) {
    together = shards_.get_together(plain);
    scope.start(together);
  }
  co_await scope.join();
  auto next = plain.begin();
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].result = is_alone[i] ? tasks[i].take() : std::move((next++)->outcome);
    if (!is_alone[i]) count_outcome(group[i].result, Counter::get_hit, Counter::get_miss);
  }
}

std::optional<hash::GroupedGet> Client::grouped_get(hash::Key key, Lookup* lookup) const {
  auto known = shards_.known(key);
  if (reads_long(known)) return std::nullopt;
  return hash::GroupedGet{.known = std::move(known), .into = &lookup->value};
}

template <class Request>
coro::Task<void> Client::in_groups(std::span<Request> requests,
                                   coro::Task<void> (Client::*group)(std::span<Request>)) {
  const fabric::Endpoint::Turns turns(attachment_->endpoint());
  for (std::size_t first = 0; first < requests.size(); first += group_max)
    co_await (this->*group)(requests.subspan(first, std::min(group_max, requests.size() - first)));
}

coro::Task<void> Client::multi_get(std::span<Lookup> lookups) {
  if (is_remote()) return in_groups(lookups, &Client::get_group);
  return in_turns(lookups, &Client::multi_get_here, &Client::get_one);
}

// Those that find no memory are put once more, each by itself, until that is in vain: what is unlinked rests
// for as long as the group is under way.
coro::Task<void> Client::put_group(std::span<Assignment> group) {
  co_await try_put_group(group);
  const auto found_no_memory = [](const Assignment& one) {
    return !one.result && one.result.error().code == Errc::no_space;
  };
  if (std::ranges::none_of(group, found_no_memory)) [[likely]]
    co_return;
  const LastPuts last = last_puts(group, hash_seed_);
  bool is_in_vain = false;
  for (std::size_t i = group.size(); i-- > 0;) {
    if (!last.is_last(i)) {
      group[i].result = group[last.of(i)].result;
    } else if (!is_in_vain && found_no_memory(group[i])) {
      group[i].result = co_await put_one(&group[i]);
      is_in_vain = found_no_memory(group[i]);
    }
  }
}

// The short and plain ones together, as far as there is memory at hand, and beside them the others as
// coroutines.
coro::Task<void> Client::try_put_group(std::span<Assignment> group) {
  co_await refresh_if_due();
  const DuringOperation during(*attachment_);
  hash::Table* const only = reads_only_ ? nullptr : shards_.only();
  const bool may_be_together = only != nullptr && only->puts_together();
  std::array<coro::Task<Result<void>>, group_max> tasks;
  std::array<bool, group_max> is_alone{};
  std::vector<hash::GroupedPut> plain;
  plain.reserve(group.size());
  const auto keys = keys_to_put(group, hash_seed_);
  const LastPuts last(std::span(keys).first(group.size()));
  for (std::size_t i = 0; i < group.size() && may_be_together; ++i) only->known().fetch(keys[i]);
  coro::Scope scope(attachment_->endpoint().queue());
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!last.is_last(i)) continue;
    const Assignment& one = group[i];
    const bool is_plain = may_be_together && !keys[i].bytes.empty() && !one.options.time_to_live &&
                          hash::item_bytes(one.key.size(), one.value.size()) <= short_bytes_max;
    const auto put = is_plain ? only->grouped_put({.key = keys[i], .value = one.value}) : std::nullopt;
    is_alone[i] = !put;
    if (put) {
      plain.push_back(*put);
    } else {
      tasks[i] = try_put_one(&group[i]);
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
      if (!outcome) outcome.error().operation = "put";
      group[i].result = outcome ? Result<void>{} : std::unexpected(std::move(outcome.error()));
    }
  }
}

coro::Task<void> Client::multi_put(std::span<Assignment> assignments) {
  if (is_remote()) return in_groups(assignments, &Client::put_group);
  return in_turns(assignments, &Client::multi_put_here, &Client::put_one);
}

coro::Task<void> Client::remove_group(std::span<Removal> group) {
  co_await refresh_if_due();
  const DuringOperation during(*attachment_);
  std::array<coro::Task<Result<void>>, group_max> tasks;
  coro::Scope scope(attachment_->endpoint().queue());
  for (std::size_t i = 0; i < group.size(); ++i) {
    tasks[i] = remove(group[i].key);
    scope.start(tasks[i]);
  }
  co_await scope.join();
  for (std::size_t i = 0; i < group.size(); ++i) group[i].result = tasks[i].take();
}

coro::Task<void> Client::multi_remove(std::span<Removal> removals) {
  return in_groups(removals, &Client::remove_group);
}

}  // namespace loch::client
