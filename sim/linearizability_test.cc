#include "sim/linearizability.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace loch::sim {
namespace {

// Histories of one key: {kind, invoked, responded, outcome, written or found, expected}.
Operation op(Kind kind, std::uint64_t invoked, std::uint64_t responded, Outcome outcome,
             ValueId value = no_value, ValueId expected = no_value) {
  return {.client = invoked,
          .key = "k",
          .kind = kind,
          .written = kind == Kind::get ? no_value : value,
          .expected = expected,
          .outcome = outcome,
          .found = kind == Kind::get ? value : no_value,
          .invoked_ns = invoked,
          .responded_ns = responded};
}

Operation put(std::uint64_t from, std::uint64_t to, ValueId value) {
  return op(Kind::put, from, to, Outcome::ok, value);
}
Operation got(std::uint64_t from, std::uint64_t to, ValueId value) {
  return op(Kind::get, from, to, Outcome::ok, value);
}
Operation missed(std::uint64_t from, std::uint64_t to) { return op(Kind::get, from, to, Outcome::not_found); }
Operation removed(std::uint64_t from, std::uint64_t to) { return op(Kind::remove, from, to, Outcome::ok); }
Operation exists(std::uint64_t from, std::uint64_t to, bool yes) {
  return op(Kind::exists, from, to, yes ? Outcome::ok : Outcome::not_found);
}
Operation insert(std::uint64_t from, std::uint64_t to, ValueId value, Outcome outcome = Outcome::ok) {
  return op(Kind::insert, from, to, outcome, value);
}
Operation replace(std::uint64_t from, std::uint64_t to, ValueId expected, ValueId value,
                  Outcome outcome = Outcome::ok) {
  return op(Kind::replace, from, to, outcome, value, expected);
}
// From `from` on.
Operation expire(std::uint64_t from, ValueId value) {
  return op(Kind::expire, from, never_ns, Outcome::unknown, no_value, value);
}
Operation lost(Operation operation) {
  operation.outcome = Outcome::unknown;
  operation.found = no_value;
  operation.responded_ns = never_ns;
  return operation;
}

void expect_good(const std::vector<Operation>& history) {
  const CheckResult result = check_linearizability(history);
  EXPECT_EQ(result.verdict, Verdict::linearizable) << result.explanation;
  EXPECT_EQ(result.explanation, "");
}

CheckResult expect_bad(const std::vector<Operation>& history) {
  CheckResult result = check_linearizability(history);
  EXPECT_EQ(result.verdict, Verdict::not_linearizable);
  EXPECT_EQ(result.key, "k");
  EXPECT_NE(result.explanation, "");
  return result;
}

TEST(LinearizabilityTest, AnEmptyHistoryIsLinearizable) { expect_good({}); }

TEST(LinearizabilityTest, OneAfterTheOther) {
  expect_good({missed(1, 2), put(3, 4, 10), got(5, 6, 10), exists(7, 8, true), removed(9, 10), missed(11, 12),
               op(Kind::remove, 13, 14, Outcome::not_found), insert(15, 16, 11),
               insert(17, 18, 12, Outcome::exists), replace(19, 20, 11, 13),
               replace(21, 22, 11, 14, Outcome::changed), got(23, 24, 13), removed(25, 26),
               replace(27, 28, 13, 15, Outcome::not_found), exists(29, 30, false)});
}

TEST(LinearizabilityTest, AnEraseLeavesNothing) {
  const Operation erased = op(Kind::erase, 3, 4, Outcome::ok);
  expect_good({put(1, 2, 10), erased, missed(5, 6)});
  expect_good({erased, missed(5, 6)});
  expect_bad({put(1, 2, 10), erased, got(5, 6, 10)});
  expect_good({put(1, 2, 10), lost(erased), missed(5, 6)});
  expect_good({put(1, 2, 10), lost(erased), got(5, 6, 10)});
}

TEST(LinearizabilityTest, AValueMayVanishWhenItsTimeIsOver) {
  const Operation over = expire(3, 10);
  expect_good({put(1, 2, 10), over, missed(5, 6)});
  expect_good({put(1, 2, 10), over, got(5, 6, 10), got(7, 8, 10)});
  expect_good({put(1, 2, 10), over, got(5, 6, 10), missed(7, 8), insert(9, 10, 11)});
  expect_bad({put(1, 2, 10), over, missed(5, 6), got(7, 8, 10)});
  expect_bad({put(1, 2, 10), expire(7, 10), missed(5, 6)});
}

TEST(LinearizabilityTest, NoOtherValueVanishesInstead) {
  expect_bad({put(1, 2, 10), expire(3, 10), put(4, 5, 11), missed(6, 7)});
  expect_bad({put(1, 2, 10), expire(3, 10), put(4, 5, 11), got(6, 7, 11), missed(8, 9)});
  expect_bad({put(1, 2, 10), expire(3, 77), missed(4, 5)});
  // Its writer had no effect.
  expect_bad({put(1, 2, 10), insert(3, 4, 11, Outcome::exists), expire(3, 11), missed(6, 7)});
  expect_bad({put(1, 2, 10), op(Kind::put, 3, 4, Outcome::failed, 11), expire(3, 11), missed(6, 7)});
  // It vanishes once.
  expect_bad({put(1, 2, 10), expire(3, 10), missed(4, 5), put(6, 7, 11), expire(6, 10), missed(8, 9)});
}

TEST(LinearizabilityTest, AValueOfUnknownOutcomeThatNobodyReadMayVanishToo) {
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), expire(4, 11), missed(5, 6)});
  expect_good({put(1, 2, 10), lost(replace(3, 0, 10, 11)), expire(4, 11), missed(5, 6)});
  expect_bad({put(1, 2, 10), lost(insert(3, 0, 11)), expire(4, 11), missed(5, 6)});
  // The value comes of two others that nobody read either.
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), lost(replace(3, 0, 11, 12)), lost(replace(3, 0, 12, 13)),
               expire(4, 13), missed(5, 6)});
  expect_bad(
      {put(1, 2, 10), lost(replace(3, 0, 11, 12)), lost(replace(3, 0, 12, 11)), expire(4, 12), missed(5, 6)});
}

