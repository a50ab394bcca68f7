#include "hash/reader.h"

#include <optional>
#include <utility>

#include "base/planted.h"
#include "hash/attempts.h"

namespace loch::hash {

coro::Task<Result<Found>> Reader::get_near(Key key) {
  // Step 1: read the slots; a committed one whose item has the key answers.
  Collect seen;
  if (auto read = co_await slots_.collect_once(key.hash, &seen, "get", Slots::DirectoryToo::no); !read)
      [[unlikely]]
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
        has_expired(found.view.expires_at_ns(), seen.asked_at_ns)) {
      break;
    }
    co_return found;
  }
  co_return co_await get_by_snapshot(key, seen);
}

// What it knew does not count before it has refreshed.
coro::Task<Result<Found>> Reader::get_anew(Key key) {
  if (attachment_.refresh_due()) {
    if (auto fresh = co_await attachment_.refresh_for(slots_.home_number()); !fresh)
      co_return std::unexpected(std::move(fresh.error()));
  }
  Known known = known_.of(key);
  co_return co_await get_far(&known);
}

coro::Task<Result<Found>> Reader::get_far(Known* known) {
  ShortWay way(shard_, home_share_, known);
  for (auto asked = way.begin(); !asked.empty();) asked = way.go_on(co_await endpoint_.perform_each(asked));
  auto outcome = way.take_outcome();
  if (!outcome) co_return std::unexpected(std::move(outcome.error()));
  if (*outcome) co_return Found{.view = **outcome, .copy = way.take_bytes()};
  co_return co_await get_after(&way);
}

coro::Task<Result<Found>> Reader::get_after(ShortWay* way) {
  const Known& known = way->known();
  const Key key = known.key;
  // Step 1 with one slot of the key's.
  if (known.is_of_another_item()) {
    auto found = co_await items_.fetch(known.word.item());
    if (found && found->view.key() == key.bytes &&
        known_.has_time_left(found->view.expires_at_ns(), known.time)) {
      known_.note_item(key, known.word, known.pointer.slot, found->view);
      co_return found;
    }
  }
  auto seen = way->collected();
  if (!seen) {
    auto read = co_await slots_.collect_once(key.hash, &seen.emplace(), "get", Slots::DirectoryToo::no);
    if (!read) co_return std::unexpected(std::move(read.error()));
  }
  co_return co_await get_by_snapshot(key, *seen);
}

// GET that reads of items no more than their heads.
coro::Task<Result<bool>> Reader::exists(Key key) {
  if (auto fresh = co_await slots_.keep_fresh(); !fresh) co_return std::unexpected(std::move(fresh.error()));
  if (Known known = known_.of(key); !known.is_nothing()) {
    if (co_await known_.is_there(&known)) co_return true;
    if (known.is_gone()) known_.forget_item(key, known.pointer.slot);
    if (known.is_of_another_item()) {
      const auto head = co_await items_.fetch_intact_head(known.word.item(), key.bytes.size());
      if (head && head->view.key() == key.bytes &&
          known_.has_time_left(head->view.expires_at_ns(), known.time)) {
        co_return true;
      }
    }
  }
  Collect seen;
  if (auto read = co_await slots_.collect_once(key.hash, &seen, "get", Slots::DirectoryToo::no); !read)
    co_return std::unexpected(std::move(read.error()));
  const auto found = co_await get_by_snapshot(key, seen, Part::head);
  if (!found && found.error().code != Errc::not_found) co_return std::unexpected(found.error());
  co_return found.has_value();
}

coro::Task<Result<Found>> Reader::get_by_snapshot(Key key, Collect seen, Part part) {
  Attempts attempts(slots_, "get", key.hash, Attempts::Of::look);
  std::optional<Collect> before;  // the collect before `seen`, if they make a snapshot when they are equal
  for (;;) {
    Doubt doubt;
    if (auto answer = co_await look_for(key, &seen, Words::committed, part, &doubt); answer)
      co_return std::move(*answer);
    bool counts = false;  // `seen`, as the first of two
    const bool is_as_before = before && seen.same_words(*before);
    if (doubt.time_ran_out) {
      // Another item may have taken the place of the one whose time it was.
    } else if (is_outdated(seen) || is_damaged(seen)) {
      const auto now = co_await slots_.read_directory();
      if (!now) co_return std::unexpected(now.error());
      if (attempts.retries() > Slots::outdated_retries_max || *now == seen.at.directory)
        co_return co_await slots_.damaged_slot(key.hash);
    } else if (is_as_before || base::planted(base::Planted::miss_by_one_collect)) {
      // Step 2: a miss is answered by a snapshot alone; a key that is being moved is found through its paired
      // words.
      if (auto answer = co_await look_for(key, &seen, Words::paired, part, &doubt); answer)
        co_return std::move(*answer);
      if (!doubt.time_ran_out) co_return miss(key, doubt);
    } else {
      counts = true;
    }
    if (before || !counts) {
      if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
    }
    before = counts ? std::optional(seen) : std::nullopt;
    home_.count(Counter::second_collects);
    const auto read = co_await slots_.collect_once(key.hash, &seen, "get");
    if (!read) co_return std::unexpected(read.error());
    if (*read) continue;
    before.reset();
    if (auto more = co_await attempts.again(); !more) co_return std::unexpected(std::move(more.error()));
  }
}

// What the committed or the paired words answer; nothing if none of them is the key's. What can not be read
// may be another key's: it is an error only if none of the others answers.
coro::Task<std::optional<Result<Found>>> Reader::look_for(Key key, const Collect* seen, Words words,
                                                          Part part, Doubt* doubt) {
  std::optional<Error> unread;
  for (unsigned j = 0; j < seen->at.count; ++j) {
    const SlotWord word = seen->word[j];
    const bool wanted =
        words == Words::committed ? word.is(SlotType::committed) : paired_destination(*seen, j) >= 0;
    if (!wanted || word.filter() != key.filter()) continue;
    auto found = part == Part::all ? co_await items_.fetch(word.item())
                                   : co_await items_.fetch_intact_head(word.item(), key.bytes.size());
    if (!found) {
      if (found.error().code == Errc::corrupt)
        doubt->damaged = true;
      else
        unread = std::move(found.error());
      continue;
    }
    if (found->view.key() != key.bytes) continue;
    if (part == Part::head && base::planted(base::Planted::present_without_time)) co_return std::move(found);
    const auto left = co_await snapshots_.time_left(found->view.expires_at_ns(), seen->asked_at_ns);
    if (!left) co_return std::unexpected(left.error());
    if (*left == Snapshots::TimeLeft::some) {
      // How long the item is, its head does not tell.
      if (words == Words::committed && part == Part::all)
        known_.note_item(key, word, seen->at.slot[j], found->view);
      co_return std::move(found);
    }
    doubt->time_ran_out = *left == Snapshots::TimeLeft::look_again;
    if (doubt->time_ran_out) co_return std::nullopt;
    home_.count(Counter::expired_reads);
    co_return fail(Errc::not_found, "get", {}, key.hash);
  }
  if (unread) co_return std::unexpected(std::move(*unread));
  co_return std::nullopt;
}

Result<Found> Reader::miss(Key key, Doubt doubt) {
  if (!doubt.damaged) return fail(Errc::not_found, "get", {}, key.hash);
  home_.count(Counter::corrupt_items);
  return fail(Errc::corrupt, "get",
              "an item that may be this key's is damaged; put the key again, or remove it and run `loch gc`",
              key.hash);
}

}  // namespace loch::hash
