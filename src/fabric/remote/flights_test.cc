#include "fabric/remote/flights.h"

#include <array>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace loch::fabric::remote {
namespace {

constexpr base::Nanos timeout_ns = base::second_ns;

class FlightsTest : public testing::Test {
 protected:
  struct Batch : Completion {
    std::array<Operation, 2> operations{};
    bool is_over = false;
    Result<void> outcome{};

    explicit Batch(Urgency how)
        : Completion{.complete =
                         [](Completion& self, Result<void> result) {
                           static_cast<Batch&>(self).is_over = true;
                           static_cast<Batch&>(self).outcome = std::move(result);
                         },
                     .urgency = how} {}
  };

  void post(Batch& batch) { flights_.post(batch.operations, base::Clock().now() + timeout_ns, batch); }
  // As many as there is room for are asked for; how many that are.
  std::size_t ask(base::Nanos now, std::size_t room = 100) {
    const std::size_t before = asked_.size();
    flights_.ask(now,
                 [&](Flights::Flight& flight, Operation& operation, std::size_t /*from*/) -> Flights::Put {
                   if (operation.after_previous && flight.pieces != 0)
                     return std::unexpected(Flights::Wait::for_its_flight);
                   if (room-- == 0) return std::unexpected(Flights::Wait::for_room);
                   ++flight.pieces;
                   asked_.push_back(&flight);
                   return operation.length_bytes;
                 });
    return asked_.size() - before;
  }
  void answer_all() {
    for (Flights::Flight* flight : asked_) --flight->pieces;
    asked_.clear();
    flights_.settle();
  }

