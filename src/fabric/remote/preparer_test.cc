// New memory is put into huge pages while nobody waits: neither who asked for it, nor anybody else of the
// host.
#include "fabric/remote/preparer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <utility>
#include <vector>

#include "fabric/host.h"
#include "fabric/remote/remote_fabric.h"
#include "fabric/testing/memory_store.h"

namespace loch::fabric::remote {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr std::uint64_t region_bytes = 1 << 20;

// Takes as long to prepare memory as a test wants.
class SlowFabric final : public fake::MemoryFabric {
 public:
  explicit SlowFabric(std::shared_ptr<fake::MemoryStore> store) : MemoryFabric(std::move(store)) {}

  void prepare(RegionId /*region*/, std::uint64_t from_bytes, std::uint64_t to_bytes) override {
    begun_.count_down();
    may_end_.wait();
    prepared_.emplace_back(from_bytes, to_bytes);
    if (prepared_.size() == 2) both_.count_down();
  }
  void wait_until_it_prepares() { begun_.wait(); }
  void let_it_end() { may_end_.count_down(); }
  // Once two calls have ended.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& both_prepared() {
    both_.wait();
    return prepared_;
  }

 private:
  std::latch begun_{1};
  std::latch may_end_{1};
  std::latch both_{1};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> prepared_;
};

std::shared_ptr<SlowFabric> slow_fabric() {
  return std::make_shared<SlowFabric>(
      fake::MemoryStore::create({.regions = {{0, region_bytes}}, .fill = {}}));
}

TEST(HostThatPrepares, AnswersMeanwhile) {
  const auto slow = slow_fabric();
  const auto host =
      Host::start({.listen = {{.host = "127.0.0.1", .port = "0"}},
                   .open_store = [&](const std::string&) { return Result<std::shared_ptr<Fabric>>(slow); }})
          .value();
  const Target target{.scheme = "tcp",
                      .host = {.host = "127.0.0.1", .port = std::to_string(host->ports().at(0))},
                      .store = "store"};
  const auto asking = RemoteFabric::attach(target).value();
  asking->prepare(0, 0, 4'096);
  slow->wait_until_it_prepares();
  asking->prepare(0, 4'096, 8'192);
  EXPECT_TRUE(asking->extend(0, 2 * region_bytes).has_value());
  EXPECT_TRUE(RemoteFabric::attach(target).has_value()) << "others, too";
  slow->let_it_end();
  EXPECT_THAT(slow->both_prepared(), ElementsAre(Pair(0, 4'096), Pair(4'096, 8'192)));
}

TEST(Preparer, LeavesOutWhatItHasNotBegunWhenItEnds) {
  const auto slow = slow_fabric();
  {
    Preparer preparer;
    preparer.prepare_soon(slow, 0, 0, 1);
    slow->wait_until_it_prepares();
    for (std::uint64_t i = 1; i < 1'000; ++i) preparer.prepare_soon(slow, 0, i, i + 1);
    EXPECT_LT(slow.use_count(), 100) << "it keeps some of them";
    slow->let_it_end();
  }
  EXPECT_EQ(slow.use_count(), 1);
}

}  // namespace
}  // namespace loch::fabric::remote