TEST(LinearizabilityTest, AValueIsGoneWhenItsTimeIsKnownToBeOver) {
  const Operation over = op(Kind::expire, 3, 6, Outcome::ok, no_value, 10);
  expect_good({put(1, 2, 10), over, got(5, 6, 10), missed(7, 8)});
  expect_bad({put(1, 2, 10), over, got(7, 8, 10)});
  expect_bad({put(1, 2, 10), over, missed(3, 4), got(5, 6, 10)});
  const std::vector<std::pair<Operation, Operation>> now_and_later = {
      {exists(6, 8, true), exists(7, 8, true)},
      {insert(6, 8, 11, Outcome::exists), insert(7, 8, 11, Outcome::exists)},
      {replace(6, 8, 10, 11), replace(7, 8, 10, 11)},
      {replace(6, 8, 9, 11, Outcome::changed), replace(7, 8, 9, 11, Outcome::changed)},
      {removed(6, 8), removed(7, 8)},
      {op(Kind::remove_version, 6, 8, Outcome::ok, no_value, 10),
       op(Kind::remove_version, 7, 8, Outcome::ok, no_value, 10)}};
  for (const auto& [now, later] : now_and_later) {
    expect_good({put(1, 2, 10), over, now});
    expect_bad({put(1, 2, 10), over, later});
  }
  expect_good({put(1, 2, 10), over, insert(7, 8, 11), got(9, 10, 11)});
  expect_good({put(1, 2, 10), over, op(Kind::remove, 7, 8, Outcome::not_found)});
}

