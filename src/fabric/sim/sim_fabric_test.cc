// What a simulated network and its hosts do wrong: each fault by itself.
#include "fabric/sim/sim_fabric.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <span>

#include "fabric/endpoint.h"

namespace loch::fabric::sim {
namespace {

constexpr RegionId here = 0;   // on node 0
constexpr RegionId there = 2;  // on node 1
constexpr base::Nanos timeout_ns = 10 * base::millisecond_ns;

class SimNetwork : public testing::Test {
 protected:
  SimNetwork() {
    store_->node_of = [](RegionId region) { return region == there ? 1U : 0U; };
  }

  std::shared_ptr<SimFabric> join(SimFabric::Place place, std::int64_t drift_ppm = 0) {
    return std::make_shared<SimFabric>(store_, ++processes_, place, drift_ppm);
  }
  std::uint64_t word(RegionId region) { return load_word(store_->memory().at({region, 0})); }
  Result<std::uint64_t> add(SimFabric& fabric, RegionId region) {
    Endpoint endpoint(fabric.shared_from_this(), fabric.connect());
    endpoint.set_timeout(timeout_ns);
    return endpoint.run(add_task(&endpoint, region));
  }
  static coro::Task<Result<std::uint64_t>> add_task(Endpoint* endpoint, RegionId region) {
    co_return co_await endpoint->fetch_add({region, 0}, 1);
  }