  Flights flights_{"there"};
  std::vector<Flights::Flight*> asked_;
  base::Nanos now_ = base::Clock().now();
};

TEST_F(FlightsTest, WhatNobodyWaitsForGoesWithWhatSomebodyWaitsFor) {
  Batch first(Urgency::awaited);
  Batch behind(Urgency::background);
  Batch second(Urgency::awaited);
  EXPECT_FALSE(flights_.is_due());
  post(first);
  EXPECT_TRUE(flights_.is_due());
  EXPECT_EQ(ask(now_), 2U);
  post(behind);
  EXPECT_FALSE(flights_.is_due()) << "the first is under way";
  post(second);
  EXPECT_TRUE(flights_.is_due());
  EXPECT_EQ(ask(now_), 4U);
  answer_all();
  EXPECT_TRUE(first.is_over && behind.is_over && second.is_over);
  EXPECT_TRUE(flights_.empty());
}

// Receive: 128 MiB, and a short batch behind them. Expect: both have the time that so much takes on a slow
// network, and what is posted when they are over has not.
TEST_F(FlightsTest, WhatIsLongHasTimeToGetThrough) {
  const auto takes = [](std::uint64_t bytes) {
    return bytes / Flights::slowest_bytes_per_ms * base::millisecond_ns;
  };
  Batch large(Urgency::awaited);
  for (Operation& operation : large.operations) operation.length_bytes = std::size_t{64} << 20;
  Batch behind(Urgency::awaited);
  post(large);
  post(behind);
  const base::Nanos posted_at = base::Clock().now();
  ASSERT_EQ(ask(posted_at), 4U);
  EXPECT_FALSE(flights_.any_late(now_ + timeout_ns + takes(std::uint64_t{128} << 20)));
  EXPECT_TRUE(flights_.any_late(posted_at + timeout_ns + takes(std::uint64_t{128} << 20) + 1));
  answer_all();
  ASSERT_TRUE(large.is_over && behind.is_over);
  Batch later(Urgency::awaited);
  post(later);
  EXPECT_TRUE(flights_.any_late(base::Clock().now() + timeout_ns + 1));
}

TEST_F(FlightsTest, WhatNobodyWaitsForGoesWhenNothingElseIsUnderWay) {
  Batch first(Urgency::awaited);
  Batch behind(Urgency::background);
  post(first);
  ASSERT_EQ(ask(now_), 2U);
  post(behind);
  answer_all();
  EXPECT_TRUE(flights_.is_due());
  EXPECT_EQ(ask(now_), 2U);
  answer_all();
  EXPECT_TRUE(behind.is_over);
}

// Receive: a batch that waited for longer than its time before another was posted. Expect: it has all of its
// time from then on.
TEST_F(FlightsTest, TheTimeOfWhatNobodyWaitsForCountsFromWhenItIsAskedFor) {
  Batch behind(Urgency::background);
  post(behind);
  const base::Nanos later = base::Clock().now() + 10 * timeout_ns;
  EXPECT_FALSE(flights_.any_late(later));
  EXPECT_EQ(ask(later), 2U);
  EXPECT_FALSE(flights_.any_late(later + timeout_ns / 2));
  EXPECT_TRUE(flights_.any_late(later + 2 * timeout_ns));
  answer_all();
  EXPECT_TRUE(behind.outcome.has_value());
}

TEST_F(FlightsTest, WhatIsAskedForInPartStaysDue) {
  Batch first(Urgency::awaited);
  post(first);
  EXPECT_EQ(ask(now_, 1), 1U);
  EXPECT_TRUE(flights_.is_due());
  EXPECT_EQ(ask(now_), 1U);
  EXPECT_FALSE(flights_.is_due());
  answer_all();
  EXPECT_TRUE(first.is_over);
}

// Receive: pieces that are two whole operations, and then a part of one and the rest of it.
TEST_F(FlightsTest, APieceMayBeSeveralOperationsOrAPartOfOne) {
  Batch both(Urgency::awaited);
  Batch parts(Urgency::awaited);
  for (Batch* batch : {&both, &parts}) {
    batch->operations[0].length_bytes = 8;
    batch->operations[1].length_bytes = 24;
    post(*batch);
  }
  struct Put {
    const Operation* operation;
    std::size_t from;
    std::size_t length;
  };
  const std::vector<Put> expected{{both.operations.data(), 0, 32},
                                  {parts.operations.data(), 0, 8},
                                  {&parts.operations[1], 0, 16},
                                  {&parts.operations[1], 16, 8}};
  auto next = expected.begin();
  flights_.ask(now_, [&](Flights::Flight& flight, Operation& operation, std::size_t from) -> Flights::Put {
    EXPECT_TRUE(next != expected.end() && &operation == next->operation && from == next->from);
    ++flight.pieces;
    asked_.push_back(&flight);
    return (next++)->length;
  });
  EXPECT_TRUE(next == expected.end());
  EXPECT_FALSE(flights_.is_due());
  answer_all();
  EXPECT_TRUE(both.is_over && parts.is_over);
}

// Receive: batches whose second operation waits for the first, and one that has none that waits. Expect: the
// round trips of one batch, and who does not wait is told first.
TEST_F(FlightsTest, WhatWaitsHoldsUpNoOther) {
  std::array<Batch, 3> waiting{Batch(Urgency::awaited), Batch(Urgency::awaited), Batch(Urgency::awaited)};
  Batch other(Urgency::awaited);
  for (Batch& batch : waiting) {
    batch.operations[0].length_bytes = batch.operations[1].length_bytes = 8;
    batch.operations[1].after_previous = true;
    post(batch);
  }
  post(other);
  EXPECT_EQ(ask(now_), 5U);
  EXPECT_TRUE(flights_.is_due());
  answer_all();
  EXPECT_TRUE(other.is_over);
  EXPECT_EQ(ask(now_), 3U);
  EXPECT_FALSE(flights_.is_due());
  answer_all();
  for (const Batch& batch : waiting) EXPECT_TRUE(batch.is_over && batch.outcome.has_value());
  EXPECT_TRUE(flights_.empty());
}

// Receive: one that waits in the midst of an operation, and one behind it for which there is no room. Expect:
// each goes on where it was.
TEST_F(FlightsTest, EachGoesOnWhereItWas) {
  Batch waiting(Urgency::awaited);
  Batch behind(Urgency::awaited);
  for (Batch* batch : {&waiting, &behind}) {
    batch->operations[0].length_bytes = batch->operations[1].length_bytes = 8;
    post(*batch);
  }
  waiting.operations[1].after_previous = true;
  EXPECT_EQ(ask(now_, 2), 2U);
  answer_all();
  EXPECT_FALSE(waiting.is_over || behind.is_over);
  EXPECT_EQ(ask(now_), 2U);
  answer_all();
  EXPECT_TRUE(waiting.is_over && behind.is_over);
}

TEST_F(FlightsTest, ATimeInWhichNothingCouldBeDoneDoesNotCount) {
  Batch batch(Urgency::awaited);
  post(batch);
  ASSERT_EQ(ask(now_), 2U);
  const base::Nanos later = base::Clock().now() + 2 * timeout_ns;
  EXPECT_TRUE(flights_.any_late(later));
  flights_.stood_still(2 * timeout_ns);
  EXPECT_FALSE(flights_.any_late(later));
  answer_all();
}

TEST_F(FlightsTest, WhatIsLateBeforeItIsAskedForSaysWhoseItWas) {
  Batch batch(Urgency::awaited);
  post(batch);
  EXPECT_EQ(ask(base::Clock().now() + 2 * timeout_ns), 0U);
  flights_.settle();
  ASSERT_TRUE(batch.is_over && !batch.outcome);
  EXPECT_EQ(batch.outcome.error().code, Errc::timed_out);
  EXPECT_EQ(batch.outcome.error().detail, "there: the deadline passed before it was sent");
}

// Receive: a port that is over, because the host has ended it or for another reason, with a batch that is
// over, two of which a part is answered, and one that is not asked for. Expect: the first is as it was; of
// the others, one that may have swapped a word is in doubt, and the others are not if the host has said so.
// Of reads nothing is said, since they do nothing that could have happened.
TEST_F(FlightsTest, WhatIsUnderWayWhenThePortEndsIsUndoneOrInDoubt) {
  for (const Errc why : {Errc::moved, Errc::unavailable}) {
    Batch over(Urgency::awaited);
    Batch reads(Urgency::awaited);
    Batch swaps(Urgency::awaited);
    Batch waits(Urgency::awaited);
    for (Batch* batch : {&swaps, &waits}) batch->operations[1].kind = Operation::Kind::compare_swap;
    for (Batch* batch : {&over, &reads, &swaps}) post(*batch);
    ASSERT_EQ(ask(now_), 6U);
    post(waits);
    for (const std::size_t answered : {0U, 1U, 2U, 4U}) --asked_[answered]->pieces;
    asked_[4]->may_have_swapped = true;
    asked_.clear();
    flights_.end_all(Flights::Ending::of({.code = why, .detail = "why"}, "there"));
    const Errc undone = why == Errc::moved ? Errc::moved : Errc::unavailable;
    EXPECT_TRUE(over.outcome.has_value());
    EXPECT_EQ(swaps.outcome.error().code, Errc::unavailable);
    EXPECT_EQ(reads.outcome.error().code, undone);
    EXPECT_EQ(waits.outcome.error().code, undone);
    const std::string doubt = "there: why; it may or may not have happened";
    EXPECT_EQ(swaps.outcome.error().detail, doubt);
    EXPECT_EQ(reads.outcome.error().detail, "there: why");
    EXPECT_EQ(waits.outcome.error().detail, why == Errc::moved ? "there: why; it did not happen" : doubt);
    EXPECT_TRUE(flights_.empty());
  }
}

}  // namespace
}  // namespace loch::fabric::remote
