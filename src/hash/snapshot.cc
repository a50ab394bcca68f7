// Collects and snapshots of a key's slots (docs/hash.md, "Words"): what every other operation than GET's
// plain hit begins with.
#include <algorithm>
#include <cstring>

#include "base/planted.h"
#include "hash/table.h"

namespace loch::hash {

// Who goes by an older map than the shard's home may look at slots that the shard had there before: it can
// have come back to the same host in its other region.
coro::Task<Result<void>> Table::check_map(std::uint64_t key_hash) {
  if (!attachment_.is_of_cluster()) co_return Result<void>{};
  if (auto fresh = co_await attachment_.refresh_for(home_number_); !fresh) co_return fresh;
  if (attachment_.newest_epoch() > attachment_.region_map().epoch) co_return not_open(key_hash);
  co_return Result<void>{};
}

coro::Task<std::unexpected<Error>> Table::damaged_slot(std::uint64_t key_hash) {
  if (auto newest = co_await check_map(key_hash); !newest)
    co_return std::unexpected(std::move(newest.error()));
  home_.count(Counter::corrupt_slots);
  co_return fail(Errc::corrupt, "index",
                 "a slot of this key holds a word that no client writes; `loch check` finds such", key_hash);
}

Table::Reading Table::begin_collect(std::uint64_t key_hash, Collect* into, DirectoryToo directory_too,
                                    std::optional<SlotNumber> only) {
  into->at.set(key_hash, directory(), candidates_);
  if (only) {
    into->at.count = 1;
    into->at.slot[0] = *only;
  }
  into->key_hash = key_hash;
  into->asked_at_ns = newest_time();
  into->mine = 0;
  into->owner_gone = 0;
  Reading reading;
  for (unsigned j = 0; j < into->at.count; ++j) reading.add(index_.slot(into->at.slot[j]));
  // Directories only rise. One that was the same before a collect and during the next was so in between.
  const bool wanted = directory_too == DirectoryToo::yes || attachment_.is_of_cluster();
  reading.has_directory = home_.remote() && wanted;
  if (reading.has_directory) reading.add(index_.directory());
  return reading;
}

Result<bool> Table::end_collect(const Reading& reading, const Collect& seen) {
  if (!attachment_.is_of_cluster() && seen.at.directory.level == 0) [[unlikely]]
    return not_open(seen.key_hash);
  if (!reading.has_directory || base::planted(base::Planted::directory_by_copy)) return true;
  directory_copy_ = seen.word[seen.at.count].raw;
  if (!directory().is_open()) [[unlikely]]
    return not_open(seen.key_hash);
  return directory_copy_ == seen.at.directory.encode();
}

coro::Task<Result<bool>> Table::read_slots(std::uint64_t key_hash, Collect* into,
                                           DirectoryToo directory_too) {
  const Reading reading = begin_collect(key_hash, into, directory_too);
  auto read = co_await endpoint_.read_words(reading.addresses(), &into->word[0].raw);
  if (!read) [[unlikely]] {
    if (read.error().code == Errc::corrupt)
      co_return co_await find_out_why_absent(into, std::move(read.error()));
    co_return std::unexpected(std::move(read.error()));
  }
  co_return end_collect(reading, *into);
}

// There are no such slots: of a shard that is not here yet, or not any more; or the index was cut off.
coro::Task<Result<bool>> Table::find_out_why_absent(Collect* seen, Error error) {
  seen->word = {};
  const auto now = co_await read_directory();
  if (!now) co_return std::unexpected(now.error());
  if (*now != seen->at.directory) co_return false;
  if (auto newest = co_await check_map(seen->key_hash); !newest)
    co_return std::unexpected(std::move(newest.error()));
  home_.count(Counter::corrupt_slots);
  co_return std::unexpected(std::move(error));
}

// The words of a key's slots, by a directory that they agree with.
coro::Task<Result<void>> Table::collect_words(std::uint64_t key_hash, Collect* into) {
  for (unsigned retry = 0;; ++retry) {
    const auto read = co_await read_slots(key_hash, into);
    if (!read) co_return std::unexpected(read.error());
    if (!*read && retry < outdated_retries_max) continue;
    if (!is_outdated(*into) && !is_damaged(*into)) co_return Result<void>{};
    const auto now = co_await read_directory();
    if (!now) co_return std::unexpected(now.error());
    if (retry >= outdated_retries_max || *now == into->at.directory)
      co_return co_await damaged_slot(key_hash);
  }
}

bool Table::take_if_mine(Key key, unsigned j, std::span<const std::byte> item, KeyCollect& into) {
  // The checksum is of no use here: what counts is the key, and a damaged item may be replaced.
  if (item.size() < item_bytes(key.bytes.size(), 0)) return false;
  memory::ItemHeader& header = into.header[j];
  // The state may change beside us; it is not part of the item.
  std::memcpy(reinterpret_cast<std::byte*>(&header) + sizeof(std::uint64_t),
              item.data() + sizeof(std::uint64_t), sizeof header - sizeof(std::uint64_t));
  if (header.key_bytes != key.bytes.size() ||
      std::memcmp(item.data() + sizeof header, key.bytes.data(), key.bytes.size()) != 0) {
    return false;
  }
  into.mine |= static_cast<std::uint8_t>(1U << j);
  if (!into.word[j].is(SlotType::aborted)) return true;
  memory::Session& session = attachment_.session_of(into.word[j].item());
  if (session.is_gone(header.client, header.written_at_ns) ||
      !session.may_still_run(header.client, header.written_at_ns)) {
    into.owner_gone |= static_cast<std::uint8_t>(1U << j);
  }
  return true;
}

// Finds out which words name items of the key, by reading those whose filter says that they may. What can not
// be read may be the key's, which is an error unless the committed one is found: there is one at most, and
// what is to be done where it is depends on no other word.
coro::Task<Result<void>> Table::identify(Key key, KeyCollect* into) {
  const auto pointer = into->headers_wanted ? std::nullopt : pointer_of(key);
  std::optional<Error> unread;
  for (unsigned j = 0; j < into->at.count; ++j) {
    const SlotWord word = into->word[j];
    if (!word.names_item() || word.filter() != key.filter()) continue;
    const memory::ItemRef ref = word.item();
    if (pointer && pointer->item() == ref && word.is(SlotType::committed)) {
      into->mine |= static_cast<std::uint8_t>(1U << j);
      into->header[j] = {};
      continue;
    }
    if (into->already_read != nullptr && into->already_read->ref() == ref) {
      take_if_mine(key, j, {into->already_read->bytes(), into->already_read->length_bytes()}, *into);
      continue;
    }
    if (auto reached = reaches(ref); !reached) {
      if (reached.error().code != Errc::corrupt) unread = std::move(reached.error());
      continue;
    }
    auto item = co_await endpoint_.fetch_settled(ref.address(),
                                                 std::min(room_of(ref), item_bytes(key.bytes.size(), 0)));
    if (item) take_if_mine(key, j, {item->data(), item->size()}, *into);
    // What can not be there is not the key's; what can not be read now may be.
    if (!item && item.error().code != Errc::corrupt) unread = std::move(item.error());
  }
  if (unread && committed_location(*into) < 0) co_return std::unexpected(std::move(*unread));
  co_return Result<void>{};
}

coro::Task<Result<void>> Table::collect(Key key, KeyCollect* into) {
  for (unsigned retry = 0; retry < outdated_retries_max; ++retry) {
    if (auto read = co_await collect_words(key.hash, into); !read) co_return read;
    if (auto done = co_await identify(key, into); !done) co_return done;
    const auto over = co_await outlived(into);
    if (!over) co_return std::unexpected(over.error());
    if (!*over) co_return Result<void>{};
  }
  co_return fail(Errc::timed_out, "collect",
                 "values of this key end faster than they can be looked at; try again", key.hash);
}

coro::Task<Result<bool>> Table::outlived(const KeyCollect* seen) {
  // Where nothing depends on the headers, it does not matter whether the item has time left.
  if (!seen->headers_wanted) co_return false;
  for (unsigned j = 0; j < seen->at.count; ++j) {
    if (!seen->is_mine(j)) continue;
    const auto left = co_await time_left(seen->header[j].expires_at_ns, seen->asked_at_ns);
    if (!left) co_return std::unexpected(left.error());
    if (*left == TimeLeft::look_again) co_return true;
  }
  co_return false;
}

coro::Task<Result<Table::TimeLeft>> Table::time_left(base::Nanos expires_at_ns, base::Nanos asked_at) {
  if (expires_at_ns == 0) co_return TimeLeft::some;
  if (expired(expires_at_ns, asked_at)) {
    // Whoever asks later is to know it, too.
    home_.tell_time(asked_at - time_ahead_ns_);
    co_return TimeLeft::none;
  }
  if (!home_.remote()) co_return TimeLeft::some;
  const auto now = co_await read_time();
  if (!now) co_return std::unexpected(now.error());
  co_return expired(expires_at_ns, *now) ? TimeLeft::look_again : TimeLeft::some;
}

coro::Task<Result<bool>> Table::is_snapshot(Key key, KeyCollect* first) {
  home_.count(Counter::second_collects);
  KeyCollect second;
  second.headers_wanted = first->headers_wanted;
  if (auto read = co_await collect_words(key.hash, &second); !read)
    co_return std::unexpected(std::move(read.error()));
  // Words that look alike are the same only if none of their items can have been reused between the collects.
  if (second.same_words(*first) && attachment_.may_act()) co_return true;
  if (auto done = co_await identify(key, &second); !done) co_return std::unexpected(std::move(done.error()));
  *first = second;
  co_return base::planted(base::Planted::stale_helper) && has_unfinished(second);
}

}  // namespace loch::hash
