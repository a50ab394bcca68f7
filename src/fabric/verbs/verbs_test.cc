// The backend verbs keeps what fabric.h promises, and a host breaks its queue pairs off. For a host with RDMA
// devices at LOCH_TEST_VERBS_HOST and LOCH_TEST_VERBS_HOST_TOO, and a way to it from LOCH_TEST_VERBS_CLIENT
// (tests/vm).
#include <chrono>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "fabric/testing/conformance.h"

namespace loch::fabric::conformance {
namespace {

using testing::HasSubstr;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "127.0.0.1";
}

std::unique_ptr<HostWorld> verbs_world(Plan plan, Atomics atomics) {
  plan.atomics = atomics;
  return std::make_unique<HostWorld>(plan, "verbs", environment("LOCH_TEST_VERBS_HOST"),
                                     environment("LOCH_TEST_VERBS_CLIENT"));
}

const std::vector<Backend> backends = {
    {"Verbs", [](const Plan& plan) { return verbs_world(plan, Atomics::device); }},
    {"VerbsAndAgent", [](const Plan& plan) { return verbs_world(plan, Atomics::processor); }}};

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(backends),
                         [](const auto& info) { return info.param.name; });

// ---- the host

Plan small_plan(Atomics atomics) {
  return {.regions = {{small_region, small_bytes}},
          .fill = [](std::span<const Mapping> /*regions*/) {},
          .atomics = atomics};
}

class VerbsHost : public testing::TestWithParam<Atomics> {
 protected:
  void start(const std::vector<std::string>& addresses, base::Nanos silence_max_ns) {
    Host::Options options{.verbs = true,
                          .open_store = [this](const std::string&) { return files_.attach(); },
                          .silence_max_ns = silence_max_ns};
    for (const std::string& address : addresses) options.listen.push_back({.host = address, .port = "0"});
    auto host = Host::start(std::move(options));
    ASSERT_TRUE(host.has_value()) << host.error().message();
    host_ = std::move(*host);
    addresses_ = addresses;
  }
  std::unique_ptr<Session> session(std::size_t address = 0) {
    const std::string url = fmt::format("verbs://{}:{}/store", addresses_[address], host_->ports()[address]);
    return std::make_unique<Session>(
        fabric::attach(url, {.source = environment("LOCH_TEST_VERBS_CLIENT")}).value());
  }

  const Address word_{small_region, 8};
  ShmWorld files_{small_plan(GetParam())};
  std::vector<std::string> addresses_;
  std::unique_ptr<Host> host_;
};

// Receive: a session that is silent for too long, and then goes on. Expect: the host lets go of its client
// number, and nothing that the session does happens any more.
TEST_P(VerbsHost, ASessionThatIsTakenForDeadChangesNothing) {
  start({environment("LOCH_TEST_VERBS_HOST")}, 300 * base::millisecond_ns);
  const auto silent = session();
  const auto other = session();
  ASSERT_TRUE(silent->write_word(word_, 1).has_value());
  ASSERT_TRUE(silent->endpoint.port().claim_presence(5).value());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (other->endpoint.port().present(5)) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(silent->compare_swap(word_, 1, 2).error().code, Errc::unavailable);
  EXPECT_EQ(silent->write_word(word_, 3).error().code, Errc::unavailable);
  EXPECT_EQ(silent->read_word(word_).error().code, Errc::unavailable);
  EXPECT_EQ(other->read_word(word_).value(), 1U);
}

// The atomics of two devices are not atomic against each other.
TEST_P(VerbsHost, OneDeviceAloneChangesAStore) {
  start({environment("LOCH_TEST_VERBS_HOST"), environment("LOCH_TEST_VERBS_HOST_TOO")}, base::second_ns);
  auto first = session(0);
  ASSERT_TRUE(first->write_word(word_, 1).has_value());
  const auto second = session(1)->read_word(word_);
  if (GetParam() == Atomics::processor) {
    EXPECT_EQ(second.value(), 1U) << "devices only read";
    return;
  }
  EXPECT_THAT(second.error().detail, HasSubstr("refuses"));
  first = nullptr;
  EXPECT_EQ(session(1)->compare_swap(word_, 1, 2).value(), 1U) << "nobody goes by the other one any more";
}

INSTANTIATE_TEST_SUITE_P(Atomics, VerbsHost, testing::Values(Atomics::device, Atomics::processor),
                         [](const auto& info) {
                           return info.param == Atomics::device ? "Device" : "Processor";
                         });

}  // namespace
}  // namespace loch::fabric::conformance