TEST(LinearizabilityTest, NothingElseIsGoneWithAValueWhoseTimeIsOver) {
  const Operation over = op(Kind::expire, 3, 6, Outcome::ok, no_value, 10);
  expect_good({put(1, 2, 10), put(3, 4, 11), over, got(7, 8, 11)});
  expect_bad({put(1, 2, 10), put(3, 4, 11), over, missed(7, 8)});
  expect_good({put(1, 2, 9), over, exists(7, 8, true)});
  // It was refused, or had no effect.
  expect_good({put(1, 2, 9), insert(3, 4, 10, Outcome::exists), over, exists(7, 8, true)});
  expect_good({put(1, 2, 9), op(Kind::put, 3, 4, Outcome::failed, 10), over, got(7, 8, 9)});
  // It was not there before its time was over, but it was there.
  expect_good({put(1, 2, 9), put(3, 7, 10), op(Kind::expire, 3, 7, Outcome::ok, no_value, 10), missed(8, 9)});
  expect_bad({put(1, 2, 9), put(3, 7, 10), op(Kind::expire, 3, 7, Outcome::ok, no_value, 10), got(8, 9, 10)});
  // It came, or comes, when its time was over.
  expect_good({put(1, 2, 9), lost(put(3, 0, 10)), over, got(7, 8, 9), got(9, 10, 10)});
  expect_good({put(1, 2, 9), lost(put(3, 0, 10)), over, missed(7, 8)});
  expect_bad({put(1, 2, 9), lost(put(3, 0, 10)), over, missed(7, 8), got(9, 10, 10)});
}

// Receive: a value that ends between 10 and 20, and somebody who finds nothing there at 13; a replace of that
// value. Expect: if it was under way at the end, it may have come after that; not, if it was over before
// anybody found nothing, or began when the value had to be gone, or when there was another one.
TEST(LinearizabilityTest, AReplaceMayBeOvertakenByTheEndOfWhatItExpects) {
  const Operation over = op(Kind::expire, 10, 20, Outcome::ok, no_value, 10);
  const auto with = [&over](const Operation& replacing) {
    std::vector<Operation> history = {put(1, 2, 10), over, missed(13, 14), replacing, got(30, 31, 11)};
    let_ends_overtake_replaces(history);
    return history;
  };
  expect_good(with(replace(5, 25, 10, 11)));
  expect_good(with(replace(19, 25, 10, 11)));
  expect_good(with(lost(replace(5, 0, 10, 11))));
  expect_bad(with(replace(5, 12, 10, 11)));
  expect_bad(with(replace(21, 25, 10, 11)));
  expect_bad(with(lost(replace(21, 0, 10, 11))));
  expect_bad(with(replace(5, 25, 9, 11)));
  expect_bad({put(1, 2, 10), over, missed(13, 14), replace(5, 25, 10, 11), got(30, 31, 11)});
  // One that was over before the end tells that the value was there.
  std::vector<Operation> before = {put(1, 2, 10), removed(3, 4), replace(5, 9, 10, 11), over};
  let_ends_overtake_replaces(before);
  expect_bad(before);
  // So does one that was refused.
  std::vector<Operation> refused = {put(1, 2, 10), over, replace(5, 25, 9, 11, Outcome::changed)};
  let_ends_overtake_replaces(refused);
  expect_good(refused);
  refused.erase(refused.begin());
  expect_bad(refused);
}

// Receive: the end of a value by a clock that nobody compares with the history's. Expect: the value may be
// gone as soon as it is written, and may stay; no other one ends instead.
TEST(LinearizabilityTest, AValueMayEndByAnotherClock) {
  const Operation over = op(Kind::expire, 10, 20, Outcome::ok, no_value, 10);
  const auto by_another_clock = [&over](std::vector<Operation> history) {
    history.push_back(over);
    let_ends_overtake_replaces(history);
    expect_bad(history);
    history.back() = over;
    forget_when_values_end(history);
    return history;
  };
  expect_good(by_another_clock({put(1, 6, 10), missed(7, 8)}));
  expect_good(by_another_clock({put(1, 6, 10), got(2, 3, 10), missed(4, 5)}));
  expect_good(by_another_clock({put(1, 6, 10), got(30, 31, 10)}));
  expect_bad(by_another_clock({put(1, 6, 10), missed(7, 8), got(9, 10, 10)}));
  expect_bad(by_another_clock({put(1, 6, 10), put(7, 8, 11), missed(9, 10)}));
  expect_bad(by_another_clock({got(1, 2, 10), put(3, 4, 10)}));
}

