// GET by one-sided reads, and the reading of items.
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "base/planted.h"
#include "hash/heap.h"
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

coro::Task<Result<Found>> Table::get_near(Key key) {
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

// The rest of GET: what is not a plain hit. `seen`: a first collect.
coro::Task<Result<Found>> Table::get_by_snapshot(Key key, Collect seen) {
  Attempts attempts(*this, "get", key.hash, Attempts::Of::look);
  std::optional<Collect> before;  // the collect before `seen`, if they make a snapshot when they are equal
  for (;;) {
    Doubt doubt;
    if (auto answer = co_await look_for(key, &seen, Words::committed, &doubt); answer)
      co_return std::move(*answer);
    bool counts = false;  // `seen`, as the first of two
    if (doubt.time_ran_out) {
      // Another item may have taken the place of the one whose time it was.
    } else if (is_outdated(seen) || is_damaged(seen)) {
      const auto now = co_await read_directory();
      if (!now) co_return std::unexpected(now.error());
      if (attempts.retries() > outdated_retries_max || *now == seen.at.directory)
        co_return co_await damaged_slot(key.hash);
    } else if ((before && seen.same_words(*before) && attachment_.may_act()) ||
               base::planted(base::Planted::miss_by_one_collect)) {
      // Step 2: a miss is answered by a snapshot alone; a key that is being moved is found through its paired
      // words.
      if (auto answer = co_await look_for(key, &seen, Words::paired, &doubt); answer)
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
    const auto read = co_await read_slots(key.hash, &seen);
    if (!read) co_return std::unexpected(read.error());
    if (*read) continue;
    before.reset();
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
  std::uint64_t length = room_of(ref);
  if (large || (!here && length > one_step_bytes_max)) {
    auto header = co_await read_header(ref);
    if (!header) co_return std::unexpected(std::move(header.error()));
    length = item_bytes(header->key_bytes, header->value_bytes) + tail_bytes();
    if (length > room_of(ref)) co_return damaged_item(ref);
  }
  if (!here && length > one_step_bytes_max) {
    auto copy = bytes_of_heap(length);
    if (copy == nullptr) co_return no_heap("read", length);
    auto reading = fabric::Operation::read_settled(ref.address(), copy.get(), length);
    if (auto read = co_await endpoint_.perform({&reading, 1}); !read)
      co_return std::unexpected(std::move(read.error()));
    auto found = take_apart(ref, copy.get(), length);
    if (found) found->copy = std::move(copy);
    co_return found;
  }
  auto bytes = co_await endpoint_.fetch_settled(ref.address(), length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  auto found = take_apart(ref, bytes->data(), length);
  if (found) found->copy = std::move(*bytes).take_copy();
  co_return found;
}

coro::Task<Result<Found>> Table::fetch_head(memory::ItemRef ref) {
  if (auto reached = reaches(ref); !reached) co_return std::unexpected(std::move(reached.error()));
  const std::uint64_t length = std::min(room_of(ref), item_bytes(key_bytes_max, 0));
  auto bytes = co_await endpoint_.fetch_settled(ref.address(), length);
  if (!bytes) co_return std::unexpected(std::move(bytes.error()));
  Found found;
  if (!found.view.parse_head(bytes->data(), length, ref)) co_return damaged_item(ref);
  found.copy = std::move(*bytes).take_copy();
  co_return found;
}

Result<Found> Table::take_apart(const memory::ItemRef& ref, const std::byte* bytes, std::uint64_t length) {
  Found found;
  if (!found.view.parse(bytes, length, ref) || !is_whole(found.view, length)) return damaged_item(ref);
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

}  // namespace loch::hash
