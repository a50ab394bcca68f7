// Memory is added while nobody waits: neither who will need it, nor anybody else of the host.
#include "fabric/host/extender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/host.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"

namespace loch::fabric::host {
namespace {

using remote::RemoteFabric;
using remote::Target;

using testing::ElementsAre;

constexpr std::uint64_t region_bytes = 1 << 20;
constexpr std::uint64_t long_bytes = 64 * region_bytes;  // what takes its time

// Takes as long to make a region `long_bytes` long, or longer, as a test wants.
class SlowFabric final : public fake::MemoryFabric {
 public:
  explicit SlowFabric(std::shared_ptr<fake::MemoryStore> store) : MemoryFabric(std::move(store)) {}

  Result<void> extend(RegionId region, std::uint64_t length_bytes) override {
    if (length_bytes < long_bytes) return MemoryFabric::extend(region, length_bytes);
    begun_.count_down();
    may_end_.wait();
    extended_.push_back(length_bytes);
    if (extended_.size() == 2) both_.count_down();
    return {};
  }
  void wait_until_it_extends() { begun_.wait(); }
  void let_it_end() { may_end_.count_down(); }
  // Once two calls have ended.
  const std::vector<std::uint64_t>& both_extended() {
    both_.wait();
    return extended_;
  }

 private:
  std::latch begun_{1};
  std::latch may_end_{1};
  std::latch both_{1};
  std::vector<std::uint64_t> extended_;
};

std::shared_ptr<SlowFabric> slow_fabric() {
  return std::make_shared<SlowFabric>(
      fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}}));
}

// `bytes_max`: of the store; 0: no limit.
std::unique_ptr<Host> host_of(const std::shared_ptr<SlowFabric>& slow, std::uint64_t bytes_max = 0) {
  return Host::start(
             {.listen = {{.host = "127.0.0.1", .port = "0"}},
              .open_store = [slow](const std::string&) { return Result<std::shared_ptr<Fabric>>(slow); },
              .bytes_max = [bytes_max](const Fabric&) { return bytes_max; }})
      .value();
}

Target target_of(const Host& host) {
  return {.scheme = "tcp",
          .host = {.host = "127.0.0.1", .port = std::to_string(host.ports().at(0))},
          .store = "store"};
}

TEST(HostThatExtends, AnswersMeanwhile) {
  const auto slow = slow_fabric();
  const auto host = host_of(slow);
  const Target target = target_of(*host);
  const auto asking = RemoteFabric::attach(target).value();
  const auto port = asking->connect();
  port->extend_soon(0, long_bytes);
  slow->wait_until_it_extends();
  port->extend_soon(0, long_bytes + 1);
  EXPECT_TRUE(asking->extend(0, 2 * region_bytes).has_value());
  EXPECT_TRUE(RemoteFabric::attach(target).has_value()) << "others, too";
  slow->let_it_end();
  EXPECT_THAT(slow->both_extended(), ElementsAre(long_bytes, long_bytes + 1));
}

// Receive: what will be needed of one region, and while it is being made longer, what is needed of another
// one; both together are more than the store was created for. Expect: the second is refused.
TEST(HostThatExtends, CountsWhatItHasNotAddedYet) {
  const auto slow = std::make_shared<SlowFabric>(
      fake::MemoryStore::create({.regions = {{0, region_bytes}, {2, region_bytes}}, .fill = {}}));
  const auto host = host_of(slow, long_bytes + region_bytes);
  const auto asking = RemoteFabric::attach(target_of(*host)).value();
  const auto port = asking->connect();
  port->extend_soon(2, long_bytes);
  slow->wait_until_it_extends();
  const auto full = asking->extend(3, region_bytes + 1);
  EXPECT_TRUE(asking->extend(3, region_bytes).has_value());
  slow->let_it_end();
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, Errc::no_space);
}

TEST(Extender, LeavesOutWhatItHasNotBegunWhenItEnds) {
  const auto slow = slow_fabric();
  {
    Extender extender;
    extender.extend_soon(slow, 0, long_bytes);
    slow->wait_until_it_extends();
    for (std::uint64_t i = 1; i < 1'000; ++i) extender.extend_soon(slow, 0, long_bytes + i);
    EXPECT_LT(slow.use_count(), 100) << "it keeps some of them";
    slow->let_it_end();
  }
  EXPECT_EQ(slow.use_count(), 1);
}

}  // namespace
}  // namespace loch::fabric::host