// All ends are under way together, and of values that are not there any more.
TEST(LinearizabilityTest, ManyEndsThatAreKnownAreNotManyOrders) {
  std::vector<Operation> history;
  for (std::uint64_t t = 2; t < 200; t += 4) {
    history.insert(history.end(), {put(t, t + 1, t), op(Kind::expire, t, 2000, Outcome::ok, no_value, t)});
  }
  history.push_back(missed(1000, 1001));
  history.push_back(exists(1002, 1003, true));
  const CheckResult result = check_linearizability(history, {.configurations_max = 10'000});
  EXPECT_EQ(result.verdict, Verdict::not_linearizable) << result.explanation;
}

// Every value may vanish, and the one that does not is read at the end.
TEST(LinearizabilityTest, ManyEndsAreNotManyOrders) {
  std::vector<Operation> history;
  for (std::uint64_t t = 2; t < 1000; t += 4) {
    history.insert(history.end(), {put(t, t + 1, t), expire(t + 1, t), exists(t + 2, t + 3, t % 8 == 2)});
  }
  history.push_back(put(1000, 1001, 1000));
  history.push_back(missed(1002, 1003));
  const CheckResult result = check_linearizability(history, {.configurations_max = 10'000});
  EXPECT_EQ(result.verdict, Verdict::not_linearizable) << result.explanation;
}

TEST(LinearizabilityTest, AReadBesideAWriteMayGiveEither) {
  expect_good({put(1, 2, 10), put(3, 8, 11), got(4, 5, 10)});
  expect_good({put(1, 2, 10), put(3, 8, 11), got(4, 5, 11)});
  expect_good({put(1, 2, 10), put(3, 8, 11), got(4, 5, 10), got(6, 7, 11)});
}

TEST(LinearizabilityTest, TwoReadsBesideAWriteKeepTheirOrder) {
  expect_bad({put(1, 2, 10), put(3, 8, 11), got(4, 5, 11), got(6, 7, 10)});
}

TEST(LinearizabilityTest, AStaleReadIsFound) { expect_bad({put(1, 2, 10), put(3, 4, 11), got(5, 6, 10)}); }

TEST(LinearizabilityTest, ARemoveOfAVersionRemovesThatAlone) {
  const auto removed_version = [](std::uint64_t from, std::uint64_t to, Outcome outcome) {
    return op(Kind::remove_version, from, to, outcome, no_value, 10);
  };
  expect_good({put(1, 2, 10), removed_version(3, 4, Outcome::ok), missed(5, 6)});
  expect_bad({put(1, 2, 10), removed_version(3, 4, Outcome::ok), got(5, 6, 10)});
  expect_bad({put(1, 2, 10), put(3, 4, 11), removed_version(5, 6, Outcome::ok)});
  expect_good({put(1, 2, 10), put(3, 4, 11), removed_version(5, 6, Outcome::changed), got(7, 8, 11)});
  expect_bad({put(1, 2, 10), removed_version(3, 4, Outcome::changed)});
  expect_good({put(1, 2, 10), removed(3, 4), removed_version(5, 6, Outcome::not_found)});
  expect_bad({put(1, 2, 10), removed_version(3, 4, Outcome::not_found)});
  expect_good({put(1, 2, 10), lost(removed_version(3, 0, Outcome::ok)), got(5, 6, 10), missed(7, 8)});
  expect_bad({put(1, 2, 10), put(3, 4, 11), lost(removed_version(3, 0, Outcome::ok)), missed(7, 8)});
}

TEST(LinearizabilityTest, TimesThatAreEqualOrderNothing) {
  expect_good({put(1, 2, 10), put(3, 5, 11), got(5, 6, 10)});
}

TEST(LinearizabilityTest, ALostUpdateIsFound) {
  // Two replaces of one value both succeed.
  expect_bad({put(1, 2, 10), replace(3, 6, 10, 11), replace(4, 7, 10, 12)});
  // A put that was acknowledged is gone.
  expect_bad({put(1, 2, 10), missed(3, 4)});
}

TEST(LinearizabilityTest, AValueResurrectedAfterARemoveIsFound) {
  expect_bad({put(1, 2, 10), removed(3, 4), got(5, 6, 10)});
  expect_bad({put(1, 2, 10), removed(3, 4), missed(5, 6), exists(7, 8, true)});
}

TEST(LinearizabilityTest, TwoInsertsThatSucceedAreFound) {
  expect_bad({insert(1, 4, 10), insert(2, 5, 11)});
  expect_good({insert(1, 4, 10), insert(2, 5, 11), removed(3, 6)});
}

TEST(LinearizabilityTest, AReadFromTheFutureIsFound) { expect_bad({got(1, 2, 10), put(3, 4, 10)}); }

TEST(LinearizabilityTest, AValueThatWasNeverWrittenIsFound) {
  const CheckResult result = expect_bad({put(1, 2, 10), got(3, 4, 77)});
  EXPECT_NE(result.explanation.find("Nobody had begun to write value 77"), std::string::npos)
      << result.explanation;
}

TEST(LinearizabilityTest, AFailedWriteHasNoEffect) {
  expect_bad({op(Kind::put, 1, 2, Outcome::failed, 10), got(3, 4, 10)});
  expect_good({op(Kind::put, 1, 2, Outcome::failed, 10), missed(3, 4)});
}

TEST(LinearizabilityTest, ARefusedInsertWritesNothing) {
  expect_bad({put(1, 2, 10), insert(3, 6, 11, Outcome::exists), got(4, 5, 11)});
}

TEST(LinearizabilityTest, AnOrderThatIsNotThatOfTimeIsFound) {
  // Would be fine with the two puts the other way round.
  expect_bad({put(1, 2, 10), put(3, 4, 11), replace(5, 6, 10, 12)});
}

TEST(LinearizabilityTest, AReplaceOfAStaleVersionIsFound) {
  expect_bad({put(1, 2, 10), put(3, 4, 11), replace(5, 6, 10, 12)});
  expect_bad({put(1, 2, 10), replace(3, 4, 10, 11, Outcome::changed)});
  expect_bad({put(1, 2, 10), replace(3, 4, 9, 11, Outcome::not_found)});
  expect_good({put(1, 2, 10), put(3, 4, 11), replace(5, 6, 10, 12, Outcome::changed)});
}

TEST(LinearizabilityTest, AWriteOfUnknownOutcomeMayHaveHappenedOrNot) {
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), got(5, 6, 10)});
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), got(5, 6, 11)});
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), got(5, 6, 10), got(7, 8, 11)});
}

