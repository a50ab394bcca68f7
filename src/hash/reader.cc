// GET by one-sided reads, and the reads of single words and items that other operations are made of.
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "base/planted.h"
#include "coro/scope.h"
#include "hash/table.h"

namespace loch::hash {
namespace {

std::unexpected<Error> damaged_item(const memory::ItemRef& ref) {
  return fail(Errc::corrupt, "read",
              fmt::format("the item at region {} unit {} is damaged", ref.region, ref.unit));
}

// Whether an item that was fetched is as somebody wrote it.
bool is_whole(const ItemView& item, std::uint64_t available) {
  if (base::planted(base::Planted::value_without_sum)) return item.header_is_intact();
  if (base::planted(base::Planted::versions_at_ends)) return has_own_tail(item, available);
  return item.is_intact();
}

}  // namespace

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

bool Here::take_directory(std::uint64_t word) {
  const Directory directory = Directory::decode(word);
  if (directory.growing || directory.level == 0) return false;
  const std::uint64_t rows = directory.rows();
  std::byte* const index = endpoint_.mapped({region_, 0}, rows * row_bytes);
  if (index == nullptr) return false;
  index_ = index;
  row_mask_ = rows - 1;
  upper_bits_ = SlotWord::link(SlotType::committed, {}, 0, 0, directory.level).raw;
  seen_directory_ = word;
  if (candidates_ == usual_candidates) usual_directory_ = word;
  return true;
}

Directory Table::directory() { return Directory::decode(fabric::load_word(directory_word_)); }

void Table::initialize(std::byte* root, const fabric::Mapping& index) {
  constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);
  constexpr std::uint64_t slots = initial_index_bytes / word_bytes;
  // Nonces of client 0, who is nobody: no session gives them out. Beyond them, what is unborn.
  for (std::uint64_t slot = 0; slot < index.length_bytes / word_bytes; ++slot) {
    const std::uint64_t word = slot < slots ? SlotWord::empty(slot << 12, first_level).raw : 0;
    fabric::store_word(index.base + slot * word_bytes, word);
  }
  static_assert(offsetof(IndexRoot, directory) == 0);
  for (std::size_t at = word_bytes; at < sizeof(IndexRoot); at += word_bytes)
    fabric::store_word(root + at, 0);
  fabric::store_word(root, Directory{}.encode());
}

bool Table::parse_here(ItemView& item) {
  const memory::ItemRef& ref = item.ref();
  const bool large = ref.size_class >= memory::size_class_count;
  const std::uint64_t room =
      large ? item_bytes(key_bytes_max, value_bytes_max) : memory::class_bytes[ref.size_class];
  return item.take_lengths(room) && endpoint_.mapped(ref.address(), item.length_bytes()) != nullptr;
}

coro::Task<Result<Found>> Table::get_near(Key key) {
  // Its items may be on other nodes.
  if (attachment_.refresh_due()) [[unlikely]] {
    if (auto fresh = co_await attachment_.refresh_for(home_number_); !fresh)
      co_return std::unexpected(std::move(fresh.error()));
  }
  // Step 1: read the slots; a committed one whose item has the key answers.
  Collect seen;
  if (auto read = co_await read_slots(key.hash, &seen, DirectoryToo::no); !read) [[unlikely]]
    co_return std::unexpected(std::move(read.error()));
  for (unsigned j = 0; j < seen.at.count; ++j) {
    const SlotWord word = seen.word[j];
    if (!word.is(SlotType::committed) || word.filter() != key.filter()) continue;
    const memory::ItemRef ref = word.item();
    const bool large = ref.size_class >= memory::size_class_count;
    if (large || endpoint_.mapped(ref.address(), memory::class_bytes[ref.size_class]) == nullptr) break;
    auto bytes = co_await endpoint_.fetch_settled(ref.address(), memory::class_bytes[ref.size_class]);
    Found found;
    if (!bytes || !found.view.parse(bytes->data(), bytes->size(), ref)) break;
    if (found.view.key() != key.bytes || !found.view.is_intact() ||
        expired(found.view.expires_at_ns(), seen.asked_at_ns)) {
      break;
    }
    co_return found;
  }
  co_return co_await get_by_snapshot(key, seen);
}

