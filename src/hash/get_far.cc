// GET of one key by a remote session: what it takes to answer in as few messages as may be. All of it is one
// coroutine, since what a client computes for each get adds to the round trips; its steps are plain functions
// that ask, and take what was read.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "hash/heap.h"
#include "hash/reader.h"

namespace loch::hash {

// What is read of a key whose item was somewhere lately: the slot that named it, the item unless there is a
// copy, and the time if it has a time to live.
struct Reader::LastPlace {
  std::array<fabric::Operation, 3> reads{};
  std::size_t count = 0;
  PointerCache::Copy copy;

  [[nodiscard]] std::span<fabric::Operation> asked() { return std::span(reads).first(count); }
};

// Where a key's home row is, and what is to be read of it; and of the item that it may name.
struct Reader::HomeRow {
  Locations at;
  SlotNumber first = 0;
  base::Nanos asked_at = 0;
  std::array<SlotWord, row_slots> word{};
  std::uint64_t directory_word = 0;
  std::array<fabric::Operation, 2> reads{};
  bool has_directory = false;  // as the last of them
  unsigned candidate = 0;      // whose item is read
  std::shared_ptr<std::byte[]> bytes;
  fabric::Operation item_reading{};

  [[nodiscard]] std::span<fabric::Operation> asked() { return std::span(reads).first(has_directory ? 2 : 1); }
  // The candidate there that has the key's filter, if there is one.
  [[nodiscard]] std::optional<unsigned> find(Key key) const {
    for (unsigned i = 0; i + 1 < at.candidates; ++i) {
      if (word_at(i).is(SlotType::committed) && word_at(i).filter() == key.filter()) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] SlotWord word_at(unsigned i) const { return word[at.slot[i] - first]; }
  // The item that was read, if it is the key's.
  [[nodiscard]] std::optional<Found> take_item(Key key) {
    auto found = Items::take_apart(word_at(candidate).item(), bytes.get(), item_reading.length_bytes);
    if (!found || found->view.key() != key.bytes) return std::nullopt;
    found->copy = std::move(bytes);
    return std::move(*found);
  }
};

// False if the item has no room in this process.
bool Reader::ask_last_place(Known* known, LastPlace* last) const {
  last->reads[last->count++] = known_.slot_reading(*known);
  last->copy = known->pointer.copy;
  if (!known->has_copy()) {
    auto read = bytes_of_heap(known->pointer.length_bytes);
    if (read == nullptr) return false;
    known->item = read.get();
    last->copy = std::move(read);
    fabric::Operation& item = last->reads[last->count++];
    item = KnownItems::item_reading(*known);
    item.after_previous = known->item_comes_after;
  }
  if (known->pointer.is_mortal) last->reads[last->count++] = known_.time_reading(&known->time);
  return true;
}

std::optional<ItemView> Reader::answer_of_last_place(Known* known, std::span<const fabric::Operation> asked) {
  if (std::ranges::none_of(asked, &fabric::Operation::did_nothing)) return known_.answer(*known);
  known->word = {};
  return std::nullopt;
}

bool Reader::looks_at_home() const {
  return has_home_share_ && home_share_.is_high() && slots_.is_open() && !slots_.directory().growing;
}

void Reader::ask_for_home(Key key, HomeRow* home) const {
  home->asked_at = slots_.newest_time();
  home->at = Locations::of(key.hash, slots_.directory(), slots_.candidates());
  home->first = home->at.slot[0] / row_slots * row_slots;
  home->directory_word = home->at.directory.encode();
  home->has_directory = attachment_.is_of_cluster();  // as begin_collect
  home->reads = {fabric::Operation::read(slots_.place().slot(home->first), &home->word[0].raw, row_bytes),
                 fabric::Operation::read(slots_.place().directory(), &home->directory_word,
                                         sizeof home->directory_word)};
}

// Of the row that was read: the item that may be the key's, if there is one that can be read in one step.
bool Reader::ask_for_item_at_home(Key key, HomeRow* home) const {
  if (home->directory_word != home->at.directory.encode()) return false;
  const auto candidate = home->find(key);
  if (!candidate) return false;
  const memory::ItemRef item = home->word_at(*candidate).item();
  if (!items_.is_read_in_one_step(item)) return false;
  const std::uint64_t length = memory::class_bytes[item.size_class];
  home->candidate = *candidate;
  home->bytes = std::make_shared_for_overwrite<std::byte[]>(length);
  home->item_reading = fabric::Operation::read_settled(item.address(), home->bytes.get(), length);
  return true;
}

void Reader::learn_home_share(Key key, const Collect& seen) {
  home_share_.learn(std::ranges::any_of(
      std::span(seen.word).first(slots_.candidates() - 1),
      [&](SlotWord word) { return word.is(SlotType::committed) && word.filter() == key.filter(); }));
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

coro::Task<Result<Found>> Reader::get_far(Known* what) {
  Known& known = *what;
  const Key key = known.key;

  // Where it was: one round trip, if the slot still names the item; two if the item comes after.
  if (!known.is_nothing() && !known.was_asked) {
    LastPlace last;
    if (!ask_last_place(&known, &last)) co_return no_heap("get", known.pointer.length_bytes);
    if (auto read = co_await endpoint_.perform_each(last.asked()); !read)
      co_return std::unexpected(std::move(read.error()));
    if (const auto item = answer_of_last_place(&known, last.asked()))
      co_return Found{.view = *item, .copy = std::move(last.copy)};
  }
  if (!known.is_nothing() && known.is_gone()) known_.forget_item(key, known.pointer.slot);
  // Step 1 with one slot of the key's.
  if (known.is_of_another_item()) {
    auto found = co_await items_.fetch(known.word.item());
    if (found && found->view.key() == key.bytes &&
        known_.has_time_left(found->view.expires_at_ns(), known.time)) {
      known_.note_item(key, known.word, known.pointer.slot, found->view);
      co_return found;
    }
  }

  // Step 1 with the slots of the key's home row, where that spares a message.
  const bool is_home_first = looks_at_home();
  if (is_home_first) {
    HomeRow home;
    ask_for_home(key, &home);
    const auto asked = co_await endpoint_.perform(home.asked());
    // Why there is no such row is found out below.
    if (!asked && asked.error().code != Errc::corrupt) co_return std::unexpected(asked.error());
    if (asked && ask_for_item_at_home(key, &home) && co_await endpoint_.perform({&home.item_reading, 1})) {
      auto found = home.take_item(key);
      if (found && found->view.expires_at_ns() != 0) {
        const auto left = co_await snapshots_.time_left(found->view.expires_at_ns(), home.asked_at);
        if (!left || *left != Snapshots::TimeLeft::some) found.reset();
      }
      if (found) {
        home_share_.learn(true);
        known_.note_item(key, home.word_at(home.candidate), home.at.slot[home.candidate], found->view);
        co_return std::move(*found);
      }
    }
    home_share_.learn(false);
  }

  Collect seen;
  if (auto read = co_await slots_.collect_once(key.hash, &seen, "get", Slots::DirectoryToo::no); !read)
    co_return std::unexpected(std::move(read.error()));
  if (has_home_share_ && !is_home_first) learn_home_share(key, seen);
  co_return co_await get_by_snapshot(key, seen);
}

}  // namespace loch::hash
