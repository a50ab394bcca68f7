// Stores of this host, used as from another one: over sockets, through a Host.
#include "server/testing/lending.h"

#include <barrier>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/testing/comes_true.h"
#include "fabric/cluster_map.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using LendingTest = fake::Lending;

TEST_F(LendingTest, FarAndNearSeeEachOther) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(near().put("a", "1").has_value());
  EXPECT_EQ(far.get("a").value(), "1");
  ASSERT_TRUE(far.put("a", "2").has_value());
  EXPECT_EQ(near().get("a").value(), "2");
  EXPECT_EQ(far.insert("a", "3").error().code, Errc::exists);
  const Item item = far.read("a").value();
  EXPECT_TRUE(far.replace("a", "4", item.version).has_value());
  EXPECT_EQ(far.replace("a", "5", item.version).error().code, Errc::changed);
  EXPECT_EQ(far.view("a")->value(), "4");
  EXPECT_TRUE(far.exists("a").value());
  ASSERT_TRUE(near().remove("a").has_value());
  EXPECT_FALSE(far.exists("a").value());
  EXPECT_EQ(far.get("a").error().code, Errc::not_found);
  ASSERT_TRUE(far.insert("a", "6").has_value());
  ASSERT_TRUE(far.remove("a").has_value());
  EXPECT_EQ(near().count().value(), 0U);
  EXPECT_EQ(far.info()->name, "store");
  EXPECT_EQ(far.info()->directory, url());
}

TEST_F(LendingTest, ManyItemsOfManySizes) {
  near();
  start();
  auto far = open_far().value();
  constexpr std::size_t keys = 3'000;
  base::Random random(1);
  std::map<std::string, std::string> expected;
  std::vector<Assignment> batch;
  for (std::size_t i = 0; i < keys; ++i)
    expected[fmt::format("key{}", i)] = std::string(random.below(300), static_cast<char>('a' + i % 26));
  for (const std::size_t large : {70'000U, 1'000'000U, 5'000'001U})
    expected[fmt::format("large{}", large)] = std::string(large, 'L');
  for (const auto& [key, value] : expected) batch.push_back({.key = key, .value = value});
  far.multi_put(batch);
  for (const Assignment& each : batch) ASSERT_TRUE(each.result.has_value()) << each.result.error().message();
  std::vector<Lookup> lookups;
  for (const auto& [key, value] : expected) lookups.push_back({.key = key, .value = {}});
  far.multi_get(lookups);
  for (const Lookup& each : lookups) {
    ASSERT_TRUE(each.result.has_value()) << each.result.error().message();
    ASSERT_EQ(each.value, expected[std::string(each.key)]);
    ASSERT_EQ(near().get(each.key).value(), each.value);
  }
  std::map<std::string, std::string> walked;
  ASSERT_TRUE(far.for_each([&](const Entry& entry) {
                   walked.emplace(entry.key, entry.value);
                   return true;
                 })
                  .has_value());
  EXPECT_EQ(walked, expected);
  const Report report = far.check().value();
  EXPECT_EQ(report.items, expected.size());
  EXPECT_EQ(report.items_unaccounted + report.items_corrupt + report.slots_corrupt, 0U);
}

// Receive: keys that another thread used. Expect: the host carries out two reads for a get, of the slot and
// the item; where nothing is kept of where items are, one of each slot (two of a key can be one) and of the
// item.
TEST_F(LendingTest, ThreadsLearnFromEachOtherWhereItemsAre) {
  constexpr std::uint64_t keys = 200;
  const auto key = [](std::uint64_t i) { return fmt::format("key{}", i); };
  for (std::uint64_t i = 0; i < keys; ++i) ASSERT_TRUE(near().put(key(i), "value").has_value());
  start();
  for (const bool keeps_them : {true, false}) {
    Options options;
    if (!keeps_them) options.location_cache_bytes = 0;
    auto far = open_far(options).value();
    const auto get_all = [&] {
      for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(far.get(key(i)).value(), "value");
    };
    std::uint64_t reads = 0;
    std::thread first([&] {
      get_all();
      // While this one is there, the other has a session of its own.
      std::thread([&] {
        ASSERT_FALSE(far.get("none").has_value()) << "its session has begun";
        reads = host_->counts().reads;
        get_all();
        reads = host_->counts().reads - reads;
      }).join();
    });
    first.join();
    if (keeps_them) {
      EXPECT_GE(reads, 2 * keys);
      EXPECT_LT(reads, 5 * keys / 2);
    } else {
      EXPECT_GT(reads, 7 * keys / 2);
      EXPECT_LT(reads, 5 * keys);
    }
  }
}

TEST_F(LendingTest, ATimeToLiveEndsByTheStoresTime) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1", {.time_to_live = 300ms}).has_value());
  EXPECT_EQ(far.get("a").value(), "1");
  EXPECT_TRUE(comes_true([&] { return error_of(far.get("a")).code == Errc::not_found; }));
  EXPECT_EQ(near().get("a").error().code, Errc::not_found);
}

TEST_F(LendingTest, ManyThreadsHaveASessionEach) {
  near();
  start();
  auto far = open_far().value();
  constexpr int threads_count = 4;
  std::barrier all_together(threads_count + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < threads_count; ++t) {
    threads.emplace_back([&far, &all_together, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = fmt::format("key{}", i % 20);
        if (i % threads_count == t) {
          EXPECT_TRUE(far.put(key, key).has_value());
        } else if (const auto got = far.get(key); got.has_value()) {
          EXPECT_EQ(*got, key);
        }
      }
      all_together.arrive_and_wait();
      all_together.arrive_and_wait();
    });
  }
  all_together.arrive_and_wait();
  // This thread has one, too, since it opened the store.
  EXPECT_TRUE(comes_true([&] { return host_->counts().sessions == threads_count + 1; }))
      << host_->counts().sessions;
  all_together.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LendingTest, WhatIsNotThereIsAnError) {
  near();
  start();
  Options attach;
  attach.mode = Options::Mode::attach;
  EXPECT_EQ(Store::open(url("none"), attach).error().code, Errc::not_found);
  EXPECT_THAT(Store::open(url("none")).error().message(), HasSubstr("loch create none"));
  EXPECT_THAT(Store::destroy(url()).error().message(), HasSubstr("loch rm store"));
  stop();
  const auto error = Store::open(url(), attach).error();
  EXPECT_EQ(error.code, Errc::unavailable);
  EXPECT_THAT(error.message(), HasSubstr("127.0.0.1"));
}

