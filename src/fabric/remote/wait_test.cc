#include "fabric/remote/wait.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "fabric/remote/remote_port.h"

namespace loch::fabric::remote {
namespace {

constexpr base::Nanos us = base::microsecond_ns;
constexpr base::Nanos now = base::second_ns;  // whenever that is

TEST(Wakefulness, EndsSoonAtFirst) {
  const Wakefulness wakefulness;
  EXPECT_FALSE(wakefulness.is_over(Wakefulness::shortest_ns, now));
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::shortest_ns + 1, now));
}

TEST(Wakefulness, LastsLongerAfterShortSleeps) {
  Wakefulness wakefulness;
  wakefulness.learn(70 * us);
  EXPECT_FALSE(wakefulness.is_over(2 * Wakefulness::shortest_ns, now));
  EXPECT_TRUE(wakefulness.is_over(2 * Wakefulness::shortest_ns + 1, now));
  for (int sleep = 0; sleep < 100; ++sleep) wakefulness.learn(Wakefulness::longest_ns);
  EXPECT_FALSE(wakefulness.is_over(Wakefulness::longest_ns, now));
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::longest_ns + 1, now));
}

TEST(Wakefulness, EndsSoonAgainAfterALongSleep) {
  Wakefulness wakefulness;
  for (int sleep = 0; sleep < 100; ++sleep) wakefulness.learn(100 * us);
  wakefulness.learn(Wakefulness::longest_ns + 1);
  EXPECT_TRUE(wakefulness.is_over(Wakefulness::shortest_ns + 1, now));
}

// A yield of the length that a processor takes for one who computes.
base::Nanos yield_for_long(Wakefulness& wakefulness, base::Nanos at) {
  const base::Nanos over = at + Wakefulness::long_yield_ns + 1;
  wakefulness.learn_yield(at, over);
  return over;
}
base::Nanos sleeps_for(const Wakefulness& wakefulness, base::Nanos since) {
  base::Nanos asleep = 0;
  while (wakefulness.is_over(0, since + asleep)) asleep += base::millisecond_ns;
  return asleep;
}

TEST(Wakefulness, OutlastsYieldsToThoseThatWait) {
  Wakefulness wakefulness;
  wakefulness.learn_yield(now, now + Wakefulness::long_yield_ns);
  EXPECT_EQ(sleeps_for(wakefulness, now), 0);
}

TEST(Wakefulness, IsOverForAWhileAfterAYieldToOneWhoComputes) {
  Wakefulness wakefulness;
  const base::Nanos over = yield_for_long(wakefulness, now);
  EXPECT_EQ(sleeps_for(wakefulness, over), Wakefulness::shortest_asleep_ns);
}

TEST(Wakefulness, IsOverForLongerIfThatHappensAgainSoon) {
  Wakefulness wakefulness;
  base::Nanos at = now;
  base::Nanos asleep = 0;
  for (base::Nanos wanted = Wakefulness::shortest_asleep_ns; wanted < 4 * Wakefulness::longest_asleep_ns;
       wanted *= 2) {
    at = yield_for_long(wakefulness, at + asleep);
    asleep = sleeps_for(wakefulness, at);
    EXPECT_EQ(asleep, std::min(wanted, Wakefulness::longest_asleep_ns));
  }
  // As long awake as it had slept.
  at = yield_for_long(wakefulness, at + 2 * asleep);
  EXPECT_EQ(sleeps_for(wakefulness, at), Wakefulness::shortest_asleep_ns);
}

// What no port here is asked for.
class FakePort : public RemotePort {
 public:
  FakePort() : RemotePort("there") {}
  void abandon() override {}
  void tell_reached(NodeSet /*nodes*/) override {}
  void give_sign(RegionId /*region*/) override {}
  Result<Mapping> map(RegionId /*region*/) override { return fail(Errc::not_found, "test"); }
  void post(std::span<Operation> /*batch*/, base::Nanos /*deadline*/, Completion& /*done*/) override {}
  Result<bool> claim_presence(std::uint32_t /*client*/) override { return false; }
  void release_presence(std::uint32_t /*client*/) override {}
  [[nodiscard]] bool present(std::uint32_t /*client*/) override { return false; }
};

// A port that waits for one answer, which has come when it has slept.
class OneAnswer final : public FakePort {
 public:
  bool progress() override {
    ++looks;
    found = has_slept;
    return found;
  }
  [[nodiscard]] bool is_idle() const override { return idle; }
  bool await(std::vector<pollfd>& /*waits*/) override {
    has_slept = true;
    return false;
  }

  int looks = 0;
  bool has_slept = false;
  bool found = false;
  bool idle = false;
};

// A port that finds out that it is over when it is about to sleep, or has slept.
class EndsInItsSleep final : public FakePort {
 public:
  explicit EndsInItsSleep(bool before) : before_(before) {}
  bool progress() override { return false; }
  [[nodiscard]] bool is_idle() const override { return severed_.has_value(); }
  bool await(std::vector<pollfd>& /*waits*/) override {
    ++sleeps;
    if (before_) severed_ = Error{};
    return false;
  }
  void awoken(std::span<const pollfd> /*waits*/) override { severed_ = Error{}; }

  int sleeps = 0;

 private:
  const bool before_;
};

// One look before it sleeps, and one that finds the answer.
TEST(PollAll, SleepsAtOnceAfterAYieldToOneWhoComputes) {
  Wakefulness wakefulness;
  const base::Nanos over = precise_now() + base::second_ns;  // for longer than this test takes
  yield_for_long(wakefulness, over);
  OneAnswer port;
  RemotePort* const ports[] = {&port};
  poll_all(ports, wakefulness, base::second_ns);
  EXPECT_TRUE(port.has_slept);
  EXPECT_EQ(port.looks, 2);
}

// A look would be a call of the kernel.
TEST(PollAll, LooksAtNoPortThatWaitsForNothing) {
  Wakefulness wakefulness;
  OneAnswer port;
  port.has_slept = true;
  OneAnswer other;
  other.idle = true;
  RemotePort* const ports[] = {&other, &port};
  poll_all(ports, wakefulness, base::second_ns);
  EXPECT_EQ(port.looks, 1);
  EXPECT_EQ(other.looks, 0);
}

// Receive: a port that is over before it sleeps, or after, and then waits for nothing any more. Expect: those
// who waited by it are let go on at once, and not when the time is over.
TEST(PollAll, EndsWhenAPortIsOverInItsSleep) {
  for (const bool before : {true, false}) {
    Wakefulness wakefulness;
    EndsInItsSleep port(before);
    RemotePort* const ports[] = {&port};
    poll_all(ports, wakefulness, base::second_ns);
    EXPECT_EQ(port.sleeps, 1) << before;
    EXPECT_TRUE(port.is_severed());
  }
}

// Receive: one that was over before. Expect: it ends no wait for the others.
TEST(PollAll, WaitsBesideAPortThatIsOver) {
  Wakefulness wakefulness;
  EndsInItsSleep over(true);
  std::vector<pollfd> waits;
  over.await(waits);
  OneAnswer port;
  RemotePort* const ports[] = {&over, &port};
  poll_all(ports, wakefulness, base::second_ns);
  EXPECT_TRUE(port.found);
}

}  // namespace
}  // namespace loch::fabric::remote
