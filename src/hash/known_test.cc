// What a remote client keeps of items that it reads often.
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <utility>

#include "base/random.h"
#include "fabric/testing/posting_fabric.h"
#include "hash/testing/test_table.h"
#include "memory/testing/test_memory.h"

namespace loch::hash {
namespace {

using fake::Client;
using fake::locations;
using fake::make_store;
using fake::MemoryStore;
using fake::slot;
using memory::fake::elsewhere;
using memory::fake::tell_time;

class KeptCopies : public testing::Test {
 protected:
  KeptCopies() { tell_time(*store_); }

  // A remote client by whom `before` is called ahead of each operation.
  std::unique_ptr<Client> far(std::function<void(const fabric::Operation&)> before) {
    return std::make_unique<Client>(
        *store_,
        std::make_shared<fabric::fake::PostingFabric>(
            store_,
            fabric::fake::PostingOptions{
                .keeps_order = true, .mapped = {}, .before = std::move(before), .held = {}}),
        TableOptions{.timeout_ns = 10 * base::second_ns, .cache_bytes = 1U << 20});
  }

  std::shared_ptr<MemoryStore> store_ = make_store();
  Client near_{*store_};
};

TEST_F(KeptCopies, AreOfWhatIsReadAgainAndAnswerWithTheCurrentValue) {
  Client far(*store_, elsewhere(*store_), {.cache_bytes = 1U << 20});
  const auto hits = [&] { return far.counted(Counter::cache_hit); };
  ASSERT_TRUE(near_.put("k", "one").has_value());
  for (const unsigned expected : {0U, 0U, 1U, 2U}) {
    EXPECT_EQ(far.get("k").value(), "one");
    EXPECT_EQ(hits(), expected);
  }
  ASSERT_TRUE(near_.put("k", "two").has_value());
  for (const unsigned expected : {2U, 2U, 3U}) {
    EXPECT_EQ(far.get("k").value(), "two");
    EXPECT_EQ(hits(), expected);
  }
  ASSERT_TRUE(far.put("k", "three").has_value());
  for (const unsigned expected : {3U, 4U}) {
    EXPECT_EQ(far.get("k").value(), "three");
    EXPECT_EQ(hits(), expected);
  }
  ASSERT_TRUE(near_.remove("k").has_value());
  EXPECT_EQ(far.get("k").error().code, Errc::not_found);
}

TEST_F(KeptCopies, LiveNoLongerThanTheirItems) {
  Client far(*store_, elsewhere(*store_), {.cache_bytes = 1U << 20});
  ASSERT_TRUE(near_.put("k", "value", store_->now() + base::second_ns / 2).has_value());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(far.get("k").value(), "value");
  EXPECT_GT(far.counted(Counter::cache_hit), 0U);
  store_->advance(base::second_ns / 2);
  tell_time(*store_);
  EXPECT_EQ(far.get("k").error().code, Errc::not_found);
}

TEST_F(KeptCopies, NeverOutliveTheReuseOfAnItem) {
  Client far(*store_, elsewhere(*store_), {.cache_bytes = 1U << 20});
  base::Random random(9);
  std::map<std::string, std::string> model;
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = fmt::format("k{}", random.below(4));
    if (random.below(3) == 0) {
      ASSERT_TRUE(near_.put(key, fmt::format("{}", i)).has_value());
      model[key] = fmt::format("{}", i);
    } else if (const auto got = far.get(key); got) {
      ASSERT_EQ(*got, model[key]);
    }
    store_->advance(random.below(400) * base::millisecond_ns);
    tell_time(*store_);
  }
  EXPECT_GT(near_.counted(Counter::items_reused), 0U);
  EXPECT_GT(far.counted(Counter::cache_hit), 0U);
}

// Receive: a client that is held up for half an expiry between its look at the slot and its copy of the item,
// while the item is unlinked. Expect: the copy is not taken for the item that has the same place later.
TEST_F(KeptCopies, OfAnItemThatWasUnlinkedWhileItWasReadAreNotKeptLonger) {
  bool armed = false;
  const auto client = far([&](const fabric::Operation& operation) {
    if (!armed || operation.at.region < memory::first_data_region) return;
    armed = false;
    LOCH_CHECK(near_.remove("k").has_value());
    store_->advance(base::second_ns / 2);
    tell_time(*store_);
  });
  ASSERT_TRUE(near_.put("k", "old").has_value());
  const auto place = slot(*store_, locations(near_, "k").slot[0]).item();
  EXPECT_EQ(client->get("k").value(), "old");
  armed = true;
  EXPECT_EQ(client->get("k").value(), "old");
  ASSERT_FALSE(armed);
  // The item's memory has rested, counted from its unlinking, and the key is put into the same place again.
  for (const base::Nanos tenths : {6, 3}) {
    store_->advance(base::second_ns * tenths / 10);
    tell_time(*store_);
    ASSERT_FALSE(client->get("none").has_value()) << "it learns of the time, and lets go of what was before";
  }
  ASSERT_TRUE(near_.put("k", "new").has_value());
  ASSERT_EQ(slot(*store_, locations(near_, "k").slot[0]).item(), place) << "the test needs the same place";
  EXPECT_EQ(client->get("k").value(), "new");
}

}  // namespace
}  // namespace loch::hash