  std::shared_ptr<Simulation> simulation_ = std::make_shared<Simulation>(1);
  std::shared_ptr<SimStore> store_ = std::make_shared<SimStore>(
      simulation_, Plan{.regions = {{here, 4'096}, {1, 4'096}, {there, 4'096}}, .fill = {}});
  std::uint32_t processes_ = 0;
};

TEST_F(SimNetwork, WhatDoesNotGetThereDoesNotHappen) {
  const auto fabric = join(SimFabric::Place::remote);
  store_->cut({.process = fabric->process(), .node = 1, .there = true, .back = false});
  const auto done = add(*fabric, there);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Errc::timed_out);
  EXPECT_EQ(word(there), 0U);
}

TEST_F(SimNetwork, WhatDoesNotComeBackHasHappened) {
  const auto fabric = join(SimFabric::Place::remote);
  store_->cut({.process = fabric->process(), .node = 1, .there = false, .back = true});
  EXPECT_FALSE(add(*fabric, there).has_value());
  EXPECT_EQ(word(there), 1U);
}

TEST_F(SimNetwork, ACutIsBetweenAProcessAndANodeAlone) {
  const auto one = join(SimFabric::Place::remote);
  const auto other = join(SimFabric::Place::remote);
  const auto cut = store_->cut({.process = one->process(), .node = 1});
  EXPECT_TRUE(add(*one, here).has_value());
  EXPECT_TRUE(add(*other, there).has_value());
  EXPECT_FALSE(add(*one, there).has_value());
  store_->mend(cut);
  EXPECT_TRUE(add(*one, there).has_value());
}

TEST_F(SimNetwork, OfWhatAFencedProcessPostedNothingHappensAndThenItIsAbsent) {
  const auto fabric = join(SimFabric::Place::remote);
  ASSERT_TRUE(fabric->claim_presence(7).value());
  const auto endpoint = std::make_unique<Endpoint>(fabric, fabric->connect());
  auto task = add_task(endpoint.get(), there);
  task.start();
  fabric->kill();
  EXPECT_TRUE(fabric->present(7)) << "nobody has seen to it yet that nothing comes any more";
  fabric->fence(0);
  simulation_->run_until(simulation_->now() + base::second_ns);
  EXPECT_EQ(word(there), 0U);
  EXPECT_FALSE(fabric->present(7));
}

TEST_F(SimNetwork, AProcessOnTheHostIsAbsentWhenItIsDead) {
  const auto fabric = join(SimFabric::Place::host);
  ASSERT_TRUE(fabric->claim_presence(7).value());
  fabric->kill();
  EXPECT_FALSE(fabric->present(7));
}

TEST_F(SimNetwork, WhatADeadProcessOfTheHostPostedIsSoonOver) {
  store_->network.slow_chance = Network::always;
  store_->network.slow_max_ns = base::second_ns;
  for (int process = 0; process < 20; ++process) {
    const auto fabric = join(SimFabric::Place::host);
    const auto endpoint = std::make_unique<Endpoint>(fabric, fabric->connect());
    auto task = add_task(endpoint.get(), there);
    task.start();
    fabric->kill();
    simulation_->run_until(simulation_->now() + 2 * base::second_ns);
  }
  EXPECT_EQ(word(there), 0U);
}

TEST_F(SimNetwork, AHostsClockDriftsAndJumps) {
  const auto fabric = join(SimFabric::Place::remote, 100'000);
  const base::Clock clock = fabric->clock();
  const base::Nanos start = clock.now();
  const base::Nanos due = fabric->simulated(start + 11 * base::second_ns);
  EXPECT_NEAR(static_cast<double>(due - simulation_->now()), 10e9, 1e6);
  simulation_->run_until(due);
  EXPECT_GE(clock.now(), start + 11 * base::second_ns);
  EXPECT_NEAR(static_cast<double>(clock.now() - start), 11e9, 1e6);
  fabric->host_clock()->jump(-std::int64_t{base::second_ns});
  EXPECT_NEAR(static_cast<double>(clock.now() - start), 10e9, 1e6);
  EXPECT_EQ(fabric->simulated(start), simulation_->now()) << "what has passed is now";
}

// ---- a cluster, whose hosts end a session one by one

class SimCluster : public testing::Test {
 protected:
  static constexpr std::uint32_t nodes = 3;
  // Each host has the others asked in that time, and they each other.
  static constexpr base::Nanos settled_within_ns = 30 * base::second_ns;

  SimCluster() {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const auto claimed = endpoint_.port().claim_presence(client_of(node, 7));
      EXPECT_TRUE(claimed.has_value() && *claimed);
    }
  }

  static std::shared_ptr<SimStore> make_store(const std::shared_ptr<Simulation>& simulation) {
    Plan plan;
    for (std::uint32_t node = 0; node < nodes; ++node)
      plan.regions.push_back({control_region_of(node), 4'096});
    auto store = std::make_shared<SimStore>(simulation, plan);
    store->is_cluster = true;
    store->node_of = [](RegionId region) { return std::uint32_t{region} - control_region_of(0); };
    return store;
  }
  Result<std::uint64_t> add(std::uint32_t node) { return endpoint_.run(add_task(&endpoint_, node)); }
  static coro::Task<Result<std::uint64_t>> add_task(Endpoint* endpoint, std::uint32_t node) {
    co_return co_await endpoint->fetch_add({control_region_of(node), 0}, 1);
  }
  std::uint64_t word(std::uint32_t node) {
    return load_word(store_->memory().at({control_region_of(node), 0}));
  }
  bool present(std::uint32_t node) { return fabric_->present(client_of(node, 7)); }
  void let_pass(base::Nanos wait_ns) { simulation_->run_until(simulation_->now() + wait_ns); }

  std::shared_ptr<Simulation> simulation_ = std::make_shared<Simulation>(1);
  std::shared_ptr<SimStore> store_ = make_store(simulation_);
  std::shared_ptr<SimFabric> fabric_ = std::make_shared<SimFabric>(store_, 1, SimFabric::Place::remote);
  Endpoint endpoint_{fabric_, fabric_->connect()};
};

TEST_F(SimCluster, WhatASessionPostsHappensWhereItHasNotEnded) {
  store_->cut({.node = 1});
  fabric_->fence(0);
  const auto added = add(0);
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, Errc::moved);
  EXPECT_EQ(word(0), 0U);
  store_->mend_all();
  EXPECT_TRUE(add(1).has_value()) << "nobody could ask that host yet";
  EXPECT_EQ(word(1), 1U);
  let_pass(settled_within_ns);
  EXPECT_FALSE(add(1).has_value());
  EXPECT_EQ(word(1), 1U);
}

TEST_F(SimCluster, ABatchThatOneHostDoesNotCarryOutIsInDoubtIfAnotherHas) {
  store_->cut({.node = 1});
  fabric_->fence(0);
  store_->mend_all();
  std::array batch{Operation::fetch_add({control_region_of(0), 0}, 1),
                   Operation::fetch_add({control_region_of(1), 0}, 1)};
  const auto both = [](Endpoint* endpoint, std::span<Operation> operations) -> coro::Task<Result<void>> {
    co_return co_await endpoint->perform(operations);
  };
  const auto added = endpoint_.run(both(&endpoint_, batch));
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, Errc::unavailable);
  EXPECT_EQ(word(0), 0U);
  EXPECT_EQ(word(1), 1U);
}

TEST_F(SimCluster, AHostLetsGoWhenAllOthersHaveEndedTheSession) {
  store_->cut({.node = 2});
  fabric_->fence(0);
  let_pass(settled_within_ns);
  for (std::uint32_t node = 0; node < nodes; ++node)
    EXPECT_TRUE(present(node)) << node << ": host 2 can not be asked";
  EXPECT_TRUE(store_->is_fencing());
  store_->mend_all();
  let_pass(settled_within_ns);
  for (std::uint32_t node = 0; node < nodes; ++node) EXPECT_FALSE(present(node)) << node;
  EXPECT_FALSE(store_->is_fencing());
}

TEST_F(SimCluster, AHostThatIsAwayIsAskedWhenItIsBack) {
  const std::uint64_t bytes = store_->memory().length_bytes(control_region_of(2));
  store_->take_down(2);
  store_->memory().let_go(client_of(2, 0), client_of(3, 0));
  store_->memory().renew(control_region_of(2), 0);
  fabric_->fence(0);
  let_pass(settled_within_ns);
  EXPECT_TRUE(present(0));
  store_->memory().renew(control_region_of(2), bytes);
  store_->bring_up(2);
  let_pass(settled_within_ns);
  EXPECT_FALSE(present(0));
  EXPECT_FALSE(present(1));
}

TEST_F(SimCluster, ASessionThatFailedIsEndedByAllHostsBeforeOneLetsGo) {
  auto endpoint = std::make_unique<Endpoint>(fabric_, fabric_->connect());
  ASSERT_TRUE(endpoint->port().claim_presence(client_of(0, 8)).value());
  endpoint->set_timeout(timeout_ns);
  const auto cut = store_->cut({.node = 1});
  EXPECT_FALSE(endpoint->run(add_task(endpoint.get(), 1)).has_value());
  endpoint->port().release_presence(client_of(0, 8));
  endpoint = nullptr;
  let_pass(settled_within_ns);
  EXPECT_TRUE(fabric_->present(client_of(0, 8))) << "host 1 can not be asked";
  store_->mend(cut);
  let_pass(settled_within_ns);
  EXPECT_FALSE(fabric_->present(client_of(0, 8)));
  EXPECT_TRUE(present(0)) << "another session of the process";
}

}  // namespace
}  // namespace loch::fabric::sim
