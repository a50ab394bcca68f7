#include "net/message.h"

#include <gtest/gtest.h>
#include <string>

namespace loch::net {
namespace {

std::string read_of(const std::string& detail) {
  return error_of(error_message({.code = Errc::not_found, .detail = detail}), "test").value().detail;
}

TEST(ErrorMessage, SaysTheSameAtTheOtherEnd) {
  const Error said{.code = Errc::no_space, .operation = "here", .detail = R"("a" is full: C:\d; höher)"};
  const auto read = error_of(error_message(said), "there");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->code, said.code);
  EXPECT_EQ(read->operation, "there");
  EXPECT_EQ(read->detail, said.detail);
  EXPECT_FALSE(error_of(Message::object(), "there").has_value());
}

// Receive: errors of a host that would have a terminal or a log do something. Expect: it is told to whoever
// reads them.
TEST(ErrorMessage, IsPlainTextWhateverItSays) {
  EXPECT_EQ(read_of("a\x1b]0;b\x07 c\nd\x7f"), R"(a\x1b]0;b\x07 c\nd\x7f)");
  EXPECT_EQ(read_of("\u009b2J"), R"(\x9b2J)");
  EXPECT_EQ(read_of("\u202eb"), R"(\u202eb)");
}

TEST(ErrorMessage, IsNoLongerThanSomebodyReads) {
  const std::string longest(1'024, 'a');
  EXPECT_EQ(read_of(longest), longest);
  EXPECT_EQ(read_of(longest + "bc"), longest + "...");
  std::string umlauts;  // of which none is cut in two
  while (umlauts.size() < 2'000) umlauts += "ö";
  EXPECT_EQ(read_of("a" + umlauts), "a" + umlauts.substr(0, 1'024) + "...");
}

}  // namespace
}  // namespace loch::net
