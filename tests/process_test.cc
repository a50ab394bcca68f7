// Several processes on one store: beside each other, killed at random moments, and stopped for longer than
// the memory that they saw rests. Each test ends with a history that has to be linearizable and a store that
// has to be in order.
//
// LOCH_TEST_KILLS: how many clients are killed at random moments (2,000).
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <vector>

#include "tests/store_processes.h"

namespace loch::tests {
namespace {

class ProcessTest : public StoreProcesses {
 protected:
  ProcessTest() { call_time_max_ = call_held_up_max; }
};

std::uint64_t kills_wanted() {
  const char* text = std::getenv("LOCH_TEST_KILLS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 2'000;
}

TEST_F(ProcessTest, FourWorkersOnFourHotKeysAreLinearizable) {
  std::vector<Worker> workers;
  for (const char* mix : {"write-heavy", "write-heavy", "insert-remove", "read-heavy"}) {
    workers.push_back(start(
        {.mix = mix, .value_bytes = 16, .value_bytes_max = 600, .iterate = true, .operations = 20'000}));
  }
  for (Worker& worker : workers) {
    const WorkerReport report = await(worker);
    EXPECT_GE(report.operations, 20'000U);
    EXPECT_GT(report.values_ended, 0U) << "none of its values lived for a time";
  }
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

TEST_F(ProcessTest, WorkersOnKeysInEachOthersWayAreLinearizable) {
  std::vector<Worker> workers;
  for (const char* mix : {"displacing", "displacing", "insert-remove", "write-heavy"}) {
    workers.push_back(start({.crowded = true, .mix = mix, .operations = 20'000}));
  }
  for (Worker& worker : workers) await(worker);
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

TEST_F(ProcessTest, LargeValuesAreNeverTorn) {
  std::vector<Worker> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(
        start({.keys = 2, .value_bytes = 1'000, .value_bytes_max = 2'500'000, .operations = 300}));
  }
  for (Worker& worker : workers) await(worker);
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

// Clients killed at any moment of their lives, the opening of the store among them, while three others go on.
TEST_F(ProcessTest, ClientsKilledAtRandomMomentsHarmNobody) {
  constexpr std::uint64_t kills_a_round = 500;
  const std::uint64_t rounds = (kills_wanted() + kills_a_round - 1) / kills_a_round;
  for (std::uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    // On few keys, and on keys that are in each other's way.
    std::vector<Worker> lasting;
    lasting.push_back(start({.mix = "write-heavy"}));
    lasting.push_back(start({.crowded = true, .mix = "displacing"}));
    std::vector<Worker> dying;
    dying.push_back(start({.mix = "write-heavy", .lives = kills_a_round / 2}));
    dying.push_back(start({.crowded = true, .mix = "displacing", .lives = kills_a_round / 2}));
    for (Worker& worker : dying) EXPECT_EQ(await(worker).killed, kills_a_round / 2);
    finish_all(lasting);
    expect_linearizable();
    expect_accounted_for();
    expect_memory_back();
  }
}

// The others go on writing meanwhile, and use the memory that the stopped one saw again.
TEST_F(ProcessTest, AClientStoppedForLongerThanTheExpiryHarmsNobody) {
  std::vector<Worker> others;
  others.push_back(start({.mix = "write-heavy"}));
  others.push_back(start({.crowded = true, .mix = "displacing"}));
  std::vector<Worker> late;
  late.push_back(start({.mix = "write-heavy"}));
  late.push_back(start({.crowded = true, .mix = "displacing"}));
  for (int i = 0; i < 24 && !HasFatalFailure(); ++i) {
    Worker& worker = late[random().below(late.size())];
    EXPECT_FALSE(worker.process.wait(random_time(milliseconds(20))).has_value()) << worker.process.output();
    stop_for_a_while(worker, i % 4 == 0);
  }
  finish_all(late, true);
  finish_all(others);
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

}  // namespace
}  // namespace loch::tests
