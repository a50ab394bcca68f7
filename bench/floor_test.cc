#include "bench/floor.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>

#include "lab/temp_folder.h"

namespace loch::bench {
namespace {

class FloorTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() + "/floor"; }

  const lab::TempFolder folder_ = lab::TempFolder::make("/dev/shm").value();
};

TEST_F(FloorTest, TheCycleVisitsEveryLineOnce) {
  const auto floor = Floor::create(path(), 3 << 20, 1);
  ASSERT_TRUE(floor) << floor.error().detail;
  EXPECT_EQ(floor->bytes(), 4u << 20);  // whole pages of 2 MiB
  std::uint64_t line = 0;
  std::uint64_t steps = 0;
  do {
    line = floor->next_of(line);
    ++steps;
  } while (line != 0 && steps <= floor->lines());
  EXPECT_EQ(steps, floor->lines());
}

TEST_F(FloorTest, EveryMeasureCountsWhatItDidInTheTimeItTook) {
  auto floor = Floor::create(path(), 8 << 20, 1);
  ASSERT_TRUE(floor) << floor.error().detail;
  for (const Lap lap : {floor->independent_reads(0.01, 2), floor->dependent_reads(0.01, 2),
                        floor->compare_swaps(0.01, 2), floor->copies(0.01, 2, 128 << 10)}) {
    EXPECT_GT(lap.operations, 0u);
    EXPECT_GE(lap.elapsed_ns, 10'000'000u);
    EXPECT_GT(lap.ns_per_operation(), 0);
  }
}

TEST_F(FloorTest, AnotherMappingOfTheFileIsTheSameMemory) {
  const auto made = Floor::create(path(), 2 << 20, 7);
  ASSERT_TRUE(made) << made.error().detail;
  const auto attached = Floor::attach(path());
  ASSERT_TRUE(attached) << attached.error().detail;
  EXPECT_EQ(attached->bytes(), made->bytes());
  for (std::uint64_t line = 0; line < made->lines(); ++line) {
    ASSERT_EQ(attached->next_of(line), made->next_of(line));
  }
}

TEST_F(FloorTest, WhatDoesNotFitIsAnErrorThatNamesPathAndFreeBytesAndLeavesNothing) {
  const auto floor = Floor::create(path(), std::uint64_t{1} << 46, 1);
  ASSERT_FALSE(floor);
  EXPECT_EQ(floor.error().code, Errc::no_space);
  EXPECT_NE(floor.error().detail.find(path()), std::string::npos) << floor.error().detail;
  EXPECT_NE(floor.error().detail.find("bytes free"), std::string::npos) << floor.error().detail;
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(FloorTest, AnAbsentFileIsAnErrorThatNamesIt) {
  const auto floor = Floor::attach(path());
  ASSERT_FALSE(floor);
  EXPECT_NE(floor.error().detail.find(path()), std::string::npos);
}

}  // namespace
}  // namespace loch::bench
