#include "lab/temp_folder.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <optional>
#include <signal.h>
#include <string>
#include <system_error>
#include <unistd.h>

#include "base/testing/in_child.h"
#include "lab/process.h"

namespace loch::lab {
namespace {

namespace fs = std::filesystem;
using base::fake::give_up_root;
using base::fake::in_child;

constexpr std::chrono::seconds patience{20};

class TempFolderTest : public testing::Test {
 protected:
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(parent_), fs::directory_iterator());
  }

  const TempFolder place_ = TempFolder::make("/tmp").value();
  const std::string parent_ = place_.path();
};

// Servers that are told the path change to another folder.
TEST_F(TempFolderTest, ItsPathIsAbsoluteAlsoIfItsParentsIsNot) {
  const auto folder = TempFolder::make(fs::relative(parent_).string() + "/.");
  ASSERT_TRUE(folder) << folder.error().detail;
  EXPECT_TRUE(folder->path().starts_with(fs::canonical(parent_).string() + "/")) << folder->path();
  EXPECT_EQ(folder->path(), fs::path(folder->path()).lexically_normal()) << "it says nothing twice";
}

TEST_F(TempFolderTest, IsEmptyAndForItsUserAloneAtFirst) {
  const auto folder = TempFolder::make(parent_);
  ASSERT_TRUE(folder) << folder.error().detail;
  EXPECT_TRUE(fs::is_empty(folder->path()));
  EXPECT_EQ(fs::status(folder->path()).permissions(), fs::perms::owner_all);
}

// Receive: another user. Expect: he sees the folder if its mode lets him, and not else.
TEST_F(TempFolderTest, OthersGetToWhatItsModeLetsThemSee) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  fs::permissions(parent_, fs::perms(0755));
  const auto folder = TempFolder::make(parent_);
  ASSERT_TRUE(folder) << folder.error().detail;
  const auto what_another_sees = [&] {
    return in_child([&]() -> std::string {
      if (!give_up_root()) return "setuid failed";
      std::error_code error;
      const fs::directory_iterator entries(folder->path(), error);
      return error ? error.message() : "it";
    });
  };
  EXPECT_EQ(what_another_sees(), "Permission denied");
  fs::permissions(folder->path(), fs::perms(0755));
  EXPECT_EQ(what_another_sees(), "it");
}

TEST_F(TempFolderTest, IsGoneWithEverythingInIt) {
  {
    const auto folder = TempFolder::make(parent_);
    ASSERT_TRUE(folder) << folder.error().detail;
    std::ofstream(folder->path() + "/file") << "bytes";
    EXPECT_EQ(entries(), 1);
  }
  EXPECT_EQ(entries(), 0);
}

TEST_F(TempFolderTest, TheFolderOfAKilledProcessIsRemovedByTheNext) {
  auto child = Process::fork([this] {
                 const auto folder = TempFolder::make(parent_);
                 if (folder) kill(getpid(), SIGKILL);
                 return 1;
               }).value();
  ASSERT_EQ(child.wait_for_end(patience), Ending{.signal = SIGKILL});
  EXPECT_EQ(entries(), 1);
  const auto folder = TempFolder::make(parent_);
  ASSERT_TRUE(folder);
  EXPECT_EQ(entries(), 1);
  EXPECT_TRUE(fs::exists(folder->path()));
}

TEST_F(TempFolderTest, TheFolderOfALivingProcessStays) {
  const auto first = TempFolder::make(parent_);
  const auto second = TempFolder::make(parent_);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->path(), second->path());
  EXPECT_EQ(entries(), 2);
}

TEST_F(TempFolderTest, AForkedChildDoesNotRemoveIt) {
  std::optional<TempFolder> folder;
  {
    auto made = TempFolder::make(parent_);
    ASSERT_TRUE(made);
    folder.emplace(std::move(*made));
  }
  auto child = Process::fork([&] {
                 folder.reset();
                 return 0;
               }).value();
  ASSERT_EQ(child.wait_for_end(patience), Ending{.exit_code = 0});
  EXPECT_EQ(entries(), 1);
}

TEST_F(TempFolderTest, WhatIsKeptStays) {
  std::string path;
  {
    auto folder = TempFolder::make(parent_).value();
    folder.keep();
    path = folder.path();
  }
  const auto next = TempFolder::make(parent_);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(TempFolderTest, AnAbsentParentIsNamed) {
  const auto folder = TempFolder::make(parent_ + "/absent");
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().detail.find("absent"), std::string::npos);
}

}  // namespace
}  // namespace loch::lab
