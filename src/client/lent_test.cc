// A Store on another host that ends and comes back.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <loch/async.h>
#include <loch/loch.h>

#include "base/testing/comes_true.h"
#include "fabric/fabric.h"
#include "fabric/host.h"
#include "lab/temp_folder.h"
#include "net/testing/reserved_port.h"

namespace loch {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;

class Lent : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(near_.has_value()) << near_.error().message();
    start();
  }
  void TearDown() override {
    host_.reset();
    EXPECT_TRUE(Store::destroy("shm://" + name_, here()).has_value());
  }

  [[nodiscard]] Options here() const {
    Options options;
    options.directory = temp_.path();
    options.huge_pages = false;
    return options;
  }
  void start() {
    auto host = fabric::Host::start({.listen = {port_.at()}, .open_store = [this](const std::string& name) {
                                       return fabric::attach(
                                           "shm://" + name, {.directory = temp_.path(), .huge_pages = false});
                                     }});
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
  }
  Result<Store> open_far() const { return open_far(name_); }
  Result<Store> open_far(const std::string& name) const {
    Options options;
    options.mode = Options::Mode::attach;
    options.timeout = 5s;
    return Store::open(fmt::format("tcp://{}/{}", port_.at().text(), name), options);
  }

  static std::ptrdiff_t open_descriptors() {
    return std::ranges::distance(std::filesystem::directory_iterator("/proc/self/fd"));
  }

  const lab::TempFolder temp_ = lab::TempFolder::make("/dev/shm").value();
  const std::string name_ = "store";
  const net::fake::ReservedPort port_;  // it comes back there after a restart
  Result<Store> near_ = Store::open("shm://" + name_, here());
  std::unique_ptr<fabric::Host> host_;
};