// Receive: clients that ask for one store after another that is not there. Expect: each is told so; the log
// tells of the first ones alone.
TEST_F(LendingTest, WhatStrangersAskForDoesNotFillTheLog) {
  near();
  start();
  constexpr int asked = 50;
  for (int i = 0; i < asked; ++i) {
    const Error error = error_of(Store::open(url(fmt::format("none-{}", i))));
    EXPECT_THAT(error.message(), HasSubstr(fmt::format("'none-{}'", i)));
  }
  const std::string said = log();
  EXPECT_THAT(said, HasSubstr("'none-0'"));
  EXPECT_THAT(said, Not(HasSubstr(fmt::format("'none-{}'", asked - 1))));
}

// Receive: in the mode that creates what is not there, a store that the host has not, and a key file that is
// missing here. Expect: an error that names the one or the other; and to create the store there, if it is
// that.
TEST_F(LendingTest, WhoWouldCreateAStoreIsToldWhatIsMissing) {
  near();
  start();
  const Error store = error_of(Store::open(url("none")));
  EXPECT_EQ(store.code, Errc::not_found);
  EXPECT_THAT(store.message(),
              AllOf(HasSubstr("there is no store 'none'"), HasSubstr("create it there: loch create none")));
  Options options;
  options.key_file = folder_ + "/absent";
  const Error key = error_of(Store::open(url(), options));
  EXPECT_EQ(key.code, Errc::not_found);
  EXPECT_THAT(key.message(), AllOf(HasSubstr(options.key_file), Not(HasSubstr("loch create"))));
}

// ---- who goes

// Receive: a client that asks for more memory than the library does. Expect: the host keeps to what the store
// was created for, and the client to what it is given.
TEST_F(LendingTest, NobodyMakesAStoreLargerThanItWasCreatedFor) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  Options small = here();
  small.max_bytes = 8 * mib;
  near_.emplace(Store::open("shm://store", small).value());
  host_options_.bytes_max = [this](const auto& store) { return keeper_->bytes_max(store); };
  start();
  const auto fabric = fabric::attach(url(), {}).value();
  EXPECT_EQ(error_of(fabric->extend(fabric::first_data_region, 9 * mib)).code, Errc::no_space);
  EXPECT_EQ(error_of(fabric->extend(fabric::data_regions_end, mib)).code, Errc::not_found) << "none of its";
  EXPECT_TRUE(fabric->extend(fabric::first_data_region, 4 * mib).has_value());
  auto far = open_far().value();
  const std::string value(100'000, 'v');
  int put = 0;
  while (far.put(std::to_string(put), value).has_value()) ASSERT_LT(++put, 100);
  EXPECT_GT(put, 30) << "all that it was created for can be had";
  EXPECT_EQ(error_of(far.put("another", value)).code, Errc::no_space);
}

