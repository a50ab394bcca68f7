#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <vector>

namespace loch::bench {
namespace {

double law_sum(std::uint64_t first, std::uint64_t end, double theta) {
  double sum = 0;
  for (std::uint64_t rank = first; rank < end; ++rank) sum += std::pow(static_cast<double>(rank + 1), -theta);
  return sum;
}

// The oracle is the law itself, summed. Counts of n draws with probability p stay within five standard
// deviations.
void expect_share(std::uint64_t counted, std::uint64_t draws, double probability, std::uint64_t rank) {
  const auto n = static_cast<double>(draws);
  const double deviation = std::sqrt(n * probability * (1 - probability));
  EXPECT_NEAR(static_cast<double>(counted), n * probability, 5 * deviation + 1) << "rank " << rank;
}

TEST(Zipf, EveryRankOfASmallCountHasItsShare) {
  constexpr std::uint64_t count = 300;
  constexpr std::uint64_t draws = 2'000'000;
  const Zipf zipf(count);
  std::vector<std::uint64_t> counted(count);
  base::Random random(1);
  for (std::uint64_t i = 0; i < draws; ++i) {
    const auto rank = zipf.draw(random);
    ASSERT_LT(rank, count);
    ++counted[rank];
  }
  const double total = law_sum(0, count, 0.99);
  for (std::uint64_t rank = 0; rank < count; ++rank) {
    expect_share(counted[rank], draws, law_sum(rank, rank + 1, 0.99) / total, rank);
  }
}

TEST(Zipf, TheRangesOfALargeCountHaveTheirShares) {
  constexpr std::uint64_t count = 1'000'003;
  constexpr std::uint64_t draws = 2'000'000;
  const Zipf zipf(count);
  std::map<std::uint64_t, std::uint64_t>
      counted;  // by the end of the range; ranges do not follow the buckets
  for (std::uint64_t end = 1; end < count; end = end * 3 / 2 + 1) counted[end] = 0;
  counted[count] = 0;
  base::Random random(2);
  for (std::uint64_t i = 0; i < draws; ++i) ++counted.upper_bound(zipf.draw(random))->second;
  const double total = law_sum(0, count, 0.99);
  std::uint64_t first = 0;
  for (const auto& [end, times] : counted) {
    expect_share(times, draws, law_sum(first, end, 0.99) / total, first);
    first = end;
  }
}

TEST(Zipf, OneAndTwoRanksWork) {
  base::Random random(3);
  EXPECT_EQ(Zipf(1).draw(random), 0u);
  const Zipf two(2);
  std::uint64_t ones = 0;
  for (int i = 0; i < 100'000; ++i) ones += two.draw(random);
  expect_share(ones, 100'000, std::pow(2, -0.99) / (1 + std::pow(2, -0.99)), 1);
}

TEST(ItemChooser, ScatterIsABijection) {
  for (const std::uint64_t items : {1u, 2u, 3u, 10u, 4096u, 99'991u, 100'000u, 1'000'003u}) {
    const ItemChooser chooser(Distribution::zipf, items);
    std::vector<bool> seen(items);
    for (std::uint64_t rank = 0; rank < items; ++rank) {
      const auto item = chooser.scatter(rank);
      ASSERT_LT(item, items);
      ASSERT_FALSE(seen[item]) << items;
      seen[item] = true;
    }
  }
}

// The largest products are where the quotient by doubles is least exact; the oracle is the division.
TEST(ItemChooser, ScatterOfTheLargestCountIsRankTimesStepModuloCount) {
  constexpr std::uint64_t items = std::uint64_t{1} << 31;
  for (const std::uint64_t count : {items, items - 1, items - 19}) {
    const ItemChooser chooser(Distribution::zipf, count);
    const std::uint64_t step = chooser.scatter(1);
    for (std::uint64_t rank = count - 1'000'000; rank < count; ++rank) {
      ASSERT_EQ(chooser.scatter(rank), rank * step % count);
    }
  }
}

TEST(ItemChooser, UniformReachesEveryItemAlike) {
  const ItemChooser chooser(Distribution::uniform, 1000);
  std::vector<std::uint64_t> counted(1000);
  base::Random random(4);
  for (int i = 0; i < 1'000'000; ++i) ++counted[chooser.draw(random)];
  for (std::uint64_t item = 0; item < 1000; ++item) expect_share(counted[item], 1'000'000, 0.001, item);
}

TEST(ItemChooser, LatestPrefersTheYoungestAndKnowsOnlyWhatIsThere) {
  constexpr std::uint64_t items = 1000;
  constexpr std::uint64_t base = 5000;
  const ItemChooser chooser(Distribution::latest, items, base);
  base::Random random(5);
  std::map<std::uint64_t, std::uint64_t> before;
  std::map<std::uint64_t, std::uint64_t> after;
  for (int i = 0; i < 100'000; ++i) {
    ++before[chooser.draw(random)];
    ++after[chooser.draw(random, 10)];
  }
  const auto most = [](const auto& counted) {
    return std::ranges::max_element(counted, {}, [](const auto& entry) { return entry.second; })->first;
  };
  EXPECT_EQ(most(before), items - 1);
  EXPECT_LT(before.rbegin()->first, items);
  EXPECT_EQ(most(after), base + 9);
  EXPECT_EQ(after.rbegin()->first, base + 9);
  for (const auto& [item, times] : after) EXPECT_TRUE(item < items || item >= base) << item;
}

TEST(ItemChooser, EqualSeedsDrawTheSame) {
  for (const auto distribution : {Distribution::uniform, Distribution::zipf, Distribution::latest}) {
    const ItemChooser chooser(distribution, 1'000'000);
    base::Random left(6);
    base::Random right(6);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(chooser.draw(left), chooser.draw(right));
  }
}

TEST(Mix, OperationsHaveTheirShares) {
  for (const Mix& mix : mixes()) {
    base::Random random(7);
    std::map<Operation, std::uint64_t> counted;
    for (int i = 0; i < 100'000; ++i) ++counted[mix.draw(random)];
    expect_share(counted[Operation::read], 100'000, mix.read / 100.0, 0);
    expect_share(counted[Operation::update], 100'000, mix.update / 100.0, 1);
    expect_share(counted[Operation::insert], 100'000, mix.insert / 100.0, 2);
    expect_share(counted[Operation::modify], 100'000, mix.modify / 100.0, 3);
  }
}

TEST(Mix, AreFoundByName) {
  EXPECT_EQ(find_mix("d")->distribution, Distribution::latest);
  EXPECT_EQ(find_mix("f")->modify, 50u);
  EXPECT_FALSE(find_mix("e").has_value());
  for (const auto distribution : {Distribution::uniform, Distribution::zipf, Distribution::latest}) {
    EXPECT_EQ(find_distribution(name(distribution)), distribution);
  }
  EXPECT_FALSE(find_distribution("normal").has_value());
}

}  // namespace
}  // namespace loch::bench
