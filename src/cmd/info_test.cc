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

// Receive: a limit and an expiry that people are told rounded. Expect: they stand there exactly too.
TEST(Info, TellsTheGeometryExactly) {
  Info info;
  info.max_bytes = 3'000'000'000;
  info.expiry = std::chrono::milliseconds(12'345);
  EXPECT_THAT(geometry_text(info), HasSubstr("2.79 GiB (3000000000 B)\n"));
  EXPECT_THAT(geometry_text(info), HasSubstr("12.3 s (12345 ms)\n"));
}

TEST(Info, CountsTheClientsThatAreOthers) {
  Info info;
  EXPECT_EQ(info_json(info)["clients"], 0);
  info.clients = 3;
  EXPECT_EQ(info_json(info)["clients"], 2);
  EXPECT_THAT(info_text(info), testing::ContainsRegex("clients +2\n"));
}

TEST(Info, CallsTheStoresOwnFolderALocation) {
  Info info;
  info.directory = "/dev/shm/loch.s";
  EXPECT_EQ(info_json(info)["location"], "/dev/shm/loch.s");
  EXPECT_FALSE(info_json(info).contains("directory"));
}

}  // namespace
}  // namespace loch::cmd
