#include "cmd/units.h"

#include <gtest/gtest.h>

namespace loch::cmd {
namespace {

using std::chrono::milliseconds;

TEST(Durations, AreReadWithTheirUnits) {
  const std::pair<const char*, std::int64_t> good[] = {
      {"250ms", 250},    {"10", 10'000},      {"10s", 10'000},
      {"1.5s", 1'500},   {"5m", 300'000},     {"5min", 300'000},
      {"2h", 7'200'000}, {"7d", 604'800'000}, {"36500d", 3'153'600'000'000},
      {"0", 0}};
  for (const auto& [text, expected_ms] : good)
    EXPECT_EQ(parse_duration(text).value(), milliseconds(expected_ms)) << text;
}

TEST(Durations, RefuseWhatIsNone) {
  for (const char* bad : {"", "s", "-1s", "1x", "1 s", "nan", "inf", "1e3", "1e400", "99999999999999999d",
                          "36501d", "5mm", "0.5ms", "0.0001s"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
}

TEST(Bytes, AreReadWithTheirUnits) {
  const std::pair<const char*, std::uint64_t> good[] = {{"0", 0},
                                                        {"4096", 4096},
                                                        {"64K", 64 << 10},
                                                        {"64k", 64 << 10},
                                                        {"512M", 512 << 20},
                                                        {"512MiB", 512 << 20},
                                                        {"512MB", 512 << 20},
                                                        {"2G", std::uint64_t{2} << 30},
                                                        {"1P", std::uint64_t{1} << 50},
                                                        {"1.5K", 1536},
                                                        {"7B", 7}};
  for (const auto& [text, expected] : good) EXPECT_EQ(parse_bytes(text).value(), expected) << text;
}

TEST(Bytes, RefuseWhatIsNone) {
  for (const char* bad : {"", "M", "-1", "1X", "1MiBs", "1 M", "99999999999T"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  EXPECT_EQ(parse_bytes("1X").error(), "'1X' has no unit of K, M, G, T or P");
}

TEST(Modes, AreOctal) {
  EXPECT_EQ(parse_mode("600").value(), 0600U);
  EXPECT_EQ(parse_mode("0660").value(), 0660U);
  for (const char* bad : {"", "8", "1777", "rw", "600x", "-6"}) EXPECT_FALSE(parse_mode(bad)) << bad;
}

TEST(Human, NumbersAreShort) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(std::uint64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1,000");
  EXPECT_EQ(human_count(12345678), "12,345,678");
  EXPECT_EQ(human_rate(512), "512/s");
  EXPECT_EQ(human_rate(2.5e6), "2.50 M/s");
  EXPECT_EQ(human_duration(milliseconds(20)), "20 ms");
  EXPECT_EQ(human_duration(milliseconds(2500)), "2.5 s");
  EXPECT_EQ(human_duration(milliseconds(65'000)), "1 min 5 s");
  EXPECT_EQ(human_duration(milliseconds(3'900'000)), "1 h 5 min");
  EXPECT_EQ(human_duration(milliseconds(3'600'000)), "1 h");
}

TEST(Human, WhatIsRoundedStandsThereExactlyToo) {
  EXPECT_EQ(exact_bytes(std::uint64_t{64} << 20), "64.0 MiB");
  EXPECT_EQ(exact_bytes(1536), "1.50 KiB");
  EXPECT_EQ(exact_bytes(3'000'000'000), "2.79 GiB (3000000000 B)");
  EXPECT_EQ(exact_duration(milliseconds(250)), "250 ms");
  EXPECT_EQ(exact_duration(milliseconds(2'500)), "2.5 s");
  EXPECT_EQ(exact_duration(milliseconds(12'345)), "12.3 s (12345 ms)");
  EXPECT_EQ(exact_duration(milliseconds(59'999)), "60 s (59999 ms)");
  EXPECT_EQ(exact_duration(milliseconds(60'000)), "1 min");
}

}  // namespace
}  // namespace loch::cmd