// The rest of GET: what is not a plain hit.
coro::Task<Result<Found>> Table::get_by_snapshot(Key key, Collect first) {
  Attempts attempts(*this, "get", key.hash);
  Collect second = first;
  bool have_first = false;
  for (;;) {
    Doubt doubt;
    if (auto answer = co_await look_for(key, &second, Words::committed, &doubt); answer)
      co_return std::move(*answer);
    if (doubt.time_ran_out) {
      have_first = false;
      if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
    } else if (is_outdated(second) || is_damaged(second)) {
      const auto now = co_await read_directory();
      if (!now) co_return std::unexpected(now.error());
      if (attempts.retries() > outdated_retries_max || *now == second.at.directory) {
        home_.count(Counter::corrupt_slots);
        co_return damaged_slot(key.hash);
      }
      have_first = false;
      if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
    } else if ((have_first && second.same_words(first) && attachment_.may_act()) ||
               base::planted(base::Planted::miss_by_one_collect)) {
      // Step 2: a miss is answered by a snapshot alone; a key that is being moved is found through its paired
      // words.
      if (auto answer = co_await look_for(key, &second, Words::paired, &doubt); answer)
        co_return std::move(*answer);
      if (!doubt.time_ran_out) co_return miss(key, doubt);
      have_first = false;
      if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
    } else {
      if (have_first) {
        if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
      }
      have_first = true;
      first = second;
    }
    home_.count(Counter::second_collects);
    const auto read = co_await read_slots(key.hash, &second);
    if (!read) co_return std::unexpected(read.error());
    if (*read) continue;
    have_first = false;
    if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
  }
}

// What the committed or the paired words answer; nothing if none of them is the key's. What can not be read
// may be another key's: it is an error only if none of the others answers.
coro::Task<std::optional<Result<Found>>> Table::look_for(Key key, const Collect* seen, Words words,
                                                         Doubt* doubt) {
  std::optional<Error> unread;
  for (unsigned j = 0; j < seen->at.count; ++j) {
    const SlotWord word = seen->word[j];
    const bool wanted =
        words == Words::committed ? word.is(SlotType::committed) : paired_destination(*seen, j) >= 0;
    if (!wanted || word.filter() != key.filter()) continue;
    auto found = co_await fetch_item(word.item());
    if (!found) {
      if (found.error().code == Errc::corrupt)
        doubt->damaged = true;
      else
        unread = std::move(found.error());
      continue;
    }
    if (found->view.key() != key.bytes) continue;
    const auto left = co_await time_left(found->view.expires_at_ns(), seen->asked_at_ns);
    if (!left) co_return std::unexpected(left.error());
    if (*left == TimeLeft::some) {
      if (words == Words::committed) {
        note_item(key, word, seen->at.slot[j], found->view);
      }
      co_return std::move(found);
    }
    doubt->time_ran_out = *left == TimeLeft::look_again;
    if (doubt->time_ran_out) co_return std::nullopt;
    home_.count(Counter::expired_reads);
    co_return fail(Errc::not_found, "get", {}, key.hash);
  }
  if (unread) co_return std::unexpected(std::move(*unread));
  co_return std::nullopt;
}

Result<Found> Table::miss(Key key, Doubt doubt) {
  if (!doubt.damaged) return fail(Errc::not_found, "get", {}, key.hash);
  home_.count(Counter::corrupt_items);
  return fail(Errc::corrupt, "get",
              "an item that may be this key's is damaged; put or remove the key, or run `loch check`",
              key.hash);
}

Result<void> Table::reaches(const memory::ItemRef& ref) const {
  if (attachment_.find_node_of(ref) != nullptr) [[likely]]
    return {};
  const auto node = attachment_.region_map().node_of(ref.region);
  if (!node && attachment_.is_of_cluster())
    return fail(Errc::moved, "read",
                "the item is on a host of the cluster that this client does not know yet");
  if (!node) return damaged_item(ref);
  return fail(Errc::unavailable, "read",
              fmt::format("the item is on {}, which can not be reached now",
                          attachment_.memory().name_of_node(*node)));
}

