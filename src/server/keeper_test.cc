#include "server/keeper.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/testing/lending.h"

namespace loch::server {
namespace {

using KeeperTest = fake::Lending;

// Receive: a store that is opened by somebody else while it is being opened. Expect: both have the same one,
// and the keeper knows it when the one who was later lets it go.
TEST_F(KeeperTest, AStoreThatTwoOpenAtOnceIsKeptOnce) {
  constexpr std::uint64_t max_bytes = std::uint64_t{8} << 20;
  Options small = here();
  small.max_bytes = max_bytes;
  near_.emplace(Store::open("shm://store", small).value());
  std::unique_ptr<Keeper> keeper;
  std::shared_ptr<fabric::Fabric> first;
  bool is_nested = false;
  // The keeper asks for its node when it has looked for the store, and before it keeps it.
  const auto open_meanwhile = [&](const std::string& name) -> std::optional<std::uint32_t> {
    if (!std::exchange(is_nested, true)) first = keeper->open(name).value();
    return std::nullopt;
  };
  keeper =
      std::make_unique<Keeper>(fabric::Access{.directory = folder_, .huge_pages = false}, open_meanwhile);
  auto later = keeper->open("store").value();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(later.get(), first.get());
  later.reset();
  EXPECT_EQ(keeper->bytes_max(*first), max_bytes);
  EXPECT_EQ(keeper->open("store").value().get(), first.get());
}

}  // namespace
}  // namespace loch::server
