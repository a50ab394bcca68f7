#include "memory/session.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/fault.h"
#include "base/planted.h"

namespace loch::memory {
namespace {

constexpr std::uint64_t nonces_at_once = std::uint64_t{1} << 20;
constexpr std::uint64_t client_bits = 12;
constexpr base::Nanos refresh_every_max_ns = 250 * base::millisecond_ns;
constexpr base::Nanos for_ever = std::numeric_limits<base::Nanos>::max();

// No later than `for_ever`: what is added to may be damaged.
constexpr base::Nanos later(base::Nanos time, base::Nanos by) { return time + std::min(by, for_ever - time); }

// Whether R2 (session.h, "Reuse") is kept.
bool keeps_what_others_see() { return !base::planted(base::Planted::reuse_beneath_others); }

}  // namespace

Session::Session(std::shared_ptr<StoreMemory> memory, std::shared_ptr<fabric::Endpoint> endpoint,
                 std::uint32_t node)
    : memory_(std::move(memory)),
      shared_endpoint_(std::move(endpoint)),
      endpoint_(*shared_endpoint_),
      node_(node),
      reads_only_(memory_->fabric().read_only()),
      control_(endpoint_, regions().control),
      latest_(&control_.word(latest_offset)),
      random_(0) {
  if (!remote()) return;
  act_until_ns_ = glance_until_ns_ = extend_after_ns_ = for_ever;
  refresh_every_ns_ = std::min(geometry().expiry_ns / 4, refresh_every_max_ns);
}

Result<std::unique_ptr<Session>> Session::open(std::shared_ptr<StoreMemory> memory) {
  auto endpoint = memory->connect();
  return open(std::move(memory), std::move(endpoint), 0);
}

Result<std::unique_ptr<Session>> Session::open(std::shared_ptr<StoreMemory> memory,
                                               std::shared_ptr<fabric::Endpoint> endpoint,
                                               std::uint32_t node) {
  std::unique_ptr<Session> session(new Session(std::move(memory), std::move(endpoint), node));
  if (auto entered = session->endpoint_.run(session->enter()); !entered)
    return std::unexpected(std::move(entered.error()));
  return session;
}

coro::Task<Result<void>> Session::enter() {
  if (remote()) {
    if (auto read = co_await control_.read(0); !read) co_return read;
    if (auto same = is_same_store(); !same) co_return same;
  }
  const StoreMemory::Entering entering(*memory_);
  for (const std::uint32_t number : numbers_to_claim(entering.turn())) {
    auto claimed = endpoint_.port().claim_presence(presence_of(number));
    if (!claimed) co_return std::unexpected(std::move(claimed.error()));
    if (!*claimed) continue;
    entry_ = &control_.entry(number);
    counters_ = &control_.counters(number);
    client_ = static_cast<std::uint16_t>(number);
    // Where time is simulated, a run is to be repeated.
    random_ = base::Random(memory_->fabric().clock().simulated() ? number : base::system_seed());
    if (auto read = co_await control_.read_entry(number); !read) co_return read;
    if (reads_only_) co_return co_await begin_to_read();
    co_return co_await begin();
  }
  co_return fail(
      Errc::no_space, "open",
      fmt::format("{} clients have {} open, the most there can be; close some{}", client_count_max - 1,
                  memory_->fabric().location(),
                  memory_->region_map().living() > 1
                      ? " (those that broke off with a host of the cluster count until it is back or removed)"
                      : ""));
}

// Those that say they are free first, then those whose sessions may have died. Of the free ones each of the
// sessions that are entered together begins with another: it takes a question of the host to learn that one
// is taken, so that as many as threads may be would ask for half the square of that.
std::vector<std::uint32_t> Session::numbers_to_claim(std::uint32_t turn) const {
  std::vector<std::uint32_t> numbers;
  std::vector<std::uint32_t> taken;
  for (std::uint32_t number = 1; number < client_count_max; ++number) {
    const bool is_free = shared(control_.entry(number).open).load(std::memory_order_acquire) == 0;
    (is_free ? numbers : taken).push_back(number);
  }
  std::ranges::rotate(numbers, numbers.begin() + std::min<std::ptrdiff_t>(turn, std::ssize(numbers)));
  numbers.insert(numbers.end(), taken.begin(), taken.end());
  return numbers;
}

// A host that was away may have come back with another store of that name.
Result<void> Session::is_same_store() const {
  Superblock superblock;
  std::memcpy(&superblock, control_.bytes(), sizeof superblock);
  if (superblock.magic == magic && superblock.hash_seed == geometry().hash_seed &&
      superblock.candidates == geometry().candidates) {
    return {};
  }
  return fail(
      Errc::unavailable, "open",
      fmt::format("another store has taken the place of {}; open it again", memory_->fabric().location()));
}

coro::Task<Result<void>> Session::begin() {
  took_over_ = shared(entry_->open).load(std::memory_order_acquire) != 0;
  if (auto settled = co_await settle_counters(client_); !settled) co_return settled;
  auto time = co_await control_.read_time();
  if (!time) co_return std::unexpected(std::move(time.error()));
  if (!remote()) extend_act_until();
  since_ns_ = kept_since_ns_ = *time;
  const std::pair<std::uint64_t*, std::uint64_t> words[] = {
      {&entry_->op_start_ns, remote() ? *time : 0},
      {&entry_->pin_start_ns, remote() ? *time : 0},
      // What this session writes carries this time at least. What a predecessor wrote in the same tick counts
      // as this session's.
      {&entry_->opened_at_ns, *time},
      {&entry_->process, memory_->fabric().process_number()},
      {&entry_->act_until_ns, remote() ? for_ever : later(act_until_ns_, write_lead_max_ns)},
      {&entry_->takes_part, !remote() && memory_->fabric().takes_part_in_barriers() ? 1 : 0},
      // Whether a remote session has some is known when it ends.
      {&entry_->unfinished_moves, remote() ? 1 : 0},
  };
  for (const auto& [word, value] : words) {
    if (auto written = co_await control_.write(word, value); !written) co_return written;
  }
  if (auto raised = co_await control_.raise(&control_.word(clients_end_offset), client_ + 1U); !raised)
    co_return raised;
  if (auto opened = co_await control_.write(&entry_->open, 1); !opened) co_return opened;
  // Whoever has a barrier sees the session before it begins anything, also if it takes no part.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  LOCH_FAULT_POINT("session.opened");
  if (!remote()) co_return Result<void>{};
  // From here on the words in the copy are what is true, and the store is told of them later.
  entry_->op_start_ns = 0;
  entry_->pin_start_ns = 0;
  entry_->unfinished_moves = 0;
  if (auto reserved = co_await reserve_nonces(); !reserved) co_return reserved;
  co_return co_await refresh();
}

// The store's host has said in the registry that the session is there.
coro::Task<Result<void>> Session::begin_to_read() {
  since_ns_ = kept_since_ns_ = entry_->op_start_ns;
  counted_before_ = counted();
  // As in begin.
  entry_->op_start_ns = 0;
  entry_->pin_start_ns = 0;
  co_return co_await refresh();
}

Session::~Session() {
  if (entry_ == nullptr) return;
  // What can not be told now is settled as if it had died.
  [[maybe_unused]] const auto left = endpoint_.run(leave());
  endpoint_.port().release_presence(presence_of(client_));
}

coro::Task<Result<void>> Session::leave() {
  // What it may have done without knowing is settled as if it had died; and until that can not happen any
  // more, it holds on to what it has seen.
  if (endpoint_.has_failed()) co_return Result<void>{};
  if (reads_only_) co_return co_await control_.write_counters(client_);  // the host sees to the rest
  if (remote()) {
    if (auto told = co_await control_.write(&entry_->unfinished_moves, entry_->unfinished_moves); !told)
      co_return told;
  }
  if (auto settled = co_await settle_counters(client_); !settled) co_return settled;
  for (std::uint64_t* word : {&entry_->op_start_ns, &entry_->pin_start_ns}) {
    if (auto written = co_await control_.write(word, 0); !written) co_return written;
  }
  if (took_over_) co_return Result<void>{};
  co_return co_await control_.write(&entry_->open, 0);
}

// Adds what a session counted to the totals. Nobody else writes its entry or counters meanwhile.
coro::Task<Result<void>> Session::settle_counters(std::uint32_t client) {
  ClientEntry& of = control_.entry(client);
  auto& counters = control_.counters(client).counted;
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::uint64_t counted = shared(counters[i]).load(std::memory_order_relaxed);
    if (counted == 0) continue;
    std::uint64_t& total = control_.word(totals_offset + i * sizeof(std::uint64_t));
    if (auto added = co_await control_.add(&total, counted); !added) co_return added;
    if (auto cleared = co_await control_.write(&counters[i], 0); !cleared) co_return cleared;
  }
  // Added there before it is taken away here: whoever looks sees it once at least.
  const std::uint64_t unfinished = shared(of.unfinished_moves).load(std::memory_order_acquire);
  if (unfinished == 0) co_return Result<void>{};
  if (auto added = co_await control_.add(&control_.word(unfinished_moves_offset), unfinished); !added)
    co_return added;
  co_return co_await control_.write(&of.unfinished_moves, 0);
}

