// A store of a cluster over verbs: a lochd on each of three nodes, which is a host of the cluster, and
// clients on all of them, with lochds and clients that are killed, and cables that are cut. For the nodes of
// nodes.sh.
#include <array>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <optional>

#include "lab/cluster_files.h"
#include "lab/lochds.h"
#include "tests/store_processes.h"
#include "tests/vm/nodes.h"
#include "tests/workload.h"

namespace loch::tests {
namespace {

constexpr std::size_t nodes = 3;
std::string address_of(std::size_t node) { return fmt::format("10.0.0.{}", node + 1); }

class VerbsCluster : public StoreProcesses {
 protected:
  Result<Store> open_store(const Options& options) override {
    auto files = lab::ClusterFiles::make({.folder = folder(),
                                          .store = "test",
                                          .hosts = nodes,
                                          .address = address_of,
                                          .scheme = "verbs",
                                          .coordinator = "",
                                          .more_of_lochd = "verbs = true\n",
                                          .more_of_store = fmt::format("expiry_ms = {}\n", expiry.count())});
    if (!files) return std::unexpected(std::move(files.error()));
    lochds_.emplace(lochd_program(), std::move(*files), nullptr);
    for (std::size_t node = 0; node < nodes; ++node) start_lochd(node);
    Options remote = options;
    remote.source_address = address_of(1);
    return open_when_whole(lochds_->files().url(), remote);
  }

  void start_lochd(std::size_t node) {
    const auto started = lochds_->start(node);
    ASSERT_TRUE(started.has_value()) << started.error().message();
  }

  WorkerSpec worker(std::size_t node, const char* placement) {
    return {.url = lochds_->files().url(),
            .source_address = address_of(node),
            .may_be_cut_off = true,
            .placement = placement,
            .keys = 6,
            .think_us = think_us};
  }
  std::vector<Worker> start_crew() {
    std::vector<Worker> crew;
    crew.push_back(start(worker(0, "local")));
    crew.push_back(start(worker(1, "spread")));
    crew.push_back(start(worker(2, "by-key")));
    for (const Worker& each : crew) await_work(each);
    return crew;
  }
  // They have answers about all keys, from now on.
  static void await_all(const std::vector<Worker>& crew) {
    const std::uint64_t since_ns = now_ns();
    for (const Worker& each : crew) await_answers(each, numbered_keys("hot", 6), since_ns);
  }
  // Keys that are written before anything else, and by nobody later.
  static constexpr std::uint64_t quiet_keys = 30;
  void expect_some_quiet_out_of_reach() { expect_some_out_of_reach(numbered_keys("fill", quiet_keys)); }
  void finish_in_order(std::vector<Worker> crew) {
    finish_all(crew, true);
    expect_linearizable();
    expect_accounted_for();
  }

  std::optional<lab::Lochds> lochds_;
};

TEST_F(VerbsCluster, ClientsOfAllNodesAreOne) {
  std::vector<Worker> crew = start_crew();
  await_all(crew);
  finish_in_order(std::move(crew));
}

TEST_F(VerbsCluster, KilledClientsLoseNothing) {
  std::vector<Worker> crew = start_crew();
  WorkerSpec killed = worker(2, "spread");
  killed.think_us = 0;
  killed.lives = 4;
  killed.life_us = 2'000'000;
  Worker dying = start(killed);
  EXPECT_GT(await(dying, true).killed, 0U);
  await_all(crew);
  finish_in_order(std::move(crew));
}

// Receive: a lochd is killed, and started again. Expect: its keys are unavailable meanwhile, and all is as
// before when it is back, since the memory is the host's.
TEST_F(VerbsCluster, ALochdIsKilledAndComesBack) {
  fill(quiet_keys);
  std::vector<Worker> crew = start_crew();
  lochds_->at(2).kill();
  expect_some_quiet_out_of_reach();
  start_lochd(2);
  await_all(crew);
  finish_in_order(std::move(crew));
}

// Receive: a node is cut off, and joined again. Expect: likewise.
TEST_F(VerbsCluster, ANodeIsCutOffAndJoinedAgain) {
  fill(quiet_keys);
  std::vector<Worker> crew = start_crew();
  const std::uint64_t cut_off_at_ns = now_ns();
  cut_off(3);
  expect_some_quiet_out_of_reach();
  await_trouble(crew[2], cut_off_at_ns);
  join_again(3);
  await_all(crew);
  finish_in_order(std::move(crew));
}

// Receive: a client may only read. Expect: it reads what others put on all hosts, by keys that are for
// reading.
TEST_F(VerbsCluster, AReaderReadsFromAllHosts) {
  Options reads;
  reads.mode = Options::Mode::attach;
  reads.read_only = true;
  reads.source_address = address_of(2);
  reads.timeout = operation_timeout;
  auto reader = Store::open(lochds_->files().url(), reads);
  ASSERT_TRUE(reader.has_value()) << reader.error().message();
  constexpr std::uint64_t items = 20;
  fill(items);
  for (const std::string& key : numbered_keys("fill", items)) {
    const auto got = reader->get(key);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(*got, store().get(key).value());
    EXPECT_EQ(reader->put(key, "x").error().code, Errc::permission);
  }
}

}  // namespace
}  // namespace loch::tests
