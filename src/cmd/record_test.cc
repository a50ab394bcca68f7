#include "cmd/record.h"

#include <gtest/gtest.h>
#include <random>

namespace loch::cmd {
namespace {

using std::chrono::milliseconds;

// The one line that append_record writes, without its newline.
std::string line_of(Format format, std::string_view key, std::string_view value,
                    std::optional<milliseconds> ttl = std::nullopt) {
  std::string line;
  append_record(line, format, key, value, ttl);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  line.pop_back();
  return line;
}

std::string random_bytes(std::mt19937_64& random, std::size_t length_max) {
  std::string bytes;
  const std::size_t length = random() % (length_max + 1);
  const bool text = random() % 2 == 0;
  for (std::size_t i = 0; i < length; ++i)
    bytes += static_cast<char>(text ? ' ' + random() % 95 : random() % 256);
  return bytes;
}

TEST(Tsv, LooksAsDocumented) {
  EXPECT_EQ(line_of(Format::tsv, "k", "v"), "k\tv");
  EXPECT_EQ(line_of(Format::tsv, "k", "", milliseconds(5000)), "k\t\t5000");
  EXPECT_EQ(line_of(Format::tsv, "a\tb", "c\nd"), "a\\tb\tc\\nd");
}

TEST(Jsonl, LooksAsDocumented) {
  EXPECT_EQ(line_of(Format::jsonl, "k", "v"), R"({"key":"k","value":"v"})");
  EXPECT_EQ(line_of(Format::jsonl, "k", "v", milliseconds(5000)), R"({"key":"k","value":"v","ttl_ms":5000})");
  EXPECT_EQ(line_of(Format::jsonl, "\xff", "\xfe"), R"({"key_base64":"/w==","value_base64":"/g=="})");
}

TEST(Records, AnItemInItsLastMillisecondKeepsATimeToLive) {
  EXPECT_EQ(line_of(Format::tsv, "k", "v", milliseconds(0)), "k\tv\t1");
}

class RoundTrip : public testing::TestWithParam<Format> {};

TEST_P(RoundTrip, GivesBackAnyBytes) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 5'000; ++i) {
    const std::string key = random_bytes(random, 20);
    const std::string value = random_bytes(random, 60);
    std::optional<milliseconds> ttl;
    if (random() % 2 == 0) ttl = milliseconds(1 + random() % 100'000);
    const std::string line = line_of(GetParam(), key, value, ttl);
    const auto record = parse_record(GetParam(), line);
    ASSERT_TRUE(record) << line << ": " << record.error();
    ASSERT_EQ(record->key, key);
    ASSERT_EQ(record->value, value);
    ASSERT_EQ(record->time_to_live, ttl);
  }
}

TEST_P(RoundTrip, NeverCrashesOnBrokenLines) {
  std::mt19937_64 random(4);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string line = line_of(GetParam(), random_bytes(random, 10), random_bytes(random, 20));
    for (int changes = 0; changes < 3 && !line.empty(); ++changes) {
      line[random() % line.size()] = static_cast<char>(random() % 256);
    }
    if (!parse_record(GetParam(), line)) ++refused;
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundTrip, testing::Values(Format::tsv, Format::jsonl),
                         [](const auto& info) { return info.param == Format::tsv ? "Tsv" : "Jsonl"; });

TEST(Tsv, RefusesBadLines) {
  for (const char* bad : {"", "k", "k\\q\tv", "k\tv\\", "k\tv\t", "k\tv\tx", "k\tv\t0", "k\tv\t-5",
                          "k\tv\t5\t6", "k\tv\t99999999999999999999", "k\tv\t3153600000001"}) {
    EXPECT_FALSE(parse_record(Format::tsv, bad)) << bad;
  }
}

TEST(Tsv, SaysWhatALineOfTheOtherFormatMayBe) {
  const auto json = parse_record(Format::tsv, R"({"key":"k","value":"v"})");
  ASSERT_FALSE(json);
  EXPECT_TRUE(json.error().ends_with("; is this JSON Lines? Say --format jsonl")) << json.error();
  EXPECT_FALSE(parse_record(Format::tsv, "k").error().contains("jsonl"));
  EXPECT_TRUE(parse_record(Format::tsv, "{k\tv"));
}

TEST(Jsonl, RefusesBadLines) {
  for (const char* bad :
       {"", "{", "[]", "7", R"({"key":"k"})", R"({"value":"v"})", R"({"key":1,"value":"v"})",
        R"({"key":"k","value":"v","x":1})", R"({"key":"k","key_base64":"aw==","value":"v"})",
        R"({"key":"k","value_base64":"a"})", R"({"key":"k","value":"v","ttl_ms":0})",
        R"({"key":"k","value":"v","ttl_ms":3153600000001})", R"({"key":"k","value":"v","ttl_ms":1.5})",
        R"({"key":"k","value":"v","ttl_ms":"5"})", R"({"key":"k","value":"v","ttl_ms":18446744073709551615})",
        "{\"key\":\"\xff\",\"value\":\"v\"}"}) {
    EXPECT_FALSE(parse_record(Format::jsonl, bad)) << bad;
  }
}

TEST(Jsonl, SaysHowLongATimeToLiveMayBe) {
  for (const std::string ttl : {"0", "-1", "3153600000001", "18446744073709551615"}) {
    const auto record = parse_record(Format::jsonl, R"({"key":"k","value":"v","ttl_ms":)" + ttl + "}");
    ASSERT_FALSE(record) << ttl;
    EXPECT_EQ(record.error(), "\"ttl_ms\" is " + ttl + ", not 1 to 3153600000000");
  }
}

TEST(Jsonl, RefusesAFieldThatStandsThereTwice) {
  for (const char* bad : {R"({"key":"a","value":"v","key":"b"})", R"({"value":"v","value":"v","key":"k"})",
                          R"({"key":"k","ttl_ms":1,"value":"v","ttl_ms":2})"}) {
    const auto record = parse_record(Format::jsonl, bad);
    ASSERT_FALSE(record) << bad;
    EXPECT_TRUE(record.error().ends_with("stands there twice")) << record.error();
  }
}

TEST(Jsonl, TakesWhatOthersWrite) {
  const auto record =
      parse_record(Format::jsonl, R"( { "ttl_ms" : null, "value" : "\u0000\u00e9", "key" : "k" } )");
  ASSERT_TRUE(record) << record.error();
  EXPECT_EQ(record->value, std::string("\0\xc3\xa9", 3));
  EXPECT_FALSE(record->time_to_live);
}

TEST(Jsonl, TakesWhatGetPrints) {
  const auto record =
      parse_record(Format::jsonl, R"({"key":"k","value":"v","ttl_ms":7,"version":"0x0000000000000001"})");
  ASSERT_TRUE(record) << record.error();
  EXPECT_EQ(record->time_to_live, std::chrono::milliseconds(7));
  EXPECT_EQ(ttl_ms_left(std::chrono::milliseconds(0)), 1);
}

TEST(Jsonl, ComplaintsStayShort) {
  const auto record = parse_record(Format::jsonl, R"({"key":")" + std::string(1 << 20, 'x'));
  ASSERT_FALSE(record);
  EXPECT_LT(record.error().size(), 300U);
}

TEST(Formats, FollowTheNameOfTheFile) {
  EXPECT_EQ(format_of_file("a.jsonl"), Format::jsonl);
  EXPECT_EQ(format_of_file("a.ndjson"), Format::jsonl);
  EXPECT_EQ(format_of_file("/b/a.json"), Format::jsonl);
  EXPECT_EQ(format_of_file("a.tsv"), Format::tsv);
  EXPECT_EQ(format_of_file("-"), Format::tsv);
}

}  // namespace
}  // namespace loch::cmd
