// What is seen of a store's use without a session.
#include "memory/usage.h"

#include <gtest/gtest.h>

#include "memory/testing/test_memory.h"

namespace loch::memory {
namespace {

using fake::expiry_ns;
using fake::Process;

// Receive: blocks that are taken, and free again. Expect: they are counted so, and no others.
TEST(Usage, IsOfWholeBlocks) {
  const auto store = fake::make_memory(fake::geometry);
  const auto fabric = store->attach();
  fabric::Endpoint watcher(fabric, fabric->connect());
  EXPECT_EQ(usage_of(watcher).data_bytes, block_bytes);
  EXPECT_EQ(usage_of(watcher).data_free_bytes, block_bytes);
  EXPECT_EQ(usage_of(watcher).index_bytes, 0U);
  Process process(*store);
  const auto large = process.allocate(3 * block_bytes);
  ASSERT_TRUE(large.has_value());
  fake::write(*store, process, *large);
  const Usage taken = usage_of(watcher);
  EXPECT_GE(taken.data_bytes - taken.data_free_bytes, 3 * block_bytes);
  EXPECT_LE(taken.data_bytes - taken.data_free_bytes, 4 * block_bytes);
  fake::retire(process, *large);
  store->advance(2 * expiry_ns);
  EXPECT_TRUE(process.allocate(3 * block_bytes).has_value());
  EXPECT_EQ(usage_of(watcher).data_bytes, taken.data_bytes) << "the same blocks are used again";
}

}  // namespace
}  // namespace loch::memory