TEST(LinearizabilityTest, AWriteOfUnknownOutcomeHappensOnceAndAfterItsInvocation) {
  expect_bad({put(1, 2, 10), lost(put(3, 0, 11)), got(5, 6, 11), got(7, 8, 10)});
  expect_bad({put(1, 2, 10), got(3, 4, 11), lost(put(5, 0, 11))});
  expect_bad({put(1, 2, 10), lost(put(3, 0, 11)), got(5, 6, 11), put(7, 8, 12), got(9, 10, 11)});
}

TEST(LinearizabilityTest, ARemoveOfUnknownOutcomeExplainsOneAbsence) {
  expect_good({put(1, 2, 10), lost(op(Kind::remove, 3, 0, Outcome::ok)), missed(5, 6)});
  expect_good({put(1, 2, 10), lost(op(Kind::remove, 3, 0, Outcome::ok)), got(5, 6, 10)});
  expect_bad(
      {put(1, 2, 10), lost(op(Kind::remove, 3, 0, Outcome::ok)), missed(5, 6), put(7, 8, 11), missed(9, 10)});
  expect_good({put(1, 2, 10), lost(op(Kind::remove, 3, 0, Outcome::ok)), missed(5, 6), put(7, 8, 11),
               lost(op(Kind::remove, 9, 0, Outcome::ok)), missed(11, 12)});
}

