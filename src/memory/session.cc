#include "memory/session.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/planted.h"

namespace loch::memory {
namespace {

constexpr std::uint64_t nonces_at_once = std::uint64_t{1} << 20;
constexpr std::uint64_t client_bits = 12;

// Whether unlinked memory rests at all.
bool memory_rests() { return !base::planted(base::Planted::reuse_before_expiry); }

}  // namespace

Session::Session(std::shared_ptr<StoreMemory> memory, std::byte* control)
    : memory_(std::move(memory)),
      endpoint_(memory_->shared_fabric(), memory_->fabric().connect()),
      control_(control),
      random_(0) {}

Result<std::unique_ptr<Session>> Session::open(std::shared_ptr<StoreMemory> memory) {
  std::unique_ptr<Session> session(new Session(std::move(memory), nullptr));
  session->control_ = session->endpoint_.mapped({control_region, 0}, control_bytes);
  if (session->control_ == nullptr) {
    return fail(Errc::unavailable, "open", "the store's control region can not be mapped");
  }
  session->latest_ = &session->control_word(latest_offset);
  if (auto entered = session->enter(); !entered) return std::unexpected(std::move(entered.error()));
  return session;
}

Result<void> Session::enter() {
  // Numbers that say they are free first, then those whose sessions may have died.
  for (const bool want_free : {true, false}) {
    for (std::uint32_t number = 1; number < client_count_max; ++number) {
      ClientEntry& candidate = entry(number);
      const bool is_free = shared(candidate.open).load(std::memory_order_acquire) == 0;
      if (is_free != want_free) continue;
      auto claimed = memory_->fabric().claim_presence(number);
      if (!claimed) return std::unexpected(std::move(claimed.error()));
      if (!*claimed) continue;
      entry_ = &candidate;
      client_ = static_cast<std::uint16_t>(number);
      // Where time is simulated, a run is to be repeated.
      random_ = base::Random(memory_->fabric().clock().simulated() ? number : base::system_seed());
      took_over_ = shared(candidate.open).load(std::memory_order_acquire) != 0;
      settle_counters(candidate);
      const base::Nanos time = now();
      shared(candidate.op_start_ns).store(0, std::memory_order_release);
      shared(candidate.pin_start_ns).store(0, std::memory_order_release);
      // What a predecessor wrote carries a time before this one, also if it wrote in the same tick.
      shared(candidate.opened_at_ns).store(time, std::memory_order_release);
      shared(candidate.process).store(static_cast<std::uint64_t>(::getpid()), std::memory_order_release);
      extend_act_until();
      auto clients_end = shared(control_word(clients_end_offset));
      std::uint64_t end = clients_end.load(std::memory_order_acquire);
      while (end <= number &&
             !clients_end.compare_exchange_weak(end, number + 1, std::memory_order_acq_rel)) {
      }
      shared(candidate.open).store(1, std::memory_order_release);
      LOCH_FAULT_POINT("session.opened");
      return {};
    }
  }
  return fail(Errc::no_space, "open",
              fmt::format("{} clients have {} open, the most there can be; close some", client_count_max - 1,
                          memory_->fabric().location()));
}

Session::~Session() {
  if (entry_ == nullptr) return;
  settle_counters(*entry_);
  shared(entry_->op_start_ns).store(0, std::memory_order_release);
  shared(entry_->pin_start_ns).store(0, std::memory_order_release);
  // What it may have done without knowing is settled as if it had died.
  if (!endpoint_.has_failed()) shared(entry_->open).store(0, std::memory_order_release);
  memory_->fabric().release_presence(client_);
}

void Session::settle_counters(ClientEntry& dead) {
  auto* totals = reinterpret_cast<std::uint64_t*>(control_ + totals_offset);
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::uint64_t counted = shared(dead.counters[i]).exchange(0, std::memory_order_relaxed);
    if (counted != 0) shared(totals[i]).fetch_add(counted, std::memory_order_relaxed);
  }
  // Added there before it is taken away here: whoever looks sees it once at least.
  const std::uint64_t unfinished = shared(dead.unfinished_moves).load(std::memory_order_acquire);
  if (unfinished == 0) return;
  shared(control_word(unfinished_moves_offset)).fetch_add(unfinished, std::memory_order_acq_rel);
  shared(dead.unfinished_moves).store(0, std::memory_order_release);
}

std::uint32_t Session::clients_end() const {
  const std::uint64_t end = shared(control_word(clients_end_offset)).load(std::memory_order_acquire);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(end, client_count_max));
}

// From what is read after this on, the session may act for another while.
void Session::extend_act_until() {
  const base::Nanos time = now();
  act_until_ns_ = time + act_window_ns;
  extend_after_ns_ = time + act_window_ns / 2;
  // Needs no fence either: it is looked at by those who reuse what was unlinked an expiry ago.
  shared(entry_->act_until_ns).store(act_until_ns_ + write_lead_max_ns, std::memory_order_release);
}

void Session::raise_latest(base::Nanos time) {
  auto word = shared(*latest_);
  base::Nanos before = word.load(std::memory_order_relaxed);
  while (before < time && !word.compare_exchange_weak(before, time, std::memory_order_acq_rel)) {
  }
}

std::uint64_t Session::unfinished_moves_of_the_gone() const {
  return shared(control_word(unfinished_moves_offset)).load(std::memory_order_acquire);
}

