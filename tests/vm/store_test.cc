// The hash store over verbs: lochd on one node, clients on others and on its own, with a network that loses
// packets and cables that are cut. For the nodes of nodes.sh.
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <thread>

#include "lab/lochds.h"
#include "tests/store_processes.h"
#include "tests/vm/nodes.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

constexpr const char* host = "10.0.0.1";
constexpr const char* far = "10.0.0.2";
constexpr const char* farther = "10.0.0.3";
constexpr const char* url = "verbs://10.0.0.1/test";
// After so long a host takes a client that says nothing for dead.
constexpr int silence_s = 3;

class VerbsStore : public StoreProcesses, public testing::WithParamInterface<Atomics> {
 protected:
  Result<Store> open_store(const Options& options) override {
    Options made = options;
    made.atomics = GetParam();
    if (auto created = Store::create("shm://test", made); !created)
      return std::unexpected(std::move(created.error()));
    start_lochd();
    Options remote = options;
    remote.mode = Options::Mode::attach;
    remote.source_address = far;
    return Store::open(url, remote);
  }

  void start_lochd() {
    const std::filesystem::path config = folder() / "lochd.toml";
    std::ofstream(config) << fmt::format(
        "listen = [\"{}\"]\nopen_to_all = true\nverbs = true\nsilence_s = {}\n", host, silence_s);
    lochd_.reset();
    auto lochd = lab::start_lochd({.words = {lochd_program(), "--config", config, "--directory", folder()},
                                   .log = folder() / "lochd.log"});
    ASSERT_TRUE(lochd.has_value()) << lochd.error().message();
    lochd_.emplace(std::move(*lochd));
  }

  static constexpr std::uint64_t keys = 3;
  static WorkerSpec worker(const char* source) {
    return {.url = url, .source_address = source, .keys = keys, .think_us = think_us};
  }
  // It has answers about all keys, from now on.
  static void await_all(const Worker& worker) { await_answers(worker, numbered_keys("hot", keys), now_ns()); }

  std::optional<lab::Process> lochd_;
};

TEST_P(VerbsStore, ClientsOfAllNodesAreOne) {
  std::vector<Worker> workers;
  for (const char* source : {far, farther, host}) workers.push_back(start(worker(source)));
  // With a processor's atomics, this node's own clients share the store in its memory.
  if (GetParam() == Atomics::processor) workers.push_back(start({.keys = keys, .think_us = think_us}));
  WorkerSpec large = worker(far);
  large.key_prefix = "large";
  large.value_bytes = 64;
  large.value_bytes_max = 300'000;
  workers.push_back(start(large));
  for (const Worker& each : workers) await_work(each);
  finish_all(workers);
  expect_linearizable();
  expect_accounted_for();
  expect_memory_back();
}

// Also of a store whose words the device changes: what a reader says of itself goes by the agent.
TEST_P(VerbsStore, AReaderReadsAndChangesNothing) {
  Options reads;
  reads.mode = Options::Mode::attach;
  reads.read_only = true;
  reads.source_address = farther;
  reads.timeout = operation_timeout;
  auto reader = Store::open(url, reads);
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  for (const char* value : {"1", "2"}) {
    ASSERT_TRUE(store().put("a", value).has_value());
    EXPECT_EQ(reader->get("a").value(), value);
    EXPECT_EQ(reader->put("a", "x").error().code, Errc::permission);
    std::this_thread::sleep_for(2 * expiry);  // and it tells the others anew what it holds
  }
  EXPECT_EQ(reader->count().value(), 1U);
  EXPECT_EQ(reader->info().value().clients, 2U);
}

TEST_P(VerbsStore, KilledClientsLoseNothing) {
  WorkerSpec killed = worker(farther);
  killed.think_us = 0;
  killed.lives = 8;
  killed.life_us = 1'500'000;
  Worker dying = start(killed);
  Worker living = start(worker(far));
  EXPECT_GT(await(dying).killed, 0U);
  finish(living);
  expect_linearizable();
  expect_accounted_for();
}

TEST_P(VerbsStore, GoesOnWhilePacketsAreLost) {
  constexpr std::array nodes = {1, 2, 3};
  for (const int node : nodes) lose(node, 1);
  const std::uint64_t lost_before = lost(nodes);
  std::vector<Worker> workers;
  for (const char* source : {far, farther}) workers.push_back(start(worker(source)));
  for (const Worker& each : workers) await_work(each);
  finish_all(workers, true);
  EXPECT_GT(lost(nodes), lost_before);
  for (const int node : nodes) lose(node, 0);
  expect_linearizable();
  expect_accounted_for();
}

// Receive: a client's cable is cut, until the host takes it for dead. Expect: the others go on, it is told
// that the store is out of reach, and goes on when it is not.
TEST_P(VerbsStore, ACutCableHoldsUpNobodyElse) {
  WorkerSpec cut = worker(farther);
  cut.may_be_cut_off = true;
  Worker far_away = start(cut);
  Worker other = start(worker(far));
  await_work(far_away);
  await_work(other);
  await_clients(3);
  cut_off(3);
  await_clients(2);
  await_all(other);
  join_again(3);
  await_all(far_away);
  // An operation that waits for the agent may well outlive the cut; it is not asked for again before that.
  EXPECT_GT(finish(far_away, true).longest_us, 300'000U) << "it was not cut off";
  finish(other);
  expect_linearizable();
  expect_accounted_for();
}

// Receive: lochd is killed, and started again. Expect: clients are told, and go on; nothing is lost, since
// the memory is the host's.
TEST_P(VerbsStore, LochdIsKilledAndComesBack) {
  WorkerSpec spec = worker(far);
  spec.may_be_cut_off = true;
  Worker client = start(spec);
  await_work(client);
  const std::uint64_t killed_at_ns = now_ns();
  lochd_->kill();
  await_trouble(client, killed_at_ns);
  start_lochd();
  await_all(client);
  const WorkerReport report = finish(client, true);
  EXPECT_GT(report.timed_out + report.unavailable, 0U) << "it did not notice";
  expect_linearizable();
  expect_accounted_for();
}

INSTANTIATE_TEST_SUITE_P(Atomics, VerbsStore, testing::Values(Atomics::device, Atomics::processor),
                         [](const auto& info) {
                           return info.param == Atomics::device ? "Device" : "Processor";
                         });

}  // namespace
}  // namespace loch::tests