TEST_F(LendingTest, ASessionThatIsSilentHoldsNobodyUpAndGoesOn) {
  near();
  host_options_.silence_max_ns = 400 * base::millisecond_ns;
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  EXPECT_TRUE(comes_true([&] { return host_->counts().fenced >= 1; }));
  ASSERT_TRUE(far.put("a", "2").has_value()) << "as if nothing had been";
  EXPECT_EQ(near().get("a").value(), "2");
  EXPECT_EQ(far.get("a").value(), "2");
}

// Receive: a session that a thread left, and that the host has broken off since. Expect: the next thread does
// not notice.
TEST_F(LendingTest, ASessionThatAThreadLeftIsLookedAtBeforeItIsUsedAgain) {
  near();
  host_options_.silence_max_ns = 400 * base::millisecond_ns;
  start();
  auto far = open_far().value();
  std::thread([&far] { ASSERT_TRUE(far.put("a", "1").has_value()); }).join();
  EXPECT_TRUE(comes_true([&] { return host_->counts().sessions == 0; }));
  std::thread([&far] { ASSERT_TRUE(far.put("a", "2").has_value()); }).join();
  EXPECT_EQ(near().get("a").value(), "2");
}

// Receive: a session that is sent away because it is idle for as long as a host waits that gives shards away.
// Expect: it begins anew when it is used, and was not taken for dead.
TEST_F(LendingTest, AnIdleSessionThatIsSentAwayBeginsAnew) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  EXPECT_TRUE(comes_true([&] {
    host_->end_idle("store", 600 * base::millisecond_ns);
    return host_->counts().sessions == 0;
  }));
  ASSERT_TRUE(far.put("a", "2").has_value()) << "as if nothing had been";
  EXPECT_EQ(near().get("a").value(), "2");
  EXPECT_EQ(host_->counts().fenced, 0U);
}

TEST_F(LendingTest, AHostThatWasAwayServesAgain) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  stop();
  const auto error = error_of(far.put("a", "2"));
  EXPECT_TRUE(error.code == Errc::unavailable) << error.message();
  EXPECT_EQ(error_of(far.get("a")).code, Errc::unavailable);
  EXPECT_EQ(near().get("a").value(), "1");
  start();
  const auto again = far.get("a");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, "1");
  ASSERT_TRUE(far.put("a", "3").has_value());
  EXPECT_EQ(near().get("a").value(), "3");
  ASSERT_TRUE(near().collect().has_value()) << "what the broken off session had written and not linked";
  EXPECT_EQ(near().check()->items_unaccounted, 0U);
}

TEST_F(LendingTest, AnotherStoreOfTheSameNameIsNotTakenForIt) {
  near();
  start();
  auto far = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  stop();
  near_.reset();
  ASSERT_TRUE(Store::destroy("shm://store", here()).has_value());
  near();
  start();
  EXPECT_FALSE(far.put("a", "2").has_value());
  EXPECT_THAT(error_of(far.get("a")).message(), HasSubstr("open it again"));
  EXPECT_EQ(near().count().value(), 0U);
  EXPECT_TRUE(open_far()->put("a", "2").has_value());
}

// Receive: a store that is removed, and made again, while it is lent. Expect: its sessions end by themselves,
// and what a client puts goes into neither.
TEST_F(LendingTest, AStoreThatIsRemovedMeanwhileIsNotUsedAnyMore) {
  host_options_.silence_max_ns = 2 * base::second_ns;
  near();
  start();
  auto far = open_far().value();
  auto idle = open_far().value();
  ASSERT_TRUE(far.put("a", "1").has_value());
  ASSERT_TRUE(idle.put("b", "1").has_value());
  near_.reset();
  ASSERT_TRUE(Store::destroy("shm://store", here()).has_value());
  near();
  EXPECT_TRUE(comes_true([&] { return host_->counts().sessions == 0; }));
  EXPECT_THAT(log(), HasSubstr("2 sessions of stores that were removed"));
  EXPECT_FALSE(far.put("a", "2").has_value());
  EXPECT_THAT(error_of(far.get("a")).message(), HasSubstr("open it again"));
  EXPECT_EQ(near().count().value(), 0U);
  EXPECT_TRUE(open_far()->put("a", "2").has_value());
}

TEST_F(LendingTest, ClientsThatCloseLeaveNothingBehind) {
  near();
  start();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(open_far()->put(fmt::format("{}", i), "x").has_value());
  EXPECT_TRUE(comes_true([&] { return host_->counts().clients == 0 && keeper_->count() == 0; }));
  EXPECT_EQ(host_->counts().sessions, 0U);
  EXPECT_EQ(near().info()->clients, 1U);
  EXPECT_EQ(near().check()->items_unaccounted, 0U);
}

}  // namespace
}  // namespace loch::server
