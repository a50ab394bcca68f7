// ShortWay: the short way of a remote session to a key's item: where it was lately, else one READ for the
// key's slots and one for the item; so most gets are answered. What is left, Reader does.
//
// It is no coroutine, so that who waits goes the same way as a coroutine, and by as few instructions as may
// be: what a client computes for each get adds to the round trips. `begin` tells what to read first, and
// `go_on` what to read after that, until it is nothing.
//
// One thread. During one operation of the session (memory::Attachment::Operation).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <loch/error.h>

#include "fabric/fabric.h"
#include "hash/index.h"
#include "hash/item.h"
#include "hash/known.h"
#include "hash/pointer_cache.h"
#include "hash/rules.h"
#include "hash/shard_access.h"

namespace loch::hash {

// How many of the gets of late find their key in its home row, and whether that is reason enough to ask for
// the other row's slot only if they do not. As a message it is spared as long as a get takes a seventh of a
// round trip more than two at most, on average; where it takes as long as a round trip, always.
class HomeShare final {
 public:
  explicit HomeShare(fabric::OperationCost cost) : cost_(cost) {}
  void learn(bool is_at_home) { share_ += ((is_at_home ? 1.0F : 0.0F) - share_) / 64; }
  [[nodiscard]] bool spares_other_row() const {
    return cost_ == fabric::OperationCost::round_trip ||
           (cost_ == fabric::OperationCost::message && share_ >= 6.0F / 7);
  }

 private:
  const fabric::OperationCost cost_;
  float share_ = 1;
};

class ShortWay final {
 public:
  // The item is read into `room` if that is large enough; else into memory of the heap. All of them outlive
  // this.
  ShortWay(ShardAccess& shard, HomeShare& home_share, Known* known, std::span<std::byte> room = {})
      : shard_(shard), home_share_(home_share), known_(*known), room_(room) {}
  ShortWay(const ShortWay&) = delete;
  ShortWay& operator=(const ShortWay&) = delete;

  std::span<fabric::Operation> begin();
  // Once that was read, each by itself (Endpoint::perform_each).
  std::span<fabric::Operation> go_on(Result<void> read);

  // All of it, by who waits (Endpoint::perform_each_waiting); the outcome.
  Result<std::optional<ItemView>> go_waiting();

  // ---- at its end
  // Nothing, if this does not tell. Errors: those of the fabric; not_found, of a value whose time is over;
  // no_space.
  [[nodiscard]] Result<std::optional<ItemView>> take_outcome() {
    if (error_) return std::unexpected(std::move(*error_));
    return item_;
  }
  // What the item's view points into, unless that is `room`.
  [[nodiscard]] PointerCache::Copy take_bytes() { return std::move(bytes_); }
  [[nodiscard]] const Known& known() const { return known_; }
  // All words of the key's slots, if they were read.
  [[nodiscard]] std::optional<Collect> collected();

 private:
  enum class Step : std::uint8_t { last_place, slots, item, time };
  using Next = std::span<fabric::Operation>;

  Next ask_last_place();
  Next take_last_place(bool is_there);
  Next leave_last_place();
  Next ask_for_slots(Directory directory);
  Next ask_for_other_slot();
  Next ask_with_directory();
  Next take_slots();
  void find_candidate(unsigned from);
  Next ask_for_item();
  Next take_item();
  Next take_time();
  Next finish();

  // What is asked for next is what was asked for since the last time.
  Next asked() { return std::span(reads_).first(count_); }
  void ask(const fabric::Operation& read) { reads_[count_++] = read; }
  static Next end() { return {}; }
  Next end(Error error) {
    error_ = std::move(error);
    return end();
  }
  // The key is not where this looks.
  Next leave() {
    item_.reset();
    return end();
  }
  std::byte* make_room(std::size_t length_bytes);

  [[nodiscard]] unsigned candidates() const { return shard_.slots.candidates(); }
  [[nodiscard]] SlotWord& word_of(unsigned candidate) {
    return candidate + 1 == candidates() ? other_ : home_[column_of(known_.key.hash, candidate)];
  }
  [[nodiscard]] SlotNumber slot_of(unsigned candidate) const {
    return slot_of_candidate(known_.key.hash, directory_, candidate, candidates());
  }
  [[nodiscard]] bool may_be_its(SlotWord word) const {
    return word.is(SlotType::committed) && word.filter() == known_.key.filter();
  }

  ShardAccess& shard_;
  HomeShare& home_share_;
  Known& known_;
  const std::span<std::byte> room_;
  PointerCache::Copy bytes_;
  std::optional<ItemView> item_;
  std::optional<Error> error_;
  std::array<fabric::Operation, candidates_max + 1> reads_;  // the last: of the directory
  std::size_t count_ = 0;
  Step step_ = Step::last_place;

  Directory directory_;  // by which the slots are read
  std::array<SlotWord, row_slots> home_;
  SlotWord other_{};                 // the last candidate's
  std::uint64_t directory_now_ = 0;  // the word, as it is read with them where it has to be
  base::Nanos asked_at_ = 0;
  unsigned asked_ = 0;      // candidates whose slots have been asked for
  unsigned read_ = 0;       // of which the words are there
  unsigned candidate_ = 0;  // whose item is read
};

}  // namespace loch::hash
