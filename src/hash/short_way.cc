#include "hash/short_way.h"

#include <algorithm>
#include <utility>

#include "hash/heap.h"

// The steps are inlined: each is a few instructions, and a call as many again.

namespace loch::hash {

std::span<fabric::Operation> ShortWay::begin() {
  if (known_.is_nothing() || known_.was_asked) return leave_last_place();
  known_.was_asked = true;
  return ask_last_place();
}

Result<std::optional<ItemView>> ShortWay::go_waiting() {
  for (auto asked = begin(); !asked.empty();) asked = go_on(shard_.endpoint.perform_each_waiting(asked));
  return take_outcome();
}

std::span<fabric::Operation> ShortWay::go_on(Result<void> read) {
  if (!read) return end(std::move(read.error()));
  const bool is_there = std::ranges::none_of(asked(), &fabric::Operation::did_nothing);
  count_ = 0;
  if (step_ == Step::last_place) return take_last_place(is_there);
  if (!is_there) return leave();  // why that is, is found out by who goes on
  switch (step_) {
    case Step::slots:
      return take_slots();
    case Step::item:
      return take_item();
    default:
      return take_time();
  }
}

// ---- where it was: one round trip, if the slot still names the item; two if the item comes after

[[gnu::always_inline]] inline ShortWay::Next ShortWay::ask_last_place() {
  step_ = Step::last_place;
  ask(shard_.known.slot_reading(known_));
  if (known_.has_copy()) {
    bytes_ = known_.pointer.copy;
  } else {
    known_.item = make_room(known_.pointer.length_bytes);
    if (known_.item == nullptr) return end(no_heap("get", known_.pointer.length_bytes).error());
    ask(KnownItems::item_reading(known_));
    reads_[count_ - 1].after_previous = known_.item_comes_after;
  }
  if (known_.pointer.is_mortal) ask(shard_.known.time_reading(&known_.time));
  return asked();
}

ShortWay::Next ShortWay::take_last_place(bool is_there) {
  if (is_there) {
    item_ = shard_.known.answer(known_);
    if (item_) return end();
  } else {
    known_.word = {};
  }
  return leave_last_place();
}

// Another item that the slot names is the next place to look at, which is no part of this.
[[gnu::always_inline]] inline ShortWay::Next ShortWay::leave_last_place() {
  if (!known_.is_nothing() && known_.is_gone()) shard_.known.forget_item(known_.key, known_.pointer.slot);
  const Directory directory = shard_.slots.directory_to_go_by();
  if (known_.is_of_another_item() || directory.growing || !directory.is_open(shard_.slots.place().slots))
    return end();
  return ask_for_slots(directory);
}

// ---- step 1 of GET (docs/hash.md), where no growth is going on

[[gnu::always_inline]] inline ShortWay::Next ShortWay::ask_for_slots(Directory directory) {
  const Slots& slots = shard_.slots;
  step_ = Step::slots;
  directory_ = directory;
  asked_at_ = slots.newest_time();
  if (home_share_.spares_other_row()) {
    asked_ = candidates() - 1;
    const SlotNumber first = slot_of(0) / row_slots * row_slots;
    ask(fabric::Operation::read(slots.place().slot(first), &home_[0].raw, row_bytes));
  } else {
    for (asked_ = 0; asked_ < candidates(); ++asked_)
      ask(fabric::Operation::read(slots.place().slot(slot_of(asked_)), &word_of(asked_).raw,
                                  sizeof(SlotWord)));
  }
  return ask_with_directory();
}

ShortWay::Next ShortWay::ask_for_other_slot() {
  step_ = Step::slots;
  ask(fabric::Operation::read(shard_.slots.place().slot(slot_of(asked_++)), &other_.raw, sizeof other_.raw));
  return ask_with_directory();
}

// As Slots::begin_collect.
[[gnu::always_inline]] inline ShortWay::Next ShortWay::ask_with_directory() {
  if (shard_.attachment.is_of_cluster())
    ask(fabric::Operation::read(shard_.slots.place().directory(), &directory_now_, sizeof directory_now_));
  return asked();
}

[[gnu::always_inline]] inline ShortWay::Next ShortWay::take_slots() {
  if (shard_.attachment.is_of_cluster() && directory_now_ != directory_.encode()) return leave();
  const unsigned first = std::exchange(read_, asked_);
  find_candidate(first);
  if (first == 0) home_share_.learn(candidate_ + 1 < candidates());
  return ask_for_item();
}

// The first that may name the key's item, from this one on, of those that were read; else their number.
[[gnu::always_inline]] inline void ShortWay::find_candidate(unsigned from) {
  candidate_ = from;
  while (candidate_ < read_ && !may_be_its(word_of(candidate_))) ++candidate_;
}

// The candidate's, if it can be read in one step.
[[gnu::always_inline]] inline ShortWay::Next ShortWay::ask_for_item() {
  if (candidate_ == read_) return read_ < candidates() ? ask_for_other_slot() : leave();
  const memory::ItemRef item = word_of(candidate_).item();
  if (!shard_.items.is_read_in_one_step(item)) return leave();
  const std::uint64_t length = memory::class_bytes[item.size_class];
  std::byte* const into = make_room(length);
  if (into == nullptr) return leave();
  step_ = Step::item;
  ask(fabric::Operation::read_settled(item.address(), into, length));
  return asked();
}

[[gnu::always_inline]] inline ShortWay::Next ShortWay::take_item() {
  const fabric::Operation& read = reads_.front();
  item_ = Items::take_apart(word_of(candidate_).item(), read.local, read.length_bytes);
  if (!item_) return leave();
  if (item_->key() != known_.key.bytes) {
    find_candidate(candidate_ + 1);
    return ask_for_item();
  }
  if (item_->expires_at_ns() == 0) return finish();
  if (has_expired(item_->expires_at_ns(), asked_at_)) {
    shard_.home.count(Counter::expired_reads);
    return end(fail(Errc::not_found, "get", {}, known_.key.hash).error());
  }
  step_ = Step::time;
  ask(shard_.known.time_reading(&known_.time));
  return asked();
}

// If its time ran out meanwhile, another item may have taken its place: the slots are to be read again.
ShortWay::Next ShortWay::take_time() {
  shard_.home.control().learn_time(known_.time);
  if (shard_.known.has_time_left(item_->expires_at_ns(), known_.time)) return finish();
  read_ = 0;
  return leave();
}

[[gnu::always_inline]] inline ShortWay::Next ShortWay::finish() {
  shard_.known.note_item(known_.key, word_of(candidate_), slot_of(candidate_), *item_, {}, known_.spot);
  return end();
}

std::optional<Collect> ShortWay::collected() {
  if (read_ < candidates()) return std::nullopt;
  Collect seen;
  seen.at = Locations::of(known_.key.hash, directory_, candidates());
  seen.key_hash = known_.key.hash;
  seen.asked_at_ns = asked_at_;
  for (unsigned i = 0; i < candidates(); ++i) seen.word[i] = word_of(i);
  return seen;
}

std::byte* ShortWay::make_room(std::size_t length_bytes) {
  if (length_bytes <= room_.size()) return room_.data();
  auto made = bytes_of_heap(length_bytes);
  bytes_ = made;
  return made.get();
}

}  // namespace loch::hash