// Receive: the first calls of threads after the host was away, while the sessions of several threads that
// have ended were idle. Expect: none of them fails for a session that it has not used before.
TEST_F(Lent, AThreadBeginsAfterItsHostWasAway) {
  auto far = open_far();
  ASSERT_TRUE(far.has_value()) << far.error().message();
  ASSERT_TRUE(far->put("k", "v").has_value());
  constexpr int threads_count = 4;
  std::barrier all_have_begun(threads_count);
  const auto get = [&] {
    const auto got = far->get("k");
    EXPECT_EQ(got ? *got : got.error().message(), "v");
  };
  const auto get_together = [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < threads_count; ++i) {
      threads.emplace_back([&] {
        get();
        all_have_begun.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  get_together();
  const auto descriptors_before = open_descriptors();
  host_.reset();
  start();
  std::this_thread::sleep_for(1s);  // an idle session asks whether it is there still
  std::thread(get).join();
  get_together();
  EXPECT_LE(open_descriptors(), descriptors_before) << "those that were lost are closed";
}

// Receive: a store that is closed, and was used by several threads. Expect: all their sessions take their
// leave, and the host takes none for dead.
TEST_F(Lent, SessionsOfAllThreadsTakeTheirLeave) {
  {
    auto far = open_far();
    ASSERT_TRUE(far.has_value()) << far.error().message();
    constexpr int threads_count = 8;
    std::barrier all_have_sessions(threads_count);
    std::vector<std::jthread> threads;
    for (int i = 0; i < threads_count; ++i) {
      threads.emplace_back([&] {
        EXPECT_TRUE(far->put("k", "v").has_value());
        all_have_sessions.arrive_and_wait();
      });
    }
    threads.clear();
    EXPECT_GE(host_->counts().sessions, std::uint64_t{threads_count});
  }
  EXPECT_TRUE(comes_true([&] { return host_->counts().sessions == 0; }));
  EXPECT_EQ(host_->counts().fenced, 0U);
}

// Receive: calls right after the host has ended all sessions, as one does that gives shards away. Expect:
// nobody notices.
TEST_F(Lent, CallsGoOnInAnotherSessionWhenTheHostHasEndedTheirs) {
  auto far = open_far();
  ASSERT_TRUE(far.has_value()) << far.error().message();
  std::vector<Assignment> assignments(3);
  for (int round = 0; round < 10; ++round) {
    const auto key = fmt::format("key {}", round);
    const auto value = std::to_string(round);
    const auto end_all = [&] { std::ignore = host_->pause(name_).value(); };
    end_all();
    const auto put = far->put(key, value);
    EXPECT_TRUE(put.has_value()) << put.error().message();
    end_all();
    EXPECT_EQ(far->get(key).value_or("nothing"), value);
    end_all();
    const auto inserted = far->insert(key + " too", value);
    EXPECT_TRUE(inserted.has_value()) << inserted.error().message();
    end_all();
    for (Assignment& one : assignments) one = {.key = key, .value = value};
    far->multi_put(assignments);
    for (const Assignment& one : assignments)
      EXPECT_TRUE(one.result.has_value()) << one.result.error().message();
    end_all();
    EXPECT_EQ(far->count().value_or(0), 2U * static_cast<unsigned>(round + 1));
    end_all();
    const auto removed = far->remove(key + " too");
    EXPECT_TRUE(removed.has_value()) << removed.error().message();
    EXPECT_TRUE(far->put(key + " too", value).has_value());
  }
}

// Receive: calls out of the midst of another one, whose session ends meanwhile, so that the thread has a new
// one. Expect: each of them does what it is for, the outer one too.
TEST_F(Lent, WhatIsAskedInTheMidstOfACallMayTakeAnotherSession) {
  auto far = open_far();
  ASSERT_TRUE(far.has_value()) << far.error().message();
  ASSERT_TRUE(far->put("one", "1").has_value());
  const auto end_all = [&] { std::ignore = host_->pause(name_).value(); };
  int changes = 0;
  const auto updated = far->update("two", [&](auto) {
    for (int round = 0; changes == 0 && round < 2; ++round) {
      end_all();
      EXPECT_EQ(far->get("one").value_or("nothing"), "1");
    }
    ++changes;
    return "2";
  });
  EXPECT_TRUE(updated.has_value()) << updated.error().message();
  EXPECT_EQ(far->get("two").value_or("nothing"), "2");
}

// Receive: puts, each by itself and in a batch, when all memory is of items whose time to live is over.
// Expect: they get it; and of two puts of a key in the batch, the last one counts.
TEST_F(Lent, AFullStoreTakesTheMemoryOfWhatHasExpired) {
  const std::string name = name_ + ".full";
  Options small = here();
  small.max_bytes = 8U << 20;
  small.expiry = 200ms;
  const std::string value(900, 'x');
  using std::chrono::steady_clock;
  std::optional<Store> near;
  std::size_t count = 0;
  Result<Version> put{};
  // Items that expire together; if they do so before it is full, another one is filled in twice the time.
  for (auto time = 3s;; time *= 2) {
    ASSERT_LE(time, 48s) << "it does not become full";
    near.emplace(Store::open("shm://" + name, small).value());
    const auto until = steady_clock::now() + time;
    put = Version{};
    for (count = 0; count < 10'000; ++count) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
      put = near->put(fmt::format("old{}", count), value, {.time_to_live = std::max(left, 1ms)});
      if (!put) break;
    }
    if (!put) break;
    ASSERT_TRUE(Store::destroy("shm://" + name, here()).has_value());
  }
  ASSERT_EQ(put.error().code, Errc::no_space) << put.error().message();
  auto far = open_far(name);
  ASSERT_TRUE(far.has_value()) << far.error().message();
  ASSERT_TRUE(comes_true([&] { return !near->exists(fmt::format("old{}", count - 1)).value_or(true); }));
  // The store's time passes, as lochd sees to: an operation here brings it on.
  const std::jthread keeper([&near](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::ignore = near->exists("k");
      std::this_thread::sleep_for(5ms);
    }
  });
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < count / 2; ++i) keys.push_back(fmt::format("new{}", i));
  std::vector<Assignment> assignments;
  for (const std::string& key : keys) assignments.push_back({.key = key, .value = value});
  assignments[0] = {.key = keys[1], .value = "not the last"};
  far->multi_put(assignments);
  for (const Assignment& one : assignments)
    ASSERT_TRUE(one.result.has_value()) << one.key << ": " << one.result.error().message();
  EXPECT_EQ(far->get(keys[1]).value_or("nothing"), value);
  for (std::size_t i = 0; i < count / 4; ++i) {
    put = far->put(fmt::format("newer{}", i), value);
    ASSERT_TRUE(put.has_value()) << i << " of " << count << ": " << put.error().message();
  }
  EXPECT_TRUE(Store::destroy("shm://" + name, here()).has_value());
}

// Receive: a batch right after the host has ended the session, of which some are no puts. Expect: each is
// told apart, the same key's other put or not.
TEST_F(Lent, WhatIsNoPutIsToldAlsoWhenTheHostHasEndedTheSession) {
  auto far = open_far();
  ASSERT_TRUE(far.has_value()) << far.error().message();
  ASSERT_TRUE(far->put("a", "1").has_value());
  std::ignore = host_->pause(name_).value();
  const PutOptions none{.time_to_live = -1ms};
  std::vector<Assignment> assignments = {{.key = "a", .value = "2"},
                                         {.key = "b", .value = "2", .options = none},
                                         {.key = "a", .value = "3", .options = none},
                                         {.key = "a", .value = "4"}};
  far->multi_put(assignments);
  for (const Assignment& one : assignments) {
    const bool is_put = !one.options.time_to_live;
    EXPECT_EQ(one.result.has_value(), is_put) << one.key << " " << one.value;
    if (!one.result)
      EXPECT_EQ(one.result.error().code, Errc::invalid_argument) << one.result.error().message();
  }
  EXPECT_EQ(far->get("a").value_or("nothing"), "4");
}

// Receive: a call of an Async whose host ended and came back. Expect: it is over, and another one works.
TEST_F(Lent, AnAsyncIsOverWhenItsHostWasAway) {
  auto far = open_far();
  ASSERT_TRUE(far.has_value()) << far.error().message();
  auto async = Async::open(*far);
  ASSERT_TRUE(async.has_value()) << async.error().message();
  ASSERT_TRUE(async->run(async->put("a", "one")).has_value());
  ASSERT_TRUE(async->run(async->put("b", "two")).has_value());
  auto a = async->get("a");
  auto b = async->get("b");
  a.start();
  b.start();
  EXPECT_FALSE(a.done()) << "it takes a round trip";
  EXPECT_FALSE(b.done());
  while (!a.done() || !b.done()) async->step();
  EXPECT_EQ(a.take().value_or("nothing"), "one");
  EXPECT_EQ(b.take().value_or("nothing"), "two");
  host_.reset();
  start();
  for (int i = 0; i < 2; ++i) {
    const auto got = async->run(async->get("a"));
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Errc::moved) << got.error().message();
  }
  auto another = Async::open(*far);
  ASSERT_TRUE(another.has_value()) << another.error().message();
  const auto got = another->run(another->get("a"));
  EXPECT_EQ(got ? *got : got.error().message(), "one");
}

}  // namespace
}  // namespace loch
