// The store's calls over TCP (client/testing/calls.h).
#include <gtest/gtest.h>

#include "server/testing/lent_world.h"

namespace loch::calls {
namespace {

const auto ways =
    testing::Values(Way{.name = "Tcp",
                        .make = server::fake::LentWorld::maker({.scheme = "tcp", .address = "127.0.0.1"}),
                        .times_fewer = 3});
INSTANTIATE_TEST_SUITE_P(Ways, Calls, ways, name_of);
INSTANTIATE_TEST_SUITE_P(Ways, AsyncCalls, ways, name_of);

}  // namespace
}  // namespace loch::calls
