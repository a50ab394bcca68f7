// Table's beginning, and what all its operations are made of: the directory, single slots and groups of them,
// retries.
#include "hash/table.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/fault.h"
#include "coro/scope.h"

namespace loch::hash {

Table::Table(memory::Attachment& attachment, std::uint32_t shard, const TableOptions& options)
    : attachment_(attachment),
      home_number_(attachment.region_map().shards[shard].home),
      home_(*attachment.node(home_number_)->session),
      endpoint_(attachment.endpoint()),
      options_(options),
      candidates_(home_.geometry().candidates),
      has_home_share_(home_.remote() && endpoint_.sends_each_alone()),
      index_(IndexPlace::of(attachment.region_map().shards[shard], home_.regions())),
      works_here_(!home_.remote() && attachment.nodes().size() == 1),
      goes_by_locations_(options.locations != nullptr && home_.remote()),
      pointers_(options.cache_bytes),
      directory_word_(directory_place()),
      here_(endpoint_, index_.slots, directory_word_, candidates_) {
  endpoint_.set_timeout(options.timeout_ns);
}

// Where it is mapped it is the store's own, else a copy.
std::byte* Table::directory_place() {
  std::byte* mapped = endpoint_.mapped(index_.directory(), sizeof(std::uint64_t));
  return mapped != nullptr && !home_.remote() ? mapped : reinterpret_cast<std::byte*>(&directory_copy_);
}

Directory Table::directory() { return Directory::decode(fabric::load_word(directory_word_)); }

void Table::initialize(std::byte* root, const fabric::Mapping& index, unsigned level,
                       std::uint64_t time_ahead_ns) {
  constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);
  const std::uint64_t slots = std::uint64_t{row_slots} << level;
  // Nonces of client 0, who is nobody: no session gives them out. Beyond them, what is unborn.
  for (std::uint64_t slot = 0; slot < index.length_bytes / word_bytes; ++slot) {
    const std::uint64_t word = slot < slots ? SlotWord::empty(slot << 12, level).raw : 0;
    fabric::store_word(index.base + slot * word_bytes, word);
  }
  static_assert(offsetof(IndexRoot, directory) == 0);
  for (std::size_t at = word_bytes; at < sizeof(IndexRoot); at += word_bytes)
    fabric::store_word(root + at, at == offsetof(IndexRoot, time_ahead_ns) ? time_ahead_ns : 0);
  fabric::store_word(root, Directory{.level = static_cast<std::uint8_t>(level)}.encode());
}

coro::Task<Result<void>> Table::Attempts::again() {
  ++retries_;
  table_.home_.count(Counter::backoffs);
  if (auto fresh = co_await table_.keep_fresh(); !fresh) co_return fresh;
  const base::Nanos now = table_.endpoint_.now();
  if (now >= deadline_) {
    table_.home_.count(Counter::timeouts);
    co_return fail(Errc::timed_out, operation_,
                   fmt::format("gave up after {} tries in {} ms{}", retries_,
                               table_.options_.timeout_ns / base::millisecond_ns,
                               what_ == Of::change ? "; it may or may not have happened" : ""),
                   key_hash_);
  }
  // Spin while the other is likely to be done in a moment, then let it run.
  constexpr unsigned spins_until = 10;
  if (retries_ <= spins_until) {
    const std::uint64_t spins = table_.home_.random().below(std::uint64_t{1} << retries_);
    for (std::uint64_t i = 0; i < spins; ++i) __builtin_ia32_pause();
    co_return Result<void>{};
  }
  const std::uint64_t exponent = std::min(retries_ - spins_until, 10U);
  const base::Nanos wait_max = base::microsecond_ns << exponent;
  co_await table_.endpoint_.sleep_until(now + 1 + table_.home_.random().below(wait_max));
  co_return Result<void>{};
}

coro::Task<Result<Directory>> Table::read_directory() {
  if (home_.remote()) {
    const auto read = co_await endpoint_.read_word(index_.directory());
    if (!read) co_return std::unexpected(read.error());
    directory_copy_ = *read;
  }
  const Directory now = directory();
  if (!now.is_open()) co_return not_open();
  co_return now;
}

coro::Task<Result<void>> Table::open() {
  const auto ahead = co_await endpoint_.read_word(index_.time_ahead());
  if (!ahead) co_return std::unexpected(ahead.error());
  time_ahead_ns_ = *ahead;
  // A shard that moves is known as one when it is needed.
  if (auto read = co_await read_directory(); !read && read.error().code != Errc::moved)
    co_return std::unexpected(std::move(read.error()));
  co_return Result<void>{};
}

