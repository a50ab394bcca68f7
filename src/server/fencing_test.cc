// Sessions that a host takes for dead, and what the other hosts of the cluster have of them.
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/check.h"
#include "base/testing/comes_true.h"
#include "fabric/remote/remote_fabric.h"
#include "memory/layout.h"
#include "net/credentials.h"
#include "net/socket.h"
#include "server/testing/fixed_cluster.h"

namespace loch::server {
namespace {

using namespace std::chrono_literals;
using base::fake::comes_true;
using fake::store_name;
using testing::HasSubstr;

// A session that one host has taken for dead has ended on all before the first gives away what it had.
class Fencing : public fake::FixedCluster {
 protected:
  void SetUp() override {
    add_nodes(2);
    nodes_[0]->config().silence_max = 1s;
    nodes_[1]->config().silence_max = 1h;
    ASSERT_NO_FATAL_FAILURE(start_all());
  }
  Result<std::shared_ptr<fabric::remote::RemoteFabric>> way_to(std::size_t node) {
    return fabric::remote::RemoteFabric::attach(
        {.scheme = "tcp", .host = nodes_[node]->address(), .store = store_name});
  }
  static Result<void> perform(fabric::Port& port, std::span<fabric::Operation> operations) {
    struct Done : fabric::Completion {
      std::optional<Result<void>> outcome;
    } done;
    done.complete = [](fabric::Completion& self, Result<void> outcome) {
      static_cast<Done&>(self).outcome = std::move(outcome);
    };
    const base::Nanos now = base::Clock().now();
    port.post(operations, now + base::second_ns, done);
    while (!done.outcome) {
      LOCH_CHECK(base::Clock().now() <
                 now + 30 * base::second_ns);  // until it completes, `done` is the port's
      port.poll(base::millisecond_ns);
    }
    return std::move(*done.outcome);
  }
  // Reads a word of the node's control region.
  static Result<void> touch(fabric::Port& port, std::uint32_t node) {
    std::uint64_t word = 0;
    auto reading = fabric::Operation::read({fabric::control_region_of(node), 0}, &word, sizeof word);
    return perform(port, {&reading, 1});
  }
};

TEST_F(Fencing, EndsASessionOnAllHostsBeforeItsNumberIsFree) {
  const auto a = way_to(0).value();
  const auto b = way_to(1).value();
  const auto at_a = a->connect("0123456789abcdef").value();
  const auto at_b = b->connect("0123456789abcdef").value();
  const auto other = b->connect("fedcba9876543210").value();
  ASSERT_TRUE(at_a->claim_presence(7).value());
  ASSERT_TRUE(at_b->claim_presence(9).value());
  ASSERT_TRUE(touch(*at_b, 1).has_value());
  const auto watcher = way_to(0).value();
  const auto watching = watcher->connect("watcher").value();
  // It is silent towards `a` alone.
  ASSERT_TRUE(comes_true([&] { return !watching->present(7) || !touch(*at_b, 1).has_value(); }));
  EXPECT_FALSE(touch(*at_b, 1).has_value()) << "b has not ended it";
  EXPECT_TRUE(touch(*other, 1).has_value()) << "b has ended another";
  EXPECT_TRUE(comes_true([&] { return !watching->present(7); }));
  const auto watching_b = b->connect("watcher").value();
  EXPECT_TRUE(comes_true([&] { return !watching_b->present(9); }));
}

TEST_F(Fencing, KeepsTheNumberWhileAHostCanNotBeAsked) {
  const auto a = way_to(0).value();
  const auto at_a = a->connect("0123456789abcdef").value();
  ASSERT_TRUE(at_a->claim_presence(7).value());
  nodes_[1]->stop();
  const auto watcher = way_to(0).value();
  {
    // It is asked, and asked again.
    const auto in_its_place = net::listen(nodes_[1]->address()).value();
    for (int i = 0; i < 2; ++i) {
      const base::Nanos deadline = base::Clock().now() + 30 * base::second_ns;
      ASSERT_TRUE(net::wait_for(in_its_place.socket.get(), POLLIN, deadline));
      net::accept(in_its_place);
    }
    EXPECT_TRUE(watcher->connect("watcher").value()->present(7));
  }
  ASSERT_NO_FATAL_FAILURE(nodes_[1]->start());
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Receive: a session that began while a host could not be reached, and is silent. Expect: that host is not
// waited for.
TEST_F(Fencing, DoesNotWaitForAHostThatTheSessionDidNotReach) {
  nodes_[1]->stop();
  const auto fabric = fabric::attach(url(), {}).value();
  const auto port = fabric->connect();
  constexpr std::uint32_t client = 7;  // of the first node
  ASSERT_TRUE(port->claim_presence(client).value());
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(watcher->connect("watcher").value()->present(client));
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(client); }));
}