coro::Task<Result<void>> Session::refresh() {
  if (auto read = co_await control_.read(client_); !read) co_return read;
  base::Nanos since = now();
  if (operations_.any()) since = std::min(since, operations_.oldest());
  since_ns_ = std::max(since_ns_, since);
  // What was unlinked rests for an expiry anyway, so it costs little to hold on to all that was seen in one.
  base::Nanos kept = since_ns_ - std::min(since_ns_, geometry().expiry_ns);
  if (pins_.any()) kept = std::min(kept, pins_.oldest());
  kept_since_ns_ = std::max(kept_since_ns_, kept);
  // Not by way of the copy, whose words say what runs now.
  const std::array starts{since_ns_, kept_since_ns_};
  const fabric::Address at = control_.address_of(&entry_->op_start_ns);
  if (auto written = co_await endpoint_.write(at, std::as_bytes(std::span(starts))); !written)
    co_return written;
  if (auto told = co_await control_.write_counters(client_); !told) co_return told;
  if (nonces_are_few() && !reads_only_) {
    if (auto reserved = co_await reserve_nonces(); !reserved) co_return reserved;
  }
  refreshed_at_ns_ = endpoint_.now();
  co_return Result<void>{};
}

// Reserved before they are used, so that a successor starts beyond what this session may have given out.
coro::Task<Result<void>> Session::reserve_nonces() {
  const std::uint64_t end = entry_->next_nonce + nonces_at_once_remote;
  if (nonce_ == nonce_end_) nonce_ = nonce_end_ = entry_->next_nonce;
  if (auto reserved = co_await control_.write(&entry_->next_nonce, end); !reserved) co_return reserved;
  nonce_end_ = end;
  co_return Result<void>{};
}

