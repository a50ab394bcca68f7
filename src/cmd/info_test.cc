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
    EXPECT_THAT(text, HasSubstr("3; 1 CANNOT BE REACHED"));
  EXPECT_EQ(info_json(info)["hosts"], 3);
  EXPECT_EQ(info_json(info)["hosts_away"], 1);
}

// Expect: a limit is of each host, while the sizes are of all.
TEST(Info, SaysThatALimitIsOfEachHost) {
  Info info;
  info.max_bytes = std::uint64_t{4} << 30;
  EXPECT_THAT(info_text(info), HasSubstr("limit 4.00 GiB\n"));
  info.hosts = 3;
  EXPECT_THAT(info_text(info), HasSubstr("limit 4.00 GiB on each host\n"));
  EXPECT_THAT(geometry_text(info), HasSubstr("4.00 GiB on each host\n"));
}

TEST(Info, CallsTheStoresOwnFolderALocation) {
  Info info;
  info.directory = "/dev/shm/loch.s";
  EXPECT_EQ(info_json(info)["location"], "/dev/shm/loch.s");
  EXPECT_FALSE(info_json(info).contains("directory"));
}

}  // namespace
}  // namespace loch::cmd