// A host that ends and comes back still sees to the sessions that it had.
TEST_F(Fencing, OutlivesTheHostThatHadTheSession) {
  const auto b = way_to(1).value();
  const auto at_b = b->connect("0123456789abcdef").value();
  nodes_[0]->stop();
  // As if it had been killed while it had the session.
  ASSERT_TRUE(
      fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
          .value()
          ->note_session(7, "0123456789abcdef 3")
          .has_value());
  ASSERT_TRUE(touch(*at_b, 1).has_value());
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(comes_true([&] { return !touch(*at_b, 1).has_value(); }));
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Receive: a host comes back while the lochd that had its sessions still holds the number of one. Expect: it
// lends nothing until it can see to that one, and then does.
TEST_F(Fencing, WaitsForTheLochdThatHadTheSession) {
  const auto b = way_to(1).value();
  const auto at_b = b->connect("0123456789abcdef").value();
  nodes_[0]->stop();
  const auto here =
      fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
          .value();
  ASSERT_TRUE(here->note_session(7, "0123456789abcdef 3").has_value());
  const auto before = here->connect();
  ASSERT_TRUE(before->claim_presence(7).value());
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  const auto refused = way_to(0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("before has not ended yet"));
  ASSERT_TRUE(touch(*at_b, 1).has_value());
  before->release_presence(7);
  ASSERT_TRUE(way_to(0).has_value());
  EXPECT_TRUE(comes_true([&] { return !touch(*at_b, 1).has_value(); }));
}

// Receive: a host is killed and comes back while another one is down, which a session that it had did not
// reach. Expect: it does not wait for that one.
TEST_F(Fencing, ANoteSaysWhichHostsTheSessionReached) {
  for (const auto& node : nodes_) node->stop();
  ASSERT_TRUE(
      fabric::attach(fmt::format("shm://{}", store_name), {.directory = nodes_[0]->folder(), .lends = true})
          .value()
          ->note_session(7, "0123456789abcdef 1")
          .has_value());
  ASSERT_NO_FATAL_FAILURE(nodes_[0]->start());
  const auto watcher = way_to(0).value();
  EXPECT_TRUE(comes_true([&] { return !watcher->connect("watcher").value()->present(7); }));
}

// Expect: no number, and nobody is kept from having it.
TEST_F(Fencing, ASessionThatCanNotBeNotedGetsNoNumber) {
  const std::string notes = fmt::format("{}/loch.{}/sessions", nodes_[0]->folder(), store_name);
  const auto a = way_to(0).value();
  ASSERT_EQ(::mkdir(notes.c_str(), 0700), 0);
  const auto at_a = a->connect("0123456789abcdef").value();
  const auto refused = at_a->claim_presence(7);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("sessions"));
  EXPECT_FALSE(at_a->present(7));
  ASSERT_EQ(::rmdir(notes.c_str()), 0);
  EXPECT_TRUE(at_a->claim_presence(7).value());
}

TEST_F(Fencing, ANameThatIsTooLongToNoteIsRefused) {
  const auto a = way_to(0).value();
  EXPECT_TRUE(a->connect(std::string(fabric::remote::session_name_bytes_max, 's')).has_value());
  const auto refused = a->connect(std::string(fabric::remote::session_name_bytes_max + 1, 's'));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("has at most 32 bytes"));
}

TEST_F(Fencing, IsNotForThoseWhoDoNotKnowTheKey) {
  const auto b = way_to(1).value();
  const auto at_b = b->connect("0123456789abcdef").value();
  const std::string key_file = folder_ + "/key";
  std::ofstream(key_file) << "none of the cluster's";
  ::chmod(key_file.c_str(), 0600);
  const fabric::remote::Target target{.scheme = "tcp",
                                      .host = nodes_[1]->address(),
                                      .store = store_name,
                                      .credentials = net::ClientCredentials::open(key_file, {}).value()};
  const auto fenced =
      fabric::remote::fence(target, "0123456789abcdef", base::Clock().now() + base::second_ns);
  ::unlink(key_file.c_str());
  ASSERT_FALSE(fenced.has_value());
  EXPECT_EQ(fenced.error().code, Errc::permission);
  EXPECT_TRUE(touch(*at_b, 1).has_value());
}

// Receive: batches for two hosts, one of which has ended the session. Expect: one that is to swap a word on
// the other may have happened; one that writes there has swapped nothing.
TEST_F(Fencing, ABatchThatOneOfTwoHostsHasDoneIsInDoubt) {
  const auto cluster = fabric::attach(url(), {}).value();
  std::uint64_t word = 0;
  const auto reading = fabric::Operation::read({fabric::control_region_of(0), 0}, &word, sizeof word);
  const fabric::Address there{fabric::control_region_of(1), memory::control_bytes - sizeof word};
  const std::uint64_t zero = 0;
  const std::pair<fabric::Operation, Errc> cases[] = {
      {fabric::Operation::write(there, &zero, sizeof zero), Errc::moved},
      {fabric::Operation::compare_swap(there, 1, 2), Errc::unavailable},
  };
  for (const auto& [other, expected] : cases) {
    const auto port = cluster->connect();
    std::array operations = {reading, other};
    ASSERT_TRUE(perform(*port, operations).has_value());
    {
      const auto paused = nodes_[0]->host().pause(store_name).value();
    }
    const auto done = perform(*port, operations);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, expected) << done.error().message();
  }
}

}  // namespace
}  // namespace loch::server