// From what is read after this on, the session may act for another while. Also if the latest time is ahead of
// the clock here: the later the limit, the more the others keep.
void Session::extend_act_until() {
  const base::Nanos time = now();
  const base::Nanos newest = std::max(time, latest());
  if (newest > act_until_ns_) ++lapses_;
  act_until_ns_ = later(newest, act_window_ns);
  glance_until_ns_ = time + act_window_ns;
  extend_after_ns_ = time + act_window_ns / 2;
  // Needs no fence either, by R1.
  shared(entry_->act_until_ns).store(later(act_until_ns_, write_lead_max_ns), std::memory_order_release);
  stores_come_first();
}

coro::Task<Result<std::uint64_t>> Session::unfinished_moves_of_the_gone() {
  std::uint64_t& word = control_.word(unfinished_moves_offset);
  if (auto read = co_await control_.read_word(&word); !read)
    co_return std::unexpected(std::move(read.error()));
  co_return shared(word).load(std::memory_order_acquire);
}

coro::Task<Result<void>> Session::forget_unfinished_moves(std::uint64_t until) {
  co_return co_await control_.raise(&control_.word(settled_moves_offset), until);
}

void Session::Running::add_other(base::Nanos start) {
  const auto it = std::ranges::lower_bound(later_, start, {}, &Later::start);
  if (it != later_.end() && it->start == start) {
    ++it->count;
  } else {
    later_.insert(it, {start, 1});
  }
}

void Session::Running::drop_later(base::Nanos start) {
  const auto it = std::ranges::find(later_, start, &Later::start);
  LOCH_CHECK(it != later_.end());
  if (--it->count == 0) later_.erase(it);
}

std::uint32_t Session::Running::count_until(base::Nanos at) const {
  std::uint32_t count = start_ <= at ? count_ : 0;
  for (const Later& later : later_) count += later.start <= at ? later.count : 0;
  return count;
}

