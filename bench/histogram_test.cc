#include "bench/histogram.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "base/random.h"

namespace loch::bench {
namespace {

TEST(Histogram, AnEmptyOneAnswersZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.mean_ns(), 0);
  EXPECT_EQ(histogram.quantile_ns(0.5), 0u);
  EXPECT_EQ(histogram.max_ns(), 0u);
}

TEST(Histogram, SmallTimesAreExact) {
  Histogram histogram;
  for (std::uint64_t ns = 1; ns <= 100; ++ns) histogram.record(ns);
  EXPECT_EQ(histogram.quantile_ns(0.5), 50u);
  EXPECT_EQ(histogram.quantile_ns(0.99), 99u);
  EXPECT_EQ(histogram.quantile_ns(0), 1u);
  EXPECT_EQ(histogram.quantile_ns(1), 100u);
  EXPECT_EQ(histogram.mean_ns(), 50.5);
}

TEST(Histogram, OneRecordIsEveryQuantile) {
  Histogram histogram;
  histogram.record(123'456'789);
  EXPECT_EQ(histogram.quantile_ns(0), 123'456'789u);
  EXPECT_EQ(histogram.quantile_ns(0.999), 123'456'789u);
}

TEST(Histogram, TimesBeyondTheLastBucketCountAsTheLongest) {
  Histogram histogram;
  histogram.record(~std::uint64_t{0});
  EXPECT_EQ(histogram.max_ns(), Histogram::recordable_ns_max);
  EXPECT_EQ(histogram.quantile_ns(0.5), Histogram::recordable_ns_max);  // the very last bucket ends there
}

// The oracle: the sorted records themselves. Times from 1 ns to 2^39 ns, as many in every power of two.
TEST(Histogram, QuantilesAreWithinOneSixtyFourthOfTheSortedRecords) {
  auto histogram = std::make_unique<Histogram>();
  std::vector<std::uint64_t> records;
  base::Random random(1);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t power = std::uint64_t{1} << random.below(39);
    records.push_back(power + random.below(power));
    histogram->record(records.back());
    sum += static_cast<double>(records.back());
  }
  std::ranges::sort(records);
  EXPECT_EQ(histogram->max_ns(), records.back());
  EXPECT_NEAR(histogram->mean_ns(), sum / 100'000, 1);
  for (const double quantile : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(quantile * 100'000)) - 1;
    const auto exact = records[rank];
    const auto answer = histogram->quantile_ns(quantile);
    EXPECT_GE(answer, exact) << quantile;
    EXPECT_LE(answer, exact + exact / 64) << quantile;
  }
}

TEST(Histogram, MergingIsAsRecordingInOne) {
  auto both = std::make_unique<Histogram>();
  auto left = std::make_unique<Histogram>();
  auto right = std::make_unique<Histogram>();
  base::Random random(2);
  for (int i = 0; i < 10'000; ++i) {
    const auto ns = random.below(1'000'000);
    both->record(ns);
    (i % 3 == 0 ? left : right)->record(ns);
  }
  left->merge(*right);
  EXPECT_EQ(left->count(), both->count());
  EXPECT_EQ(left->max_ns(), both->max_ns());
  EXPECT_EQ(left->mean_ns(), both->mean_ns());
  for (int permille = 0; permille <= 1000; ++permille) {
    EXPECT_EQ(left->quantile_ns(permille / 1000.0), both->quantile_ns(permille / 1000.0));
  }
}

}  // namespace
}  // namespace loch::bench
