// The store's calls over verbs (client/testing/calls.h), from one of the nodes of nodes.sh to another.
#include <gtest/gtest.h>

#include "server/testing/lent_world.h"

namespace loch::calls {
namespace {

// The processor is emulated. (Where it is busy, too, Soft-RoCE sends again what is only late; a WRITE of many
// packets then ends now and then as an invalid request. So those to a store that a device changes are short.)
Way way(const char* name, Atomics atomics) {
  return {.name = name,
          .make = server::fake::LentWorld::maker(
              {.scheme = "verbs", .address = "10.0.0.1", .source = "10.0.0.2", .atomics = atomics}),
          .times_fewer = 100,
          .longest_value_bytes = atomics == Atomics::device ? 100'000U : 1'100'000U};
}

const auto ways = testing::Values(way("Device", Atomics::device), way("Processor", Atomics::processor));
INSTANTIATE_TEST_SUITE_P(Ways, Calls, ways, name_of);
INSTANTIATE_TEST_SUITE_P(Ways, AsyncCalls, ways, name_of);

}  // namespace
}  // namespace loch::calls
