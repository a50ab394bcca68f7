// A store on three hosts, with a real lochd on each and real clients there and on a fourth: lochds, clients,
// the network and the memory of a host fail while all are at work. Afterwards what every client saw has to be
// linearizable, and the store in order.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cluster/cluster_processes.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

using Cluster = ClusterProcesses;

// Receive: a lochd is killed, and started again; then another. Expect: its keys are out of reach meanwhile,
// and all goes on as before, since the memory is the host's.
TEST_F(Cluster, ALochdIsKilledAndComesBack) {
  auto crew = start_crew();
  for (const Host host : {b, a}) {
    kill_lochd(host);
    expect_some_quiet_out_of_reach();
    start_lochd(host);
    await_recovery(crew);
  }
  finish_all(crew);
  expect_in_order();
}

// Receive: a lochd is stopped for so long that its clients have given up, and the other hosts have ended
// their sessions, with what they asked for still on its way; then it goes on, and finds all that. Expect: its
// keys are out of reach meanwhile; what it does then is nothing that is too late, and nothing is lost.
TEST_F(Cluster, ALochdIsStoppedAndGoesOn) {
  auto crew = start_crew();
  stop_lochd(a);
  for_a_while(beyond_silence);
  expect_some_quiet_out_of_reach();
  continue_lochd(a);
  await_recovery(crew);
  EXPECT_EQ(quiet_items().size(), quiet_keys);
  finish_all(crew);
  expect_in_order();
}

TEST_F(Cluster, KilledClientsLoseNothing) {
  auto crew = start_crew();
  std::vector<Worker> dying;
  for (const Host host : {a, c, d}) {
    WorkerSpec killed = busy_spec();
    killed.lives = 8;
    killed.life_us = 1'000'000;
    killed.placement = "spread";
    dying.push_back(start_on(host, killed));
  }
  for (Worker& each : dying) EXPECT_GT(await(each).killed, 0U);
  await_recovery(crew);
  finish_all(crew);
  expect_in_order();
}

// Receive: clients are stopped for so long that all hosts take them for dead, and the memory that they saw is
// used again; then they go on. Expect: they find out, and go on as others; and nobody is misled.
TEST_F(Cluster, StoppedClientsFindOutThatTheyWereTakenForDead) {
  auto crew = start_crew();
  const std::size_t others = crew.size() + 1;  // and this test
  std::vector<Placed> stopped;
  for (const Host host : {b, d}) stopped.push_back({.host = host, .worker = start_on(host, busy_spec())});
  for (const Placed& each : stopped) await_work(each.worker);
  await_clients(others + stopped.size());
  for (const Placed& each : stopped) each.worker.process.signal(SIGSTOP);
  await_clients(others);
  await_reuse();
  for (const Placed& each : crew) await_work(each.worker);
  for (const Placed& each : stopped) each.worker.process.signal(SIGCONT);
  await_recovery(stopped);
  await_clients(others + stopped.size());
  for (Placed& each : stopped) finish(each.worker, true);  // its longest operation is the stop
  finish_all(crew);
  expect_in_order();
}

// Receive: a host of the cluster is cut off, first shortly, then for so long that all take each other for
// dead. Expect: its keys are unavailable meanwhile, and all is as before when it can be reached.
TEST_F(Cluster, AHostIsCutOffAndJoinedAgain) {
  auto crew = start_crew();
  for (const milliseconds time : {milliseconds(700), 2 * silence}) {
    must(hosts().cut_off(b));
    for_a_while(time);
    if (time > silence) expect_some_quiet_out_of_reach();
    must(hosts().join_again(b));
    await_recovery(crew);
  }
  finish_all(crew);
  expect_in_order();
}

// Receive: what a client sends to one host of the three is lost; then what that host sends to it. Expect:
// that client alone notices.
TEST_F(Cluster, AClientIsCutFromOneHost) {
  auto crew = start_crew();
  struct Way {
    Host from;
    Host to;
  };
  for (const auto [from, to] : {Way{.from = d, .to = b}, Way{.from = c, .to = d}}) {
    const std::uint64_t cut_at_ns = now_ns();
    must(hosts().lose(from, to));
    for_a_while(beyond_silence);
    await_trouble_on(crew, {d}, cut_at_ns);
    await_answers_on(crew, {a, b, c});
    must(hosts().deliver(from, to));
    await_recovery(crew);
  }
  const auto reports = finish_all(crew);
  for (const Host host : {a, b, c}) expect_untroubled(reports.at(host));
  expect_in_order();
}

// Receive: two hosts of the cluster do not reach each other, and a client is killed meanwhile, which one of
// them can not tell the other. Expect: both go on with the clients that reach them, which notice nothing.
TEST_F(Cluster, TwoHostsAreCutFromEachOther) {
  auto crew = start_crew();
  const Worker killed = start_on(d, busy_spec());
  await_work(killed);
  const std::uint64_t cut_at_ns = now_ns();
  must(hosts().lose(a, b));
  must(hosts().lose(b, a));
  killed.process.signal(SIGKILL);
  for_a_while(beyond_silence);
  await_trouble_on(crew, {a, b}, cut_at_ns);
  await_answers_on(crew, {c, d});
  must(hosts().deliver(a, b));
  must(hosts().deliver(b, a));
  await_recovery(crew);
  const auto reports = finish_all(crew);
  for (const Host host : {c, d}) expect_untroubled(reports.at(host));
  expect_in_order();
}

// Receive: a host loses its memory. Expect: what was there is gone, nothing else is, and the store is whole
// again.
TEST_F(Cluster, AHostComesBackWithoutItsMemory) {
  auto crew = start_crew();
  const std::uint64_t lost_at_ns = now_ns();
  kill_lochd(b);
  lose_memory(b);
  const Items within_reach = expect_some_quiet_out_of_reach();
  start_lochd(b);
  await_recovery(crew);
  note_loss(lost_at_ns);
  expect_lost_all_but(within_reach);
  for (const Placed& each : crew) await_work(each.worker);
  finish_all(crew);
  expect_in_order();
}

}  // namespace
}  // namespace loch::tests
