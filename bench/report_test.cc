#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace loch::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Report example() {
  Report report;
  report.settings.items = 1'234'567;
  report.machine.processor = "a processor";
  report.machine.cores = 2;
  report.build = "0.1.0 (commit abc, Release)";
  report.floor_bytes = std::uint64_t{3} << 30;
  report.notes.emplace_back("redis is left out: it is not here");
  report.figures.push_back({.section = "floor",
                            .name = "independent read",
                            .subject = "machine",
                            .value = 15.5,
                            .floor_ratio = 1});
  report.figures.push_back({.section = "loch",
                            .name = "get",
                            .subject = "loch",
                            .value = 108,
                            .floor_ratio = 6.97,
                            .peer_ratios = {{"lmdb", 11.2}},
                            .target = at_most(6.97, 9)});
  report.figures.push_back({.section = "peers",
                            .name = "get",
                            .subject = "lmdb",
                            .value = 1210,
                            .peer_ratios = {{"lmdb", 11.2}},
                            .target = at_least(11.2, 12)});
  Histogram reads;
  reads.record(100);
  reads.record(200'000);
  report.figures.push_back(
      {.section = "ycsb", .name = "a, zipf", .subject = "loch", .value = 90, .reads = latency_of(reads)});
  report.figures.push_back(
      {.section = "peers", .name = "get of 128 KiB", .subject = "redis", .value = 50'000, .floor_ratio = 8});
  report.figures.push_back({.section = "processes",
                            .name = "read-only, zipf",
                            .subject = "loch",
                            .processes = 2,
                            .value = 50,
                            .floor_ratio = 5,
                            .peer_ratios = {{"lmdb", 4}},
                            .scaling = 1.9});
  report.figures.push_back({.section = "processes",
                            .name = "read-only, zipf",
                            .subject = "lmdb",
                            .processes = 2,
                            .value = 200,
                            .floor_ratio = 20,
                            .peer_ratios = {{"lmdb", 4}},
                            .scaling = 1.8});
  report.figures.push_back({.section = "ycsb",
                            .name = "a, zipf",
                            .subject = "lmdb",
                            .processes = 2,
                            .value = 900,
                            .peer_ratios = {{"lmdb", 10}}});
  report.figures.push_back({.section = "simulator",
                            .name = "operation of the fabric",
                            .subject = "loch",
                            .value = 2'000,
                            .target = Target{">= 300 k/s", true}});
  report.network = "two tins and a string";
  report.figures.push_back({.section = "network",
                            .name = "get",
                            .subject = "redis",
                            .value = 40'000,
                            .floor_ratio = 2.5,
                            .peer_ratios = {{"redis", 1.5}},
                            .target = at_least(1.5, 1),
                            .reads = latency_of(reads)});
  report.figures.push_back(
      {.section = "network processor", .name = "idle", .subject = "loch", .value = 800, .unit = "us/s"});
  return report;
}

TEST(Tables, TheHeaderSaysWhatWasRunOnWhat) {
  const std::string header = header_text(example());
  EXPECT_THAT(header, HasSubstr("commit abc"));
  EXPECT_THAT(header, HasSubstr("a processor, 2 cores"));
  EXPECT_THAT(header, HasSubstr("1,234,567 items of 16 + 64 B"));
}

TEST(Tables, ShowFiguresRatiosTargetsAndNotes) {
  const std::string text = tables_text(example());
  EXPECT_THAT(text, HasSubstr("3.00 GiB"));
  EXPECT_THAT(text, HasSubstr("15.5 ns"));
  EXPECT_THAT(text, testing::ContainsRegex("get +108 ns +9.26 M/s +6.97 x +11.2 x +- +- +<= 9 +met"));
  EXPECT_THAT(text, testing::ContainsRegex("lmdb +get +1210 ns +826.4 k/s +11.2 x +>= 12 +NOT MET"));
  EXPECT_THAT(text, testing::ContainsRegex("NOT MET\nredis +get of 128 KiB +50.0 us +20.0 k/s +8.00 x +-"))
      << "the large values last, and nothing of Loch to compare with";
  EXPECT_THAT(text, testing::ContainsRegex("zipf +loch +2 +20.00 M/s +100 ns +5.00 x +1.90 x *\n"));
  EXPECT_THAT(text, testing::ContainsRegex("zipf +lmdb +2 +5.00 M/s +400 ns +20.0 x +1.80 x +4.00 x"));
  EXPECT_THAT(text, testing::ContainsRegex("a, zipf +lmdb +2 processes +1.11 M/s +10.0 x"));
  EXPECT_THAT(text, testing::ContainsRegex("reads +2 +100 us +100 ns +200 us"));
  EXPECT_THAT(text, HasSubstr("Note: redis is left out: it is not here."));
  EXPECT_THAT(text, testing::ContainsRegex("operation of the fabric +2000 ns +500.0 k/s +>= 300 k/s +met"));
  EXPECT_THAT(text, HasSubstr("3 of 4 targets met; they are stated for 10,000,000 items"));
  EXPECT_THAT(text, HasSubstr("through two tins and a string"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "get +redis +25.0 k/s +40.0 us +100 ns +200 us +2.50 x +1.50 x +>= 1 +met"));
  EXPECT_THAT(text, testing::ContainsRegex("idle +loch +800.0 us/s"));
  EXPECT_THAT(text, Not(HasSubstr("Memory above")));  // a section without figures has no table
}

TEST(Json, HoldsEveryFigure) {
  const auto json = nlohmann::json::parse(json_text(example()));
  EXPECT_EQ(json["configuration"]["items"], 1'234'567);
  EXPECT_EQ(json["targets"], 4);
  EXPECT_EQ(json["targets_met"], 3);
  ASSERT_EQ(json["figures"].size(), 11u);
  EXPECT_EQ(json["figures"][1]["peer_ratios"]["lmdb"], 11.2);
  EXPECT_EQ(json["figures"][1]["target"]["met"], true);
  EXPECT_NEAR(json["figures"][1]["operations_per_second"].get<double>(), 1e9 / 108, 1);
  EXPECT_EQ(json["figures"][3]["reads"]["max_ns"], 200'000);
  EXPECT_FALSE(json["figures"][3].contains("writes"));
}

TEST(Plot, TheScriptHoldsTheRatesAndNamesItsOutputSafely) {
  const std::string script = plot_script(example(), "it's here.svg");
  EXPECT_THAT(script, HasSubstr("set output 'it''s here.svg'"));
  EXPECT_THAT(script, HasSubstr("\"get\" 9.25926e+06 826446\n")) << "those that were measured";
  EXPECT_THAT(script, HasSubstr("using 3:xtic(1) title \"lmdb\""));
  EXPECT_THAT(script, Not(HasSubstr("redis"))) << "gnuplot refuses a column without figures";
  EXPECT_THAT(script, HasSubstr("\"a reads\" 100 200000 200000"));
}

TEST(Plot, WithoutFiguresThereIsNothingToDraw) {
  const auto drawn = draw_plot(Report{}, "/tmp/never.svg");
  ASSERT_FALSE(drawn);
  EXPECT_THAT(drawn.error().detail, HasSubstr("no figures"));
}

TEST(WriteFile, AFolderThatIsNotThereIsNamed) {
  const auto written = write_file("/absent/file", "text");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().detail, HasSubstr("/absent/file"));
}

}  // namespace
}  // namespace loch::bench
