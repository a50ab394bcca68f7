#include "hash/slots.h"

#include <utility>

#include "base/fault.h"
#include "base/planted.h"

namespace loch::hash {

Slots::Slots(memory::Attachment& attachment, std::uint32_t shard, base::Nanos timeout_ns)
    : attachment_(attachment),
      home_number_(attachment.region_map().shards[shard].home),
      home_(*attachment.node(home_number_)->session),
      endpoint_(attachment.endpoint()),
      timeout_ns_(timeout_ns),
      candidates_(home_.geometry().candidates),
      place_(IndexPlace::of(attachment.region_map().shards[shard], home_.regions())),
      directory_word_(directory_place()) {}

// Where it is mapped it is the store's own, else a copy.
std::byte* Slots::directory_place() {
  std::byte* mapped = endpoint_.mapped(place_.directory(), sizeof(std::uint64_t));
  return mapped != nullptr && !home_.remote() ? mapped : reinterpret_cast<std::byte*>(&directory_copy_);
}

coro::Task<Result<void>> Slots::open() {
  const auto ahead = co_await endpoint_.read_word(place_.time_ahead());
  if (!ahead) co_return std::unexpected(ahead.error());
  time_ahead_ns_ = *ahead;
  // A shard that moves is known as one when it is needed.
  if (auto read = co_await read_directory(); !read && read.error().code != Errc::moved)
    co_return std::unexpected(std::move(read.error()));
  co_return Result<void>{};
}

coro::Task<Result<void>> Slots::keep_fresh() {
  if (attachment_.refresh_due()) co_return co_await attachment_.refresh_for(home_number_);
  co_return Result<void>{};
}

coro::Task<Result<base::Nanos>> Slots::read_time() {
  auto time = co_await home_.control().read_time();
  if (time) *time += time_ahead_ns_;
  co_return time;
}

Directory Slots::directory() const { return Directory::decode(fabric::load_word(directory_word_)); }

coro::Task<Result<Directory>> Slots::read_directory() {
  if (home_.remote()) {
    const auto read = co_await endpoint_.read_word(place_.directory());
    if (!read) co_return std::unexpected(read.error());
    directory_copy_ = *read;
  }
  const Directory now = directory();
  if (!now.is_open(place_.slots)) co_return not_open();
  co_return now;
}

std::unexpected<Error> Slots::not_open(std::uint64_t key_hash) const {
  if (!attachment_.is_of_cluster())
    return fail(Errc::corrupt, "index", "its directory holds a word that no client writes", key_hash);
  return fail(Errc::moved, "index", "the key's part of the index moves to another host; try again", key_hash);
}

coro::Task<Result<std::uint64_t>> Slots::read(SlotNumber slot) {
  for (memory::Attachment::Look look(attachment_);;) {
    auto word = co_await endpoint_.read_word(place_.slot(slot));
    if (!word || look.holds()) [[likely]]
      co_return word;
    if (auto more = look.again(timeout_ns_, "index"); !more)
      co_return std::unexpected(std::move(more.error()));
  }
}

coro::Task<Result<bool>> Slots::swap(SlotNumber slot, SlotWord expected, SlotWord desired, SlotWord* before) {
  const memory::Attachment::Look look(attachment_);
  LOCH_FAULT_POINT("swap.before_cas");
  auto seen = co_await endpoint_.compare_swap(place_.slot(slot), expected.raw, desired.raw);
  if (!seen) co_return std::unexpected(std::move(seen.error()));
  const bool won = *seen == expected.raw;
  if (!won) home_.count(Counter::conflicts);
  if (before == nullptr) co_return won;
  if (!won && !look.holds()) {
    seen = co_await read(slot);
    if (!seen) co_return std::unexpected(std::move(seen.error()));
  }
  *before = {*seen};
  co_return won;
}

void Slots::fetch_header(SlotNumber slot) const {
  const std::byte* word = endpoint_.mapped(place_.slot(slot), sizeof(std::uint64_t));
  if (word == nullptr) return;
  const SlotWord there{fabric::load_word(word)};
  if (!there.is(SlotType::committed)) return;
  const std::byte* item = endpoint_.mapped(there.item().address(), sizeof(memory::ItemHeader));
  if (item != nullptr) __builtin_prefetch(item);
}

coro::Task<Result<bool>> Slots::collect_once(std::uint64_t key_hash, Collect* into, const char* operation,
                                             DirectoryToo directory_too) {
  for (memory::Attachment::Look look(attachment_);;) {
    const Reading reading = begin_collect(key_hash, into, directory_too);
    auto read = co_await endpoint_.read_words(reading.addresses(), &into->word[0].raw);
    if (!read) [[unlikely]] {
      if (read.error().code == Errc::corrupt)
        co_return co_await find_out_why_absent(into, std::move(read.error()));
      co_return std::unexpected(std::move(read.error()));
    }
    if (look.holds()) [[likely]]
      co_return end_collect(reading, *into);
    if (auto more = look.again(timeout_ns_, operation, key_hash); !more)
      co_return std::unexpected(std::move(more.error()));
  }
}

// A remote session's refresh reads the directory with the rest of the control region. Levels are used again
// once nobody says that it has run since (Growth::may_reuse_level), so by an older one than that of its last
// refresh words that it never heard of would look right.
void Slots::learn_directory() {
  if (!home_.remote() || attachment_.is_of_cluster()) return;
  const std::uint64_t refreshed = home_.control().word(place_.directory().offset_bytes);
  if (refreshed == directory_copy_) return;
  if (directory().is_before(Directory::decode(refreshed))) directory_copy_ = refreshed;
}

Slots::Reading Slots::begin_collect(std::uint64_t key_hash, Collect* into, DirectoryToo directory_too,
                                    std::optional<SlotNumber> only) {
  into->at.set(key_hash, directory_to_go_by(), candidates_);
  if (only) {
    into->at.count = 1;
    into->at.slot[0] = *only;
  }
  into->key_hash = key_hash;
  into->asked_at_ns = newest_time();
  into->mine = 0;
  into->owner_gone = 0;
  Reading reading;
  for (unsigned j = 0; j < into->at.count; ++j) reading.add(place_.slot(into->at.slot[j]));
  // Directories only rise. One that was the same before a collect and during the next was so in between.
  const bool wanted = directory_too == DirectoryToo::yes || attachment_.is_of_cluster();
  reading.has_directory = home_.remote() && wanted;
  if (reading.has_directory) reading.add(place_.directory());
  return reading;
}

Result<bool> Slots::end_collect(const Reading& reading, const Collect& seen) {
  if (!attachment_.is_of_cluster() && seen.at.directory.level == 0) [[unlikely]]
    return not_open(seen.key_hash);
  if (!reading.has_directory || base::planted(base::Planted::directory_by_copy)) return true;
  directory_copy_ = seen.word[seen.at.count].raw;
  if (!is_open()) [[unlikely]]
    return not_open(seen.key_hash);
  return directory_copy_ == seen.at.directory.encode();
}

// There are no such slots: of a shard that is not here yet, or not any more; or the index was cut off.
coro::Task<Result<bool>> Slots::find_out_why_absent(Collect* seen, Error error) {
  seen->word = {};
  const auto now = co_await read_directory();
  if (!now) co_return std::unexpected(now.error());
  if (*now != seen->at.directory) co_return false;
  home_.count(Counter::corrupt_slots);
  co_return std::unexpected(std::move(error));
}

// The words of a key's slots, by a directory that they agree with.
coro::Task<Result<void>> Slots::collect(std::uint64_t key_hash, Collect* into) {
  for (unsigned retry = 0;; ++retry) {
    const auto read = co_await collect_once(key_hash, into, "collect");
    if (!read) co_return std::unexpected(read.error());
    if (!*read && retry < outdated_retries_max) continue;
    if (!is_outdated(*into) && !is_damaged(*into)) co_return Result<void>{};
    const auto now = co_await read_directory();
    if (!now) co_return std::unexpected(now.error());
    if (retry >= outdated_retries_max || *now == into->at.directory)
      co_return co_await damaged_slot(key_hash);
  }
}

// It may name an item of a host that has come with a later map of the cluster than this client's.
coro::Task<std::unexpected<Error>> Slots::damaged_slot(std::uint64_t key_hash) {
  if (attachment_.is_of_cluster()) {
    if (auto fresh = co_await attachment_.refresh_for(home_number_); !fresh)
      co_return std::unexpected(std::move(fresh.error()));
    if (attachment_.newest_epoch() > attachment_.region_map().epoch) co_return not_open(key_hash);
  }
  home_.count(Counter::corrupt_slots);
  co_return fail(Errc::corrupt, "index",
                 "a slot of this key holds a word that no client writes; `loch check` finds such", key_hash);
}

}  // namespace loch::hash
