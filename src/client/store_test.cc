// Store over shared memory: the calls (testing/calls.h), and what comes of its files' bytes.
#include "client/testing/store_test.h"

#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <loch/loch.h>

#include "base/barrier.h"
#include "base/file_descriptor.h"
#include "client/testing/calls.h"
#include "memory/layout.h"

namespace loch {
namespace {

class SharedMemory final : public calls::World {
 public:
  Result<Store> open() override { return Store::open(url_here(), here()); }
  [[nodiscard]] std::string location() const override { return here().directory + "/loch." + store_name; }
};

using calls::AsyncCalls;
using calls::Calls;
const auto ways =
    testing::Values(calls::Way{.name = "Shm", .make = [] { return std::make_unique<SharedMemory>(); }});
INSTANTIATE_TEST_SUITE_P(Ways, Calls, ways, calls::name_of);
INSTANTIATE_TEST_SUITE_P(Ways, AsyncCalls, ways, calls::name_of);

using StoreTest = fake::StoreTest;

// Receive: words as the index's directory that no client writes, before and between calls that went by the
// right one. Expect: errors for as long as they stand there, no crash, and all as before when they are gone.
TEST_F(StoreTest, ADirectoryThatNoClientWritesIsDamage) {
  const std::string key = "a key of 15 byt";
  const std::string control = store_->info()->directory + "/region.0";
  const base::FileDescriptor file(::open(control.c_str(), O_RDWR));
  constexpr off_t at = memory::index_root_offset;
  std::uint64_t right = 0;
  ASSERT_EQ(::pread(file.get(), &right, sizeof right, at), 8);
  const auto write = [&](std::uint64_t word) { ASSERT_EQ(::pwrite(file.get(), &word, sizeof word, at), 8); };
  for (const std::uint64_t level : {0, 26, 30, 31, 58, 63, 64, 255}) {
    SCOPED_TRACE(level);
    ASSERT_TRUE(store_->put(key, "value").has_value());
    EXPECT_EQ(store_->get(key).value(), "value");
    write((right & ~std::uint64_t{0xff}) | level);
    const auto got = store_->get(key);
    const auto put = store_->put(key, "another");
    EXPECT_FALSE(store_->remove(key).has_value());
    std::vector<Lookup> lookups{{.key = key, .value = {}}};
    store_->multi_get(lookups);
    EXPECT_FALSE(lookups.front().result.has_value());
    [[maybe_unused]] const auto counted = store_->count();
    EXPECT_FALSE(got.has_value());
    EXPECT_FALSE(put.has_value());
    if (level == 0 || level > 30) {
      EXPECT_EQ(got.error().code, Errc::corrupt) << got.error().message();
      EXPECT_EQ(put.error().code, Errc::corrupt) << put.error().message();
    }
    write(right);
    EXPECT_EQ(store_->get(key).value(), "value");
  }
}

TEST_F(StoreTest, AnUpdateEndsWhenOthersAreAlwaysQuicker) {
  options_.mode = Options::Mode::attach;
  options_.timeout = std::chrono::milliseconds(50);
  auto slow = Store::open(url_, options_);
  ASSERT_TRUE(slow.has_value()) << slow.error().message();
  const auto updated = slow->update("k", [&](const auto& /*value*/) {
    EXPECT_TRUE(store_->put("k", "theirs").has_value());
    return "mine";
  });
  ASSERT_FALSE(updated.has_value());
  EXPECT_EQ(updated.error().code, Errc::timed_out);
  EXPECT_EQ(std::string_view(updated.error().operation), "update");
  EXPECT_EQ(store_->get("k").value(), "theirs");
}

// Receive: updates of a few keys, of several times as many bytes as the store may have, in less than an
// expiry of processes that all take part in barriers. Expect: the memory of what they replace is used again
// soon.
TEST_F(StoreTest, UpdatesNeedNoMemoryOfAWholeExpiry) {
  if (!base::take_part_in_barriers()) GTEST_SKIP() << "this kernel gives no barriers (membarrier)";
  Options options = options_;
  options.expiry = std::chrono::seconds(60);
  options.max_bytes = std::uint64_t{64} << 20;
  const std::string url = url_ + ".updates";
  auto store = Store::open(url, options);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const std::string value(200'000, 'v');
  for (int i = 0; i < 1'000; ++i) {
    const auto put = store->put(fmt::format("key{}", i % 8), value);
    ASSERT_TRUE(put.has_value()) << i << ": " << put.error().message();
  }
  EXPECT_TRUE(Store::destroy(url, options).has_value());
}

// Receive: a store with memory for a few items more than there are, and many updates at once. Expect: each
// waits for what was replaced just now to have rested.
TEST_F(StoreTest, AnUpdateOfAFullStoreWaitsForAMoment) {
  if (!base::take_part_in_barriers()) GTEST_SKIP() << "this kernel gives no barriers (membarrier)";
  Options options = options_;
  options.max_bytes = std::uint64_t{8} << 20;
  const std::string url = url_ + ".full";
  auto store = Store::open(url, options);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const std::string value(10'000, 'v');
  int items = 0;
  while (store->put(fmt::format("key{}", items), value)) ASSERT_LT(++items, 1'000);
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(store->remove(fmt::format("key{}", items - i)).has_value());
  for (int i = 0; i < 200; ++i) {
    const auto put = store->put("key0", value);
    ASSERT_TRUE(put.has_value()) << i << ": " << put.error().message();
  }
  EXPECT_TRUE(Store::destroy(url, options).has_value());
}

}  // namespace
}  // namespace loch
