#include "net/message.h"

#include <array>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "net/stream.h"

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
  EXPECT_EQ(read_of(""), "the other side does not say why");
}

TEST(ErrorMessage, IsNoLongerThanSomebodyReads) {
  const std::string longest(1'024, 'a');
  EXPECT_EQ(read_of(longest), longest);
  EXPECT_EQ(read_of(longest + "bc"), longest + "...");
  std::string umlauts;  // of which none is cut in two
  while (umlauts.size() < 2'000) umlauts += "ö";
  EXPECT_EQ(read_of("a" + umlauts), "a" + umlauts.substr(0, 1'024) + "...");
}

// The message that this was sent as.
Result<std::optional<Message>> sent(const std::string& text) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const base::FileDescriptor from(ends[0]);
  Messages messages(std::make_unique<Stream>(base::FileDescriptor(ends[1])));
  const auto length = static_cast<std::uint32_t>(text.size());
  const std::string bytes = std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
  EXPECT_EQ(::send(from.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return messages.next();
}

// Receive: lists in lists, as deep as a message may be, one deeper, and as many as it has bytes for; and what
// is no object. Expect: what is too deep, and what is none, is refused for what it is.
TEST(Messages, AreNoDeeperThanTheyMayBe) {
  const auto lists = [](std::size_t depth) {
    return R"({"cluster":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  constexpr std::size_t lists_max = Messages::depth_max - 1;
  const auto deepest = sent(lists(lists_max));
  ASSERT_TRUE(deepest && *deepest);
  EXPECT_EQ((*deepest)->dump(), lists(lists_max));
  for (const std::size_t depth : {lists_max + 1, Messages::bytes_max / 2 - 10}) {
    const auto deeper = sent(lists(depth));
    ASSERT_FALSE(deeper.has_value()) << depth;
    EXPECT_EQ(deeper.error().code, Errc::corrupt);
    EXPECT_THAT(deeper.error().detail, testing::HasSubstr("nested more than 16 deep"));
  }
  for (const char* text : {"[]", "{", ""}) {
    const auto other = sent(text);
    ASSERT_FALSE(other.has_value()) << text;
    EXPECT_THAT(other.error().detail, testing::HasSubstr("no JSON object"));
  }
}

}  // namespace
}  // namespace loch::net
