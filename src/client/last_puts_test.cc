#include "client/last_puts.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace loch::client {
namespace {

std::vector<std::size_t> last_of(const std::vector<hash::Key>& keys) {
  const LastPuts last(keys);
  std::vector<std::size_t> found;
  for (std::size_t put = 0; put < keys.size(); ++put) found.push_back(last.of(put));
  return found;
}

TEST(LastPuts, StandForThoseOfTheSameKeyBeforeThem) {
  const hash::Key a{.bytes = "a", .hash = 1};
  const hash::Key b{.bytes = "b", .hash = 2};
  EXPECT_EQ(last_of({a, b, a, a, b}), (std::vector<std::size_t>{3, 4, 3, 3, 4}));
}

TEST(LastPuts, KeepKeysOfOneHashApart) {
  const hash::Key a{.bytes = "a", .hash = 255};
  const hash::Key b{.bytes = "b", .hash = 255};
  EXPECT_EQ(last_of({a, b, b, a}), (std::vector<std::size_t>{3, 2, 2, 3}));
}

TEST(LastPuts, OfNoKeyStandForThemselves) {
  EXPECT_EQ(last_of({hash::Key{}, hash::Key{}}), (std::vector<std::size_t>{0, 1}));
}

TEST(LastPuts, AreAsManyAsThereCanBe) {
  std::vector<std::string> texts;
  for (std::size_t put = 0; put < LastPuts::puts_max; ++put) texts.push_back(std::to_string(put / 2));
  std::vector<hash::Key> keys;
  for (const std::string& text : texts) keys.push_back(hash::Key::of(text, 7));
  const LastPuts last(keys);
  for (std::size_t put = 0; put < keys.size(); ++put) {
    EXPECT_EQ(last.of(put), put | 1);
    EXPECT_EQ(last.is_last(put), put % 2 == 1);
  }
}

}  // namespace
}  // namespace loch::client
