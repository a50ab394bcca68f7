#include "cmd/encode.h"

#include <gtest/gtest.h>
#include <random>

namespace loch::cmd {
namespace {

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// Bytes that are mostly what escapes and UTF-8 are made of, so that broken sequences are common.
std::string random_bytes(std::mt19937_64& random) {
  using std::string_view_literals::operator""sv;
  constexpr std::string_view alphabet =
      "\t\n\r\\x0aAn\0\x1f\x7f\xc3\xa9\xe2\x82\xac\xed\xa0\x80\xf0\x9f\x98\x80\xff="sv;
  std::string bytes;
  const std::size_t length = random() % 40;
  for (std::size_t i = 0; i < length; ++i) bytes += alphabet[random() % alphabet.size()];
  return bytes;
}

TEST(Utf8, KnowsWhatIsWellFormed) {
  for (const char* good :
       {"", "plain", "h\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82"}) {
    EXPECT_FALSE(is_utf8(bad)) << escaped(bad);
  }
}

TEST(Escapes, AreReadable) {
  EXPECT_EQ(escaped("a\tb\nc\rd\\e"), "a\\tb\\nc\\rd\\\\e");
  EXPECT_EQ(escaped(std::string_view("\0\x1b\x7f\xff", 4)), "\\x00\\x1b\\x7f\\xff");
  EXPECT_EQ(escaped("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b");  // a control character to terminals
  EXPECT_EQ(escaped(byte_order_mark), "\\xef\\xbb\\xbf");
}

TEST(Escapes, RoundTripAllBytes) {
  const auto back = unescape(escaped(all_bytes()));
  ASSERT_TRUE(back) << back.error();
  EXPECT_EQ(*back, all_bytes());
}

TEST(Escapes, RoundTripRandomBytesAndLeaveNothingThatBreaksALine) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string bytes = random_bytes(random);
    const std::string text = escaped(bytes);
    ASSERT_EQ(text.find_first_of("\t\n\r"), std::string::npos);
    ASSERT_TRUE(is_utf8(text));
    const auto back = unescape(text);
    ASSERT_TRUE(back) << back.error();
    ASSERT_EQ(*back, bytes);
  }
}

TEST(Escapes, RefuseWhatTheyDoNotKnow) {
  for (const char* bad : {"\\", "a\\q", "\\x", "\\x1", "\\xg0", "\\x0"}) EXPECT_FALSE(unescape(bad)) << bad;
  EXPECT_EQ(unescape("\\x41\\x4a\\x4A").value(), "AJJ");
}

TEST(Hex, RoundTripsAndRefuses) {
  EXPECT_EQ(to_hex(std::string_view("\0\xff\x10", 3)), "00ff10");
  EXPECT_EQ(from_hex(to_hex(all_bytes())).value(), all_bytes());
  EXPECT_EQ(from_hex("AbCd").value(), "\xab\xcd");
  EXPECT_EQ(from_hex("").value(), "");
  for (const char* bad : {"0", "0g", "0x00", " 00"}) EXPECT_FALSE(from_hex(bad)) << bad;
}

TEST(Base64, HasTheVectorsOfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : vectors) {
    EXPECT_EQ(to_base64(plain), coded);
    EXPECT_EQ(from_base64(coded).value(), plain);
  }
}

TEST(Base64, RoundTripsRandomBytes) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 5'000; ++i) {
    const std::string bytes = random_bytes(random);
    ASSERT_EQ(from_base64(to_base64(bytes)).value(), bytes);
  }
  EXPECT_EQ(from_base64(to_base64(all_bytes())).value(), all_bytes());
}

TEST(Base64, RefusesWhatIsNotIt) {
  for (const char* bad :
       {"Z", "Zg", "Zg=", "Zg===", "====", "=", "Zh==", "Zm9=", "Z m=", "Zg==Zg==", "Zm-_", "Zm8=Zm8="}) {
    EXPECT_FALSE(from_base64(bad)) << bad;
  }
}

}  // namespace
}  // namespace loch::cmd
