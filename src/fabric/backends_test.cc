// The backends that every host has, and those of tests and simulations, keep what fabric.h promises.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "fabric/sim/sim_fabric.h"
#include "fabric/testing/conformance.h"
#include "fabric/testing/memory_store.h"
#include "fabric/testing/posting_fabric.h"
#include "net/testing/reserved_port.h"

namespace loch::fabric::conformance {
namespace {

class MemoryWorld final : public World {
 public:
  MemoryWorld(const Plan& plan, bool posting) : store_(fake::MemoryStore::create(plan)), posting_(posting) {}
  std::shared_ptr<Fabric> attach() override {
    if (!posting_) return store_->attach();
    return make_posting();
  }
  std::shared_ptr<Fabric> attach_to_read() override {
    auto fabric = make_posting();
    fabric->only_read(readers());
    return fabric;
  }

 private:
  std::shared_ptr<fake::PostingFabric> make_posting() {
    return std::make_shared<fake::PostingFabric>(store_, fake::PostingOptions{.seed = ++seed_});
  }

  std::shared_ptr<fake::MemoryStore> store_;
  bool posting_;
  std::atomic<std::uint64_t> seed_{base::system_seed()};  // threads attach too
  const testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_.load())};
};

class SimWorld final : public World {
 public:
  SimWorld(const Plan& plan, sim::SimFabric::Place place, bool keeps_order = false)
      : store_(std::make_shared<sim::SimStore>(std::make_shared<sim::Simulation>(seed_), plan)),
        place_(place) {
    store_->network = {.slow_chance = 1'000,
                       .slow_max_ns = base::millisecond_ns,
                       .tear_chance = sim::Network::always / 2,
                       .gap_chance = sim::Network::always / 2,
                       .keeps_order = keeps_order};
  }
  std::shared_ptr<Fabric> attach() override { return make_way(); }
  std::shared_ptr<Fabric> attach_to_read() override {
    auto fabric = make_way();
    fabric->only_read(readers());
    return fabric;
  }

 private:
  std::shared_ptr<sim::SimFabric> make_way() {
    constexpr std::int64_t drift_ppm = 500;
    return std::make_shared<sim::SimFabric>(store_, ++processes_, place_, drift_ppm);
  }

  const std::uint64_t seed_ = base::system_seed();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("seed {}", seed_)};
  std::shared_ptr<sim::SimStore> store_;
  sim::SimFabric::Place place_;
  std::atomic<std::uint32_t> processes_{0};
};

// On two hosts, of which the first has the regions of the plan.
class ClusterWorld final : public World {
 public:
  explicit ClusterWorld(const Plan& plan)
      : files_{ShmWorld(plan), ShmWorld({.regions = {}, .fill = [](auto /*regions*/) {}})} {
    for (std::uint32_t node = 0; node < hosts_.size(); ++node) start(node);
  }
  std::shared_ptr<Fabric> attach() override { return fabric::attach(url(), {}).value(); }
  std::shared_ptr<Fabric> attach_to_read() override {
    return fabric::attach(url(), {.read_only = true}).value();
  }
  void stop(std::uint32_t node) { hosts_[node] = nullptr; }

 private:
  void start(std::uint32_t node) {
    hosts_[node] =
        Host::start({.listen = {ports_[node].at()},
                     .open_store = [this, node](const std::string&) { return files_[node].attach(); },
                     .cluster_of =
                         [this, node](const std::string&) {
                           return Host::Options::Cluster{.map = map_, .node = node};
                         },
                     .readers = readers()})
            .value();
  }
  [[nodiscard]] std::string url() const { return fmt::format("tcp://{}/store", ports_[0].at().text()); }

  std::array<ShmWorld, 2> files_;
  std::array<net::fake::ReservedPort, 2> ports_;
  const ClusterMap map_ =
      ClusterMap::spread({{.name = "a", .at = ports_[0].at()}, {.name = "b", .at = ports_[1].at()}}, 1)
          .value();
  std::array<std::unique_ptr<Host>, 2> hosts_;
};

const std::vector<Backend> backends = {
    {"Shm", [](const Plan& plan) { return std::make_unique<ShmWorld>(plan); }},
    {"Tcp", [](const Plan& plan) { return std::make_unique<HostWorld>(plan, "tcp", "127.0.0.1", ""); }},
    {"Cluster", [](const Plan& plan) { return std::make_unique<ClusterWorld>(plan); }},
    {"Memory", [](const Plan& plan) { return std::make_unique<MemoryWorld>(plan, false); }},
    {"Posting", [](const Plan& plan) { return std::make_unique<MemoryWorld>(plan, true); }},
    {"Sim", [](const Plan& plan) { return std::make_unique<SimWorld>(plan, sim::SimFabric::Place::host); }},
    {"SimRemote",
     [](const Plan& plan) { return std::make_unique<SimWorld>(plan, sim::SimFabric::Place::remote); }},
    {"SimOrdered",
     [](const Plan& plan) { return std::make_unique<SimWorld>(plan, sim::SimFabric::Place::remote, true); }},
};

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(backends),
                         [](const auto& info) { return info.param.name; });

std::vector<Backend> some(std::initializer_list<std::string_view> names) {
  std::vector<Backend> chosen;
  std::ranges::copy_if(backends, std::back_inserter(chosen), [&](const Backend& backend) {
    return std::ranges::find(names, backend.name) != names.end();
  });
  return chosen;
}
INSTANTIATE_TEST_SUITE_P(Backends, ReadOnlyConformance,
                         testing::ValuesIn(some({"Tcp", "Cluster", "Posting", "SimRemote"})),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Backends, ElsewhereConformance,
                         testing::ValuesIn(some({"Tcp", "Cluster", "Posting", "SimRemote"})),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Backends, OrderedConformance,
                         testing::ValuesIn(some({"Tcp", "Cluster", "SimOrdered"})),
                         [](const auto& info) { return info.param.name; });

