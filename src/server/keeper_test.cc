#include "server/keeper.h"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fabric/words.h"
#include "memory/layout.h"
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

// Receive: a total that is less than it was when it was told, as while a session ends. Expect: no counter
// goes back; but those of another store of that name begin anew.
TEST_F(KeeperTest, NoCounterGoesBack) {
  near();
  Keeper keeper(fabric::Access{.directory = folder_, .huge_pages = false});
  keeper.expect({{.name = "store"}});
  const auto hits = [&] { return keeper.seen().at("store").totals[Counter::get_hit]; };
  const auto set_hits = [&](std::uint64_t count) {
    const auto here =
        fabric::attach("shm://store", {.directory = folder_, .huge_pages = false, .lends = true}).value();
    fabric::Endpoint endpoint(here, here->connect());
    const std::uint64_t at =
        memory::totals_offset + static_cast<std::size_t>(Counter::get_hit) * sizeof(std::uint64_t);
    std::byte* word = endpoint.mapped({memory::control_region, at}, sizeof(std::uint64_t));
    ASSERT_NE(word, nullptr);
    fabric::store_word(word, count);
  };
  set_hits(1'000);
  EXPECT_EQ(hits(), 1'000U);
  set_hits(900);
  EXPECT_EQ(hits(), 1'000U);
  set_hits(1'100);
  EXPECT_EQ(hits(), 1'100U);
  near_.reset();
  ASSERT_TRUE(Store::destroy("shm://store", here()).has_value());
  near();
  EXPECT_EQ(hits(), 0U);
}

}  // namespace
}  // namespace loch::server