coro::Task<Result<base::Nanos>> Table::read_time() {
  auto time = co_await home_.control().read_time();
  if (time) *time += time_ahead_ns_;
  co_return time;
}

std::unexpected<Error> Table::not_open(std::uint64_t key_hash) const {
  if (!attachment_.is_of_cluster())
    return fail(Errc::corrupt, "index", "its directory holds a word that no client writes", key_hash);
  return fail(Errc::moved, "index", "the key's part of the index moves to another host; try again", key_hash);
}

coro::Task<Result<void>> Table::keep_fresh() {
  if (attachment_.refresh_due()) co_return co_await attachment_.refresh_for(home_number_);
  co_return Result<void>{};
}

coro::Task<Result<std::uint64_t>> Table::read_slot(SlotNumber slot) {
  co_return co_await endpoint_.read_word(index_.slot(slot));
}

coro::Task<Result<void>> Table::read_group(SlotNumber first, SlotNumber end, SlotGroup* into) {
  if (auto fresh = co_await keep_fresh(); !fresh) co_return fresh;
  constexpr std::size_t most_if_mapped = fabric::cache_line_bytes / sizeof(std::uint64_t);
  into->count_ = 0;
  into->first_ = first;
  into->headers_.clear();
  const auto count =
      std::min<std::size_t>(home_.remote() ? into->words_.size() : most_if_mapped, end - first);
  auto operation =
      fabric::Operation::read(index_.slot(first), into->words_.data(), count * sizeof(std::uint64_t));
  auto read = co_await endpoint_.perform({&operation, 1});
  if (read) into->count_ = count;
  co_return read;
}

void Table::fetch_header(SlotNumber slot) const {
  const std::byte* word = endpoint_.mapped(index_.slot(slot), sizeof(std::uint64_t));
  if (word == nullptr) return;
  const SlotWord there{fabric::load_word(word)};
  if (!there.is(SlotType::committed)) return;
  const std::byte* item = endpoint_.mapped(there.item().address(), sizeof(memory::ItemHeader));
  if (item != nullptr) __builtin_prefetch(item);
}

coro::Task<Result<void>> Table::read_group_and_headers(SlotNumber first, SlotNumber end, SlotGroup* into) {
  if (auto read = co_await read_group(first, end, into); !read || !home_.remote()) co_return read;
  std::vector<coro::Task<Result<memory::ItemHeader>>> reading;
  for (std::size_t i = 0; i < into->count_; ++i) {
    if (const SlotWord word{into->words_[i]}; word.names_item()) reading.push_back(read_header(word.item()));
  }
  co_await coro::run_together(&endpoint_.queue(), std::span(reading));
  auto next = reading.begin();
  for (std::size_t i = 0; i < into->count_; ++i) {
    const bool names_item = SlotWord{into->words_[i]}.names_item();
    into->headers_.push_back(names_item ? (next++)->take() : memory::ItemHeader{});
  }
  co_return Result<void>{};
}

coro::Task<Result<memory::ItemHeader>> Table::header_of(const SlotGroup* group, SlotNumber slot) {
  if (group->headers_.empty()) return read_header(group->word(slot).item());
  return header_in(group, slot);
}

coro::Task<Result<memory::ItemHeader>> Table::header_in(const SlotGroup* group, SlotNumber slot) {
  co_return group->headers_[slot - group->first_];
}

coro::Task<Result<bool>> Table::swap_slot(SlotNumber slot, SlotWord expected, SlotWord desired,
                                          SlotWord* before) {
  if (!attachment_.may_act()) {
    // The item that `expected` names may have been reused: it counts as changed.
    home_.count(Counter::conflicts);
    if (before == nullptr) co_return false;
    auto word = co_await read_slot(slot);
    if (!word) co_return std::unexpected(std::move(word.error()));
    *before = {*word};
    co_return false;
  }
  LOCH_FAULT_POINT("swap.before_cas");
  auto seen = co_await endpoint_.compare_swap(index_.slot(slot), expected.raw, desired.raw);
  if (!seen) co_return std::unexpected(std::move(seen.error()));
  if (before != nullptr) *before = {*seen};
  if (*seen != expected.raw) home_.count(Counter::conflicts);
  co_return *seen == expected.raw;
}

}  // namespace loch::hash