// ---- several hosts

// Receive: batches for both hosts, with an address that is none, and with a host that is down. Expect: each
// operation tells for itself, and what can be done is.
TEST(Cluster, ABatchForSeveralHostsIsDoneWhereItCanBe) {
  constexpr RegionId elsewhere = small_region + 1;
  ClusterWorld world({.regions = {{small_region, small_bytes}}, .fill = [](auto /*regions*/) {}});
  Session before(world);
  ASSERT_TRUE(before.fabric->extend(elsewhere, small_bytes).has_value());
  const auto batch = [](std::uint64_t elsewhere_offset, std::uint64_t* read) {
    return std::array{Operation::fetch_add({small_region, 8}, 1), Operation::fetch_add({elsewhere, 8}, 2),
                      Operation::read({elsewhere, elsewhere_offset}, read, sizeof *read),
                      Operation::compare_swap({small_region, 16}, 0, 3)};
  };
  std::uint64_t read = 7;
  auto all_done = batch(8, &read);
  ASSERT_TRUE(before.perform(all_done).has_value());
  EXPECT_EQ(before.read_word({elsewhere, 8}).value(), 2U);
  EXPECT_EQ(before.read_word({small_region, 16}).value(), 3U);

  read = 7;
  auto one_bad = batch(small_bytes, &read);
  EXPECT_EQ(before.perform(one_bad).error().code, Errc::corrupt);
  EXPECT_EQ(one_bad[0].result, 1U);
  EXPECT_EQ(one_bad[1].result, 2U);
  EXPECT_TRUE(one_bad[2].bad_address);
  EXPECT_EQ(one_bad[3].result, 3U);
  EXPECT_EQ(read, 7U);

  world.stop(1);
  Session after(world);
  auto one_down = batch(8, &read);
  EXPECT_EQ(after.perform(one_down).error().code, Errc::unavailable);
  EXPECT_EQ(one_down[0].result, 2U);
  EXPECT_TRUE(one_down[1].unreachable && one_down[2].unreachable);
  EXPECT_FALSE(one_down[0].unreachable || one_down[3].unreachable);
  EXPECT_EQ(after.read_word({small_region, 8}).value(), 3U);
  EXPECT_EQ(after.read_word({elsewhere, 8}).error().code, Errc::unavailable);
}

// ---- the memory of tests and simulations

// Receive: a store that takes the memory of one that is gone, or that lost what it had. Expect: it is zeros;
// what was lost is as it was; and what is copied out, from anywhere on, is what was written and zeros
// between.
TEST(Memory, OfAStoreIsZerosWhateverWasThereBefore) {
  constexpr std::uint64_t length = 1U << 20;
  const auto holds = [](fake::MemoryStore& store, std::byte value) {
    std::vector<std::byte> bytes(length - 24, std::byte{7});
    fake::MemoryStore::copy_out(bytes.data(), store.at({1, 24}), bytes.size());
    return std::ranges::count(bytes, value) == std::ranges::ssize(bytes);
  };
  for (int round = 0; round < 2; ++round) {
    const auto store = fake::MemoryStore::create({.regions = {{1, length}}, .fill = {}});
    EXPECT_TRUE(holds(*store, std::byte{0})) << round;
    *store->at({1, length / 2}) = std::byte{1};
    std::vector<std::byte> bytes(length - 24);
    fake::MemoryStore::copy_out(bytes.data(), store->at({1, 24}), bytes.size());
    EXPECT_EQ(bytes[length / 2 - 24], std::byte{1});
    EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), std::ranges::ssize(bytes) - 1);

    std::ranges::fill_n(store->at({1, 0}), length, std::byte{2});
    EXPECT_TRUE(holds(*store, std::byte{2}));
    const fake::MemoryStore::Taken taken = store->take(1);
    EXPECT_EQ(store->length_bytes(1), 0U);
    store->renew(1, length);
    EXPECT_TRUE(holds(*store, std::byte{0}));
    ASSERT_EQ(taken.length_bytes, length);
    EXPECT_EQ(std::count(taken.base.get(), taken.base.get() + length, std::byte{2}), std::ptrdiff_t{length});
    std::ranges::fill_n(store->at({1, 0}), length, std::byte{3});
    store->renew(1, length);
    EXPECT_TRUE(holds(*store, std::byte{0}));
    std::ranges::fill_n(store->at({1, 0}), length, std::byte{4});
  }
}

// ---- what is posted

// Receive: a network that carries out nothing. Expect: each operation ends at its deadline, and the session
// goes on when the network does.
TEST(Posted, WhatIsHeldUpEndsAtItsDeadline) {
  const auto store = fake::MemoryStore::create({.regions = {{0, 4'096}}, .fill = {}});
  bool held = true;
  Session s(std::make_shared<fake::PostingFabric>(
      store,
      fake::PostingOptions{.mapped = {}, .before = {}, .held = [&held](auto /*batch*/) { return held; }}));
  s.endpoint.set_timeout(100 * base::millisecond_ns);
  EXPECT_EQ(s.read_word({0, 0}).error().code, Errc::timed_out);
  EXPECT_EQ(s.compare_swap({0, 0}, 0, 1).error().code, Errc::timed_out);
  EXPECT_EQ(s.fetch({0, 0}, 8).error().code, Errc::timed_out);
  EXPECT_LT(store->now(), 1'001 * base::second_ns);
  held = false;
  EXPECT_EQ(s.compare_swap({0, 0}, 0, 1).value(), 0U);
  EXPECT_EQ(s.read_word({0, 0}).value(), 1U);
}

}  // namespace
}  // namespace loch::fabric::conformance