coro::Task<Result<Found>> Table::fetch_item(memory::ItemRef ref) {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  const bool large = ref.size_class == memory::large_class;
  const bool here = endpoint_.mapped(ref.address(), sizeof(memory::ItemHeader)) != nullptr;
  std::uint64_t length = large ? 0 : memory::class_bytes[ref.size_class];
  if (large || (!here && length > one_step_bytes_max)) {
    auto header = co_await read_header(ref);
    if (!header) co_return std::unexpected(std::move(header.error()));
    length = item_bytes(header->key_bytes, header->value_bytes) + tail_bytes();
    const std::uint64_t room =
        large ? item_bytes(key_bytes_max, value_bytes_max) : memory::class_bytes[ref.size_class];
    if (length > room) co_return damaged_item(ref);
  }
  auto bytes = co_await endpoint_.fetch_settled(ref.address(), length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  if (bytes->in_place()) co_return take_apart(ref, bytes->data(), length);
  co_return take_item(ref, std::move(*bytes).take_copy(), length);
}

Result<Found> Table::take_apart(const memory::ItemRef& ref, const std::byte* bytes, std::uint64_t length) {
  Found found;
  if (!found.view.parse(bytes, length, ref) || !is_whole(found.view, length)) return damaged_item(ref);
  return found;
}

Result<Found> Table::take_item(const memory::ItemRef& ref, std::unique_ptr<std::byte[]> copy,
                               std::uint64_t length) {
  auto found = take_apart(ref, copy.get(), length);
  if (found) found->copy = std::move(copy);
  return found;
}

coro::Task<Result<memory::ItemHeader>> Table::read_header(memory::ItemRef ref) {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  memory::ItemHeader header;
  std::array<fabric::Address, sizeof header / sizeof(std::uint64_t)> at;
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = ref.address() + i * sizeof(std::uint64_t);
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words{};
  auto read = co_await endpoint_.read_words(at, words.data());
  if (!read) co_return std::unexpected(std::move(read.error()));
  std::memcpy(&header, words.data(), sizeof header);
  co_return header;
}

coro::Task<Result<void>> Table::Attempts::again() {
  ++retries_;
  table_.home_.count(Counter::backoffs);
  if (auto fresh = co_await table_.keep_fresh(); !fresh) co_return fresh;
  const base::Nanos now = table_.endpoint_.now();
  if (now >= deadline_) {
    table_.home_.count(Counter::timeouts);
    co_return fail(Errc::timed_out, operation_,
                   fmt::format("gave up after {} tries in {} ms; it may or may not have happened", retries_,
                               table_.options_.timeout_ns / base::millisecond_ns),
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
    const fabric::Address at = index_.directory();
    if (auto read = co_await endpoint_.read_words({&at, 1}, &directory_copy_); !read)
      co_return std::unexpected(std::move(read.error()));
  }
  const Directory now = directory();
  if (!now.is_open()) co_return not_open();
  co_return now;
}

coro::Task<Result<void>> Table::open() {
  const fabric::Address at = index_.time_ahead();
  if (auto read = co_await endpoint_.read_words({&at, 1}, &time_ahead_ns_); !read) co_return read;
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
  const fabric::Address at = index_.slot(slot);
  std::uint64_t word = 0;
  auto read = co_await endpoint_.read_words({&at, 1}, &word);
  if (!read) co_return std::unexpected(std::move(read.error()));
  co_return word;
}

coro::Task<Result<void>> Table::read_group(SlotNumber first, SlotNumber end, SlotGroup* into) {
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
  return known_header(group, slot);
}

coro::Task<Result<memory::ItemHeader>> Table::known_header(const SlotGroup* group, SlotNumber slot) {
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
  auto seen = co_await endpoint_.compare_swap(index_.slot(slot), expected.raw, desired.raw);
  if (!seen) co_return std::unexpected(std::move(seen.error()));
  if (before != nullptr) *before = {*seen};
  if (*seen != expected.raw) home_.count(Counter::conflicts);
  co_return *seen == expected.raw;
}

}  // namespace loch::hash
