// GET of one key by a remote session: what it takes to answer in as few messages as may be. All of it is one
// coroutine, since what a client computes for each get adds to the round trips.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "hash/heap.h"
#include "hash/table.h"

namespace loch::hash {

// Where a key's home row is, and what is to be read of it.
struct Table::HomeRow {
  Locations at;
  SlotNumber first = 0;
  std::array<SlotWord, row_slots> word{};
  std::uint64_t directory_word = 0;
  std::array<fabric::Operation, 2> reads{};

  // The candidate there that has the key's filter, if there is one.
  [[nodiscard]] std::optional<unsigned> find(Key key) const {
    for (unsigned i = 0; i + 1 < at.candidates; ++i) {
      if (word_at(i).is(SlotType::committed) && word_at(i).filter() == key.filter()) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] SlotWord word_at(unsigned candidate) const { return word[at.slot[candidate] - first]; }
};

void Table::ask_for_home(Key key, HomeRow* home) {
  home->at = Locations::of(key.hash, slots_.directory(), slots_.candidates());
  home->first = home->at.slot[0] / row_slots * row_slots;
  home->directory_word = home->at.directory.encode();
  home->reads = {fabric::Operation::read(slots_.place().slot(home->first), &home->word[0].raw, row_bytes),
                 fabric::Operation::read(slots_.place().directory(), &home->directory_word,
                                         sizeof home->directory_word)};
}

// What it knew does not count before it has refreshed.
coro::Task<Result<Found>> Table::get_anew(Key key) {
  if (attachment_.refresh_due()) {
    if (auto fresh = co_await attachment_.refresh_for(slots_.home_number()); !fresh)
      co_return std::unexpected(std::move(fresh.error()));
  }
  Known known = known_.of(key);
  co_return co_await get_far(&known);
}

coro::Task<Result<Found>> Table::get_far(Known* what) {
  Known& known = *what;
  const Key key = known.key;

  // Where it was: one round trip, if the slot still names the item; two if the item comes after.
  if (!known.is_nothing() && !known.was_asked) {
    PointerCache::Copy copy = known.pointer.copy;
    std::array<fabric::Operation, 3> operations = {known_.slot_reading(known)};
    std::size_t count = 1;
    if (!known.has_copy()) {
      auto read = bytes_of_heap(known.pointer.length_bytes);
      if (read == nullptr) co_return no_heap("get", known.pointer.length_bytes);
      known.item = read.get();
      copy = std::move(read);
      operations[count++] = known_.item_reading(known);
      operations[1].after_previous = known.item_comes_after;
    }
    if (known.pointer.is_mortal) operations[count++] = known_.time_reading(&known.time);
    const std::span asked(operations.data(), count);
    if (auto read = co_await endpoint_.perform_each(asked); !read)
      co_return std::unexpected(std::move(read.error()));
    if (std::ranges::any_of(asked, &fabric::Operation::did_nothing)) {
      known.word = {};
    } else if (const auto item = known_.answer(known)) {
      co_return Found{.view = *item, .copy = std::move(copy)};
    }
  }
  if (!known.is_nothing() && known.is_gone()) known_.forget_location(key, known.pointer.slot);
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
  const bool looks_at_home =
      has_home_share_ && home_share_.is_high() && slots_.directory().is_open() && !slots_.directory().growing;
  if (looks_at_home) {
    const base::Nanos asked_at = slots_.newest_time();
    HomeRow home;
    ask_for_home(key, &home);
    const bool is_of_cluster = attachment_.is_of_cluster();  // as begin_collect
    const auto asked = co_await endpoint_.perform(std::span(home.reads).first(is_of_cluster ? 2 : 1));
    // Why there is no such row is found out below.
    if (!asked && asked.error().code != Errc::corrupt) co_return std::unexpected(asked.error());
    const bool is_newest = asked && home.directory_word == home.at.directory.encode();
    const auto j = is_newest ? home.find(key) : std::nullopt;
    const SlotWord word = j ? home.word_at(*j) : SlotWord{};
    if (j && items_.is_read_in_one_step(word.item())) {
      const std::uint64_t length = memory::class_bytes[word.item().size_class];
      auto bytes = std::make_shared_for_overwrite<std::byte[]>(length);
      auto read = fabric::Operation::read_settled(word.item().address(), bytes.get(), length);
      if (co_await endpoint_.perform({&read, 1})) {
        auto found = Items::take_apart(word.item(), bytes.get(), length);
        bool is_found = found && found->view.key() == key.bytes;
        if (is_found && found->view.expires_at_ns() != 0) {
          const auto left = co_await snapshots_.time_left(found->view.expires_at_ns(), asked_at);
          is_found = left && *left == Snapshots::TimeLeft::some;
        }
        if (is_found) {
          home_share_.learn(true);
          known_.note_item(key, word, home.at.slot[*j], found->view);
          found->copy = std::move(bytes);
          co_return found;
        }
      }
    }
    home_share_.learn(false);
  }

  Collect seen;
  if (auto read = co_await slots_.collect_once(key.hash, &seen, Slots::DirectoryToo::no); !read)
    co_return std::unexpected(std::move(read.error()));
  if (has_home_share_ && !looks_at_home) {
    home_share_.learn(std::ranges::any_of(
        std::span(seen.word).first(slots_.candidates() - 1),
        [&](SlotWord word) { return word.is(SlotType::committed) && word.filter() == key.filter(); }));
  }
  co_return co_await get_by_snapshot(key, seen);
}

}  // namespace loch::hash
