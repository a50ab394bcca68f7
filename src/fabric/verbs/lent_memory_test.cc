#include "fabric/verbs/lent_memory.h"

#include <chrono>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

namespace loch::fabric::verbs {
namespace {

constexpr base::Nanos no_deadline = std::numeric_limits<base::Nanos>::max();
constexpr Address place{.region = 3, .offset_bytes = 50};

// A host with one region of so many bytes, which lends so many of them at once.
struct FakeHost {
  std::uint64_t region_bytes = 0;
  std::uint64_t lent_bytes = 0;
  std::uint64_t questions = 0;

  Result<net::Message> answer(const net::Message& question) {
    ++questions;
    const std::uint64_t at = question["at"];
    if (at >= region_bytes) return fail(Errc::not_found, "test", "the region does not go as far as that");
    const std::uint64_t from = at / lent_bytes * lent_bytes;
    return net::Message{{"from", from}, {"bytes", lent_bytes}, {"address", 1'000 + from}, {"key", 7U}};
  }
  LentMemory::Ask asked() {
    return [this](const net::Message& question, base::Nanos /*deadline*/) { return answer(question); };
  }
};

TEST(LentMemory, IsAskedForOnce) {
  FakeHost host{.region_bytes = 300, .lent_bytes = 100};
  LentMemory lent(host.asked(), 1);
  EXPECT_EQ(lent.find(place.region, 50), nullptr);
  EXPECT_TRUE(lent.covers(place, 200, no_deadline));
  EXPECT_EQ(host.questions, 3U);
  EXPECT_EQ(lent.find(place.region, 299)->address, 1'200U);
  EXPECT_TRUE(lent.covers({place.region, 0}, 300, no_deadline));
  EXPECT_TRUE(lent.covers({place.region, 300}, 0, no_deadline));
  EXPECT_EQ(host.questions, 3U);
  EXPECT_FALSE(lent.covers(place, 251, no_deadline)) << "the region ends before";
  EXPECT_FALSE(lent.covers({place.region, ~std::uint64_t{0}}, 2, no_deadline)) << "that wraps around";
  EXPECT_FALSE(lent.trouble().has_value());
}

// Receive: a host that lends a byte at a time: to an operation that has little time left, with what it takes
// to answer; and to one that has none left, at once. Expect: the time of the questions counts all together.
TEST(LentMemory, QuestionsHaveTheTimeOfOneOperation) {
  FakeHost host{.region_bytes = region_bytes_max, .lent_bytes = 1};
  LentMemory lent(
      [&host](const net::Message& question, base::Nanos /*deadline*/) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return host.answer(question);
      },
      1);
  EXPECT_FALSE(lent.covers(place, 1'000, base::Clock().now() + 100 * base::millisecond_ns));
  EXPECT_LE(host.questions, 60U);
  ASSERT_TRUE(lent.trouble().has_value());
  EXPECT_EQ(lent.trouble()->code, Errc::timed_out);
  EXPECT_GT(lent.take_asked_ns(), 50 * base::millisecond_ns);
  EXPECT_EQ(lent.take_asked_ns(), 0U);

  host.questions = 0;
  LentMemory late(host.asked(), 1);
  EXPECT_FALSE(late.covers(place, 1'000, base::Clock().now() - 1));
  EXPECT_EQ(host.questions, 0U);
  EXPECT_EQ(late.trouble().value().code, Errc::timed_out);
}

// Receive: an answer that says what can not be, and a host that is not reached. Expect: nothing is lent; of
// the second it is said why.
TEST(LentMemory, WhatCanNotBeIsNotLent) {
  LentMemory lies(
      [](const net::Message&, base::Nanos) -> Result<net::Message> { return net::Message::object(); }, 1);
  EXPECT_FALSE(lies.covers(place, 8, no_deadline));
  EXPECT_FALSE(lies.trouble().has_value());
  LentMemory gone(
      [](const net::Message&, base::Nanos) -> Result<net::Message> {
        return fail(Errc::unavailable, "test", "it is gone");
      },
      1);
  EXPECT_FALSE(gone.covers(place, 8, no_deadline));
  EXPECT_EQ(gone.trouble().value().detail, "it is gone");
}

}  // namespace
}  // namespace loch::fabric::verbs
