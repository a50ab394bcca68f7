// What a queue pair says has completed has an answer, also when packets are lost. For the nodes of nodes.sh.
#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>

#include "fabric/testing/conformance.h"
#include "tests/vm/nodes.h"

namespace loch::tests {
namespace {

using fabric::Operation;
using fabric::conformance::small_region;

class LostPackets : public testing::Test {
 protected:
  static constexpr int percent = 5;
  static constexpr std::uint64_t chains = 600;

  void SetUp() override {
    for (const int node : {1, 2}) lose(node, percent);
  }
  void TearDown() override {
    for (const int node : {1, 2}) lose(node, 0);
  }

  fabric::conformance::HostWorld world_{{.regions = {{small_region, fabric::conformance::small_bytes}},
                                         .fill = [](std::span<const fabric::Mapping> /*regions*/) {},
                                         .atomics = Atomics::device},
                                        "verbs",
                                        "10.0.0.1",
                                        "10.0.0.2"};
  fabric::conformance::Session session_{world_};
};

// (Soft-RoCE, asked once more for a WRITE that it has executed, acknowledges the newest that it has executed
// instead; and at the other end it takes that for the answer of an atomic, if that is the newest.)
TEST_F(LostPackets, AnAtomicBehindAWriteTellsTheWordBefore) {
  for (std::uint64_t i = 0; i < chains; ++i) {
    std::array operations = {Operation::write({small_region, 128}, &i, sizeof i),
                             Operation::fetch_add({small_region, 64}, 1)};
    operations[1].after_previous = true;
    const auto done = session_.perform(operations);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    ASSERT_EQ(operations[1].result, i);
  }
}

TEST_F(LostPackets, AReadBehindAWriteReadsIt) {
  for (std::uint64_t i = 0; i < chains; ++i) {
    std::uint64_t found = 0;
    std::array operations = {Operation::write({small_region, 128}, &i, sizeof i),
                             Operation::read({small_region, 128}, &found, sizeof found)};
    operations[1].after_previous = true;
    const auto done = session_.perform(operations);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    ASSERT_EQ(found, i);
  }
}

// Also behind a message.
TEST_F(LostPackets, SoDoWhatComesBehindAMessage) {
  ASSERT_TRUE(session_.write_word({small_region, 128}, 7).has_value());
  for (std::uint64_t i = 0; i < chains; ++i) {
    session_.endpoint.port().extend_soon(small_region, 0);
    std::uint64_t found = 0;
    std::array operations = {Operation::read({small_region, 128}, &found, sizeof found),
                             Operation::fetch_add({small_region, 64}, 1)};
    const auto done = session_.perform(operations);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    ASSERT_EQ(found, 7U);
    ASSERT_EQ(operations[1].result, i);
  }
}

}  // namespace
}  // namespace loch::tests
