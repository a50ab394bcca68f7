// The backend verbs keeps what fabric.h promises. For a host with an RDMA device at LOCH_TEST_VERBS_HOST, and
// a way to it from LOCH_TEST_VERBS_CLIENT (tests/vm).
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "fabric/testing/conformance.h"

namespace loch::fabric::conformance {
namespace {

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

}  // namespace
}  // namespace loch::fabric::conformance