TEST(LinearizabilityTest, AWriteOfUnknownOutcomeThatNobodyReadStillExplainsPresence) {
  expect_good({lost(put(1, 0, 10)), exists(3, 4, true)});
  expect_good({put(1, 2, 10), lost(put(3, 0, 11)), replace(5, 6, 10, 12, Outcome::changed), removed(7, 8)});
  expect_bad({lost(replace(1, 0, 9, 10)), exists(3, 4, true)});
  expect_good({put(1, 2, 9), lost(replace(3, 0, 9, 10)), replace(5, 6, 9, 11, Outcome::changed)});
  expect_bad({put(1, 2, 9), lost(replace(3, 0, 8, 10)), replace(5, 6, 9, 11, Outcome::changed)});
  expect_bad({put(1, 2, 10), lost(insert(3, 0, 11)), replace(5, 6, 10, 12, Outcome::changed)});
  // The insert after the remove, both of killed clients.
  expect_good({put(1, 2, 10), lost(insert(3, 0, 11)), lost(op(Kind::remove, 3, 0, Outcome::ok)),
               replace(5, 6, 10, 12, Outcome::changed)});
}

TEST(LinearizabilityTest, AChainOfLostReplacesIsFollowed) {
  expect_good({put(1, 2, 10), lost(replace(3, 0, 10, 11)), lost(replace(3, 0, 11, 12)), got(5, 6, 12)});
  expect_bad({put(1, 2, 10), lost(replace(3, 0, 10, 11)), lost(replace(3, 0, 11, 12)), got(5, 6, 12),
              got(7, 8, 11)});
  expect_bad({put(1, 2, 10), lost(replace(3, 0, 11, 12)), got(5, 6, 12)});
}

