// Recorder: what may be found under a key, and for how long.
#include "sim/run/recorder.h"

#include <gtest/gtest.h>

#include "sim/linearizability.h"
#include "sim/value.h"

namespace loch::sim {
namespace {

std::string value_of(ValueId id) {
  std::string value;
  make_value(id, 40, value);
  return value;
}

// Put under "k" from 10 on until it is answered; its time is over at 100.
ValueId put_mortal(Recorder& recorder, base::Nanos responded_ns) {
  const ValueId id = recorder.new_value();
  const auto put = recorder.invoke(1, Kind::put, "k", 10, id);
  recorder.make_mortal(put, 100);
  recorder.make_dead(put, 100);
  recorder.respond(put, Outcome::ok, responded_ns);
  return id;
}

TEST(Recorder, KnowsEachValueByItsKey) {
  Recorder recorder;
  const ValueId id = recorder.new_value();
  recorder.invoke(1, Kind::put, "k", 10, id);
  EXPECT_EQ(recorder.identify("k", value_of(id), 20).id, id);
  EXPECT_NE(recorder.identify("other", value_of(id), 20).wrong, "") << "written under another key";
  EXPECT_NE(recorder.identify("k", value_of(id + 1), 20).wrong, "") << "never written";
  EXPECT_NE(recorder.identify("k", value_of(id).substr(1), 20).wrong, "") << "cut";
}

TEST(Recorder, AMortalValueIsGoneInTime) {
  Recorder recorder;
  const ValueId id = put_mortal(recorder, 20);
  EXPECT_EQ(recorder.identify("k", value_of(id), 99).wrong, "");
  EXPECT_NE(recorder.identify("k", value_of(id), 100).wrong, "");
  const auto early = recorder.invoke(2, Kind::get, "k", 30);
  recorder.respond(early, Outcome::ok, 40, id);
  const auto late = recorder.invoke(2, Kind::get, "k", 110);
  recorder.respond(late, Outcome::not_found, 120);
  EXPECT_TRUE(check_linearizability(recorder.timeless_history()).linearizable());
  const auto too_early = recorder.invoke(2, Kind::get, "k", 50);
  recorder.respond(too_early, Outcome::not_found, 60);
  EXPECT_FALSE(check_linearizability(recorder.timeless_history()).linearizable());
}

// What is there is another one's value, and that one does not end.
TEST(Recorder, NothingElseIsGoneWithAMortalValue) {
  Recorder recorder;
  const ValueId mortal = recorder.new_value();
  const auto put = recorder.invoke(1, Kind::put, "k", 10, mortal);
  recorder.make_mortal(put, 100);
  recorder.respond(put, Outcome::ok, 20);
  const auto next = recorder.invoke(1, Kind::put, "k", 30, recorder.new_value());
  recorder.respond(next, Outcome::ok, 40);
  EXPECT_TRUE(check_linearizability(recorder.timeless_history()).linearizable());
  const auto late = recorder.invoke(2, Kind::get, "k", 110);
  recorder.respond(late, Outcome::not_found, 120);
  EXPECT_FALSE(check_linearizability(recorder.timeless_history()).linearizable());
}

// A remove may come before the end of the value that it met, or after.
TEST(Recorder, ARemoveMayBeOvertakenByTheEndOfAValue) {
  Recorder recorder;
  put_mortal(recorder, 20);
  const auto remove = recorder.invoke(1, Kind::remove, "k", 90);
  const auto get = recorder.invoke(2, Kind::get, "k", 105);
  recorder.respond(get, Outcome::not_found, 107);
  const auto again = recorder.invoke(2, Kind::remove, "k", 108);
  recorder.respond(again, Outcome::not_found, 109);
  recorder.respond(remove, Outcome::ok, 110);
  EXPECT_TRUE(check_linearizability(recorder.timeless_history()).linearizable());
  // It is over all the same: what is written later stays.
  const auto next = recorder.invoke(1, Kind::put, "k", 120, recorder.new_value());
  recorder.respond(next, Outcome::ok, 130);
  const auto late = recorder.invoke(2, Kind::get, "k", 140);
  recorder.respond(late, Outcome::not_found, 150);
  EXPECT_FALSE(check_linearizability(recorder.timeless_history()).linearizable());
}

// A replace that is under way when the time of what it expects is over may come before that or after it. What
// the time is the clients' clock says, which may be behind.
class ReplaceAtTheEnd : public testing::TestWithParam<std::pair<base::Nanos, base::Nanos>> {};

TEST_P(ReplaceAtTheEnd, MayBeOvertakenByTheEndOfWhatItExpects) {
  const auto [tick_ns, asked_at] = GetParam();
  Recorder recorder(tick_ns);
  const ValueId mortal = put_mortal(recorder, 20);
  const ValueId next = recorder.new_value();
  const auto replace = recorder.invoke(1, Kind::replace, "k", asked_at, next, mortal);
  const auto get = recorder.invoke(2, Kind::get, "k", 105);
  recorder.respond(get, Outcome::not_found, 107);
  recorder.respond(replace, Outcome::ok, 110);
  const auto after = recorder.invoke(2, Kind::get, "k", 120);
  recorder.respond(after, Outcome::ok, 121, next);
  EXPECT_TRUE(check_linearizability(recorder.timeless_history()).linearizable());
  EXPECT_FALSE(check_linearizability(recorder.history()).linearizable());
}
INSTANTIATE_TEST_SUITE_P(Recorder, ReplaceAtTheEnd,
                         testing::Values(std::pair(base::Nanos{1}, base::Nanos{90}),
                                         std::pair(base::Nanos{15}, base::Nanos{102})));

// A value whose time is over is not there any more for anybody, whatever he asks of it; as far as he knows
// the time.
struct Question {
  Kind kind = Kind::exists;
  Outcome answer = Outcome::ok;
};

class AfterTheEnd : public testing::TestWithParam<Question> {
 protected:
  static constexpr base::Nanos tick_ns = 15;
  static constexpr base::Nanos lag_ns = 20;
  static constexpr base::Nanos told_at = 105;  // the clock's first tick at which the time is over

