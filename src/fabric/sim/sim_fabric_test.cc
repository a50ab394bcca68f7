// What a simulated network and its hosts do wrong: each fault by itself.
#include "fabric/sim/sim_fabric.h"

#include <gtest/gtest.h>

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
  fabric->fence();
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

}  // namespace
}  // namespace loch::fabric::sim
