#include "sim/value.h"

#include <gtest/gtest.h>
#include <string>

namespace loch::sim {
namespace {

std::string value_of(ValueId id, std::size_t length_bytes) {
  std::string value;
  make_value(id, length_bytes, value);
  return value;
}

TEST(ValueTest, EveryLengthSaysItsId) {
  for (std::size_t length = value_bytes_min; length < 300; ++length) {
    const auto id = read_value(value_of(77, length));
    ASSERT_TRUE(id.has_value()) << id.error();
    EXPECT_EQ(*id, 77U);
  }
}

TEST(ValueTest, AChangeOfAnyByteIsSeen) {
  for (std::size_t at = 0; at < 100; ++at) {
    std::string value = value_of(77, 100);
    value[at] = static_cast<char>(value[at] ^ 1);
    EXPECT_FALSE(read_value(value).has_value()) << "byte " << at;
  }
}

TEST(ValueTest, APartOfAnotherValueIsSeen) {
  for (std::size_t at = 1; at < 100; ++at) {
    const std::string value = value_of(77, 100).substr(0, at) + value_of(78, 100).substr(at);
    EXPECT_FALSE(read_value(value).has_value()) << "byte " << at;
  }
}

TEST(ValueTest, ACutOrLengthenedValueIsSeen) {
  const std::string value = value_of(77, 100);
  for (std::size_t length = 0; length < value.size(); ++length) {
    EXPECT_FALSE(read_value(value.substr(0, length)).has_value());
  }
  EXPECT_FALSE(read_value(value + "x").has_value());
}

TEST(ValueTest, TheComplaintSaysWhere) {
  std::string value = value_of(77, 100);
  value[40] = static_cast<char>(value[40] ^ 1);
  EXPECT_NE(read_value(value).error().find("from byte 40 on"), std::string::npos)
      << read_value(value).error();
}

}  // namespace
}  // namespace loch::sim