TEST(LinearizabilityTest, AWriteThatIsStoppedForLongSpansEverythingMeanwhile) {
  std::vector<Operation> history = {put(1, 100'000, 1)};
  for (std::uint64_t t = 2; t < 99'000; t += 6) {
    history.push_back(put(t, t + 1, t));
    history.push_back(got(t + 2, t + 3, t == 49'994 ? 1 : t));
  }
  expect_good(history);
  history.push_back(got(99'500, 99'501, 1));  // it can not happen twice
  expect_bad(history);
}

// The first write is over before any read began, and every other one may come before it: the search is to
// find out at once that none does, because each is read later.
TEST(LinearizabilityTest, AValueThatIsStillToBeReadStays) {
  std::vector<Operation> history = {put(0, 40, 1)};
  for (ValueId value = 2; value < 30; ++value) {
    history.push_back(put(0, 1'000, value));
    history.push_back(got(50, 100, value));
  }
  const CheckResult result = check_linearizability(history, {.configurations_max = 10'000});
  EXPECT_EQ(result.verdict, Verdict::linearizable) << result.explanation;
}

// Of the writes that are alike the search need not try every order, nor every subset, though all are in
// flight at once.
TEST(LinearizabilityTest, WritesThatAreAlikeAreTakenInTheOrderOfTime) {
  std::vector<Operation> history;
  for (std::uint64_t i = 1; i <= 40; ++i) {
    history.push_back(put(i, 1000 + i, i));
    history.push_back(op(Kind::remove, i, 1000 + i, i == 40 ? Outcome::not_found : Outcome::ok));
  }
  const CheckResult good = check_linearizability(history, {.configurations_max = 100'000});
  EXPECT_EQ(good.verdict, Verdict::linearizable) << good.explanation;
  history.push_back(removed(2000, 2001));
  history.push_back(removed(2002, 2003));
  const CheckResult bad = check_linearizability(history, {.configurations_max = 100'000});
  EXPECT_EQ(bad.verdict, Verdict::not_linearizable) << bad.explanation;
}

TEST(LinearizabilityTest, KeysAreIndependent) {
  Operation other = got(3, 4, 11);
  other.key = "other";
  std::vector<Operation> history = {put(1, 2, 10), got(3, 4, 10), other};
  CheckResult result = check_linearizability(history);
  EXPECT_EQ(result.verdict, Verdict::not_linearizable);
  EXPECT_EQ(result.key, "other");
  other = put(1, 2, 11);
  other.key = "other";
  history.push_back(other);
  expect_good(history);
}

TEST(LinearizabilityTest, TheExplanationNamesTheResponseTheStatesAndTheOperations) {
  std::vector<Operation> history;
  for (std::uint64_t t = 1; t < 4000; t += 4) {
    history.push_back(put(t, t + 1, t));
    history.push_back(got(t + 2, t + 3, t == 2001 ? 1997 : t));
  }
  const CheckResult result = expect_bad(history);
  EXPECT_NE(result.explanation.find("explains the first 1001 responses"), std::string::npos)
      << result.explanation;
  EXPECT_NE(result.explanation.find("client 2003: get k -> ok 1997"), std::string::npos)
      << result.explanation;
  EXPECT_NE(result.explanation.find("the key was: a value that nobody read"), std::string::npos)
      << result.explanation;
  EXPECT_NE(result.explanation.find("put k 1997"), std::string::npos) << result.explanation;
  EXPECT_EQ(result.explanation.find("put k 2005"), std::string::npos) << "later than the violation";
  EXPECT_LT(std::ranges::count(result.explanation, '\n'), 30);
}

// Writes all within each other and an absence that no order explains: every subset has to be looked at.
std::vector<Operation> hard_to_decide() {
  std::vector<Operation> history = {missed(2000, 2001)};
  for (std::uint64_t i = 1; i <= 24; ++i) history.push_back(put(i, 1100 - i, i));
  return history;
}

TEST(LinearizabilityTest, PastTheLimitNothingIsDecided) {
  const std::vector<Operation> history = hard_to_decide();
  const CheckResult result = check_linearizability(history, {.configurations_max = 1000});
  EXPECT_EQ(result.verdict, Verdict::undecided);
  EXPECT_FALSE(result.linearizable());
  EXPECT_NE(result.explanation.find("1000 configurations"), std::string::npos);
}

TEST(LinearizabilityTest, AViolationIsReportedBeforeAnUndecidedKey) {
  std::vector<Operation> history = hard_to_decide();
  for (Operation& operation : history) operation.key = "a";
  history.insert(history.end(), {put(1, 2, 10), missed(3, 4)});
  const CheckResult result = check_linearizability(history, {.configurations_max = 1000});
  EXPECT_EQ(result.verdict, Verdict::not_linearizable);
  EXPECT_EQ(result.key, "k");
}

TEST(LinearizabilityTest, WhatIsNoHistoryIsMalformed) {
  const std::vector<std::vector<Operation>> malformed = {
      {put(1, 2, 10), put(3, 4, 10)},
      {put(1, 2, no_value)},
      {got(1, 2, no_value)},
      {got(2, 1, 10)},
      {op(Kind::put, 1, 2, Outcome::not_found, 10)},
      {op(Kind::get, 1, 2, Outcome::changed)},
      {op(Kind::remove, 1, 2, Outcome::exists)},
      {op(Kind::erase, 1, 2, Outcome::not_found)},
      {op(Kind::replace, 1, 2, Outcome::ok, 10, no_value)},
      {expire(1, no_value)},
      {op(Kind::expire, 1, 2, Outcome::not_found, no_value, 10)},
      {op(Kind::expire, 1, 2, Outcome::changed, no_value, 10)},
  };
  for (const auto& history : malformed) {
    const CheckResult result = check_linearizability(history);
    EXPECT_EQ(result.verdict, Verdict::malformed) << describe(history.back());
    EXPECT_FALSE(result.linearizable());
  }
}

}  // namespace
}  // namespace loch::sim
