#include "bench/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <new>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "lab/process.h"

namespace loch::bench {
namespace {

TEST(Pool, EveryWorkerGetsItsNumberAndItsOwnProcess) {
  auto pool = Pool::make(3, [] {
    return [](const Task& task, Gathering& gathering, Outcome& outcome) {
      if (!gathering.arrive(task.workers)) outcome.fail_with("alone");
      outcome.lap.operations = task.worker;
      outcome.inserted = static_cast<std::uint64_t>(getpid());
    };
  });
  ASSERT_TRUE(pool) << pool.error().detail;
  for (std::size_t workers = 1; workers <= 3; ++workers) {
    const auto outcomes = pool->run(Task{}, workers);
    ASSERT_TRUE(outcomes) << outcomes.error().detail;
    ASSERT_EQ(outcomes->size(), workers);
    for (std::size_t worker = 0; worker < workers; ++worker) {
      EXPECT_EQ((*outcomes)[worker].lap.operations, worker);
      EXPECT_NE((*outcomes)[worker].inserted, static_cast<std::uint64_t>(getpid()));
      for (std::size_t other = 0; other < worker; ++other) {
        EXPECT_NE((*outcomes)[worker].inserted, (*outcomes)[other].inserted);
      }
    }
  }
}

TEST(Pool, WhatAWorkerReportsAsFailureIsTheErrorOfTheRunAndTheNextRunGoesOn) {
  auto pool = Pool::make(2, [] {
    return [](const Task& task, Gathering&, Outcome& outcome) {
      if (task.worker == 1 && task.seed == 7) outcome.fail_with("the seven");
    };
  });
  ASSERT_TRUE(pool);
  const auto failed = pool->run(Task{.seed = 7}, 2);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().detail.find("the seven"), std::string::npos);
  EXPECT_TRUE(pool->run(Task{.seed = 8}, 2));
}

// Receive: the second worker fails before it comes to the start, where the first waits for it. Expect: the
// first waits no longer, and the cause is told.
TEST(Pool, WhatKeepsAWorkerFromTheStartIsTheErrorOfTheRunAtOnce) {
  auto pool = Pool::make(2, [] {
    return [](const Task& task, Gathering& gathering, Outcome& outcome) {
      if (task.worker == 1) {
        outcome.fail_with("no such store");
      } else if (!gathering.arrive(task.workers)) {
        outcome.fail_with("not all workers came");
      }
    };
  });
  ASSERT_TRUE(pool);
  const auto begin = std::chrono::steady_clock::now();
  const auto failed = pool->run(Task{}, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().detail, "no such store");
}

TEST(Pool, AWorkerThatIsKilledInItsTaskEndsTheRunWithAnError) {
  auto pool = Pool::make(2, [] {
    return [](const Task& task, Gathering&, Outcome&) {
      if (task.worker == 1) kill(getpid(), SIGKILL);
    };
  });
  ASSERT_TRUE(pool);
  const auto failed = pool->run(Task{}, 2);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().detail.find("killed by signal 9"), std::string::npos) << failed.error().detail;
}

TEST(Pool, InsertCountsAreSharedWhileATaskRunsAndStartAtZero) {
  auto pool = Pool::make(2, [] {
    return [](const Task& task, Gathering& gathering, Outcome& outcome) {
      outcome.inserted = gathering.inserted(task.worker);
      gathering.set_inserted(task.worker, task.worker + 10);
      if (!gathering.arrive(task.workers)) outcome.fail_with("alone");
      outcome.lap.operations = gathering.inserted(1 - task.worker);
    };
  });
  ASSERT_TRUE(pool);
  for (int times = 0; times < 2; ++times) {
    const auto outcomes = pool->run(Task{}, 2);
    ASSERT_TRUE(outcomes);
    EXPECT_EQ((*outcomes)[0].inserted, 0u);
    EXPECT_EQ((*outcomes)[0].lap.operations, 11u);
    EXPECT_EQ((*outcomes)[1].lap.operations, 10u);
  }
}

// The workers must not outlive the process that made them, however that ends.
TEST(Pool, WorkersDieWithTheirMaker) {
  void* const memory =
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const worker = new (memory) std::atomic<pid_t>(0);
  int alive[2];  // its write end stays open as long as the maker or the worker lives
  ASSERT_EQ(pipe(alive), 0);
  auto maker = lab::Process::fork([&] {
    close(alive[0]);
    auto pool = Pool::make(
        1, [worker] { return [worker](const Task&, Gathering&, Outcome&) { worker->store(getpid()); }; });
    if (pool && pool->run(Task{})) kill(getpid(), SIGKILL);
    return 1;
  });
  close(alive[1]);
  ASSERT_TRUE(maker) << maker.error().detail;
  EXPECT_EQ(maker->wait_for_end(std::chrono::seconds(20)), lab::Ending{.signal = SIGKILL});
  EXPECT_NE(worker->load(), 0);
  char byte = 0;
  alarm(20);  // the read's deadline
  EXPECT_EQ(read(alive[0], &byte, 1), 0);
  alarm(0);
  close(alive[0]);
  munmap(memory, sizeof(std::atomic<pid_t>));
}

TEST(Pool, ZeroAndTooManyWorkersAreRefused) {
  const auto make_work = [] { return [](const Task&, Gathering&, Outcome&) {}; };
  EXPECT_FALSE(Pool::make(0, make_work));
  EXPECT_FALSE(Pool::make(workers_max + 1, make_work));
}

}  // namespace
}  // namespace loch::bench
