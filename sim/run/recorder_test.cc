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
  const ValueId id = recorder.new_value();
  const auto put = recorder.invoke(1, Kind::put, "k", 10, id);
  recorder.make_mortal(put, 100);
  recorder.make_dead(put, 100);
  recorder.respond(put, Outcome::ok, 20);
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
  const ValueId mortal = recorder.new_value();
  const auto put = recorder.invoke(1, Kind::put, "k", 10, mortal);
  recorder.make_mortal(put, 100);
  recorder.make_dead(put, 100);
  recorder.respond(put, Outcome::ok, 20);
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
  const ValueId mortal = recorder.new_value();
  const auto put = recorder.invoke(1, Kind::put, "k", 10, mortal);
  recorder.make_mortal(put, 100);
  recorder.make_dead(put, 100);
  recorder.respond(put, Outcome::ok, 20);
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

}  // namespace
}  // namespace loch::sim
