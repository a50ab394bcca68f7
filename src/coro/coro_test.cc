#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <loch/coro/task.h>

#include "coro/background.h"
#include "coro/event.h"
#include "coro/mutex.h"
#include "coro/run_queue.h"
#include "coro/scope.h"

namespace loch::coro {
namespace {

class CoroTest : public testing::Test {
 protected:
  void run() {
    for (;;) {
      while (queue_.run_one()) {
      }
      const base::Nanos next = queue_.run_timers();
      if (queue_.idle() && next == 0) return;
      if (queue_.idle()) time_ = next;
    }
  }

  std::atomic<base::Nanos> time_{base::second_ns};
  RunQueue queue_{base::Clock(&time_)};
};

Task<int> answer(int value) { co_return value; }

Task<int> sum_of_two() {
  const int a = co_await answer(1);
  co_return a + co_await answer(2);
}

Task<int> after_a_yield(RunQueue* queue, int value) {
  co_await queue->yield();
  co_return value;
}

Task<int> sum_in_turns(RunQueue* queue, int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; ++i) sum += co_await after_a_yield(queue, i);
  co_return sum;
}

TEST_F(CoroTest, ATaskThatNeverSuspendsFinishesInStart) {
  Task<int> task = sum_of_two();
  task.start();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 3);
}

TEST_F(CoroTest, ATaskThatSuspendsGoesOnFromTheQueue) {
  Task<int> task = sum_in_turns(&queue_, 1000);
  task.start();
  EXPECT_FALSE(task.done());
  run();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 1000 * 999 / 2);
}

TEST_F(CoroTest, ATaskThatIsNeverStartedRunsNothing) {
  bool ran = false;
  struct Body {
    static Task<> run(bool* flag) {
      *flag = true;
      co_return;
    }
  };
  {
    const Task<> task = Body::run(&ran);
  }
  EXPECT_FALSE(ran);
}

Task<int> joins_children(RunQueue* queue, int children) {
  std::vector<Task<int>> tasks;
  for (int i = 0; i < children; ++i) tasks.push_back(i % 2 == 0 ? answer(i) : after_a_yield(queue, i));
  Scope scope(*queue);
  for (auto& task : tasks) scope.start(task);
  co_await scope.join();
  int sum = 0;
  for (auto& task : tasks) sum += task.take();
  co_return sum;
}

TEST_F(CoroTest, AScopeJoinsChildrenThatFinishedAtOnceAndLater) {
  Task<int> task = joins_children(&queue_, 10);
  task.start();
  run();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.take(), 45);
}

Task<> until_cancelled(RunQueue* queue, Scope* scope, int* rounds) {
  while (!scope->cancelled()) {
    ++*rounds;
    co_await queue->yield();
  }
}

Task<int> cancels(RunQueue* queue) {
  int rounds = 0;
  Scope scope(*queue);
  Task<> child = until_cancelled(queue, &scope, &rounds);
  scope.start(child);
  co_await queue->yield();
  scope.cancel();
  co_await scope.join();
  co_return rounds;
}

TEST_F(CoroTest, CancellationDrains) {
  Task<int> task = cancels(&queue_);
  task.start();
  run();
  ASSERT_TRUE(task.done());
  EXPECT_GE(task.take(), 1);
}

Task<bool> waits(Event* event, base::Nanos deadline) { co_return co_await event->wait(deadline); }

TEST_F(CoroTest, AnEventWakesItsWaitersOrTheirDeadlinesDo) {
  Event event(queue_);
  Task<bool> patient = waits(&event, time_ + base::second_ns);
  Task<bool> hasty = waits(&event, time_ + base::millisecond_ns);
  patient.start();
  hasty.start();
  time_ += 2 * base::millisecond_ns;
  queue_.run_timers();
  while (queue_.run_one()) {
  }
  ASSERT_TRUE(hasty.done());
  EXPECT_FALSE(hasty.take());
  EXPECT_FALSE(patient.done());
  event.set();
  while (queue_.run_one()) {
  }
  ASSERT_TRUE(patient.done());
  EXPECT_TRUE(patient.take());
}

Task<> sleeps(RunQueue* queue, base::Nanos until, std::vector<int>* order, int name) {
  co_await queue->sleep_until(until);
  order->push_back(name);
}

TEST_F(CoroTest, SleepersWakeInTheOrderOfTheirTimes) {
  std::vector<int> order;
  const base::Nanos start = time_;
  Task<> late = sleeps(&queue_, start + 20 * base::millisecond_ns, &order, 2);
  Task<> early = sleeps(&queue_, start + 10 * base::millisecond_ns, &order, 1);
  late.start();
  early.start();
  run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

Task<> takes_a_turn(Mutex* mutex, RunQueue* queue, std::string* order, char name) {
  const auto turn = co_await mutex->lock();
  *order += name;
  co_await queue->yield();
  *order += name;
}

TEST_F(CoroTest, AMutexGivesTurnsInTheOrderOfThoseWhoAsked) {
  Mutex mutex(queue_);
  std::string order;
  std::vector<Task<>> tasks;
  for (const char name : {'a', 'b', 'c'}) tasks.push_back(takes_a_turn(&mutex, &queue_, &order, name));
  for (auto& task : tasks) task.start();
  while (queue_.run_one()) {
  }
  EXPECT_EQ(order, "aabbcc");
  tasks[0] = takes_a_turn(&mutex, &queue_, &order, 'd');
  tasks[0].start();
  while (queue_.run_one()) {
  }
  EXPECT_EQ(order, "aabbccdd");
}

Task<> drains(Background* background, bool* drained) {
  co_await background->drain();
  *drained = true;
}

TEST_F(CoroTest, WhatGoesOnInTheBackgroundIsDrained) {
  std::vector<int> order;
  Background background(queue_);
  background.start(sleeps(&queue_, 0, &order, 1));
  EXPECT_EQ(background.running(), 0U) << "it never waited";
  const base::Nanos start = time_;
  background.start(sleeps(&queue_, start + 20 * base::millisecond_ns, &order, 3));
  background.start(sleeps(&queue_, start + 10 * base::millisecond_ns, &order, 2));
  EXPECT_EQ(background.running(), 2U);
  bool drained = false;
  Task<> drain = drains(&background, &drained);
  drain.start();
  EXPECT_FALSE(drained);
  run();
  EXPECT_TRUE(drained);
  EXPECT_EQ(background.running(), 0U);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  Task<> at_once = drains(&background, &drained);
  at_once.start();
  EXPECT_TRUE(at_once.done()) << "there is nothing to wait for";
  background.start(sleeps(&queue_, time_ + 10 * base::millisecond_ns, &order, 4));
  run();
  EXPECT_EQ(background.running(), 0U) << "and nobody waits for those that come later";
}

}  // namespace
}  // namespace loch::coro