void Session::Running::next_oldest() {
  start_ = later_.front().start;
  count_ = later_.front().count;
  later_.erase(later_.begin());
}

base::Nanos Session::pin() {
  const base::Nanos start = now();
  tell_time(start);
  if (start > extend_after_ns_) extend_act_until();
  pins_.add(start, entry_->pin_start_ns);
  return start;
}

void Session::unpin(base::Nanos start) { pins_.drop(start, entry_->pin_start_ns); }

std::uint64_t Session::next_nonce() {
  if (base::planted(base::Planted::empty_without_nonce)) return 0;
  if (nonce_ == nonce_end_) {
    LOCH_CHECK(!remote());
    // Reserved before they are used, so that a successor starts beyond what this session may have given out.
    nonce_ = shared(entry_->next_nonce).load(std::memory_order_acquire);
    nonce_end_ = nonce_ + nonces_at_once;
    shared(entry_->next_nonce).store(nonce_end_, std::memory_order_release);
  }
  return nonce_++ << client_bits | client_;
}

Stats Session::counted() const {
  Stats stats;
  for (std::size_t i = 0; i < counter_count; ++i) {
    stats.values[i] = shared(counters_->counted[i]).load(std::memory_order_relaxed);
  }
  return stats;
}

Stats Session::stats() const {
  Stats stats = counted();
  for (std::size_t i = 0; i < counter_count; ++i) stats.values[i] -= counted_before_.values[i];
  return stats;
}

coro::Task<Result<Stats>> Session::totals() {
  if (auto read = co_await control_.read_totals(client_); !read)
    co_return std::unexpected(std::move(read.error()));
  co_return control_.totals();
}

// Those that may act now. Who begins later sees what has been unlinked by then.
bool Session::do_all_take_part() {
  const std::uint32_t end = control_.clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    ClientEntry& other = control_.entry(number);
    if (shared(other.open).load(std::memory_order_acquire) != 0 &&
        shared(other.takes_part).load(std::memory_order_acquire) == 0 && is_present(number))
      return false;
  }
  return true;
}

bool Session::barrier_with_all(base::Nanos now) {
  if (remote() || !do_all_take_part()) return false;
  // If it falls back, since another session stored a later tick just now, there is a barrier more.
  auto newest = shared(control_.word(barrier_offset));
  if (newest.load(std::memory_order_acquire) < now) {
    if (!memory_->fabric().barrier_for_all()) return false;
    newest.store(now, std::memory_order_release);
  }
  return do_all_take_part();  // also those that came meanwhile
}

void Session::look_at_the_others_now(base::Nanos now) {
  looked_at_ns_ = now;
  tell_time(now);
  // What was unlinked at an earlier tick was so before the barrier.
  rest_ns_ = barrier_with_all(now) ? 1 : geometry().expiry_ns;
  horizon_ns_ = now - std::min(now, rest_ns_);
  stuck_from_ns_ = std::numeric_limits<base::Nanos>::max();
  stuck_until_ns_ = 0;
  if (remote() && kept_since_ns_ <= horizon_ns_ && keeps_what_others_see()) {
    // It holds on to what it has seen since then also between its operations (kept_since).
    stuck_from_ns_ = kept_since_ns_;
    stuck_until_ns_ = for_ever;
  }
  moves_linger_ = false;
  // First, so that it counts none that the other word does not.
  const std::uint64_t settled = shared(control_.word(settled_moves_offset)).load(std::memory_order_acquire);
  const std::uint32_t end = control_.clients_end();
  std::vector<Holder> holders;
  for (std::uint32_t number = 1; number < end; ++number) {
    ClientEntry& other = control_.entry(number);
    if (shared(other.open).load(std::memory_order_acquire) == 0) continue;
    base::Nanos oldest = for_ever;
    for (std::uint64_t* since : {&other.op_start_ns, &other.pin_start_ns}) {
      const base::Nanos start = shared(*since).load(std::memory_order_acquire);
      if (start != 0) oldest = std::min(oldest, start);
    }
    if (oldest <= horizon_ns_ && keeps_what_others_see())
      holders.push_back({.start = oldest, .number = number});
    // After op_start: the moves of operations that are over have been counted.
    if (shared(other.unfinished_moves).load(std::memory_order_acquire) != 0) moves_linger_ = true;
  }
  ask_for_those_that_hold(std::move(holders));
  // What is held by somebody who may act for longer than anything has been written rests on.
  rested_until_ns_ = horizon_ns_;
  if (stuck_until_ns_ >= now + write_lead_max_ns && stuck_from_ns_ <= horizon_ns_)
    rested_until_ns_ = stuck_from_ns_ - std::min<base::Nanos>(stuck_from_ns_, 1);
  // Last, since a session's count goes there from its entry.
  if (shared(control_.word(unfinished_moves_offset)).load(std::memory_order_acquire) != settled)
    moves_linger_ = true;
}

