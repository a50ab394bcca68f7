// Gets of a remote session, many at once: GET's steps (Reader, KnownItems) for all of them in two batches,
// where each by itself takes a coroutine and a batch a step. What does not go as it mostly does, goes on as a
// coroutine.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "coro/scope.h"
#include "hash/heap.h"
#include "hash/shards.h"

namespace loch::hash {

using fabric::Operation;

// The slots of a key whose item is not known, and what they held.
struct Shards::Looked {
  Slots::Reading reading{};
  Collect words;
};

// One of the gets, and how far it is.
struct Shards::Getting {
  GroupedGet* get = nullptr;
  Table* table = nullptr;
  Looked* looked = nullptr;
  bool has_looked = false;
  bool is_over = false;

  void end(Result<void> outcome) {
    get->outcome = std::move(outcome);
    is_over = true;
  }
  void take(const ItemView& item) { end(copy_out(item.value(), get->into, "get")); }
};

// An item that a slot was seen to name, and that may be the key's.
struct Shards::Candidate {
  Getting* of = nullptr;
  SlotWord word{};
  SlotNumber slot = 0;
  std::uint64_t length = 0;   // of it, or, as long as that is not known, of its memory
  std::byte* item = nullptr;  // where it is read to
};

coro::Task<void> Shards::get_together(std::span<GroupedGet> gets) {
  std::vector<Getting> all(gets.size());
  for (std::size_t i = 0; i < gets.size(); ++i) {
    all[i].get = &gets[i];
    if (auto table = table_of(gets[i].known.key.hash)) {
      all[i].table = *table;
    } else {
      all[i].end(std::unexpected(std::move(table.error())));
    }
  }
  std::vector<Looked> looked(
      std::ranges::count_if(gets, [](const GroupedGet& get) { return get.known.is_nothing(); }));
  std::vector<Candidate> candidates;
  candidates.reserve(gets.size());
  Result<void> done = co_await ask_together(all, looked, &candidates);
  if (done && !candidates.empty()) done = co_await read_together(candidates);
  std::vector<coro::Task<void>> rest;
  for (Getting& one : all) {
    if (one.is_over) continue;
    if (done) {
      rest.push_back(get_alone(&one));
    } else {
      one.end(std::unexpected(done.error()));
    }
  }
  co_await coro::run_together(&attachment_.endpoint().queue(), std::span(rest));
}

// Step 1: of those that are known, the slots that named them, and the items that may be read with these; of
// the others, all slots.
coro::Task<Result<void>> Shards::ask_together(std::span<Getting> all, std::span<Looked> looked,
                                              std::vector<Candidate>* candidates) {
  auto next_looked = looked.begin();
  std::size_t length = 0;
  std::size_t words = 0;
  for (Getting& one : all) {
    if (one.is_over) continue;
    if (const Known& known = one.get->known; !known.is_nothing()) {
      if (known.asks_for_item()) length += known.pointer.length_bytes;
      ++words;
    } else {
      one.looked = &*next_looked++;
      one.looked->reading = one.table->slots().begin_collect(one.get->known.key.hash, &one.looked->words,
                                                             Slots::DirectoryToo::no);
      words += one.looked->reading.count;
    }
  }
  const auto items = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(2 * all.size() + words);
  // The slots first (KnownItems::slot_reading); and words that are side by side are asked for together.
  for (const Getting& one : all) {
    if (one.is_over) continue;
    if (!one.get->known.is_nothing()) {
      operations.push_back(one.table->known().slot_reading(one.get->known));
      continue;
    }
    one.looked->reading.ask(one.looked->words.word.data(), &operations);
  }
  std::byte* into = items.get();
  for (const Getting& one : all) {
    if (one.is_over || one.get->known.is_nothing()) continue;
    Known& known = one.get->known;
    if (known.asks_for_item()) {
      known.item = std::exchange(into, into + known.pointer.length_bytes);
      operations.push_back(KnownItems::item_reading(known));
    }
    if (known.pointer.is_mortal) operations.push_back(one.table->known().time_reading(&known.time));
  }
  if (auto done = co_await attachment_.endpoint().perform_each(operations); !done) co_return done;

  const Operation* word = operations.data();
  const Operation* item = operations.data() + words;
  for (Getting& one : all) {
    if (one.is_over) continue;
    if (const Known& known = one.get->known; !known.is_nothing()) {
      const bool has_item = known.has_copy() || (known.asks_for_item() && !(item++)->did_nothing());
      if (known.pointer.is_mortal) ++item;
      if (!(word++)->did_nothing()) take_known(&one, has_item, candidates);
    } else {
      const std::span slots(word, one.looked->reading.count);
      word += slots.size();
      if (std::ranges::none_of(slots, &Operation::did_nothing)) take_slots(&one, candidates);
    }
  }
  co_return Result<void>{};
}

void Shards::take_known(Getting* one, bool has_item, std::vector<Candidate>* candidates) {
  const Known& known = one->get->known;
  if (const auto item = has_item ? one->table->known().answer(known) : std::nullopt) {
    one->take(*item);
  } else if (known.is_of_another_item()) {
    add_candidate(one, known.word, known.pointer.slot, candidates);
  } else if (known.item_comes_after && known.is_as_known()) {
    add_candidate(one, known.word, known.pointer.slot, candidates, known.pointer.length_bytes);
  } else if (known.is_gone()) {
    one->table->known().forget_item(known.key, known.pointer.slot);
  }
}

void Shards::take_slots(Getting* one, std::vector<Candidate>* candidates) {
  const Collect& seen = one->looked->words;
  if (auto read = one->table->slots().end_collect(one->looked->reading, seen); !read)
    return one->end(std::unexpected(std::move(read.error())));
  one->has_looked = true;
  for (unsigned j = 0; j < seen.at.count; ++j) {
    const SlotWord word = seen.word[j];
    if (word.is(SlotType::committed) && word.filter() == one->get->known.key.filter())
      add_candidate(one, word, seen.at.slot[j], candidates);
  }
}

// If the item can be read in one step.
void Shards::add_candidate(Getting* one, SlotWord word, SlotNumber slot, std::vector<Candidate>* candidates,
                           std::optional<std::uint64_t> length) {
  const memory::ItemRef item = word.item();
  if (!items_.is_read_in_one_step(item)) return;
  candidates->push_back({.of = one,
                         .word = word,
                         .slot = slot,
                         .length = length.value_or(memory::class_bytes[item.size_class])});
}

// Step 2: a committed word whose item has the key answers.
coro::Task<Result<void>> Shards::read_together(std::span<Candidate> candidates) {
  std::size_t length = 0;
  for (const Candidate& one : candidates) length += one.length;
  const auto items = std::make_unique_for_overwrite<std::byte[]>(length);
  std::vector<Operation> operations;
  operations.reserve(candidates.size());
  std::byte* into = items.get();
  for (Candidate& one : candidates) {
    one.item = std::exchange(into, into + one.length);
    operations.push_back(Operation::read_settled(one.word.item().address(), one.item, one.length));
  }
  if (auto done = co_await attachment_.endpoint().perform_each(operations); !done) co_return done;
  const Operation* operation = operations.data();
  for (const Candidate& one : candidates) {
    const bool was_read = !(operation++)->did_nothing();
    const GroupedGet& get = *one.of->get;
    const auto found = was_read ? one.of->table->known().item_of(get.known.key, one.word, one.slot, one.item,
                                                                 one.length, get.known.time)
                                : std::nullopt;
    if (found) one.of->take(*found);
  }
  co_return Result<void>{};
}

coro::Task<void> Shards::get_alone(Getting* one) {
  const Key key = one->get->known.key;
  Known nothing{.key = key};
  auto found = one->has_looked ? co_await one->table->reader().get_by_snapshot(key, one->looked->words)
                               : co_await one->table->get(&nothing);
  if (found) {
    one->take(found->view);
  } else {
    one->end(std::unexpected(std::move(found.error())));
  }
}

}  // namespace loch::hash
