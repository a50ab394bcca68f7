#include "hash/snapshots.h"

#include <algorithm>
#include <cstring>

#include "base/planted.h"

namespace loch::hash {

bool Snapshots::take_if_mine(Key key, unsigned j, std::span<const std::byte> item, KeyCollect& into) {
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

coro::Task<Result<void>> Snapshots::identify(Key key, KeyCollect* into) {
  const auto pointer = into->headers_wanted ? std::nullopt : known_.pointer_of(key);
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
    if (auto reached = items_.reaches(ref); !reached) {
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

coro::Task<Result<void>> Snapshots::collect(Key key, KeyCollect* into) {
  for (unsigned retry = 0; retry < Slots::outdated_retries_max; ++retry) {
    if (auto read = co_await slots_.collect(key.hash, into); !read) co_return read;
    if (auto done = co_await identify(key, into); !done) co_return done;
    const auto over = co_await outlived(into);
    if (!over) co_return std::unexpected(over.error());
    if (!*over) co_return Result<void>{};
  }
  co_return fail(Errc::timed_out, "collect",
                 "values of this key end faster than they can be looked at; try again", key.hash);
}

coro::Task<Result<bool>> Snapshots::outlived(const KeyCollect* seen) {
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

coro::Task<Result<Snapshots::TimeLeft>> Snapshots::time_left(base::Nanos expires_at_ns,
                                                             base::Nanos asked_at) {
  if (expires_at_ns == 0) co_return TimeLeft::some;
  if (has_expired(expires_at_ns, asked_at)) {
    // Whoever asks later is to know it, too.
    home_.tell_time(asked_at - slots_.time_ahead_ns());
    co_return TimeLeft::none;
  }
  if (!home_.remote()) co_return TimeLeft::some;
  const auto now = co_await slots_.read_time();
  if (!now) co_return std::unexpected(now.error());
  co_return has_expired(expires_at_ns, *now) ? TimeLeft::look_again : TimeLeft::some;
}

coro::Task<Result<bool>> Snapshots::is_snapshot(Key key, KeyCollect* first) {
  home_.count(Counter::second_collects);
  KeyCollect second;
  second.headers_wanted = first->headers_wanted;
  if (auto read = co_await slots_.collect(key.hash, &second); !read)
    co_return std::unexpected(std::move(read.error()));
  // Words that look alike are the same: none of their items can have been reused between the collects.
  if (second.same_words(*first)) co_return true;
  if (auto done = co_await identify(key, &second); !done) co_return std::unexpected(std::move(done.error()));
  *first = second;
  co_return base::planted(base::Planted::stale_helper) && has_unfinished(second);
}

coro::Task<Result<bool>> Snapshots::is_named(memory::ItemRef item, std::uint64_t key_hash) {
  Collect first;
  Collect second;
  constexpr int rounds_max = 64;
  for (int round = 0; round < rounds_max; ++round) {
    if (auto read = co_await slots_.collect(key_hash, &first); !read)
      co_return std::unexpected(std::move(read.error()));
    if (location_naming(first, item) >= 0) co_return true;
    if (auto read = co_await slots_.collect(key_hash, &second); !read)
      co_return std::unexpected(std::move(read.error()));
    if (second.same_words(first)) co_return false;
  }
  co_return true;  // too busy to be sure
}

}  // namespace loch::hash