// Presence is asked of the host, a question each. The oldest first: once one is there that may act for ever,
// those that began later change nothing, whether they are there or not.
void Session::ask_for_those_that_hold(std::vector<Holder> holders) {
  std::ranges::sort(holders, {}, &Holder::start);
  for (const Holder& each : holders) {
    if (stuck_until_ns_ == for_ever && stuck_from_ns_ <= each.start) return;
    if (!is_present(each.number)) continue;
    ClientEntry& other = control_.entry(each.number);
    stuck_from_ns_ = std::min(stuck_from_ns_, each.start);
    stuck_until_ns_ = std::max(stuck_until_ns_, shared(other.act_until_ns).load(std::memory_order_acquire));
  }
}

bool Session::may_still_run(std::uint16_t client, base::Nanos at) {
  if (client == 0 || client >= client_count_max) return false;
  if (remote() && at >= latest()) return true;
  ClientEntry& other = control_.entry(client);
  if (shared(other.open).load(std::memory_order_acquire) == 0) return false;
  const base::Nanos start = shared(other.op_start_ns).load(std::memory_order_acquire);
  return start != 0 && start <= at && is_present(client);
}

coro::Task<Result<bool>> Session::others_run_since(base::Nanos at) {
  if (remote()) {
    if (auto read = co_await control_.read(client_); !read)
      co_return std::unexpected(std::move(read.error()));
  } else {
    tell_time(now());
  }
  const std::uint32_t end = control_.clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    if (number != client_ && may_still_run(static_cast<std::uint16_t>(number), at)) co_return true;
  }
  co_return operations_.count_until(at) > 1;
}

bool Session::is_gone(std::uint16_t client, base::Nanos at) {
  if (client == 0 || client >= client_count_max) return true;
  if (remote() && at >= latest()) return false;
  ClientEntry& other = control_.entry(client);
  return shared(other.open).load(std::memory_order_acquire) == 0 ||
         shared(other.opened_at_ns).load(std::memory_order_acquire) > at || !is_present(client);
}

coro::Task<Result<std::uint16_t>> Session::take_dead(std::uint16_t from) {
  const std::uint32_t end = control_.clients_end();
  for (std::uint32_t number = from + 1U; number < end; ++number) {
    if (number == client_) continue;
    ClientEntry& other = control_.entry(number);
    if (shared(other.open).load(std::memory_order_acquire) == 0) continue;
    const auto claimed = endpoint_.port().claim_presence(presence_of(number));
    if (!claimed || (!*claimed && !base::planted(base::Planted::lease_without_fence))) continue;
    auto settled = co_await control_.read_entry(number);
    const bool is_open = shared(other.open).load(std::memory_order_acquire) != 0;
    if (settled && is_open) settled = co_await settle_counters(number);
    if (settled && is_open) co_return static_cast<std::uint16_t>(number);
    endpoint_.port().release_presence(presence_of(number));
    if (!settled) co_return std::unexpected(std::move(settled.error()));
  }
  co_return std::uint16_t{0};
}

void Session::leave_dead(std::uint16_t client) { endpoint_.port().release_presence(presence_of(client)); }

coro::Task<Result<void>> Session::bury(std::uint16_t client) {
  ClientEntry& dead = control_.entry(client);
  Result<void> told;
  for (std::uint64_t* word : {&dead.op_start_ns, &dead.pin_start_ns, &dead.open}) {
    if (told) told = co_await control_.write(word, 0);
  }
  endpoint_.port().release_presence(presence_of(client));
  co_return told;
}

std::uint64_t Session::living() {
  std::uint64_t living = 0;
  const std::uint32_t end = control_.clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    if (shared(control_.entry(number).open).load(std::memory_order_acquire) != 0 && is_present(number))
      ++living;
  }
  return living;
}

}  // namespace loch::memory
