#include "memory/control.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace loch::memory {

Control::Control(fabric::Endpoint& endpoint, fabric::RegionId region)
    : endpoint_(endpoint), region_(region), bytes_(endpoint.mapped({region, 0}, control_bytes)) {
  if (bytes_ != nullptr) return;
  copy_.reset(static_cast<std::byte*>(std::calloc(1, control_bytes)));
  if (copy_ == nullptr) throw std::bad_alloc();
  bytes_ = copy_.get();
}

std::uint32_t Control::clients_end() const {
  const std::uint64_t end = shared(word(clients_end_offset)).load(std::memory_order_acquire);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(end, client_count_max));
}

// The totals first: while a session ends, its counts may be in neither, and seldom in both (Keeper::seen).
Stats Control::totals() const {
  Stats stats;
  const std::uint32_t end = clients_end();
  for (std::size_t i = 0; i < counter_count; ++i) {
    stats.values[i] = shared(word(totals_offset + i * sizeof(std::uint64_t))).load(std::memory_order_relaxed);
    for (std::uint32_t number = 1; number < end; ++number) {
      stats.values[i] += shared(counters(number).counted[i]).load(std::memory_order_relaxed);
    }
  }
  return stats;
}

void Control::raise_latest(base::Nanos time) const { fabric::raise_word(bytes_ + latest_offset, time); }

void Control::raise_clients_end(std::uint32_t end) const {
  fabric::raise_word(bytes_ + clients_end_offset, end);
}

coro::Task<Result<void>> Control::write(std::uint64_t* word, std::uint64_t value) {
  if (auto written = co_await endpoint_.write_word(address_of(word), value); !written) co_return written;
  if (is_copy()) *word = value;
  co_return Result<void>{};
}

coro::Task<Result<void>> Control::add(std::uint64_t* word, std::uint64_t n) {
  auto before = co_await endpoint_.fetch_add(address_of(word), n);
  if (!before) co_return std::unexpected(std::move(before.error()));
  if (is_copy()) *word = *before + n;
  co_return Result<void>{};
}

coro::Task<Result<void>> Control::raise(std::uint64_t* word, std::uint64_t to) {
  std::uint64_t seen = shared(*word).load(std::memory_order_acquire);
  while (seen < to) {
    auto before = co_await endpoint_.compare_swap(address_of(word), seen, to);
    if (!before) co_return std::unexpected(std::move(before.error()));
    if (*before == seen)
      seen = to;
    else
      seen = *before;
  }
  if (is_copy()) *word = seen;
  co_return Result<void>{};
}

coro::Task<Result<base::Nanos>> Control::read_time(fabric::Urgency urgency) {
  if (!is_copy()) co_return endpoint_.now();
  base::Nanos time = 0;
  fabric::Operation reading = time_reading(&time);
  if (auto read = co_await endpoint_.perform({&reading, 1}, urgency); !read)
    co_return std::unexpected(std::move(read.error()));
  learn_time(time);
  co_return time;
}

coro::Task<Result<void>> Control::read(std::uint32_t own) {
  auto time = co_await read_time();
  if (!time) co_return std::unexpected(std::move(time.error()));
  std::uint32_t end = clients_end();
  for (;;) {
    const std::uint64_t length = registry_offset + end * sizeof(ClientEntry);
    const auto bytes = co_await endpoint_.fetch({region_, 0}, length);
    if (!bytes) co_return std::unexpected(bytes.error());
    const auto clients =
        std::min<std::uint64_t>(fabric::load_word(bytes->data() + clients_end_offset), client_count_max);
    if (clients <= end) {
      // A copy that was begun later may have come before.
      if (*time < word(latest_offset)) co_return Result<void>{};
      const ClientEntry mine = entry(own);
      std::memcpy(bytes_, bytes->data(), length);
      entry(own) = mine;
      word(latest_offset) = *time;
      break;
    }
    end = static_cast<std::uint32_t>(clients);
  }
  // After the entries, since a session's count goes there from its entry.
  co_return co_await read_word(&word(unfinished_moves_offset));
}

coro::Task<Result<void>> Control::read_word(std::uint64_t* word) {
  if (!is_copy()) co_return Result<void>{};
  const fabric::Address at = address_of(word);
  co_return co_await endpoint_.read_words({&at, 1}, word);
}

coro::Task<Result<void>> Control::read_entry(std::uint32_t client) {
  if (!is_copy()) co_return Result<void>{};
  ClientEntry& of = entry(client);
  ClientCounters& counted = counters(client);
  std::array reads{fabric::Operation::read(address_of(&of), &of, sizeof of),
                   fabric::Operation::read(address_of(&counted), &counted, sizeof counted)};
  co_return co_await endpoint_.perform(reads);
}

// Those of each session first: when it ends, they go to the totals before they are taken from its own. So who
// asks once only misses none.
coro::Task<Result<void>> Control::read_totals(std::uint32_t own) {
  if (!is_copy()) co_return Result<void>{};
  const auto each =
      co_await endpoint_.fetch({region_, counters_offset}, clients_end() * sizeof(ClientCounters));
  if (!each) co_return std::unexpected(each.error());
  const ClientCounters mine = counters(own);
  std::memcpy(bytes_ + counters_offset, each->data(), each->size());
  counters(own) = mine;
  std::uint64_t* const totals = &word(totals_offset);
  fabric::Operation read =
      fabric::Operation::read(address_of(totals), totals, counter_count * sizeof(std::uint64_t));
  co_return co_await endpoint_.perform({&read, 1});
}

coro::Task<Result<void>> Control::write_counters(std::uint32_t own) {
  if (!is_copy()) co_return Result<void>{};
  const auto& counted = counters(own).counted;
  co_return co_await endpoint_.write(address_of(counted.data()), std::as_bytes(std::span(counted)));
}

}  // namespace loch::memory
