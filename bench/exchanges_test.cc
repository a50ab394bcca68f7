#include "bench/exchanges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "base/clock.h"
#include "bench/child.h"

namespace loch::bench {
namespace {

using testing::HasSubstr;

class ExchangesTest : public testing::Test {
 protected:
  using Server = Child<std::uint16_t>;

  [[nodiscard]] net::HostPort at() const {
    return {.host = "127.0.0.1", .port = std::to_string(server_.hear(10 * base::second_ns).value())};
  }

 private:
  Server server_ = Server::start("exchanges", [](const Server::Tell& tell) -> Result<void> {
                     const auto listener = net::listen({.host = "127.0.0.1", .port = "0"});
                     if (!listener) return std::unexpected(listener.error());
                     tell(listener->port);
                     return serve_exchanges(*listener);
                   }).value();
};

// Receive: one connection after the other, of other sizes, more than a socket holds among them. Expect: each
// is answered, again and again, and every exchange has its latency.
TEST_F(ExchangesTest, EachConnectionIsAnsweredAsItAsks) {
  const auto with = at();
  constexpr std::uint64_t many_bytes = 1 << 20;
  for (const Exchange exchange : {Exchange{}, Exchange{.request_bytes = 1, .reply_bytes = 1},
                                  Exchange{.request_bytes = 512, .reply_bytes = many_bytes},
                                  Exchange{.request_bytes = many_bytes, .reply_bytes = 1}}) {
    const auto done = run_exchanges(with, exchange, 0.02);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_GE(done->lap.operations, 1u);
    EXPECT_EQ(done->latencies.count(), done->lap.operations);
    EXPECT_GT(done->lap.elapsed_ns, 0u);
  }
}

TEST_F(ExchangesTest, SizesThatAreNoneAreRefused) {
  const auto with = at();
  for (const Exchange exchange :
       {Exchange{.request_bytes = 0}, Exchange{.reply_bytes = exchange_bytes_max + 1}}) {
    const auto done = run_exchanges(with, exchange, 0.02);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::invalid_argument);
  }
  EXPECT_TRUE(run_exchanges(with, {}, 0.02));
}

// Receive: a process that tells nothing and fails, and one that is killed. Expect: its error; that it died.
TEST(Child, ItsFailureAndItsDeathAreHeard) {
  using Worker = Child<int>;
  const auto failing = Worker::start("worker", [](const Worker::Tell& tell) -> Result<void> {
    tell(7);
    return fail(Errc::not_found, "bench", "there is no work");
  });
  ASSERT_TRUE(failing);
  EXPECT_EQ(failing->hear(10 * base::second_ns).value(), 7);
  const auto failed = failing->hear(10 * base::second_ns);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::not_found);
  EXPECT_EQ(failed.error().detail, "there is no work");

  const auto dying = Worker::start("worker", [](const Worker::Tell&) -> Result<void> { ::_exit(1); });
  ASSERT_TRUE(dying);
  const auto died = dying->hear(10 * base::second_ns);
  ASSERT_FALSE(died);
  EXPECT_THAT(died.error().detail, HasSubstr("worker: a process died"));
}

}  // namespace
}  // namespace loch::bench