void Session::forget_unfinished_moves(std::uint64_t count) {
  shared(control_word(unfinished_moves_offset)).fetch_sub(count, std::memory_order_acq_rel);
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
  if (start > extend_after_ns_) extend_act_until();
  pins_.add(start, entry_->pin_start_ns);
  return start;
}

void Session::unpin(base::Nanos start) { pins_.drop(start, entry_->pin_start_ns); }

std::uint64_t Session::next_nonce() {
  if (base::planted(base::Planted::empty_without_nonce)) return 0;
  if (nonce_ == nonce_end_) {
    // Reserved before they are used, so that a successor starts beyond what this session may have given out.
    nonce_ = shared(entry_->next_nonce).load(std::memory_order_acquire);
    nonce_end_ = nonce_ + nonces_at_once;
    shared(entry_->next_nonce).store(nonce_end_, std::memory_order_release);
  }
  return nonce_++ << client_bits | client_;
}

Stats Session::stats() const {
  Stats stats;
  for (std::size_t i = 0; i < counter_count; ++i) {
    stats.values[i] = shared(entry_->counters[i]).load(std::memory_order_relaxed);
  }
  return stats;
}

void Session::look_at_the_others_now(base::Nanos now) {
  looked_at_ns_ = now;
  raise_latest(now);
  const base::Nanos expiry = memory_rests() ? geometry().expiry_ns : 0;
  horizon_ns_ = now > expiry ? now - expiry : 0;
  stuck_from_ns_ = std::numeric_limits<base::Nanos>::max();
  stuck_until_ns_ = 0;
  moves_linger_ = false;
  const std::uint32_t end = clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    ClientEntry& other = entry(number);
    if (shared(other.open).load(std::memory_order_acquire) == 0) continue;
    for (std::uint64_t* since : {&other.op_start_ns, &other.pin_start_ns}) {
      const base::Nanos start = shared(*since).load(std::memory_order_acquire);
      if (start == 0 || start > horizon_ns_ || !memory_->fabric().present(number) || !memory_rests())
        continue;
      stuck_from_ns_ = std::min(stuck_from_ns_, start);
      stuck_until_ns_ = std::max(stuck_until_ns_, shared(other.act_until_ns).load(std::memory_order_acquire));
    }
    // After op_start: the moves of operations that are over have been counted.
    if (shared(other.unfinished_moves).load(std::memory_order_acquire) != 0) moves_linger_ = true;
  }
  // Last, since a session's count goes there from its entry.
  if (unfinished_moves_of_the_gone() != 0) moves_linger_ = true;
}

bool Session::may_still_run(std::uint16_t client, base::Nanos at) {
  if (client == 0 || client >= client_count_max) return false;
  ClientEntry& other = entry(client);
  if (shared(other.open).load(std::memory_order_acquire) == 0) return false;
  const base::Nanos start = shared(other.op_start_ns).load(std::memory_order_acquire);
  return start != 0 && start <= at && memory_->fabric().present(client);
}

bool Session::others_run_since(base::Nanos at) {
  raise_latest(now());
  const std::uint32_t end = clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    if (number != client_ && may_still_run(static_cast<std::uint16_t>(number), at)) return true;
  }
  return operations_.count_until(at) > 1;
}

bool Session::is_gone(std::uint16_t client, base::Nanos at) {
  if (client == 0 || client >= client_count_max) return true;
  ClientEntry& other = entry(client);
  return shared(other.open).load(std::memory_order_acquire) == 0 ||
         shared(other.opened_at_ns).load(std::memory_order_acquire) > at ||
         !memory_->fabric().present(client);
}

std::uint16_t Session::take_dead(std::uint16_t from) {
  const std::uint32_t end = clients_end();
  for (std::uint32_t number = from + 1U; number < end; ++number) {
    if (number == client_) continue;
    ClientEntry& other = entry(number);
    if (shared(other.open).load(std::memory_order_acquire) == 0) continue;
    const auto claimed = memory_->fabric().claim_presence(number);
    if (!claimed || (!*claimed && !base::planted(base::Planted::lease_without_fence))) continue;
    if (shared(other.open).load(std::memory_order_acquire) == 0) {
      memory_->fabric().release_presence(number);
      continue;
    }
    settle_counters(other);
    return static_cast<std::uint16_t>(number);
  }
  return 0;
}

void Session::leave_dead(std::uint16_t client) { memory_->fabric().release_presence(client); }

void Session::bury(std::uint16_t client) {
  ClientEntry& dead = entry(client);
  shared(dead.op_start_ns).store(0, std::memory_order_release);
  shared(dead.pin_start_ns).store(0, std::memory_order_release);
  shared(dead.open).store(0, std::memory_order_release);
  memory_->fabric().release_presence(client);
}

std::uint64_t Session::living() {
  std::uint64_t living = 0;
  const std::uint32_t end = clients_end();
  for (std::uint32_t number = 1; number < end; ++number) {
    ClientEntry& other = entry(number);
    if (shared(other.open).load(std::memory_order_acquire) != 0 && memory_->fabric().present(number))
      ++living;
  }
  return living;
}

Stats Session::totals() {
  Stats stats;
  auto* totals = reinterpret_cast<std::uint64_t*>(control_ + totals_offset);
  for (std::size_t i = 0; i < counter_count; ++i) {
    stats.values[i] = shared(totals[i]).load(std::memory_order_relaxed);
    for (std::uint32_t number = 1; number < client_count_max; ++number) {
      stats.values[i] += shared(entry(number).counters[i]).load(std::memory_order_relaxed);
    }
  }
  return stats;
}

}  // namespace loch::memory
