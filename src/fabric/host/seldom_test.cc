#include "fabric/host/seldom.h"

#include <gtest/gtest.h>
#include <optional>

namespace loch::fabric::host {
namespace {

TEST(Seldom, TellsHowManyNobodyWasToldOf) {
  Seldom seldom;
  constexpr base::Nanos begin = 5;
  EXPECT_EQ(seldom.tell(begin), 0U);
  EXPECT_EQ(seldom.tell(begin), std::nullopt);
  EXPECT_EQ(seldom.tell(begin + Seldom::every_ns - 1), std::nullopt);
  EXPECT_EQ(seldom.tell(begin + Seldom::every_ns), 2U);
  EXPECT_EQ(seldom.tell(begin + Seldom::every_ns + 1), std::nullopt);
  EXPECT_EQ(seldom.tell(begin + 3 * Seldom::every_ns), 1U);
}

TEST(Seldom, TellsOfSeveralAtOnceWhereToldTo) {
  Seldom seldom(2);
  EXPECT_EQ(seldom.tell(0), 0U);
  EXPECT_EQ(seldom.tell(1), 0U);
  EXPECT_EQ(seldom.tell(2), std::nullopt);
  EXPECT_EQ(seldom.tell(Seldom::every_ns), 1U);
  EXPECT_EQ(seldom.tell(Seldom::every_ns), 0U);
  EXPECT_EQ(seldom.tell(2 * Seldom::every_ns - 1), std::nullopt);
}

}  // namespace
}  // namespace loch::fabric::host