  // Whether the answer is right if the put was answered so, and the question is asked at that time.
  static bool is_right(base::Nanos asked_at, Outcome put_outcome = Outcome::ok, base::Nanos stood_still = 0) {
    const auto [kind, answer] = GetParam();
    Recorder recorder(tick_ns, lag_ns);
    const ValueId mortal = recorder.new_value();
    const auto put = recorder.invoke(1, Kind::put, "k", 10, mortal);
    recorder.make_mortal(put, 90);
    recorder.make_dead(put, 100);
    recorder.respond(put, put_outcome, 20);
    if (stood_still != 0) recorder.add_lag(30, stood_still);
    const ValueId other = recorder.new_value();  // that nobody wrote
    const ValueId expected = answer == Outcome::changed ? other : mortal;
    const auto asked = recorder.invoke(2, kind, "k", asked_at, writes(kind) ? recorder.new_value() : no_value,
                                       expects(kind) ? expected : no_value);
    recorder.respond(asked, answer, asked_at + 1);
    return check_linearizability(recorder.timeless_history()).linearizable();
  }
};

TEST_P(AfterTheEnd, NothingIsThere) {
  EXPECT_TRUE(is_right(50));
  EXPECT_TRUE(is_right(told_at + lag_ns - 1)) << "who asks then may not know it yet";
  EXPECT_FALSE(is_right(told_at + lag_ns + 1));
  EXPECT_FALSE(is_right(1'000'000));
}

TEST_P(AfterTheEnd, TheTimeMayHaveStoodStill) {
  EXPECT_TRUE(is_right(told_at + lag_ns + 499, Outcome::ok, 500));
  EXPECT_FALSE(is_right(told_at + lag_ns + 501, Outcome::ok, 500));
}

TEST_P(AfterTheEnd, APutWithoutAnAnswerMayStillCome) { EXPECT_TRUE(is_right(1'000'000, Outcome::unknown)); }

INSTANTIATE_TEST_SUITE_P(
    Recorder, AfterTheEnd,
    testing::Values(Question{Kind::exists, Outcome::ok}, Question{Kind::insert, Outcome::exists},
                    Question{Kind::remove, Outcome::ok}, Question{Kind::replace, Outcome::ok},
                    Question{Kind::replace, Outcome::changed}, Question{Kind::remove_version, Outcome::ok}),
    [](const auto& info) {
      return std::string(name(info.param.kind)) + "_" + std::string(name(info.param.answer));
    });

// A put that takes longer than its value lives ends with nothing there, and not before it was asked.
TEST(Recorder, AValueMayEndBeforeItsPutDoes) {
  Recorder recorder;
  put_mortal(recorder, 200);
  const auto early = recorder.invoke(2, Kind::get, "k", 150);
  recorder.respond(early, Outcome::not_found, 160);
  const auto late = recorder.invoke(2, Kind::get, "k", 210);
  recorder.respond(late, Outcome::not_found, 220);
  EXPECT_TRUE(check_linearizability(recorder.timeless_history()).linearizable());
}

// Receive: a value is over; a shard's time stood still while it was handed over. Expect: a replace that knows
// the old time may still come before the end, though another one has learned of it.
TEST(Recorder, AReplaceMayKnowATimeThatStoodStill) {
  constexpr base::Nanos keeper_ns = 20;
  const auto is_right = [](bool has_moved) {
    Recorder recorder(1, keeper_ns);
    const ValueId mortal = recorder.new_value();
    const auto put = recorder.invoke(1, Kind::put, "k", 30, mortal);
    recorder.make_mortal(put, 80);
    recorder.make_dead(put, 100);
    recorder.respond(put, Outcome::ok, 35);
    if (has_moved) recorder.add_lag(90, 500);
    const ValueId next = recorder.new_value();
    const auto replace = recorder.invoke(2, Kind::replace, "k", 200, next, mortal);
    const auto get = recorder.invoke(3, Kind::get, "k", 210);
    recorder.respond(get, Outcome::not_found, 220);
    recorder.respond(replace, Outcome::ok, 230);
    return check_linearizability(recorder.timeless_history()).linearizable();
  };
  EXPECT_TRUE(is_right(true));
  EXPECT_FALSE(is_right(false));
}

// What was answered before an item was damaged counts; what comes later says nothing.
TEST(Recorder, ADamagedKeyIsJudgedByWhatCameBefore) {
  const auto is_right = [](Outcome before, Outcome after) {
    Recorder recorder;
    const ValueId value = recorder.new_value();
    const auto put = recorder.invoke(1, Kind::put, "k", 10, value);
    recorder.respond(put, Outcome::ok, 20);
    const auto early = recorder.invoke(2, Kind::exists, "k", 30);
    recorder.respond(early, before, 40);
    const auto remove = recorder.invoke(1, Kind::remove, "k", 35);
    recorder.damage("k", 50);
    recorder.respond(remove, after, 60);
    recorder.damage("k", 70);
    const auto late = recorder.invoke(2, Kind::exists, "k", 65);
    recorder.respond(late, Outcome::ok, 68);
    return check_linearizability(recorder.timeless_history()).linearizable();
  };
  EXPECT_TRUE(is_right(Outcome::ok, Outcome::ok));
  EXPECT_TRUE(is_right(Outcome::ok, Outcome::not_found));
  EXPECT_TRUE(is_right(Outcome::not_found, Outcome::ok)) << "the remove was under way";
  Recorder recorder;
  const auto put = recorder.invoke(1, Kind::put, "k", 10, recorder.new_value());
  recorder.respond(put, Outcome::ok, 20);
  const auto get = recorder.invoke(2, Kind::get, "k", 30);
  recorder.respond(get, Outcome::not_found, 40);
  recorder.damage("k", 50);
  EXPECT_FALSE(check_linearizability(recorder.timeless_history()).linearizable());
}

}  // namespace
}  // namespace loch::sim
