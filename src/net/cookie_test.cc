#include "net/cookie.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lab/temp_folder.h"

namespace loch::net {
namespace {

using testing::HasSubstr;

class CookieTest : public testing::Test {
 protected:
  [[nodiscard]] std::string text() const {
    std::string text;
    std::getline(std::ifstream(path_), text, '\0');
    return text;
  }
  // That neither a server nor a client takes what is there.
  void expect_unsound(Errc code, const char* why) const {
    for (const auto& read : {own_cookie(directory_), read_cookie(directory_, self_)}) {
      ASSERT_FALSE(read.has_value()) << why;
      EXPECT_EQ(read.error().code, code) << why;
      EXPECT_THAT(read.error().detail, testing::AllOf(HasSubstr(path_), HasSubstr(why)));
    }
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  const uid_t self_ = ::geteuid();
  const lab::TempFolder temp_ = lab::TempFolder::make(testing::TempDir()).value();
  const std::string directory_ = temp_.path();
  const std::string path_ = cookie_path(directory_, self_);
};

TEST_F(CookieTest, IsMadeOnceAndIsForItsUserAlone) {
  EXPECT_EQ(read_cookie(directory_, self_).error().code, Errc::not_found);
  const auto made = own_cookie(directory_);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(own_cookie(directory_).value(), *made) << "the next server of this user goes on with it";
  EXPECT_EQ(read_cookie(directory_, self_).value(), *made);
  struct stat stat{};
  ASSERT_EQ(::lstat(path_.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode, static_cast<mode_t>(S_IFREG | 0600));
  EXPECT_EQ(stat.st_uid, self_);
  EXPECT_EQ(files(), 1U) << "what it was made under is gone";
  ::unlink(path_.c_str());
  EXPECT_NE(own_cookie(directory_).value(), *made) << "nobody knows the next one by the first";
}

// Receive: many servers that begin at the same time. Expect: one cookie, which all of them have whole.
TEST_F(CookieTest, ThoseWhoMakeItAtTheSameTimeHaveTheSame) {
  std::vector<Result<Secret>> made(8, fail(Errc::io, "test", ""));
  {
    std::vector<std::jthread> servers;
    servers.reserve(made.size());
    for (auto& each : made) servers.emplace_back([&] { each = own_cookie(directory_); });
  }
  for (const auto& each : made) EXPECT_EQ(each.value(), read_cookie(directory_, self_).value());
  EXPECT_EQ(files(), 1U);
}

TEST_F(CookieTest, AUmaskTakesNothingFromIt) {
  const mode_t before = ::umask(0777);
  const auto made = own_cookie(directory_);
  ::umask(before);
  EXPECT_EQ(read_cookie(directory_, self_).value(), made.value());
}

TEST_F(CookieTest, WhatOthersMayHaveReadIsNotTaken) {
  ASSERT_TRUE(own_cookie(directory_).has_value());
  for (const mode_t mode : {0640U, 0604U, 0620U}) {
    ::chmod(path_.c_str(), mode);
    expect_unsound(Errc::permission, "remove it");
  }
}

// Receive: a link to what would be a cookie, a pipe, a folder, and files of something else. Expect: none is
// taken, waited for, or changed.
TEST_F(CookieTest, WhatIsNoCookieIsNotTaken) {
  ASSERT_TRUE(own_cookie(directory_).has_value());
  const std::string sound = text();
  const std::string other = directory_ + "/other";
  ASSERT_EQ(::rename(path_.c_str(), other.c_str()), 0);
  ASSERT_EQ(::symlink(other.c_str(), path_.c_str()), 0);
  expect_unsound(Errc::corrupt, "is a link");
  ::unlink(path_.c_str());
  ASSERT_EQ(::symlink((directory_ + "/nothing").c_str(), path_.c_str()), 0);
  expect_unsound(Errc::corrupt, "is a link");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/nothing"));
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_unsound(Errc::corrupt, "no plain file");
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  expect_unsound(Errc::corrupt, "no plain file");
  ::rmdir(path_.c_str());
  for (const std::string& wrong : {std::string(), sound.substr(1), sound + "0", std::string(65, '\n'),
                                   std::string(64, 'g') + "\n", std::string(64, '0')}) {
    std::ofstream(path_) << wrong;
    ::chmod(path_.c_str(), 0600);
    expect_unsound(Errc::corrupt, "none of lochd's");
    EXPECT_EQ(text(), wrong);
  }
  std::ofstream(path_) << sound;
  EXPECT_TRUE(own_cookie(directory_).has_value()) << "the test is wrong";
}

TEST_F(CookieTest, WhatBelongsToAnotherIsNotTaken) {
  if (self_ != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_TRUE(own_cookie(directory_).has_value());
  constexpr uid_t nobody = 65534;
  ASSERT_EQ(::chown(path_.c_str(), nobody, nobody), 0);
  expect_unsound(Errc::permission, "belongs to user 65534");
  ASSERT_EQ(::rename(path_.c_str(), cookie_path(directory_, nobody).c_str()), 0);
  EXPECT_TRUE(read_cookie(directory_, nobody).has_value()) << "root reads that of all";
}

TEST_F(CookieTest, ADirectoryThatTakesNoneIsNamed) {
  const auto made = own_cookie(directory_ + "/missing");
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Errc::io);
  EXPECT_THAT(made.error().detail, HasSubstr(directory_ + "/missing"));
}

TEST_F(CookieTest, ProvesItselfAtOneAddressAlone) {
  const Secret cookie = own_cookie(directory_).value();
  EXPECT_EQ(cookie_key(cookie, "127.0.0.1:7457"), cookie_key(cookie, "127.0.0.1:7457"));
  EXPECT_NE(cookie_key(cookie, "127.0.0.1:7457"), cookie_key(cookie, "[::1]:7457"));
  EXPECT_NE(cookie_key(cookie, "127.0.0.1:7457"), cookie);
  EXPECT_NE(cookie_key(cookie, "127.0.0.1:7457"), cookie_key(Secret{}, "127.0.0.1:7457"));
}

}  // namespace
}  // namespace loch::net
