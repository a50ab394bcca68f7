#include "fabric/tcp/focus.h"

#include <gtest/gtest.h>
#include <vector>

namespace loch::fabric::tcp {
namespace {

using Ids = std::vector<Focus::Id>;

// How often one is looked at by itself until all are asked for.
int looks_at(Focus* focus, Focus::Id id) {
  int looks = 0;
  for (; const auto next = focus->next(); ++looks) EXPECT_EQ(*next, id);
  return looks;
}

TEST(FocusTest, NobodyIsLookedAtByItselfBeforeOneHadWorkTwice) {
  Focus focus;
  EXPECT_EQ(looks_at(&focus, 0), 0);
  focus.choose(Ids{});
  EXPECT_EQ(looks_at(&focus, 0), 0);
  focus.choose(Ids{0});
  EXPECT_EQ(looks_at(&focus, 0), 0);
}

TEST(FocusTest, TheLongerOneAloneHasWorkTheMoreSeldomAllAreAskedFor) {
  Focus focus;
  focus.choose(Ids{5});
  for (const int looks : {1, 3, 7, Focus::looks_max}) {
    focus.choose(Ids{5});
    EXPECT_EQ(looks_at(&focus, 5), looks);
  }
}

TEST(FocusTest, ATimeWithoutWorkChangesNothing) {
  Focus focus;
  for (int i = 0; i < 3; ++i) focus.choose(Ids{5});
  focus.choose(Ids{});
  EXPECT_EQ(looks_at(&focus, 5), 3);
}

TEST(FocusTest, WorkOfAnotherEndsIt) {
  for (const Ids& others : {Ids{6}, Ids{5, 6}, Ids{6, 5}}) {
    Focus focus;
    for (int i = 0; i < 4; ++i) focus.choose(Ids{5});
    focus.choose(others);
    EXPECT_EQ(looks_at(&focus, 5), 0);
  }
}

}  // namespace
}  // namespace loch::fabric::tcp
