#include "cmd/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace loch::cmd {
namespace {

using testing::HasSubstr;
using testing::Not;

// Expect: that hosts are spoken of where there are several, and those that are away wherever sizes are told.
TEST(Info, SaysWhichPartOfAStoreItIsOf) {
  Info info;
  info.name = "s";
  info.directory = "tcp://a,b,c/s";
  EXPECT_THAT(info_text(info), Not(HasSubstr("hosts")));
  info.hosts = 3;
  EXPECT_THAT(info_text(info), testing::ContainsRegex("hosts +3\n"));
  info.hosts_away = 1;
  for (const std::string& text : {info_text(info), geometry_text(info)})
    EXPECT_THAT(text, HasSubstr("3; 1 CAN NOT BE REACHED"));
  EXPECT_EQ(info_json(info)["hosts"], 3);
  EXPECT_EQ(info_json(info)["hosts_away"], 1);
}

}  // namespace
}  // namespace loch::cmd
